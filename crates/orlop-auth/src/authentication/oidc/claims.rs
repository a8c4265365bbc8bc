//! Users from claims.

use serde_json::{Map, Value};

use super::{
    config::JwtConfiguration,
    expressions::{Expression, with_escaped_names},
    validation::Compiled,
};
use crate::User;

/// Extra field with the id of a credential.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";
const NOT_TEXTS: &str = "expression must return a string or a list of strings";

/// Returns the user of verified claims. Errors are Kubernetes'.
pub(super) fn user(
    configuration: &JwtConfiguration,
    compiled: &Compiled,
    claims: Map<String, Value>,
) -> Result<User, String> {
    let claims =
        if compiled.uses_claims() { with_escaped_names(Value::Object(claims)) } else { claims.into() };
    let mappings = &configuration.claim_mappings;
    let mut user = User { name: username(configuration, compiled, &claims)?, ..User::default() };
    let groups = &mappings.groups;
    user.groups = match (&compiled.groups, claims.get(&groups.claim)) {
        (Some(expression), _) => {
            let wrong = |why: String| format!("oidc: error evaluating group claim expression: {why}");
            texts(&expression.evaluate("claims", &claims).map_err(wrong)?).map_err(wrong)?
        }
        (None, Some(value)) if !groups.claim.is_empty() => {
            let prefix = groups.prefix.as_deref().unwrap_or_default();
            let all = text_or_texts(value)
                .map_err(|why| format!("oidc: parse groups claim {:?}: {why}", groups.claim))?;
            all.into_iter().map(|group| format!("{prefix}{group}")).collect()
        }
        _ => Vec::new(),
    };
    user.uid = match &compiled.uid {
        Some(expression) => text_of(expression, &claims, "uid")?,
        None if mappings.uid.claim.is_empty() => String::new(),
        None => claim_text(&claims, &mappings.uid.claim)
            .map_err(|why| format!("oidc: parse uid claim {:?}: {why}", mappings.uid.claim))?,
    };
    if let Some(id) = claims.get("jti").and_then(Value::as_str).filter(|id| !id.is_empty()) {
        user.extra.insert(CREDENTIAL_ID.to_owned(), vec![format!("JTI={id}")]);
    }
    for (key, expression) in &compiled.extra {
        let values = texts(&expression.evaluate("claims", &claims)?).map_err(|why| {
            format!("oidc: error evaluating extra claim expression: {}: {why}", expression.text())
        })?;
        if !values.is_empty() {
            user.extra.insert(key.clone(), values);
        }
    }
    check_claims(configuration, compiled, &claims)?;
    check_user(compiled, &user)?;
    Ok(user)
}

fn username(configuration: &JwtConfiguration, compiled: &Compiled, claims: &Value) -> Result<String, String> {
    if let Some(expression) = &compiled.username {
        let name = text_of(expression, claims, "username")?;
        if name.is_empty() {
            return Err("oidc: empty username via CEL expression is not allowed".to_owned());
        }
        return Ok(name);
    }
    let mapping = &configuration.claim_mappings.username;
    let name = claim_text(claims, &mapping.claim)
        .map_err(|why| format!("oidc: parse username claims {:?}: {why}", mapping.claim))?;
    if mapping.claim == "email" {
        match claims.get("email_verified") {
            None | Some(Value::Bool(true)) => {}
            Some(Value::Bool(false)) => return Err("oidc: email not verified".to_owned()),
            Some(_) => return Err("oidc: parse 'email_verified' claim: not a bool".to_owned()),
        }
    }
    Ok(format!("{}{name}", mapping.prefix.as_deref().unwrap_or_default()))
}

