//! Validation of an autoscaler's metrics.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    names,
};
use serde_json::Value;

use crate::{
    accessors::{present, text},
    core::pod::validate_container_resource_name,
    quantities, validation,
};

const TYPES: &[(&str, &str)] = &[
    ("ContainerResource", "containerResource"),
    ("External", "external"),
    ("Object", "object"),
    ("Pods", "pods"),
    ("Resource", "resource"),
];

/// Validates a metric.
pub(crate) fn validate(metric: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let kind = text(metric, "/type");
    if kind.is_empty() {
        errors.push(FieldError::required(&path.child("type"), "must specify a metric source type"));
    }
    let Some((_, field)) = TYPES.iter().find(|(known, _)| *known == kind) else {
        let kinds: Vec<&str> = TYPES.iter().map(|(kind, _)| *kind).collect();
        errors.push(FieldError::not_supported(&path.child("type"), kind, &kinds));
        return errors;
    };
    match present(metric, &format!("/{field}")) {
        None => {
            let detail = "must populate information for the given metric source";
            errors.push(FieldError::required(&path.child(field), detail));
        }
        Some(given) => errors.extend(validate_source(field, given, &path.child(field))),
    }
    for (_, other) in TYPES.iter().filter(|(known, _)| *known != kind) {
        if present(metric, &format!("/{other}")).is_some() {
            let detail = "must populate the given metric source only";
            errors.push(FieldError::forbidden(&path.child(other), detail));
        }
    }
    errors
}

fn validate_source(field: &str, source: &Value, path: &FieldPath) -> Vec<FieldError> {
    type Check = fn(&str, &FieldPath) -> Vec<FieldError>;
    let segment: Check = |name, path| validation::invalid_for_each(path, name, names::path_segment(name));
    let label: Check = |name, path| validation::invalid_for_each(path, name, names::dns1123_label(name));
    let metric = || path.child("metric").child("name");
    let required: Vec<(&str, FieldPath, &str, Check)> = match field {
        // Any name of a resource is taken.
        "resource" => vec![("/name", path.child("name"), "must specify a resource name", |_, _| Vec::new())],
        "containerResource" => vec![
            ("/name", path.child("name"), "must specify a resource name", validate_container_resource_name),
            ("/container", path.child("container"), "must specify a container", label),
        ],
        "object" => {
            let described = path.child("describedObject");
            vec![
                ("/describedObject/kind", described.child("kind"), "", segment),
                ("/describedObject/name", described.child("name"), "", segment),
                ("/metric/name", metric(), "must specify a metric name", segment),
            ]
        }
        _ => vec![("/metric/name", metric(), "must specify a metric name", segment)],
    };
    let mut errors = Vec::new();
    for (pointer, path, missing, check) in required {
        match text(source, pointer) {
            "" => errors.push(FieldError::required(&path, missing)),
            name => errors.extend(check(name, &path)),
        }
    }
    let at = path.child("target");
    errors.extend(validate_target(source.get("target").unwrap_or(&Value::Null), &at));
    errors.extend(validate_target_type(field, source, &at));
    errors
}

/// Validates a target: its type, and positive values.
fn validate_target(target: &Value, path: &FieldPath) -> Vec<FieldError> {
    let (kind, at) = (text(target, "/type"), path.child("type"));
    let mut errors = Vec::new();
    if kind.is_empty() {
        errors.push(FieldError::required(&at, "must specify a metric target type"));
    }
    if !matches!(kind, "Utilization" | "Value" | "AverageValue") {
        let detail = "must be either Utilization, Value, or AverageValue";
        errors.push(FieldError::invalid(&at, kind, detail));
    }
    for field in ["value", "averageValue"] {
        let amount = present(target, &format!("/{field}")).and_then(quantities::parse);
        if let Some(amount) = amount.filter(|amount| !quantities::is_positive(amount)) {
            errors.push(FieldError::invalid(&path.child(field), amount.to_string(), "must be positive"));
        }
    }
    errors.extend(validation::validate_positive(target, "averageUtilization", path));
    errors
}

/// Validates that a source has exactly one target of a supported type.
fn validate_target_type(field: &str, source: &Value, path: &FieldPath) -> Option<FieldError> {
    let has = |field: &str| present(source, &format!("/target/{field}")).is_some();
    let (value, average, share) = (has("value"), has("averageValue"), has("averageUtilization"));
    let required = |field: &str, detail: &str| Some(FieldError::required(&path.child(field), detail));
    let forbidden = |field: &str, detail: &str| Some(FieldError::forbidden(&path.child(field), detail));
    match field {
        "resource" | "containerResource" if !share && !average => {
            required("averageUtilization", "must set either a target raw value or a target utilization")
        }
        "resource" | "containerResource" if share && average => {
            forbidden("averageValue", "may not set both a target raw value and a target utilization")
        }
        "pods" if !average => required("averageValue", "must specify a positive target averageValue"),
        "object" if !value && !average => {
            required("averageValue", "must set either a target value or averageValue")
        }
        "external" if !value && !average => {
            required("averageValue", "must set either a target value for metric or a per-pod target")
        }
        "external" if value && average => {
            forbidden("value", "may not set both a target value for metric and a per-pod target")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validation::tests::messages;

    #[test]
    fn metric_sources_require_a_supported_target() {
        let path = FieldPath::root("m");
        for (metric, expected) in [
            (
                json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}),
                vec![],
            ),
            (
                json!({"type": "Pods", "pods": {"metric": {"name": "a/b"}, "target": {"type": "Value", "value": "-1"}}}),
                vec![
                    "m.pods.metric.name: Invalid value: \"a/b\": may not contain '/'",
                    "m.pods.target.value: Invalid value: \"-1\": must be positive",
                    "m.pods.target.averageValue: Required value: must specify a positive target averageValue",
                ],
            ),
            (
                json!({"type": "Object", "object": {"metric": {"name": "a"}, "target": {"type": "X", "value": "1"}}}),
                vec![
                    "m.object.describedObject.kind: Required value",
                    "m.object.describedObject.name: Required value",
                    "m.object.target.type: Invalid value: \"X\": must be either Utilization, Value, or AverageValue",
                ],
            ),
            (
                json!({"type": "External", "external": {"metric": {"name": "a"},
                    "target": {"type": "Value", "value": "1", "averageValue": "1"}}}),
                vec![
                    "m.external.target.value: Forbidden: may not set both a target value for metric and a per-pod target",
                ],
            ),
            (
                json!({"type": "ContainerResource", "containerResource": {"name": "cpu",
                    "target": {"type": "Utilization", "averageUtilization": 0, "averageValue": "1"}}}),
                vec![
                    "m.containerResource.container: Required value: must specify a container",
                    "m.containerResource.target.averageUtilization: Invalid value: 0: must be greater than 0",
                    "m.containerResource.target.averageValue: Forbidden: may not set both a target raw value and a target utilization",
                ],
            ),
        ] {
            assert_eq!(messages(validate(&metric, &path)), expected, "{metric}");
        }
    }
}
