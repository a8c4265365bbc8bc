//! Strategy that ValidatingWebhookConfiguration and MutatingWebhookConfiguration share.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    labels, names,
};
use orlop_crd::{validate_webhook_service, validate_webhook_url};
use serde_json::{Value, json};

use super::{
    match_conditions::{expressions, validate_match_conditions},
    match_rules::validate_rule,
    static_names::{name_warning, validate_name},
    virtual_resources,
};
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
        let mut errors = self.validate_webhooks(object, &Lenience::default());
        errors.extend(validate_name(object));
        errors
    }

    fn validate_replacement(&self, object: &Value, old: &Value, _subresource: &str) -> Vec<FieldError> {
        self.validate_webhooks(object, &Lenience::of_update(object, old))
    }

    fn warnings_on_create(&self, object: &Value) -> Vec<String> {
        virtual_resources::warnings(object)
    }

    fn warnings_on_update(&self, object: &Value, _old: &Value) -> Vec<String> {
        name_warning(object).into_iter().chain(virtual_resources::warnings(object)).collect()
    }
}

/// Rules that an update need not meet, because the stored object does not.
#[derive(Default)]
struct Lenience<'a> {
    /// Match conditions are unchanged.
    match_conditions: bool,
    side_effects: bool,
    review_versions: bool,
    names: bool,
    /// Expressions that were accepted before.
    stored_expressions: Vec<&'a str>,
}

impl<'a> Lenience<'a> {
    fn of_update(new: &Value, old: &'a Value) -> Self {
        let (new, old) = (list(new, "/webhooks"), list(old, "/webhooks"));
        let same_conditions =
            |(one, other): (&Value, &Value)| list(one, "/matchConditions") == list(other, "/matchConditions");
        let has_side_effects =
            |webhook: &Value| !matches!(text(webhook, "/sideEffects"), "None" | "NoneOnDryRun");
        let has_unknown_versions = |webhook: &Value| {
            let versions = texts(webhook, "/admissionReviewVersions");
            !versions.is_empty() && !versions.iter().any(|version| is_review_version(version))
        };
        Self {
            match_conditions: new.len() == old.len() && new.iter().zip(old).all(same_conditions),
            side_effects: old.iter().any(has_side_effects),
            review_versions: old.iter().any(has_unknown_versions),
            names: mark_repeated(old, |webhook| text(webhook, "/name")).contains(&true),
            stored_expressions: old.iter().flat_map(expressions).collect(),
        }
    }
}

/// Sets the match defaults of webhooks and policies.
pub(crate) fn set_match_defaults(target: &mut Value) {
    defaulting::set_if_absent(target, "matchPolicy", "Equivalent");
    defaulting::set_if_absent(target, "namespaceSelector", json!({}));
    defaulting::set_if_absent(target, "objectSelector", json!({}));
}

impl WebhookConfiguration {
    fn validate_webhooks(&self, object: &Value, lenience: &Lenience<'_>) -> Vec<FieldError> {
        let (webhooks, path) = (list(object, "/webhooks"), FieldPath::root("webhooks"));
        let repeated = mark_repeated(webhooks, |webhook| text(webhook, "/name"));
        let mut errors = Vec::new();
        for ((index, webhook), repeated) in webhooks.iter().enumerate().zip(repeated) {
            let (path, name) = (path.index(index), text(webhook, "/name"));
            errors.extend(self.validate_webhook(webhook, &path, lenience));
            let at = path.child("admissionReviewVersions");
            errors.extend(validate_admission_review_versions(webhook, &at, lenience.review_versions));
            if repeated && !lenience.names && !name.is_empty() {
                errors.push(FieldError::duplicate(&path.child("name"), name));
            }
        }
        errors
    }