fn check_claims(configuration: &JwtConfiguration, compiled: &Compiled, claims: &Value) -> Result<(), String> {
    for rule in configuration.claim_validation_rules.iter().filter(|rule| !rule.claim.is_empty()) {
        let claim = &rule.claim;
        if claims.get(claim).is_none() {
            return Err(format!("oidc: required claim {claim} not present in ID token"));
        }
        let value = claim_text(claims, claim).map_err(|why| format!("oidc: parse claim {claim}: {why}"))?;
        if value != rule.required_value {
            return Err(format!(
                "oidc: required claim {claim} value does not match. Got = {value}, want = {}",
                rule.required_value
            ));
        }
    }
    check_rules(&compiled.claim_rules, "claims", claims)
        .map_err(|why| format!("oidc: error evaluating claim validation expression: {why}"))
}

fn check_user(compiled: &Compiled, user: &User) -> Result<(), String> {
    if compiled.user_rules.is_empty() {
        return Ok(());
    }
    let value = serde_json::json!({
        "username": user.name, "uid": user.uid, "groups": user.groups, "extra": user.extra,
    });
    check_rules(&compiled.user_rules, "user", &with_escaped_names(value))
        .map_err(|why| format!("oidc: error evaluating user info validation rule: {why}"))
}

fn check_rules(rules: &[(Expression, String)], variable: &str, value: &Value) -> Result<(), String> {
    for (expression, message) in rules {
        match expression.evaluate(variable, value)? {
            Value::Bool(true) => {}
            Value::Bool(false) => {
                return Err(format!("validation expression '{}' failed: {message}", expression.text()));
            }
            _ => return Err("validation expression must return a boolean".to_owned()),
        }
    }
    Ok(())
}

fn text_of(expression: &Expression, claims: &Value, what: &str) -> Result<String, String> {
    let wrong = |why: String| format!("oidc: error evaluating {what} claim expression: {why}");
    match expression.evaluate("claims", claims).map_err(wrong)? {
        Value::String(text) => Ok(text),
        _ => Err(wrong(format!("{what} claim expression must return a string"))),
    }
}

/// Returns the texts of an expression's result; empty ones are left out.
fn texts(value: &Value) -> Result<Vec<String>, String> {
    let all = match value {
        Value::Null => Vec::new(),
        Value::String(text) => vec![text.clone()],
        Value::Array(items) => items
            .iter()
            .map(|item| item.as_str().map(str::to_owned).ok_or_else(|| NOT_TEXTS.to_owned()))
            .collect::<Result<_, _>>()?,
        _ => return Err(NOT_TEXTS.to_owned()),
    };
    Ok(all.into_iter().filter(|text| !text.is_empty()).collect())
}

/// Returns the texts of a claim: one or several.
fn text_or_texts(value: &Value) -> Result<Vec<String>, String> {
    let texts = match value {
        Value::String(text) => Some(vec![text.clone()]),
        Value::Array(items) => items.iter().map(|item| item.as_str().map(str::to_owned)).collect(),
        _ => None,
    };
    texts.ok_or_else(|| "neither a string nor an array of strings".to_owned())
}

