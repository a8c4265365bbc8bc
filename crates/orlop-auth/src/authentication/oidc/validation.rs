//! Validation of `AuthenticationConfiguration`, in Kubernetes' words, and compilation of its expressions.

use std::collections::BTreeSet;

use orlop_api::field_error::{FieldError, FieldPath};
use rustls::pki_types::{CertificateDer, pem::PemObject};

use super::{
    config::{
        AuthenticationConfiguration, ClaimMappings, ClaimValidationRule, IssuerConfiguration,
        JwtConfiguration, PrefixedClaimOrExpression, UserValidationRule,
    },
    expressions::Expression,
};
use crate::domain_path;

/// Maximum number of issuers.
const ISSUERS_MAX: usize = 64;

/// Compiled expressions of an issuer's configuration.
#[derive(Debug, Default)]
pub(super) struct Compiled {
    pub(super) username: Option<Expression>,
    pub(super) groups: Option<Expression>,
    pub(super) uid: Option<Expression>,
    /// Keys and the expressions of their values.
    pub(super) extra: Vec<(String, Expression)>,
    /// Expressions and messages.
    pub(super) claim_rules: Vec<(Expression, String)>,
    pub(super) user_rules: Vec<(Expression, String)>,
}

impl Compiled {
    /// Returns true if there is an expression over claims.
    pub(super) fn uses_claims(&self) -> bool {
        self.username.is_some()
            || self.groups.is_some()
            || self.uid.is_some()
            || !self.extra.is_empty()
            || !self.claim_rules.is_empty()
    }
}

/// Validates a configuration. `disallowed_issuers` are those of service account tokens.
pub fn validate(
    configuration: &AuthenticationConfiguration,
    disallowed_issuers: &[String],
) -> Vec<FieldError> {
    let root = FieldPath::root("jwt");
    if configuration.jwt.len() > ISSUERS_MAX {
        return vec![FieldError::too_many(&root, configuration.jwt.len(), ISSUERS_MAX)];
    }
    let mut errors = Vec::new();
    let (mut issuers, mut discovery_urls) = (BTreeSet::new(), BTreeSet::new());
    for (index, jwt) in configuration.jwt.iter().enumerate() {
        let path = root.index(index);
        errors.extend(compile(jwt, &path, disallowed_issuers).err().unwrap_or_default());
        let issuer = &jwt.issuer;
        if !issuers.insert(&issuer.url) {
            errors.push(FieldError::duplicate(&path.child("issuer").child("url"), issuer.url.as_str()));
        }
        if !issuer.discovery_url.is_empty() && !discovery_urls.insert(&issuer.discovery_url) {
            let path = path.child("issuer").child("discoveryURL");
            errors.push(FieldError::duplicate(&path, issuer.discovery_url.as_str()));
        }
    }
    if let Some(anonymous) = &configuration.anonymous
        && !anonymous.enabled
        && !anonymous.conditions.is_empty()
    {
        let paths: Vec<String> =
            anonymous.conditions.iter().map(|condition| format!("{{{:?}}}", condition.path)).collect();
        let path = FieldPath::root("anonymous").child("conditions");
        let detail = "enabled should be set to true when conditions are defined";
        errors.push(FieldError::invalid_printed(&path, format!("[{}]", paths.join(" ")), detail));
    }
    errors
}

/// Validates and compiles the configuration of an issuer.
pub(super) fn compile(
    jwt: &JwtConfiguration,
    path: &FieldPath,
    disallowed_issuers: &[String],
) -> Result<Compiled, Vec<FieldError>> {
    let (mut errors, mut compiled) = (Vec::new(), Compiled::default());
    check_issuer(&jwt.issuer, &path.child("issuer"), disallowed_issuers, &mut errors);
    let rules = path.child("claimValidationRules");
    compiled.claim_rules = compile_claim_rules(&jwt.claim_validation_rules, &rules, &mut errors);
    compile_mappings(&jwt.claim_mappings, &path.child("claimMappings"), &mut compiled, &mut errors);
    let rules = path.child("userValidationRules");
    compiled.user_rules = compile_user_rules(&jwt.user_validation_rules, &rules, &mut errors);
    if errors.is_empty() { Ok(compiled) } else { Err(errors) }
}

