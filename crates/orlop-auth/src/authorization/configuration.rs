//! AuthorizationConfiguration: the chain of authorizers, decoded strictly and validated as kube-apiserver does.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use orlop_api::{
    field_error::{FieldError, FieldPath, aggregate},
    names,
};
use serde_json::Value;

use super::match_conditions::MatchConditions;

/// Types of authorizers that this server has, in the order in which they are reported.
pub const TYPES: &[&str] = &["AlwaysAllow", "AlwaysDeny", "Node", "RBAC", "Webhook"];
const WEBHOOK: &str = "Webhook";
/// Longest time-out of a webhook.
const TIMEOUT_MAX: Duration = Duration::from_secs(30);
/// Larger files are not configurations.
const FILE_BYTES_MAX: usize = 16 << 20;

/// A chain of authorizers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorizationConfiguration {
    /// Authorizers, in order.
    pub authorizers: Vec<AuthorizerConfiguration>,
}

/// One authorizer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorizerConfiguration {
    /// One of [`TYPES`].
    pub kind: String,
    /// Name, for logs.
    pub name: String,
    /// The webhook, of that type.
    pub webhook: Option<WebhookConfiguration>,
}

/// The decision of a webhook that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailurePolicy {
    /// The next authorizer decides.
    NoOpinion,
    /// The request is denied.
    Deny,
}

/// A webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookConfiguration {
    /// Time for which allowed requests are cached; zero for none.
    pub authorized_ttl: Duration,
    /// Time for which other requests are cached; zero for none.
    pub unauthorized_ttl: Duration,
    /// Limit on one call.
    pub timeout: Duration,
    /// Version of the SubjectAccessReview: `v1` or `v1beta1`.
    pub version: String,
    /// The decision if the webhook fails.
    pub failure_policy: FailurePolicy,
    /// File with the server's address and the credentials for it.
    pub kube_config_file: PathBuf,
    /// CEL expressions.
    pub match_conditions: Vec<String>,
}

impl WebhookConfiguration {
    /// Compiles the match conditions.
    pub fn conditions(&self) -> Result<MatchConditions, Vec<FieldError>> {
        MatchConditions::compile(&self.match_conditions, &FieldPath::root("matchConditions"))
    }
}

impl AuthorizationConfiguration {
    /// Returns the chain of `--authorization-mode`. The webhook is used where it is among the modes.
    pub fn of_modes(modes: &[String], webhook: Option<&WebhookConfiguration>) -> Self {
        let authorizer = |mode: &String| AuthorizerConfiguration {
            kind: mode.clone(),
            name: if mode == WEBHOOK { "default".to_owned() } else { mode.to_lowercase() },
            webhook: webhook.filter(|_| mode == WEBHOOK).cloned(),
        };
        Self { authorizers: modes.iter().map(authorizer).collect() }
    }

    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, String> {
        let failed = |error: String| format!("{}: {error}", path.display());
        let text = fs::read(path).map_err(|error| failed(error.to_string()))?;
        if text.len() > FILE_BYTES_MAX {
            return Err(failed("the file is too large".to_owned()));
        }
        let text = String::from_utf8(text).map_err(|error| failed(error.to_string()))?;
        Self::parse(&text).map_err(failed)
    }