fn claim_text(claims: &Value, name: &str) -> Result<String, String> {
    match claims.get(name) {
        None => Err("claim not present".to_owned()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(_) => Err("not a string".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use orlop_api::field_error::FieldPath;
    use serde_json::json;

    use super::*;
    use crate::authentication::oidc::{AuthenticationConfiguration, validation::compile};

    fn mapped(configuration: &str, claims: Value) -> Result<User, String> {
        let text = format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt:
- issuer: {{url: 'https://a', audiences: [x]}}\n{configuration}"
        );
        let jwt = AuthenticationConfiguration::decode(&text).unwrap().jwt.remove(0);
        let compiled = compile(&jwt, &FieldPath::root("jwt"), &[]).unwrap();
        let Value::Object(claims) = claims else { unreachable!() };
        user(&jwt, &compiled, claims)
    }

    const PLAIN: &str = "  claimMappings:
    username: {claim: sub, prefix: 'oidc:'}
    groups: {claim: roles, prefix: 'g:'}
    uid: {claim: id}
  claimValidationRules: [{claim: hd, requiredValue: example.org}]
";

    #[test]
    fn claims_are_mapped_with_prefixes() {
        let claims = json!({"sub": "ann", "roles": ["a", "b"], "id": "1", "hd": "example.org", "jti": "t"});
        let user = mapped(PLAIN, claims.clone()).unwrap();
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("oidc:ann", "1"));
        assert_eq!(user.groups, ["g:a", "g:b"]);
        assert_eq!(user.extra[CREDENTIAL_ID], ["JTI=t"]);
        let with = |name: &str, value: Value| {
            let mut claims = claims.clone();
            claims[name] = value;
            mapped(PLAIN, claims)
        };
        assert_eq!(with("roles", json!("one")).unwrap().groups, ["g:one"]);
        assert!(with("roles", json!([1])).unwrap_err().contains("oidc: parse groups claim \"roles\""));
        assert!(with("sub", json!(5)).unwrap_err().contains("oidc: parse username claims \"sub\""));
        assert_eq!(
            with("hd", json!("evil.org")).unwrap_err(),
            "oidc: required claim hd value does not match. Got = evil.org, want = example.org"
        );
        assert_eq!(
            mapped(PLAIN, json!({"sub": "ann", "id": "1"})).unwrap_err(),
            "oidc: required claim hd not present in ID token"
        );
    }

    #[test]
    fn email_must_be_verified() {
        let email = "  claimMappings: {username: {claim: email, prefix: ''}}\n";
        assert!(mapped(email, json!({"email": "a@b"})).is_ok());
        assert!(mapped(email, json!({"email": "a@b", "email_verified": true})).is_ok());
        let unverified = mapped(email, json!({"email": "a@b", "email_verified": false}));
        assert_eq!(unverified.unwrap_err(), "oidc: email not verified");
        assert!(mapped(email, json!({"email": "a@b", "email_verified": "true"})).is_err());
    }

    const EXPRESSIONS: &str = "  claimMappings:
    username: {expression: 'claims.sub + \"@\" + claims.iss__dash__x'}
    groups: {expression: claims.roles}
    uid: {expression: claims.id}
    extra: [{key: example.com/scope, valueExpression: 'claims.?scope.orValue(\"\")'}]
  claimValidationRules: [{expression: claims.exp - claims.iat <= 3600, message: too long}]
  userValidationRules: [{expression: \"!user.username.startsWith('system:')\", message: reserved}]
";

    #[test]
    fn expressions_map_and_validate() {
        let claims = json!({
            "sub": "ann", "iss-x": "i", "roles": ["a", "", "b"], "id": "1", "scope": "s", "exp": 3600, "iat": 0,
        });
        let user = mapped(EXPRESSIONS, claims.clone()).unwrap();
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("ann@i", "1"));
        assert_eq!(user.groups, ["a", "b"]);
        assert_eq!(user.extra["example.com/scope"], ["s"]);
        let with = |name: &str, value: Value| {
            let mut claims = claims.clone();
            claims[name] = value;
            mapped(EXPRESSIONS, claims)
        };
        assert_eq!(
            with("exp", json!(3601)).unwrap_err(),
            "oidc: error evaluating claim validation expression: validation expression 'claims.exp - claims.iat <= \
             3600' failed: too long"
        );
        assert!(with("sub", json!("system:admin")).unwrap_err().ends_with("failed: reserved"));
        assert!(with("id", json!(1)).unwrap_err().contains("uid claim expression must return a string"));
        assert!(with("roles", json!({"a": 1})).unwrap_err().contains(NOT_TEXTS));
        assert_eq!(with("scope", json!("")).unwrap().extra, Default::default());
        let mut missing = claims;
        missing.as_object_mut().unwrap().remove("sub");
        assert!(mapped(EXPRESSIONS, missing).unwrap_err().contains("no such key: sub"));
    }
}
