//! Conditions of the type that kinds share.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    names,
};
use serde_json::Value;

use super::{invalid_for_each, require_supported};
use crate::accessors::{integer, mark_repeated, text};

const REASON_BYTES_MAX: usize = 1024;
const MESSAGE_BYTES_MAX: usize = 32 * 1024;

/// Validates conditions: their types are unique, all but the message is required.
pub(crate) fn validate_conditions(conditions: &[Value], path: &FieldPath) -> Vec<FieldError> {
    let repeated = mark_repeated(conditions, |condition| text(condition, "/type"));
    let mut errors = Vec::new();
    for (index, condition) in conditions.iter().enumerate() {
        let path = path.index(index);
        if repeated[index] {
            errors.push(FieldError::duplicate(&path, text(condition, "/type")));
        }
        errors.extend(validate_condition(condition, &path));
    }
    errors
}

fn validate_condition(condition: &Value, path: &FieldPath) -> Vec<FieldError> {
    let kind = text(condition, "/type");
    let mut errors = match kind {
        "" => vec![FieldError::required(&path.child("type"), "is required")],
        kind => invalid_for_each(&path.child("type"), kind, names::qualified_name(kind)),
    };
    errors.extend(require_supported(condition, "status", path, &["False", "True", "Unknown"]));
    let generation = integer(condition, "/observedGeneration");
    if generation < 0 {
        let detail = "must be greater than or equal to zero";
        errors.push(FieldError::invalid(&path.child("observedGeneration"), generation, detail));
    }
    if text(condition, "/lastTransitionTime").is_empty() {
        errors.push(FieldError::required(&path.child("lastTransitionTime"), ""));
    }
    let (reason, at) = (text(condition, "/reason"), path.child("reason"));
    if reason.is_empty() {
        errors.push(FieldError::required(&at, ""));
    } else {
        if !is_reason(reason) {
            let detail = names::pattern_message(
                "a condition reason must start with alphabetic character, optionally followed by a string of \
                 alphanumeric characters or '_,:', and must end with an alphanumeric character or '_'",
                "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?",
                &["my_name", "MY_NAME", "MyName", "ReasonA,ReasonB", "ReasonA:ReasonB"],
            );
            errors.push(FieldError::invalid(&at, reason, detail));
        }
        if reason.len() > REASON_BYTES_MAX {
            errors.push(FieldError::too_long(&at, REASON_BYTES_MAX));
        }
    }
    if text(condition, "/message").len() > MESSAGE_BYTES_MAX {
        errors.push(FieldError::too_long(&path.child("message"), MESSAGE_BYTES_MAX));
    }
    errors
}

fn is_reason(reason: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ',' | ':');
    reason.starts_with(|c: char| c.is_ascii_alphabetic())
        && !reason.ends_with([',', ':'])
        && reason.chars().all(is_inner)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validation::tests::messages;

    #[test]
    fn conditions_are_complete_and_unique() {
        let path = FieldPath::root("conditions");
        let good = json!({"type": "a.b/Ready", "status": "True", "reason": "A:b", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        assert!(validate_conditions(std::slice::from_ref(&good), &path).is_empty());
        assert_eq!(
            messages(validate_conditions(&[good.clone(), good], &path)),
            ["conditions[1]: Duplicate value: \"a.b/Ready\""]
        );
        let bad = json!({"status": "Odd", "reason": "a:", "observedGeneration": -1});
        assert_eq!(
            messages(validate_conditions(&[bad, json!({})], &path)),
            [
                "conditions[0].type: Required value: is required",
                "conditions[0].status: Unsupported value: \"Odd\": supported values: \"False\", \"True\", \"Unknown\"",
                "conditions[0].observedGeneration: Invalid value: -1: must be greater than or equal to zero",
                "conditions[0].lastTransitionTime: Required value",
                "conditions[0].reason: Invalid value: \"a:\": a condition reason must start with alphabetic character, \
                 optionally followed by a string of alphanumeric characters or '_,:', and must end with an \
                 alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  \
                 or 'ReasonA:ReasonB', regex used for validation is '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')",
                "conditions[1]: Duplicate value: \"\"",
                "conditions[1].type: Required value: is required",
                "conditions[1].status: Required value",
                "conditions[1].lastTransitionTime: Required value",
                "conditions[1].reason: Required value",
            ]
        );
    }
}