    /// Parses the YAML or JSON of a configuration.
    pub fn parse(text: &str) -> Result<Self, String> {
        let load = |error: String| format!("failed to load AuthorizationConfiguration from file: {error}");
        let document: Value = serde_saphyr::from_str(text).map_err(|error| load(error.to_string()))?;
        let text = |field: &str| document.get(field).and_then(Value::as_str).unwrap_or_default();
        let known = [
            "apiserver.config.k8s.io/v1",
            "apiserver.config.k8s.io/v1beta1",
            "apiserver.config.k8s.io/v1alpha1",
        ];
        if text("kind") != "AuthorizationConfiguration" || !known.contains(&text("apiVersion")) {
            return Err(load(format!(
                "no kind {:?} is registered for version {:?}: expected AuthorizationConfiguration of {}",
                text("kind"),
                text("apiVersion"),
                known[0]
            )));
        }
        let unknown = unknown_fields(&document);
        if !unknown.is_empty() {
            let unknown: Vec<String> =
                unknown.iter().map(|field| format!("unknown field {field:?}")).collect();
            return Err(load(format!("strict decoding error: {}", unknown.join(", "))));
        }
        let (configuration, errors) = decode(&document);
        if !errors.is_empty() {
            return Err(aggregate(&errors));
        }
        let misnamed = configuration.authorizers.iter().filter(|authorizer| {
            authorizer.kind != WEBHOOK && authorizer.name != authorizer.kind.to_lowercase()
        });
        let misnamed: Vec<String> = misnamed
            .map(|authorizer| {
                let AuthorizerConfiguration { kind, name, .. } = authorizer;
                format!("expected name {} for authorizer {kind} instead of {name}", kind.to_lowercase())
            })
            .collect();
        if misnamed.is_empty() { Ok(configuration) } else { Err(aggregate(&misnamed)) }
    }

    /// Checks that a changed file keeps all authorizers of this one that are not webhooks.
    pub fn check_reload(&self, changed: &Self) -> Result<(), String> {
        let kinds = |configuration: &Self| -> BTreeSet<String> {
            let kinds = configuration.authorizers.iter().map(|authorizer| authorizer.kind.clone());
            kinds.filter(|kind| kind != WEBHOOK).collect()
        };
        let (before, after) = (kinds(self), kinds(changed));
        let missing: Vec<&String> = before.difference(&after).collect();
        if !missing.is_empty() {
            let missing: Vec<&str> = missing.into_iter().map(String::as_str).collect();
            return Err(format!("missing required types: [{}]", missing.join(" ")));
        }
        match after.difference(&before).find(|kind| matches!(kind.as_str(), "Node" | "RBAC")) {
            Some(kind) => Err(format!(
                "authorizer type {kind} is not allowed if it was not enabled at initial server startup"
            )),
            None => Ok(()),
        }
    }
}

/// Fields of each object of the file.
const ROOT: &[&str] = &["apiVersion", "kind", "authorizers"];
const AUTHORIZER: &[&str] = &["type", "name", "webhook"];
const WEBHOOK_FIELDS: &[&str] = &[
    "authorizedTTL",
    "cacheAuthorizedRequests",
    "unauthorizedTTL",
    "cacheUnauthorizedRequests",
    "timeout",
    "subjectAccessReviewVersion",
    "matchConditionSubjectAccessReviewVersion",
    "failurePolicy",
    "connectionInfo",
    "matchConditions",
];
const CONNECTION: &[&str] = &["type", "kubeConfigFile"];
const CONDITION: &[&str] = &["expression"];

fn unknown_fields(document: &Value) -> Vec<String> {
    let mut unknown = Vec::new();
    let mut check = |value: Option<&Value>, known: &[&str], path: &str| {
        for field in value.and_then(Value::as_object).into_iter().flat_map(|fields| fields.keys()) {
            if !known.contains(&field.as_str()) {
                unknown.push(format!("{path}{field}"));
            }
        }
    };
    check(Some(document), ROOT, "");
    for (index, authorizer) in items(document.get("authorizers")).enumerate() {
        let path = format!("authorizers[{index}].");
        check(Some(authorizer), AUTHORIZER, &path);
        let webhook = authorizer.get("webhook");
        check(webhook, WEBHOOK_FIELDS, &format!("{path}webhook."));
        check(
            authorizer.pointer("/webhook/connectionInfo"),
            CONNECTION,
            &format!("{path}webhook.connectionInfo."),
        );
        for (index, condition) in items(authorizer.pointer("/webhook/matchConditions")).enumerate() {
            check(Some(condition), CONDITION, &format!("{path}webhook.matchConditions[{index}]."));
        }
    }
    unknown
}

fn items(value: Option<&Value>) -> impl Iterator<Item = &Value> {
    value.and_then(Value::as_array).into_iter().flatten()
}

