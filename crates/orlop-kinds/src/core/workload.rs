//! Selectors, pod templates and replica counts of kinds that create pods.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    labels::{self, Selector},
};
use serde_json::{Value, json};

use crate::{
    accessors::{list, map, present, text},
    core::pod::{self, Owner},
    defaulting,
    printer::ColumnDefinition,
    validation,
};

/// Columns of a ReplicaSet or ReplicationController.
pub(crate) const REPLICA_COLUMNS: &[ColumnDefinition] = &[
    ColumnDefinition::NAME,
    ColumnDefinition::integer("Desired"),
    ColumnDefinition::integer("Current"),
    ColumnDefinition::integer("Ready"),
    ColumnDefinition::AGE,
    ColumnDefinition::wide("Containers"),
    ColumnDefinition::wide("Images"),
    ColumnDefinition::wide("Selector"),
];

/// Status counts of a ReplicaSet or ReplicationController.
pub(crate) const REPLICA_COUNTS: [&str; 4] =
    ["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas"];

/// Sets the pod template's defaults and returns the spec.
pub(crate) fn set_template_defaults(object: &mut Value) -> Option<&mut Value> {
    let spec = defaulting::object_mut(object, "spec")?;
    defaulting::set_if_absent(spec, "template", json!({}));
    if let Some(template) = defaulting::object_mut(spec, "template") {
        pod::set_template_defaults(template);
    }
    Some(spec)
}

/// Returns warnings about the pod template.
pub(crate) fn template_warnings(object: &Value) -> Vec<String> {
    let path = FieldPath::root("spec").child("template");
    pod::template_warnings(object.pointer("/spec/template").unwrap_or(&Value::Null), &path)
}

/// Validates a non-empty selector, and the pod template that it must match.
pub(crate) fn validate_selector_and_template(
    spec: &Value,
    path: &FieldPath,
    told_as: &str,
    owner: &str,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let selector_path = path.child("selector");
    let given = present(spec, "/selector");
    match given {
        // A DaemonSet reports only that the selector does not match.
        None if owner == "DaemonSet" => {}
        None => errors.push(FieldError::required(&selector_path, "")),
        Some(selector) => {
            errors.extend(labels::validate_label_selector(selector, &selector_path));
            if map(selector, "/matchLabels").is_empty() && list(selector, "/matchExpressions").is_empty() {
                let detail = format!("empty selector is invalid for {told_as}");
                errors.push(FieldError::invalid(&selector_path, selector.clone(), detail));
            }
        }
    }
    match Selector::from_label_selector(given.unwrap_or(&Value::Null)) {
        Err(_) => {
            let selector = given.cloned().unwrap_or_default();
            match owner {
                // The selector's own errors say it.
                "DaemonSet" => {}
                "StatefulSet" => errors.push(FieldError::invalid(&selector_path, selector, "")),
                _ => errors.push(FieldError::invalid(&selector_path, selector, "invalid label selector")),
            }
        }
        Ok(selector) => {
            let template = spec.get("template").unwrap_or(&Value::Null);
            let owner = Owner { restarts_always: Some(owner) };
            errors.extend(pod::validate_template(template, Some(&selector), &owner, &path.child("template")));
        }
    }
    errors
}

/// Sets the defaults of a rolling update's parameters.
pub(crate) fn set_rolling_update_defaults(spec: &mut Value, field: &str, parts: &[(&str, Value)]) {
    defaulting::set_if_absent(spec, field, json!({}));
    let Some(strategy) = defaulting::object_mut(spec, field) else { return };
    defaulting::set_if_zero(strategy, "type", "RollingUpdate");
    if text(strategy, "/type") == "RollingUpdate" {
        defaulting::set_if_absent(strategy, "rollingUpdate", json!({}));
        if let Some(rolling) = defaulting::object_mut(strategy, "rollingUpdate") {
            parts.iter().for_each(|(field, value)| defaulting::set_if_absent(rolling, field, value.clone()));
        }
    }
}

/// Validates the counts of a status: none negative, and none of `parts` above the total.
pub(crate) fn validate_status_counts(object: &Value, fields: &[&str], parts: &[&str]) -> Vec<FieldError> {
    let Some(status) = object.get("status") else { return Vec::new() };
    let path = FieldPath::root("status");
    let mut errors: Vec<FieldError> =
        fields.iter().filter_map(|field| validation::validate_non_negative(status, field, &path)).collect();
    let count = |field: &str| status.get(field).and_then(Value::as_i64).unwrap_or_default();
    for part in parts.iter().filter(|part| count(part) > count("replicas")) {
        errors.push(FieldError::invalid(
            &path.child(part),
            count(part),
            "cannot be greater than status.replicas",
        ));
    }
    errors
}

/// Returns true if a count or percentage is zero.
pub(crate) fn is_zero(value: Option<&Value>) -> bool {
    match value {
        Some(Value::Number(number)) => number.as_i64() == Some(0),
        Some(share) => validation::percent_value(share) == Some(0),
        None => true,
    }
}

/// Validates that the selector did not change.
pub(crate) fn validate_immutable_selector(object: &Value, old: &Value) -> Option<FieldError> {
    let none = Value::Null;
    let (new, old) = (object.get("spec").unwrap_or(&none), old.get("spec").unwrap_or(&none));
    validation::validate_immutable(new, old, "selector", &FieldPath::root("spec"))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::validation::tests::messages;

    /// Returns a minimal spec of a workload.
    pub(crate) fn workload() -> Value {
        json!({"metadata": {"name": "w"}, "spec": {"selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x:1"}]}}}})
    }

    #[test]
    fn selector_is_required_and_matches_the_template() {
        let mut object = workload();
        set_template_defaults(&mut object);
        let validation_errors = |spec: &Value| {
            messages(validate_selector_and_template(
                spec,
                &FieldPath::root("spec"),
                "deployment",
                "ReplicaSet",
            ))
        };
        assert!(validation_errors(&object["spec"]).is_empty());
        let mut without = object["spec"].clone();
        defaulting::remove_field(&mut without, "selector");
        assert_eq!(
            validation_errors(&without),
            [
                "spec.selector: Required value",
                r#"spec.template.metadata.labels: Invalid value: {"a":"b"}: `selector` does not match template `labels`"#
            ]
        );
        let mut empty = object["spec"].clone();
        empty["selector"] = json!({});
        assert_eq!(
            validation_errors(&empty),
            ["spec.selector: Invalid value: {}: empty selector is invalid for deployment"]
        );
        let mut bad = object["spec"].clone();
        bad["selector"] = json!({"matchExpressions": [{"key": "a", "operator": "?"}]});
        assert_eq!(
            validation_errors(&bad),
            [
                r#"spec.selector.matchExpressions[0].operator: Invalid value: "?": not a valid selector operator"#,
                r#"spec.selector: Invalid value: {"matchExpressions":[{"key":"a","operator":"?"}]}: invalid label selector"#,
            ]
        );
    }

    #[test]
    fn status_counts_are_bounded_by_replicas() {
        assert_eq!(
            messages(validate_status_counts(
                &json!({"status": {"replicas": 1, "readyReplicas": 2, "x": -1}}),
                &["x"],
                &["readyReplicas"]
            )),
            [
                "status.x: Invalid value: -1: must be greater than or equal to 0",
                "status.readyReplicas: Invalid value: 2: cannot be greater than status.replicas"
            ]
        );
    }
}