fn check_issuer(
    issuer: &IssuerConfiguration,
    path: &FieldPath,
    disallowed: &[String],
    errors: &mut Vec<FieldError>,
) {
    let url = path.child("url");
    match issuer.url.as_str() {
        "" => errors.push(FieldError::required(&url, "")),
        given => check_url(given, &url, disallowed, errors),
    }
    let discovery = path.child("discoveryURL");
    if !issuer.discovery_url.is_empty() {
        let given = issuer.discovery_url.as_str();
        if !issuer.url.is_empty() && issuer.url.trim_end_matches('/') == given.trim_end_matches('/') {
            errors.push(FieldError::invalid(&discovery, given, "discoveryURL must be different from URL"));
        }
        check_url(given, &discovery, &[], errors);
    }
    check_audiences(issuer, path, errors);
    if !issuer.certificate_authority.is_empty() {
        let certificates = CertificateDer::pem_slice_iter(issuer.certificate_authority.as_bytes());
        let certificates: Result<Vec<_>, _> = certificates.collect();
        let why = match certificates {
            Ok(certificates) if certificates.is_empty() => {
                Some("data does not contain any valid RSA or ECDSA certificates".to_owned())
            }
            Ok(_) => None,
            Err(error) => Some(error.to_string()),
        };
        if let Some(why) = why {
            errors.push(FieldError::invalid(&path.child("certificateAuthority"), "<omitted>", why));
        }
    }
    let egress = path.child("egressSelectorType");
    match issuer.egress_selector_type.as_str() {
        "" => {}
        given @ ("controlplane" | "cluster") => {
            errors.push(FieldError::invalid(&egress, given, "egress selectors are not configured"));
        }
        given => {
            let detail = "egress selector must be either controlplane or cluster";
            errors.push(FieldError::invalid(&egress, given, detail));
        }
    }
}