fn decode(document: &Value) -> (AuthorizationConfiguration, Vec<FieldError>) {
    let root = FieldPath::root("authorizers");
    let mut errors = Vec::new();
    let mut authorizers: Vec<AuthorizerConfiguration> = Vec::new();
    if items(document.get("authorizers")).next().is_none() {
        errors.push(FieldError::required(&root, "at least one authorization mode must be defined"));
    }
    for (index, authorizer) in items(document.get("authorizers")).enumerate() {
        let path = root.index(index);
        let text = |field: &str| authorizer.get(field).and_then(Value::as_str).unwrap_or_default();
        let (kind, name) = (text("type"), text("name"));
        if kind.is_empty() {
            errors.push(FieldError::required(&path.child("type"), ""));
            continue;
        }
        if !TYPES.contains(&kind) {
            errors.push(FieldError::not_supported(&path.child("type"), kind, TYPES));
            continue;
        }
        if kind != WEBHOOK && authorizers.iter().any(|other| other.kind == kind) {
            errors.push(FieldError::duplicate(&path.child("type"), kind));
            continue;
        }
        let wrong = names::dns1123_subdomain(name);
        if name.is_empty() {
            errors.push(FieldError::required(&path.child("name"), ""));
        } else if authorizers.iter().any(|other| other.name == name) {
            errors.push(FieldError::duplicate(&path.child("name"), name));
        } else if !wrong.is_empty() {
            let detail = format!("authorizer name is invalid: {}", wrong.join(", "));
            errors.push(FieldError::invalid(&path.child("name"), name, detail));
        }
        let webhook = authorizer.get("webhook").filter(|webhook| !webhook.is_null());
        let webhook = match (kind == WEBHOOK, webhook) {
            (true, None) => {
                errors.push(FieldError::required(&path.child("webhook"), "required when type=Webhook"));
                None
            }
            (true, Some(webhook)) => Some(decode_webhook(webhook, &path, &mut errors)),
            (false, Some(_)) => {
                let detail = "may only be specified when type=Webhook";
                errors.push(FieldError::invalid(&path.child("webhook"), "non-null", detail));
                None
            }
            (false, None) => None,
        };
        authorizers.push(AuthorizerConfiguration { kind: kind.to_owned(), name: name.to_owned(), webhook });
    }
    (AuthorizationConfiguration { authorizers }, errors)
}

/// Decodes a webhook. Its fields are reported at the path of the authorizer, as in Kubernetes.
fn decode_webhook(webhook: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) -> WebhookConfiguration {
    let text = |field: &str| webhook.get(field).and_then(Value::as_str).unwrap_or_default();
    let flag = |field: &str| webhook.get(field).and_then(Value::as_bool).unwrap_or(true);
    let timeout = decode_duration(webhook, "timeout", None, path, errors);
    if timeout > TIMEOUT_MAX {
        let printed = orlop_duration::format_duration(timeout);
        errors.push(FieldError::invalid(&path.child("timeout"), printed, "must be > 0s and <= 30s"));
    }
    let authorized_ttl =
        decode_duration(webhook, "authorizedTTL", Some(Duration::from_secs(300)), path, errors);
    let unauthorized_ttl =
        decode_duration(webhook, "unauthorizedTTL", Some(Duration::from_secs(30)), path, errors);
    let version = text("subjectAccessReviewVersion");
    match_one_of(version, "subjectAccessReviewVersion", &["v1", "v1beta1"], path, errors);
    let match_conditions: Vec<String> = items(webhook.get("matchConditions"))
        .map(|condition| condition.get("expression").and_then(Value::as_str).unwrap_or_default().to_owned())
        .collect();
    match text("matchConditionSubjectAccessReviewVersion") {
        "v1" => {}
        "" if match_conditions.is_empty() => {}
        "" => errors.push(FieldError::required(
            &path.child("matchConditionSubjectAccessReviewVersion"),
            "required if match conditions are specified",
        )),
        other => errors.push(FieldError::not_supported(
            &path.child("matchConditionSubjectAccessReviewVersion"),
            other,
            &["v1"],
        )),
    }
    let policy = text("failurePolicy");
    match_one_of(policy, "failurePolicy", &["NoOpinion", "Deny"], path, errors);
    let kube_config_file = decode_connection(webhook, path, errors);
    if let Err(wrong) = MatchConditions::compile(&match_conditions, &path.child("matchConditions")) {
        errors.extend(wrong);
    }
    WebhookConfiguration {
        authorized_ttl: if flag("cacheAuthorizedRequests") { authorized_ttl } else { Duration::ZERO },
        unauthorized_ttl: if flag("cacheUnauthorizedRequests") { unauthorized_ttl } else { Duration::ZERO },
        timeout,
        version: version.to_owned(),
        failure_policy: if policy == "NoOpinion" { FailurePolicy::NoOpinion } else { FailurePolicy::Deny },
        kube_config_file,
        match_conditions,
    }
}

