//! Labels and label selectors.

mod parse;
mod selector;

pub use parse::parse;
pub use selector::{Operator, Requirement, Selector};

use crate::field_error::{FieldError, FieldPath};
use crate::names;
use serde_json::{Map, Value};

/// Validates a map of labels; values that are not strings are the decoder's business.
pub fn validate(labels: &Map<String, Value>, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (key, value) in labels {
        errors.extend(
            names::qualified_name(key).into_iter().map(|why| FieldError::invalid(path, key.as_str(), why)),
        );
        let value = value.as_str().unwrap_or_default();
        errors.extend(names::label_value(value).into_iter().map(|why| FieldError::invalid(path, value, why)));
    }
    errors
}

/// Validates a `LabelSelector` object.
pub fn validate_label_selector(selector: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let Some(labels) = selector.get("matchLabels").and_then(Value::as_object) {
        errors.extend(validate(labels, &path.child("matchLabels")));
    }
    let expressions = selector.get("matchExpressions").and_then(Value::as_array);
    for (index, expression) in expressions.into_iter().flatten().enumerate() {
        errors.extend(validate_requirement(expression, &path.child("matchExpressions").index(index), false));
    }
    errors
}

/// Validates a `LabelSelectorRequirement` object. Unknown operators are errors unless they are allowed.
pub fn validate_requirement(
    expression: &Value,
    path: &FieldPath,
    allow_unknown_operator: bool,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let text = |key: &str| expression.get(key).and_then(Value::as_str).unwrap_or_default();
    let values = expression.get("values").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    match text("operator") {
        "In" | "NotIn" if values.is_empty() => {
            let detail = "must be specified when `operator` is 'In' or 'NotIn'";
            errors.push(FieldError::required(&path.child("values"), detail));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.push(FieldError::forbidden(&path.child("values"), detail));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        _ if allow_unknown_operator => {}
        other => {
            errors.push(FieldError::invalid(&path.child("operator"), other, "not a valid selector operator"));
        }
    }
    let key = text("key");
    let key_path = path.child("key");
    errors.extend(names::qualified_name(key).into_iter().map(|why| FieldError::invalid(&key_path, key, why)));
    for (index, value) in values.iter().enumerate() {
        let value = value.as_str().unwrap_or_default();
        let path = path.child("values").index(index);
        errors
            .extend(names::label_value(value).into_iter().map(|why| FieldError::invalid(&path, value, why)));
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn label_selector_objects_are_validated() {
        let selector = json!({
            "matchLabels": {"a b": "c"},
            "matchExpressions": [
                {"key": "k", "operator": "In"},
                {"key": "k", "operator": "Exists", "values": ["x"]},
                {"key": "k", "operator": "Near"},
                {"key": "k", "operator": "In", "values": ["_"]}
            ]
        });
        let errors: Vec<_> = validate_label_selector(&selector, &FieldPath::root("spec").child("selector"))
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(errors.len(), 5);
        assert!(
            errors[0]
                .starts_with(r#"spec.selector.matchLabels: Invalid value: "a b": name part must consist"#)
        );
        assert_eq!(
            errors[1],
            "spec.selector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'"
        );
        assert_eq!(
            errors[2],
            "spec.selector.matchExpressions[1].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        );
        assert_eq!(
            errors[3],
            r#"spec.selector.matchExpressions[2].operator: Invalid value: "Near": not a valid selector operator"#
        );
        assert!(errors[4].starts_with(
            r#"spec.selector.matchExpressions[3].values[0]: Invalid value: "_": a valid label must be"#
        ));
    }
}