fn check_url(url: &str, path: &FieldPath, disallowed: &[String], errors: &mut Vec<FieldError>) {
    let mut refuse = |detail: String| errors.push(FieldError::invalid(path, url, detail));
    if disallowed.iter().any(|issuer| issuer == url) {
        let mut disallowed = disallowed.to_vec();
        disallowed.sort();
        refuse(format!("URL must not overlap with disallowed issuers: [{}]", disallowed.join(" ")));
    }
    let (rest, fragment) = url.split_once('#').unwrap_or((url, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    if rest.parse::<http::Uri>().is_err() {
        refuse(format!("parse {url:?}: invalid URL"));
        return;
    }
    let (scheme, rest) = rest.split_once("://").unwrap_or(("", rest));
    if !scheme.eq_ignore_ascii_case("https") {
        refuse("URL scheme must be https".to_owned());
    }
    if rest.split('/').next().is_some_and(|authority| authority.contains('@')) {
        refuse("URL must not contain a username or password".to_owned());
    }
    if !query.is_empty() {
        refuse("URL must not contain a query".to_owned());
    }
    if !fragment.is_empty() {
        refuse("URL must not contain a fragment".to_owned());
    }
}

fn check_audiences(issuer: &IssuerConfiguration, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let audiences = path.child("audiences");
    if issuer.audiences.is_empty() {
        errors.push(FieldError::required(
            &audiences,
            format!("at least one {} is required", audiences.as_str()),
        ));
        return;
    }
    let mut seen = BTreeSet::new();
    for (index, audience) in issuer.audiences.iter().enumerate() {
        let path = audiences.index(index);
        if audience.is_empty() {
            errors.push(FieldError::required(&path, ""));
        }
        if !seen.insert(audience) {
            errors.push(FieldError::duplicate(&path, audience.as_str()));
        }
    }
    let (policy_path, policy) = (path.child("audienceMatchPolicy"), issuer.audience_match_policy.as_str());
    let detail = match (issuer.audiences.len(), policy) {
        (_, "MatchAny") | (1, "") => return,
        (1, _) => "audienceMatchPolicy must be empty or MatchAny for single audience",
        _ => "audienceMatchPolicy must be MatchAny for multiple audiences",
    };
    errors.push(FieldError::invalid(&policy_path, policy, detail));
}

fn compile_claim_rules(
    rules: &[ClaimValidationRule],
    path: &FieldPath,
    errors: &mut Vec<FieldError>,
) -> Vec<(Expression, String)> {
    let (mut claims, mut expressions, mut compiled) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
    for (index, rule) in rules.iter().enumerate() {
        let path = path.index(index);
        match (rule.claim.is_empty(), rule.expression.is_empty()) {
            (false, false) => {
                let detail = "claim and expression can't both be set";
                errors.push(FieldError::invalid(&path, rule.claim.as_str(), detail));
            }
            (true, true) => errors.push(FieldError::required(&path, "claim or expression is required")),
            (false, true) => {
                if !rule.message.is_empty() {
                    let detail = "may not be specified when claim is set";
                    errors.push(FieldError::invalid(&path.child("message"), rule.message.as_str(), detail));
                }
                if !claims.insert(&rule.claim) {
                    errors.push(FieldError::duplicate(&path.child("claim"), rule.claim.as_str()));
                }
            }
            (true, false) => {
                if !rule.required_value.is_empty() {
                    let (path, value) = (path.child("requiredValue"), rule.required_value.as_str());
                    errors.push(FieldError::invalid(
                        &path,
                        value,
                        "may not be specified when expression is set",
                    ));
                }
                let path = path.child("expression");
                if !expressions.insert(&rule.expression) {
                    errors.push(FieldError::duplicate(&path, rule.expression.as_str()));
                    continue;
                }
                let expression = Expression::claims_condition(&rule.expression);
                let expression = compiled_or_error(&path, &rule.expression, expression, errors);
                compiled.extend(expression.map(|expression| (expression, rule.message.clone())));
            }
        }
    }
    compiled
}

fn compile_mappings(
    mappings: &ClaimMappings,
    path: &FieldPath,
    compiled: &mut Compiled,
    errors: &mut Vec<FieldError>,
) {
    compiled.username = compile_prefixed(&mappings.username, &path.child("username"), true, errors);
    compiled.groups = compile_prefixed(&mappings.groups, &path.child("groups"), false, errors);
    let uid = &mappings.uid;
    if !uid.claim.is_empty() && !uid.expression.is_empty() {
        let detail = "claim and expression can't both be set";
        errors.push(FieldError::invalid(&path.child("uid"), "", detail));
    } else if !uid.expression.is_empty() {
        let expression = Expression::over_claims(&uid.expression);
        let path = path.child("uid").child("expression");
        compiled.uid = compiled_or_error(&path, &uid.expression, expression, errors);
    }
    let mut keys = BTreeSet::new();
    for (index, mapping) in mappings.extra.iter().enumerate() {
        let path = path.child("extra").index(index);
        let key_path = path.child("key");
        errors.extend(domain_path::check(&key_path, &mapping.key));
        if mapping.key != mapping.key.to_lowercase() {
            errors.push(FieldError::invalid(&key_path, mapping.key.as_str(), "must be lowercase"));
        }
        if is_reserved(&mapping.key) {
            let detail = "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use";
            errors.push(FieldError::invalid(&key_path, mapping.key.as_str(), detail));
        }
        if !keys.insert(&mapping.key) {
            errors.push(FieldError::duplicate(&key_path, mapping.key.as_str()));
            continue;
        }
        let path = path.child("valueExpression");
        if mapping.value_expression.is_empty() {
            errors.push(FieldError::required(&path, ""));
            continue;
        }
        let expression = Expression::over_claims(&mapping.value_expression);
        let expression = compiled_or_error(&path, &mapping.value_expression, expression, errors);
        compiled.extra.extend(expression.map(|expression| (mapping.key.clone(), expression)));
    }
    check_email(compiled, &mappings.username.expression, path, errors);
}

/// An address that its owner has not verified may be anybody's.
fn check_email(compiled: &Compiled, username: &str, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let uses_email = compiled.username.as_ref().is_some_and(|username| username.uses_claim("email"));
    let mut others = compiled
        .username
        .iter()
        .chain(compiled.extra.iter().map(|(_, expression)| expression))
        .chain(compiled.claim_rules.iter().map(|(expression, _)| expression));
    if uses_email && !others.any(|expression| expression.uses_claim("email_verified")) {
        let detail = "claims.email_verified must be used in claimMappings.username.expression or \
                      claimMappings.extra[*].valueExpression or claimValidationRules[*].expression when claims.email \
                      is used in claimMappings.username.expression";
        errors.push(FieldError::invalid(&path.child("username").child("expression"), username, detail));
    }
}

fn is_reserved(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    ["kubernetes.io", "k8s.io"].iter().any(|reserved| {
        domain.strip_suffix(reserved).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    })
}

fn compile_prefixed(
    mapping: &PrefixedClaimOrExpression,
    path: &FieldPath,
    is_required: bool,
    errors: &mut Vec<FieldError>,
) -> Option<Expression> {
    match (mapping.claim.is_empty(), mapping.expression.is_empty()) {
        (false, false) => {
            errors.push(FieldError::invalid(path, "", "claim and expression can't both be set"));
            None
        }
        (true, true) => {
            if is_required {
                errors.push(FieldError::required(path, "claim or expression is required"));
            }
            None
        }
        (true, false) => {
            if let Some(prefix) = &mapping.prefix {
                let detail = "may not be specified when expression is set";
                errors.push(FieldError::invalid(&path.child("prefix"), prefix.as_str(), detail));
            }
            let expression = Expression::over_claims(&mapping.expression);
            compiled_or_error(&path.child("expression"), &mapping.expression, expression, errors)
        }
        (false, true) => {
            if mapping.prefix.is_none() {
                let detail = "prefix is required when claim is set. It can be set to an empty string to disable \
                              prefixing";
                errors.push(FieldError::required(&path.child("prefix"), detail));
            }
            None
        }
    }
}

fn compile_user_rules(
    rules: &[UserValidationRule],
    path: &FieldPath,
    errors: &mut Vec<FieldError>,
) -> Vec<(Expression, String)> {
    let (mut seen, mut compiled) = (BTreeSet::new(), Vec::new());
    for (index, rule) in rules.iter().enumerate() {
        let path = path.index(index).child("expression");
        if rule.expression.is_empty() {
            errors.push(FieldError::required(&path, ""));
            continue;
        }
        if !seen.insert(&rule.expression) {
            errors.push(FieldError::duplicate(&path, rule.expression.as_str()));
            continue;
        }
        let expression = Expression::user_condition(&rule.expression);
        let expression = compiled_or_error(&path, &rule.expression, expression, errors);
        compiled.extend(expression.map(|expression| (expression, rule.message.clone())));
    }
    compiled
}

fn compiled_or_error(
    path: &FieldPath,
    text: &str,
    compiled: Result<Expression, String>,
    errors: &mut Vec<FieldError>,
) -> Option<Expression> {
    compiled.map_err(|why| errors.push(FieldError::invalid(path, text, why))).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n";
    const GOOD: &str = "jwt:
- issuer: {url: 'https://issuer.example.org', audiences: [api]}
  claimMappings:
    username: {claim: sub, prefix: ''}
";

    fn errors(text: &str) -> Vec<String> {
        let decoded = AuthenticationConfiguration::decode(&format!("{HEAD}{text}")).unwrap();
        validate(&decoded, &["https://kubernetes.default.svc".to_owned()])
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn valid_configurations_have_no_errors() {
        assert!(errors(GOOD).is_empty());
        assert!(errors("").is_empty());
        let expressions = "jwt:
- issuer: {url: 'https://a.example.org', audiences: [a, b], audienceMatchPolicy: MatchAny}
  claimValidationRules:
  - {expression: 'claims.email_verified == true', message: m}
  - {claim: hd, requiredValue: example.org}
  claimMappings:
    username: {expression: claims.email}
    groups: {expression: 'claims.roles.split(\",\")'}
    uid: {expression: claims.sub}
    extra: [{key: example.com/tenant, valueExpression: claims.tenant}]
  userValidationRules:
  - {expression: \"!user.username.startsWith('system:')\"}
";
        assert_eq!(errors(expressions), Vec::<String>::new());
    }

    #[test]
    fn issuers_are_validated_as_in_kubernetes() {
        let url = |url: &str| errors(&GOOD.replace("https://issuer.example.org", url));
        assert_eq!(url(""), ["jwt[0].issuer.url: Required value"]);
        assert_eq!(
            url("http://a"),
            ["jwt[0].issuer.url: Invalid value: \"http://a\": URL scheme must be https"]
        );
        assert_eq!(
            url("https://u:p@a?q#f"),
            [
                "jwt[0].issuer.url: Invalid value: \"https://u:p@a?q#f\": URL must not contain a username or password",
                "jwt[0].issuer.url: Invalid value: \"https://u:p@a?q#f\": URL must not contain a query",
                "jwt[0].issuer.url: Invalid value: \"https://u:p@a?q#f\": URL must not contain a fragment",
            ]
        );
        assert_eq!(
            url("https://kubernetes.default.svc"),
            [
                "jwt[0].issuer.url: Invalid value: \"https://kubernetes.default.svc\": URL must not overlap with \
                 disallowed issuers: [https://kubernetes.default.svc]"
            ]
        );
        assert_eq!(
            errors(&GOOD.replace("[api]", "[a, a]")),
            [
                "jwt[0].issuer.audiences[1]: Duplicate value: \"a\"",
                "jwt[0].issuer.audienceMatchPolicy: Invalid value: \"\": audienceMatchPolicy must be MatchAny for \
                 multiple audiences",
            ]
        );
        assert_eq!(
            errors(&GOOD.replace("[api]", "[]")),
            ["jwt[0].issuer.audiences: Required value: at least one jwt[0].issuer.audiences is required"]
        );
        let ca = GOOD.replace("[api]", "[api], certificateAuthority: x");
        assert!(errors(&ca)[0].contains("jwt[0].issuer.certificateAuthority: Invalid value: \"<omitted>\""));
        let twice = format!("{GOOD}{}", GOOD.replace("jwt:\n", ""));
        assert_eq!(errors(&twice), ["jwt[1].issuer.url: Duplicate value: \"https://issuer.example.org\""]);
    }

    #[test]
    fn mappings_and_rules_are_validated_as_in_kubernetes() {
        let username = |mapping: &str| errors(&GOOD.replace("{claim: sub, prefix: ''}", mapping));
        assert_eq!(
            username("{}"),
            ["jwt[0].claimMappings.username: Required value: claim or expression is required"]
        );
        assert_eq!(
            username("{claim: sub}"),
            [
                "jwt[0].claimMappings.username.prefix: Required value: prefix is required when claim is set. It can be \
                 set to an empty string to disable prefixing"
            ]
        );
        assert!(
            username("{claim: a, expression: claims.a}")[0]
                .contains("claim and expression can't both be set")
        );
        assert!(username("{expression: 'claims.'}")[0].contains("compilation failed: ERROR: <input>:1:8"));
        assert!(username("{expression: claims.email}")[0].contains("claims.email_verified must be used in"));
        assert!(username("{expression: 'claims.?email.orValue(\"\")'}")[0].contains("claims.email_verified"));
        let rules = |rules: &str| errors(&format!("{GOOD}  {rules}\n"));
        assert!(
            rules("claimValidationRules: [{expression: claims.a}]")[0]
                .ends_with("Invalid value: \"claims.a\": must evaluate to bool")
        );
        assert!(
            rules("userValidationRules: [{expression: user.nobody}]")[0].contains("undefined field 'nobody'")
        );
        assert_eq!(
            rules("claimValidationRules: [{claim: a}, {claim: a, message: m}, {}]"),
            [
                "jwt[0].claimValidationRules[1].message: Invalid value: \"m\": may not be specified when claim is set",
                "jwt[0].claimValidationRules[1].claim: Duplicate value: \"a\"",
                "jwt[0].claimValidationRules[2]: Required value: claim or expression is required",
            ]
        );
        let extra =
            |key: &str| errors(&format!("{GOOD}    extra: [{{key: '{key}', valueExpression: claims.a}}]\n"));
        assert!(extra("example.com/a").is_empty());
        assert!(extra("scope")[0].contains("must be a domain-prefixed path"));
        assert!(extra("a.k8s.io/b")[0].contains("are reserved for Kubernetes use"));
        assert!(extra("example.com/A")[0].contains("must be lowercase"));
        assert_eq!(
            errors("anonymous: {enabled: false, conditions: [{path: /livez}]}\n"),
            [
                "anonymous.conditions: Invalid value: [{\"/livez\"}]: enabled should be set to true when conditions \
                 are defined"
            ]
        );
    }
}