fn match_one_of(given: &str, field: &str, known: &[&str], path: &FieldPath, errors: &mut Vec<FieldError>) {
    if given.is_empty() {
        errors.push(FieldError::required(&path.child(field), ""));
    } else if !known.contains(&given) {
        errors.push(FieldError::not_supported(&path.child(field), given, known));
    }
}

/// Decodes a positive duration; the default for none or zero, which is an error where there is no default.
fn decode_duration(
    webhook: &Value,
    field: &str,
    default: Option<Duration>,
    path: &FieldPath,
    errors: &mut Vec<FieldError>,
) -> Duration {
    let path = path.child(field);
    let nanoseconds = match webhook.get(field) {
        None | Some(Value::Null) => 0,
        Some(value) => match value.as_str().map(orlop_duration::parse) {
            Some(Ok(nanoseconds)) => nanoseconds,
            _ => {
                errors.push(FieldError::invalid(
                    &path,
                    value.clone(),
                    "must be a duration such as 10s or 5m",
                ));
                return Duration::ZERO;
            }
        },
    };
    match (u64::try_from(nanoseconds), default) {
        (Ok(0), Some(default)) => default,
        (Ok(0), None) => {
            errors.push(FieldError::required(&path, ""));
            Duration::ZERO
        }
        (Ok(nanoseconds), _) => Duration::from_nanos(nanoseconds),
        (Err(_), default) => {
            let detail = if default.is_some() { "must be > 0s" } else { "must be > 0s and <= 30s" };
            errors.push(FieldError::invalid(&path, orlop_duration::format(nanoseconds), detail));
            Duration::ZERO
        }
    }
}

