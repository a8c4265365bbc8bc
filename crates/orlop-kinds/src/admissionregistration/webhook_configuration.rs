//! Strategy that ValidatingWebhookConfiguration and MutatingWebhookConfiguration share.

use std::collections::HashSet;

use orlop_api::{
    field_error::{FieldError, FieldPath},
    labels, names,
};
use orlop_crd::validate_webhook_service;
use serde_json::{Value, json};

use crate::{
    accessors::{list, mark_repeated, present, text, texts},
    defaulting,
    printer::{ColumnDefinition, PrinterColumns, age, name},
    strategy::Strategy,
    validation,
};

pub(crate) static COLUMNS: PrinterColumns = PrinterColumns {
    definitions: &[ColumnDefinition::NAME, ColumnDefinition::integer("Webhooks"), ColumnDefinition::AGE],
    cells: |object, now| vec![name(object), list(object, "/webhooks").len().into(), age(object, now)],
};

/// Strategy of both kinds of webhook configurations.
pub(crate) struct WebhookConfiguration {
    pub(crate) mutating: bool,
}

impl Strategy for WebhookConfiguration {
    fn set_defaults(&self, object: &mut Value) {
        for webhook in defaulting::items_mut(object, "webhooks") {
            defaulting::set_if_absent(webhook, "failurePolicy", "Fail");
            set_match_defaults(webhook);
            defaulting::set_if_absent(webhook, "timeoutSeconds", 10);
            if self.mutating {
                defaulting::set_if_absent(webhook, "reinvocationPolicy", "Never");
            }
            defaulting::items_mut(webhook, "rules")
                .for_each(|rule| defaulting::set_if_absent(rule, "scope", "*"));
            if let Some(service) = defaulting::object_at_mut(webhook, "/clientConfig/service") {
                defaulting::set_if_absent(service, "port", 443);
            }
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let path = FieldPath::root("webhooks");
        let mut errors = Vec::new();
        let webhooks = list(object, "/webhooks");
        for (index, webhook) in webhooks.iter().enumerate() {
            errors.extend(self.validate_webhook(webhook, &path.index(index)));
        }
        errors.extend(validation::validate_unique(webhooks, "name", &path));
        errors
    }
}

/// Sets the match defaults of webhooks and policies.
pub(crate) fn set_match_defaults(target: &mut Value) {
    defaulting::set_if_absent(target, "matchPolicy", "Equivalent");
    defaulting::set_if_absent(target, "namespaceSelector", json!({}));
    defaulting::set_if_absent(target, "objectSelector", json!({}));
}

impl WebhookConfiguration {
    fn validate_webhook(&self, webhook: &Value, path: &FieldPath) -> Vec<FieldError> {
        let mut errors = validate_webhook_name(text(webhook, "/name"), &path.child("name"));
        errors.extend(validation::validate_items(webhook, "rules", path, validate_rule));
        errors.extend(validation::validate_supported(webhook, "failurePolicy", path, &["Fail", "Ignore"]));
        errors.extend(validation::validate_supported(webhook, "matchPolicy", path, &["Equivalent", "Exact"]));
        if present(webhook, "/sideEffects").is_none() {
            let detail = "must specify one of None, NoneOnDryRun";
            errors.push(FieldError::required(&path.child("sideEffects"), detail));
        }
        errors.extend(validation::validate_supported(
            webhook,
            "sideEffects",
            path,
            &["None", "NoneOnDryRun"],
        ));
        if let Some(seconds) = present(webhook, "/timeoutSeconds").and_then(Value::as_i64)
            && !(1..=30).contains(&seconds)
        {
            let detail = "the timeout value must be between 1 and 30 seconds";
            errors.push(FieldError::invalid(&path.child("timeoutSeconds"), seconds, detail));
        }
        for field in ["namespaceSelector", "objectSelector"] {
            if let Some(given) = present(webhook, &format!("/{field}")) {
                errors.extend(labels::validate_label_selector(given, &path.child(field)));
            }
        }
        if self.mutating {
            errors.extend(validation::validate_supported(
                webhook,
                "reinvocationPolicy",
                path,
                &["IfNeeded", "Never"],
            ));
        }
        errors.extend(validate_client_config(webhook, &path.child("clientConfig")));
        errors.extend(validate_match_conditions(webhook, path));
        errors.extend(validate_admission_review_versions(webhook, &path.child("admissionReviewVersions")));
        errors
    }
}

/// Validates a webhook name: a subdomain with at least three labels.
fn validate_webhook_name(name: &str, path: &FieldPath) -> Vec<FieldError> {
    if name.is_empty() {
        return vec![FieldError::required(path, "")];
    }
    let problems = names::dns1123_subdomain(name);
    if !problems.is_empty() {
        return validation::invalid_for_each(path, name, problems);
    }
    if name.split('.').count() < 3 {
        let detail = "should be a domain with at least three segments separated by dots";
        return vec![FieldError::invalid(path, name, detail)];
    }
    Vec::new()
}

/// Validates a RuleWithOperations.
pub(crate) fn validate_rule(rule: &Value, path: &FieldPath) -> Vec<FieldError> {
    const OPERATIONS: &[&str] = &["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
    let mut errors = Vec::new();
    let operations = texts(rule, "/operations");
    let at = path.child("operations");
    if operations.is_empty() {
        errors.push(FieldError::required(&at, ""));
    }
    if operations.len() > 1 && operations.contains(&"*") {
        let detail = "if '*' is present, must not specify other operations";
        errors.push(FieldError::invalid(&at, json!(operations), detail));
    }
    for (index, operation) in operations.iter().enumerate() {
        if !OPERATIONS.contains(operation) {
            errors.push(FieldError::not_supported(&at.index(index), *operation, OPERATIONS));
        }
    }
    for (field, items) in [("apiGroups", "API groups"), ("apiVersions", "API versions")] {
        let (values, at) = (texts(rule, &format!("/{field}")), path.child(field));
        if values.is_empty() {
            errors.push(FieldError::required(&at, ""));
        }
        if values.len() > 1 && values.contains(&"*") {
            let detail = format!("if '*' is present, must not specify other {items}");
            errors.push(FieldError::invalid(&at, json!(values), detail));
        }
        let empty = values.iter().enumerate().filter(|(_, value)| field == "apiVersions" && value.is_empty());
        errors.extend(empty.map(|(index, _)| FieldError::required(&at.index(index), "")));
    }
    errors.extend(validate_rule_resources(&texts(rule, "/resources"), &path.child("resources")));
    errors.extend(validation::validate_supported(rule, "scope", path, &["*", "Cluster", "Namespaced"]));
    errors
}

fn validate_rule_resources(resources: &[&str], path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if resources.is_empty() {
        errors.push(FieldError::required(path, ""));
    }
    // `pods/*` covers all subresources of pods; `*/status` covers status of all resources.
    let (mut whole, mut everywhere) = (HashSet::new(), HashSet::new());
    for (index, given) in resources.iter().enumerate() {
        let at = path.index(index);
        if given.is_empty() {
            errors.push(FieldError::required(&at, ""));
        }
        let Some((resource, subresource)) = given.split_once('/') else { continue };
        for (holds, wider) in [
            (whole.contains(resource), format!("{resource}/*")),
            (everywhere.contains(subresource), format!("*/{subresource}")),
        ] {
            if holds {
                let detail = format!("if '{wider}' is present, must not specify {given}");
                errors.push(FieldError::invalid(&at, *given, detail));
            }
        }
        if subresource == "*" {
            whole.insert(resource);
        }
        if resource == "*" {
            everywhere.insert(subresource);
        }
    }
    if resources.len() > 1 && resources.contains(&"*/*") {
        let detail = "if '*/*' is present, must not specify other resources";
        errors.push(FieldError::invalid(path, json!(resources), detail));
    }
    if resources.contains(&"*")
        && resources.iter().any(|resource| *resource != "*" && !resource.contains('/'))
    {
        let detail = "if '*' is present, must not specify other resources without subresources";
        errors.push(FieldError::invalid(path, json!(resources), detail));
    }
    errors
}

fn validate_client_config(webhook: &Value, path: &FieldPath) -> Vec<FieldError> {
    let none = json!({});
    let client = webhook.get("clientConfig").unwrap_or(&none);
    match (present(client, "/url"), present(client, "/service")) {
        (Some(_), Some(_)) | (None, None) => {
            vec![FieldError::required(path, "exactly one of url or service is required")]
        }
        (Some(url), None) => validate_url(url.as_str().unwrap_or_default(), &path.child("url")),
        (None, Some(service)) => validate_webhook_service(service, &path.child("service")),
    }
}

/// Validates matchConditions: unique names.
pub(crate) fn validate_match_conditions(object: &Value, path: &FieldPath) -> Vec<FieldError> {
    let conditions = list(object, "/matchConditions");
    let repeated = mark_repeated(conditions, |condition| text(condition, "/name"));
    let mut errors = Vec::new();
    for ((index, condition), repeated) in conditions.iter().enumerate().zip(repeated) {
        let (path, name) = (path.child("matchConditions").index(index), text(condition, "/name"));
        if text(condition, "/expression").trim().is_empty() {
            errors.push(FieldError::required(&path.child("expression"), ""));
        }
        if name.is_empty() {
            errors.push(FieldError::required(&path.child("name"), ""));
        } else {
            errors.extend(validation::invalid_for_each(
                &path.child("name"),
                name,
                names::qualified_name(name),
            ));
        }
        if repeated && !name.is_empty() {
            errors.push(FieldError::duplicate(&path.child("name"), name));
        }
    }
    errors
}

fn validate_url(url: &str, path: &FieldPath) -> Vec<FieldError> {
    const FORM: &str = "; desired format: https://host[/path]";
    let mut errors = Vec::new();
    let rest = match url.split_once("://") {
        Some(("https", rest)) => rest,
        other => {
            let scheme = other.map_or("", |(scheme, _)| scheme);
            let detail = format!("'https' is the only allowed URL scheme{FORM}");
            errors.push(FieldError::invalid(path, scheme, detail));
            other.map_or(url, |(_, rest)| rest)
        }
    };
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if host.is_empty() {
        errors.push(FieldError::invalid(path, "", format!("host must be specified{FORM}")));
    }
    if let Some((user, _)) = host.split_once('@') {
        errors.push(FieldError::invalid(path, user, "user information is not permitted in the URL"));
    }
    if let Some((_, fragment)) = rest.split_once('#') {
        errors.push(FieldError::invalid(path, fragment, "fragments are not permitted in the URL"));
    }
    if let Some((_, query)) = rest.split_once('?') {
        errors.push(FieldError::invalid(path, query, "query parameters are not permitted in the URL"));
    }
    errors
}

fn validate_admission_review_versions(webhook: &Value, path: &FieldPath) -> Vec<FieldError> {
    let versions = texts(webhook, "/admissionReviewVersions");
    if versions.is_empty() {
        return vec![FieldError::required(path, "must specify one of v1, v1beta1")];
    }
    let mut errors = Vec::new();
    for (index, version) in versions.iter().enumerate() {
        if versions[..index].contains(version) {
            errors.push(FieldError::invalid(&path.index(index), *version, "duplicate version"));
        } else {
            errors.extend(validation::invalid_for_each(
                &path.index(index),
                *version,
                names::dns1035_label(version),
            ));
        }
    }
    if !versions.iter().any(|version| matches!(*version, "v1" | "v1beta1")) {
        errors.push(FieldError::invalid(path, json!(versions), "must include at least one of v1, v1beta1"));
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{printer::tests::row, validation::tests::messages};

    const HOOKS: WebhookConfiguration = WebhookConfiguration { mutating: true };

    fn configuration() -> Value {
        let mut object = json!({"metadata": {"name": "c"}, "webhooks": [{"name": "a.b.c", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"service": {"name": "s", "namespace": "n"}},
            "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]}]});
        HOOKS.set_defaults(&mut object);
        object
    }

    #[test]
    fn webhook_defaults_are_set() {
        let object = configuration();
        let webhook = &object["webhooks"][0];
        assert_eq!(
            (&webhook["failurePolicy"], &webhook["matchPolicy"], &webhook["timeoutSeconds"]),
            (&json!("Fail"), &json!("Equivalent"), &json!(10))
        );
        assert_eq!(
            (&webhook["namespaceSelector"], &webhook["objectSelector"], &webhook["reinvocationPolicy"]),
            (&json!({}), &json!({}), &json!("Never"))
        );
        assert_eq!(
            (&webhook["rules"][0]["scope"], &webhook["clientConfig"]["service"]["port"]),
            (&json!("*"), &json!(443))
        );
        assert!(messages(HOOKS.validate(&object)).is_empty());
        assert_eq!(row(&COLUMNS, &object), json!(["c", 1, "<unknown>"]).as_array().unwrap()[..]);
    }

    #[test]
    fn webhook_requires_client_config_and_rules() {
        let bad = json!({"webhooks": [{"name": "a", "rules": [{"operations": ["X"], "apiGroups": ["*", "a"], "apiVersions": ["v1"], "resources": []}], "timeoutSeconds": 31}]});
        assert_eq!(
            messages(HOOKS.validate(&bad)),
            [
                r#"webhooks[0].name: Invalid value: "a": should be a domain with at least three segments separated by dots"#,
                r#"webhooks[0].rules[0].operations[0]: Unsupported value: "X": supported values: "*", "CONNECT", "CREATE", "DELETE", "UPDATE""#,
                r#"webhooks[0].rules[0].apiGroups: Invalid value: ["*","a"]: if '*' is present, must not specify other API groups"#,
                "webhooks[0].rules[0].resources: Required value",
                "webhooks[0].sideEffects: Required value: must specify one of None, NoneOnDryRun",
                "webhooks[0].timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds",
                "webhooks[0].clientConfig: Required value: exactly one of url or service is required",
                "webhooks[0].admissionReviewVersions: Required value: must specify one of v1, v1beta1",
            ]
        );
        let path = FieldPath::root("u");
        assert!(validate_url("https://a.b/c", &path).is_empty());
        assert_eq!(
            messages(validate_url("http://a", &path)),
            [
                r#"u: Invalid value: "http": 'https' is the only allowed URL scheme; desired format: https://host[/path]"#
            ]
        );
        let mut twice = configuration();
        let copy = twice["webhooks"][0].clone();
        twice["webhooks"].as_array_mut().unwrap().push(copy);
        assert_eq!(messages(HOOKS.validate(&twice)), [r#"webhooks[1].name: Duplicate value: "a.b.c""#]);
    }
}
