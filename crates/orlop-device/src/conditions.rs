//! `status.conditions` of every kind: validation and transition times.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    names,
};
use serde_json::Value;

const CONDITIONS_MAX: usize = 128;
const TYPE_BYTES_MAX: usize = 316;
const REASON_BYTES_MAX: usize = 1024;
const MESSAGE_BYTES_MAX: usize = 32 << 10;

fn list(status: &Value) -> &[Value] {
    status.get("conditions").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn text<'a>(condition: &'a Value, field: &str) -> &'a str {
    condition.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// Sets the transition time of each condition without one: the previous one if its status is unchanged, `now` otherwise.
pub(crate) fn set_transition_times(status: &mut Value, before: &Value, now: &str) {
    let Some(conditions) = status.get_mut("conditions").and_then(Value::as_array_mut) else { return };
    for condition in conditions {
        if !text(condition, "lastTransitionTime").is_empty() {
            continue;
        }
        let same = |old: &&Value| {
            text(old, "type") == text(condition, "type") && text(old, "status") == text(condition, "status")
        };
        let kept = list(before).iter().find(same).map(|old| text(old, "lastTransitionTime"));
        let time = kept.filter(|time| !time.is_empty()).unwrap_or(now).to_owned();
        if let Some(condition) = condition.as_object_mut() {
            condition.insert("lastTransitionTime".into(), time.into());
        }
    }
}

/// Validates the conditions of a status.
pub(crate) fn validate(status: &Value) -> Vec<FieldError> {
    let path = FieldPath::root("status").child("conditions");
    let conditions = list(status);
    if conditions.len() > CONDITIONS_MAX {
        return vec![FieldError::too_many(&path, conditions.len(), CONDITIONS_MAX)];
    }
    let mut errors = Vec::new();
    for (index, condition) in conditions.iter().enumerate() {
        let at = path.index(index);
        let kind = text(condition, "type");
        if kind.is_empty() {
            errors.push(FieldError::required(&at.child("type"), ""));
        } else if kind.len() > TYPE_BYTES_MAX {
            errors.push(FieldError::too_long(&at.child("type"), TYPE_BYTES_MAX));
        } else if conditions[..index].iter().any(|other| text(other, "type") == kind) {
            errors.push(FieldError::duplicate(&at.child("type"), kind));
        } else {
            let problems = names::qualified_name(kind);
            errors.extend(problems.into_iter().map(|why| FieldError::invalid(&at.child("type"), kind, why)));
        }
        match text(condition, "status") {
            "True" | "False" | "Unknown" => {}
            "" => errors.push(FieldError::required(&at.child("status"), "")),
            other => {
                let known = ["True", "False", "Unknown"];
                errors.push(FieldError::not_supported(&at.child("status"), other, &known));
            }
        }
        errors.extend(validate_reason(text(condition, "reason"), &at.child("reason")));
        if text(condition, "message").len() > MESSAGE_BYTES_MAX {
            errors.push(FieldError::too_long(&at.child("message"), MESSAGE_BYTES_MAX));
        }
        let observed = condition.get("observedGeneration").and_then(Value::as_i64).unwrap_or_default();
        if observed < 0 {
            let at = at.child("observedGeneration");
            errors.push(FieldError::invalid(&at, observed, "must be greater than or equal to 0"));
        }
    }
    errors
}

/// Validates a reason, which is optional, as Kubernetes does.
fn validate_reason(reason: &str, path: &FieldPath) -> Option<FieldError> {
    if reason.len() > REASON_BYTES_MAX {
        return Some(FieldError::too_long(path, REASON_BYTES_MAX));
    }
    let bytes = reason.as_bytes();
    let word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let fits = match bytes {
        [] => true,
        [only] => only.is_ascii_alphabetic(),
        [first, middle @ .., last] => {
            first.is_ascii_alphabetic()
                && middle.iter().all(|byte| word(byte) || matches!(byte, b',' | b':'))
                && word(last)
        }
    };
    let why = "must start with a letter, contain letters, digits, '_', ',' or ':', and end with a letter, a \
               digit or '_'";
    (!fits).then(|| FieldError::invalid(path, reason, why))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_invalid_field_has_an_error() {
        let status = json!({"conditions": [
            {"type": "", "status": "Maybe", "reason": "no good", "observedGeneration": -1},
            {"type": "Ready", "status": "True"},
            {"type": "Ready", "status": ""},
            {"type": "a b", "status": "False", "reason": "Ok"},
        ]});
        let errors: Vec<_> = validate(&status).iter().map(ToString::to_string).collect();
        let starts = [
            "status.conditions[0].type: Required value",
            "status.conditions[0].status: Unsupported value: \"Maybe\"",
            "status.conditions[0].reason: Invalid value: \"no good\"",
            "status.conditions[0].observedGeneration: Invalid value: -1",
            "status.conditions[2].type: Duplicate value: \"Ready\"",
            "status.conditions[2].status: Required value",
            "status.conditions[3].type: Invalid value: \"a b\"",
        ];
        assert_eq!(errors.len(), starts.len(), "{errors:#?}");
        for (error, start) in errors.iter().zip(starts) {
            assert!(error.starts_with(start), "{error}");
        }
    }

    #[test]
    fn transition_time_changes_with_the_status_only() {
        let before = json!({"conditions": [
            {"type": "A", "status": "True", "lastTransitionTime": "then"},
            {"type": "B", "status": "True", "lastTransitionTime": "then"},
        ]});
        let mut after = json!({"conditions": [
            {"type": "A", "status": "True", "reason": "Other"},
            {"type": "B", "status": "False"},
            {"type": "C", "status": "True"},
            {"type": "D", "status": "True", "lastTransitionTime": "said"},
        ]});
        set_transition_times(&mut after, &before, "now");
        let times: Vec<_> = list(&after).iter().map(|c| text(c, "lastTransitionTime")).collect();
        assert_eq!(times, ["then", "now", "now", "said"]);
    }
}