fn decode_connection(webhook: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) -> PathBuf {
    let connection = webhook.get("connectionInfo").unwrap_or(&Value::Null);
    let path = path.child("connectionInfo");
    let kind = connection.get("type").and_then(Value::as_str).unwrap_or_default();
    let file = connection.get("kubeConfigFile").and_then(Value::as_str).unwrap_or_default();
    let file_path = path.child("kubeConfigFile");
    match kind {
        "" => errors.push(FieldError::required(&path.child("type"), "")),
        "KubeConfigFile" if file.is_empty() => errors.push(FieldError::required(&file_path, "")),
        "KubeConfigFile" if !Path::new(file).is_absolute() => {
            errors.push(FieldError::invalid(&file_path, file, "must be an absolute path"));
        }
        "KubeConfigFile" => match fs::metadata(file) {
            Err(error) => {
                let detail = format!("error loading file: {error}");
                errors.push(FieldError::invalid(&file_path, file, detail));
            }
            Ok(metadata) if !metadata.is_file() => {
                errors.push(FieldError::invalid(&file_path, file, "must be a regular file"));
            }
            Ok(_) => {}
        },
        // InClusterConfig is for extension API servers.
        other => errors.push(FieldError::not_supported(&path.child("type"), other, &["KubeConfigFile"])),
    }
    file.into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn file(authorizers: &str) -> String {
        format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers: {authorizers}\n"
        )
    }

    fn webhook(fields: &str) -> String {
        let kubeconfig = std::env::current_exe().unwrap();
        file(&format!(
            "[{{type: Webhook, name: w, webhook: {{timeout: 3s, subjectAccessReviewVersion: v1, failurePolicy: Deny, \
             connectionInfo: {{type: KubeConfigFile, kubeConfigFile: {}}}, {fields}}}}}]",
            kubeconfig.display()
        ))
    }

    #[test]
    fn several_webhooks_and_types_are_decoded() {
        let conditions = "matchConditionSubjectAccessReviewVersion: v1, authorizedTTL: 1m, cacheUnauthorizedRequests: false, \
             matchConditions: [{expression: \"request.user != 'x'\"}]";
        let text =
            webhook(conditions).replace("}}]\n", "}}, {type: Node, name: node}, {type: RBAC, name: rbac}]\n");
        let parsed = AuthorizationConfiguration::parse(&text).unwrap();
        let kinds: Vec<&str> = parsed.authorizers.iter().map(|authorizer| authorizer.kind.as_str()).collect();
        assert_eq!(kinds, ["Webhook", "Node", "RBAC"]);
        let webhook = parsed.authorizers[0].webhook.as_ref().unwrap();
        assert_eq!(
            (webhook.timeout, webhook.authorized_ttl),
            (Duration::from_secs(3), Duration::from_secs(60))
        );
        assert_eq!((webhook.unauthorized_ttl, webhook.failure_policy), (Duration::ZERO, FailurePolicy::Deny));
        let rbac = AuthorizationConfiguration::parse(&file("[{type: RBAC, name: rbac}]")).unwrap();
        assert_eq!(parsed.check_reload(&rbac), Err("missing required types: [Node]".to_owned()));
        assert!(rbac.check_reload(&parsed).unwrap_err().contains("type Node is not allowed"));
        assert_eq!(rbac.check_reload(&rbac), Ok(()));
    }

    #[test]
    fn invalid_files_are_refused_with_kubernetes_words() {
        let of = |text: &str| AuthorizationConfiguration::parse(text).unwrap_err();
        for (text, expected) in [
            (file("[]"), "authorizers: Required value: at least one authorization mode must be defined"),
            (
                file("[{type: RBAC, name: rbac, x: y}]"),
                "failed to load AuthorizationConfiguration from file: strict decoding error: unknown field \"authorizers[0].x\"",
            ),
            (file("[{name: x}]"), "authorizers[0].type: Required value"),
            (
                file("[{type: Magic, name: magic}]"),
                "authorizers[0].type: Unsupported value: \"Magic\": supported values: \"AlwaysAllow\", \"AlwaysDeny\", \
                 \"Node\", \"RBAC\", \"Webhook\"",
            ),
            (
                file("[{type: RBAC, name: rbac}, {type: RBAC, name: other}]"),
                "authorizers[1].type: Duplicate value: \"RBAC\"",
            ),
            (file("[{type: RBAC, name: other}]"), "expected name rbac for authorizer RBAC instead of other"),
            (
                file("[{type: RBAC, name: rbac, webhook: {}}]"),
                "authorizers[0].webhook: Invalid value: \"non-null\": may only be specified when type=Webhook",
            ),
            (
                file("[{type: Webhook, name: w}]"),
                "authorizers[0].webhook: Required value: required when type=Webhook",
            ),
            (
                webhook("matchConditions: [{expression: 'true'}]"),
                "authorizers[0].matchConditionSubjectAccessReviewVersion: Required value: required if match conditions are specified",
            ),
            (
                webhook("authorizedTTL: -1s"),
                "authorizers[0].authorizedTTL: Invalid value: \"-1s\": must be > 0s",
            ),
        ] {
            assert_eq!(of(&text), expected);
        }
        let long = webhook("unauthorizedTTL: 30s").replace("timeout: 3s", "timeout: 31s");
        assert_eq!(of(&long), "authorizers[0].timeout: Invalid value: \"31s\": must be > 0s and <= 30s");
        let all = file("[{type: Webhook, name: w, webhook: {}}]");
        assert_eq!(
            of(&all),
            "[authorizers[0].timeout: Required value, authorizers[0].subjectAccessReviewVersion: Required value, \
             authorizers[0].failurePolicy: Required value, authorizers[0].connectionInfo.type: Required value]"
        );
        assert!(of("kind: Foo").contains("no kind \"Foo\" is registered"));
        assert!(of("{").starts_with("failed to load AuthorizationConfiguration from file: "));
    }
}
