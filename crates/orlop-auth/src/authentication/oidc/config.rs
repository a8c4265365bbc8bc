//! `AuthenticationConfiguration` files, decoded strictly.

use serde::Deserialize;
use serde_json::Value;

const VERSIONS: &[&str] = &["v1", "v1beta1", "v1alpha1"];
const GROUP: &str = "apiserver.config.k8s.io";

/// Authenticators of JSON Web Tokens, and of requests without a credential.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AuthenticationConfiguration {
    /// Issuers of tokens.
    pub jwt: Vec<JwtConfiguration>,
    /// Requests without a credential.
    pub anonymous: Option<AnonymousConfiguration>,
}

/// Requests without a credential.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AnonymousConfiguration {
    /// True to serve them.
    pub enabled: bool,
    /// Paths to limit them to; empty for all.
    pub conditions: Vec<PathCondition>,
}

/// A path of anonymous requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PathCondition {
    /// The exact path.
    pub path: String,
}

/// An issuer and the users that its tokens stand for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JwtConfiguration {
    /// The issuer.
    pub issuer: IssuerConfiguration,
    /// Rules that claims must satisfy.
    pub claim_validation_rules: Vec<ClaimValidationRule>,
    /// Mapping of claims to a user.
    pub claim_mappings: ClaimMappings,
    /// Rules that the user must satisfy.
    pub user_validation_rules: Vec<UserValidationRule>,
}

/// An issuer of tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IssuerConfiguration {
    /// Its URL, the `iss` of tokens.
    pub url: String,
    /// Address of its discovery document, if not below its URL.
    #[serde(rename = "discoveryURL")]
    pub discovery_url: String,
    /// CAs of its server in PEM; empty for the system's.
    pub certificate_authority: String,
    /// Audiences of which a token must have one.
    pub audiences: Vec<String>,
    /// `MatchAny`, or empty for one audience.
    pub audience_match_policy: String,
    /// Not supported.
    pub egress_selector_type: String,
}

/// A rule for claims: a claim with a value, or an expression.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimValidationRule {
    /// Name of the claim.
    pub claim: String,
    /// Its value.
    pub required_value: String,
    /// A CEL expression that must be true.
    pub expression: String,
    /// Told if it is not.
    pub message: String,
}

/// Mapping of claims to a user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimMappings {
    /// The user's name.
    pub username: PrefixedClaimOrExpression,
    /// The user's groups.
    pub groups: PrefixedClaimOrExpression,
    /// The user's uid.
    pub uid: ClaimOrExpression,
    /// The user's extra fields.
    pub extra: Vec<ExtraMapping>,
}

/// A claim with a prefix, or a CEL expression.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PrefixedClaimOrExpression {
    /// Name of the claim.
    pub claim: String,
    /// Put before its value. Required with a claim, may be empty.
    pub prefix: Option<String>,
    /// The expression.
    pub expression: String,
}

/// A claim or a CEL expression.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimOrExpression {
    /// Name of the claim.
    pub claim: String,
    /// The expression.
    pub expression: String,
}

/// An extra field of a user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExtraMapping {
    /// Its key, a domain-prefixed path.
    pub key: String,
    /// A CEL expression of its values.
    pub value_expression: String,
}

/// A rule for users.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UserValidationRule {
    /// A CEL expression that must be true.
    pub expression: String,
    /// Told if it is not.
    pub message: String,
}