    fn validate_webhook(
        &self,
        webhook: &Value,
        path: &FieldPath,
        lenience: &Lenience<'_>,
    ) -> Vec<FieldError> {
        let mut errors = validate_webhook_name(text(webhook, "/name"), &path.child("name"));
        errors.extend(validation::validate_items(webhook, "rules", path, validate_rule));
        errors.extend(validation::validate_supported(webhook, "failurePolicy", path, &["Fail", "Ignore"]));
        errors.extend(validation::validate_supported(webhook, "matchPolicy", path, &["Equivalent", "Exact"]));
        let side_effects: &[&str] = match lenience.side_effects {
            true => &["None", "NoneOnDryRun", "Some", "Unknown"],
            false => &["None", "NoneOnDryRun"],
        };
        if present(webhook, "/sideEffects").is_none() {
            let detail = format!("must specify one of {}", side_effects.join(", "));
            errors.push(FieldError::required(&path.child("sideEffects"), detail));
        }
        errors.extend(validation::validate_supported(webhook, "sideEffects", path, side_effects));
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
            let policies = &["IfNeeded", "Never"];
            errors.extend(validation::validate_supported(webhook, "reinvocationPolicy", path, policies));
        }
        errors.extend(validate_client_config(webhook, &path.child("clientConfig")));
        if !lenience.match_conditions {
            errors.extend(validate_match_conditions(webhook, path, false, &lenience.stored_expressions));
        }
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

fn validate_client_config(webhook: &Value, path: &FieldPath) -> Vec<FieldError> {
    let none = json!({});
    let client = webhook.get("clientConfig").unwrap_or(&none);
    match (present(client, "/url"), present(client, "/service")) {
        (Some(_), Some(_)) | (None, None) => {
            vec![FieldError::required(path, "exactly one of url or service is required")]
        }
        (Some(url), None) => validate_webhook_url(url.as_str().unwrap_or_default(), &path.child("url")),
        (None, Some(service)) => validate_webhook_service(service, &path.child("service")),
    }
}

fn is_review_version(version: &str) -> bool {
    matches!(version, "v1" | "v1beta1")
}

fn validate_admission_review_versions(webhook: &Value, path: &FieldPath, lenient: bool) -> Vec<FieldError> {
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
    if !lenient && !versions.iter().any(|version| is_review_version(version)) {
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
        let mut twice = configuration();
        let copy = twice["webhooks"][0].clone();
        twice["webhooks"].as_array_mut().unwrap().push(copy);
        assert_eq!(messages(HOOKS.validate(&twice)), [r#"webhooks[1].name: Duplicate value: "a.b.c""#]);
    }

    #[test]
    fn update_keeps_what_was_accepted_before() {
        let mut old = configuration();
        old["webhooks"][0]["sideEffects"] = "Some".into();
        old["webhooks"][0]["matchConditions"] = json!([{"name": "c", "expression": "no such thing"}]);
        let mut new = old.clone();
        new["webhooks"][0]["timeoutSeconds"] = 5.into();
        assert_eq!(messages(HOOKS.validate_replacement(&new, &old, "")), Vec::<String>::new());
        new["webhooks"][0]["matchConditions"][0]["name"] = "d".into();
        assert_eq!(HOOKS.validate_replacement(&new, &old, "").len(), 1, "changed conditions are compiled");
        old["webhooks"][0]["sideEffects"] = "None".into();
        let errors = messages(HOOKS.validate_replacement(&new, &old, ""));
        assert_eq!(
            errors[0],
            r#"webhooks[0].sideEffects: Unsupported value: "Some": supported values: "None", "NoneOnDryRun""#
        );
    }

    #[test]
    fn names_of_static_configurations_are_reserved() {
        let mut object = configuration();
        object["metadata"]["name"] = "a.static.k8s.io".into();
        assert_eq!(
            messages(HOOKS.validate(&object)),
            [
                r#"metadata.name: Invalid value: "a.static.k8s.io": names ending with ".static.k8s.io" are reserved for static manifest-based configurations and cannot be managed via the API"#
            ]
        );
        assert_eq!(HOOKS.warnings_on_update(&object, &object).len(), 1);
    }
}