/// Fields of an object, or of the objects in a list, and those below them.
struct Fields(&'static [(&'static str, Option<&'static Fields>)]);

const PREFIXED: Fields = Fields(&[("claim", None), ("prefix", None), ("expression", None)]);
const JWT: Fields = Fields(&[
    (
        "issuer",
        Some(&Fields(&[
            ("url", None),
            ("discoveryURL", None),
            ("certificateAuthority", None),
            ("audiences", None),
            ("audienceMatchPolicy", None),
            ("egressSelectorType", None),
        ])),
    ),
    (
        "claimValidationRules",
        Some(&Fields(&[("claim", None), ("requiredValue", None), ("expression", None), ("message", None)])),
    ),
    (
        "claimMappings",
        Some(&Fields(&[
            ("username", Some(&PREFIXED)),
            ("groups", Some(&PREFIXED)),
            ("uid", Some(&Fields(&[("claim", None), ("expression", None)]))),
            ("extra", Some(&Fields(&[("key", None), ("valueExpression", None)]))),
        ])),
    ),
    ("userValidationRules", Some(&Fields(&[("expression", None), ("message", None)]))),
]);
const CONFIGURATION: Fields = Fields(&[
    ("apiVersion", None),
    ("kind", None),
    ("jwt", Some(&JWT)),
    ("anonymous", Some(&Fields(&[("enabled", None), ("conditions", Some(&Fields(&[("path", None)])))]))),
]);

impl AuthenticationConfiguration {
    /// Decodes YAML or JSON. Unknown fields are errors.
    pub fn decode(text: &str) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Err("empty config data".to_owned());
        }
        let mut value: Value = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
        let text = |field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (version, kind) = (text("apiVersion"), text("kind"));
        let known = version
            .split_once('/')
            .is_some_and(|(group, version)| group == GROUP && VERSIONS.contains(&version));
        if !known || kind != "AuthenticationConfiguration" {
            return Err(format!("no kind {kind:?} is registered for version {version:?}"));
        }
        remove_nulls(&mut value);
        let mut unknown = Vec::new();
        find_unknown(&value, &CONFIGURATION, "", &mut unknown);
        if !unknown.is_empty() {
            let unknown: Vec<String> = unknown.iter().map(|path| format!("unknown field {path:?}")).collect();
            return Err(format!("strict decoding error: {}", unknown.join(", ")));
        }
        serde_json::from_value(value).map_err(|error| error.to_string())
    }
}

/// Removes fields that are null: they count as not given.
fn remove_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(remove_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_nulls),
        _ => {}
    }
}

fn find_unknown(value: &Value, known: &Fields, path: &str, unknown: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                match known.0.iter().find(|(known, _)| known == name) {
                    None => unknown.push(path),
                    Some((_, Some(below))) => find_unknown(field, below, &path, unknown),
                    Some((_, None)) => {}
                }
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                find_unknown(item, known, &format!("{path}[{index}]"), unknown);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HEAD: &str = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n";

    #[test]
    fn configuration_decodes_from_yaml_and_json() {
        let text = format!(
            "{HEAD}jwt:
- issuer:
    url: https://issuer.example.org
    audiences: [a, b]
    audienceMatchPolicy: MatchAny
    certificateAuthority: null
  claimMappings:
    username: {{claim: sub, prefix: ''}}
anonymous:
  enabled: true
  conditions: [{{path: /livez}}]
"
        );
        let decoded = AuthenticationConfiguration::decode(&text).unwrap();
        assert_eq!(decoded.jwt[0].issuer.audiences, ["a", "b"]);
        assert_eq!(decoded.jwt[0].claim_mappings.username.prefix.as_deref(), Some(""));
        assert_eq!(decoded.anonymous.unwrap().conditions[0].path, "/livez");
        let json = "{\"apiVersion\": \"apiserver.config.k8s.io/v1beta1\", \"kind\": \"AuthenticationConfiguration\"}";
        assert_eq!(AuthenticationConfiguration::decode(json), Ok(AuthenticationConfiguration::default()));
    }

    #[test]
    fn unknown_fields_types_and_versions_are_refused() {
        for (text, why) in [
            (String::new(), "empty config data"),
            ("{".to_owned(), ""),
            (HEAD.replace("/v1", "/v2"), "no kind \"AuthenticationConfiguration\" is registered"),
            (HEAD.replace("Authentication", "Other"), "no kind \"OtherConfiguration\" is registered"),
            (
                format!("{HEAD}jwt: [{{issuer: {{urll: x}}}}]\nmore: 1\n"),
                "strict decoding error: unknown field \"jwt[0].issuer.urll\", unknown field \"more\"",
            ),
            (format!("{HEAD}jwt: [{{issuer: {{url: 5}}}}]\n"), "invalid type"),
            (format!("{HEAD}jwt: 5\n"), "invalid type"),
        ] {
            let error = AuthenticationConfiguration::decode(&text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_decodes_or_is_refused(text in "\\PC{0,120}") {
            let _ = AuthenticationConfiguration::decode(&format!("{HEAD}jwt: {text}"));
        }
    }
}
