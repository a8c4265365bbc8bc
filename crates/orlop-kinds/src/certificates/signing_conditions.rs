//! Conditions of a CertificateSigningRequest. Signers cannot approve or deny, and decisions are final.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    time::Time,
};
use serde_json::Value;

use crate::{
    accessors::{list, text},
    defaulting,
    equality::semantically_equal,
};

const POINTER: &str = "/status/conditions";
const DECISIONS: [&str; 2] = ["Approved", "Denied"];
/// Conditions whose status must be `True`.
const ONLY_TRUE: [&str; 3] = ["Approved", "Denied", "Failed"];

fn path() -> FieldPath {
    FieldPath::root("status").child("conditions")
}

fn conditions_of_type<'a>(request: &'a Value, kind: &str) -> Vec<&'a Value> {
    list(request, POINTER).iter().filter(|condition| text(condition, "/type") == kind).collect()
}

/// Restores Approved and Denied unless their number changes, which validation rejects.
pub(crate) fn restore_decisions(object: &mut Value, old: &Value) {
    for kind in DECISIONS {
        let before = conditions_of_type(old, kind);
        if before.len() != conditions_of_type(object, kind).len() {
            continue;
        }
        let Some(status) = defaulting::object_mut(object, "status") else { continue };
        let now =
            defaulting::items_mut(status, "conditions").filter(|condition| text(condition, "/type") == kind);
        now.zip(before).for_each(|(now, before)| now.clone_from(before));
    }
}

/// Sets lastUpdateTime and lastTransitionTime of conditions.
pub(crate) fn set_timestamps(object: &mut Value, old: &Value, now: Time) {
    let Some(status) = defaulting::object_mut(object, "status") else { return };
    for condition in defaulting::items_mut(status, "conditions") {
        let same = |before: &&Value| {
            text(before, "/type") == text(condition, "/type")
                && text(before, "/status") == text(condition, "/status")
                && !text(before, "/lastTransitionTime").is_empty()
        };
        let before = list(old, POINTER).iter().find(same);
        let since =
            before.map_or_else(|| now.to_string(), |before| text(before, "/lastTransitionTime").into());
        defaulting::set_if_zero(condition, "lastUpdateTime", now.to_string());
        defaulting::set_if_zero(condition, "lastTransitionTime", since);
    }
}

/// Validates conditions. Errors that the old object has too are ignored.
pub(crate) fn validate(object: &Value, old: &Value) -> Vec<FieldError> {
    let has_both = DECISIONS.iter().all(|kind| !conditions_of_type(old, kind).is_empty());
    let was_repeated = list(old, POINTER)
        .iter()
        .any(|condition| conditions_of_type(old, text(condition, "/type")).len() > 1);
    let had_untyped = !conditions_of_type(old, "").is_empty();
    let mut errors = Vec::new();
    let conditions = list(object, POINTER);
    for (index, condition) in conditions.iter().enumerate() {
        let (kind, status, place) =
            (text(condition, "/type"), text(condition, "/status"), path().index(index));
        if kind.is_empty() && !had_untyped {
            errors.push(FieldError::required(&place.child("type"), ""));
        }
        let allowed: &[&str] =
            if ONLY_TRUE.contains(&kind) { &["True"] } else { &["False", "True", "Unknown"] };
        if status.is_empty() {
            errors.push(FieldError::required(&place.child("status"), ""));
        } else if !allowed.contains(&status) {
            errors.push(FieldError::not_supported(&place.child("status"), status, allowed));
        }
        let earlier =
            |wanted: &str| conditions.iter().take(index).any(|condition| text(condition, "/type") == wanted);
        let other = DECISIONS.iter().find(|decision| DECISIONS.contains(&kind) && **decision != kind);
        if !has_both && other.is_some_and(|other| earlier(other)) {
            let detail = "Approved and Denied conditions are mutually exclusive";
            errors.push(FieldError::invalid(&path(), kind, detail));
        }
        if !was_repeated && earlier(kind) {
            errors.push(FieldError::duplicate(&place.child("type"), kind));
        }
    }
    errors
}

/// Validates a status transition: only `approval` decides, only `status` issues the certificate, and once.
pub(crate) fn validate_transition(object: &Value, old: &Value, subresource: &str) -> Vec<FieldError> {
    let mut errors = validate(object, old);
    let mut forbid = |path: &FieldPath, detail: String| errors.push(FieldError::forbidden(path, detail));
    for kind in ONLY_TRUE {
        if conditions_of_type(object, kind).len() < conditions_of_type(old, kind).len() {
            forbid(&path(), format!("updates may not remove a condition of type {kind:?}"));
        }
    }
    for kind in DECISIONS.iter().filter(|_| subresource != "approval") {
        let (now, before) = (conditions_of_type(object, kind), conditions_of_type(old, kind));
        if now.len() > before.len() {
            forbid(&path(), format!("updates may not add a condition of type {kind:?}"));
        } else if now.len() == before.len()
            && now.iter().zip(&before).any(|(now, before)| !semantically_equal(now, before))
        {
            forbid(&path(), format!("updates may not modify a condition of type {kind:?}"));
        }
    }
    let certificate = |request| text(request, "/status/certificate");
    if certificate(object) != certificate(old) {
        let path = FieldPath::root("status").child("certificate");
        if subresource != "status" {
            forbid(&path, "updates may not set certificate content".into());
        } else if !certificate(old).is_empty() {
            forbid(&path, "updates may not modify existing certificate content".into());
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validation::tests::messages;

    fn request(conditions: &Value) -> Value {
        json!({"status": {"conditions": conditions}})
    }

    #[test]
    fn only_approval_decides_and_decisions_are_final() {
        let (none, approved) =
            (request(&json!([])), request(&json!([{"type": "Approved", "status": "True"}])));
        let failed = request(&json!([{"type": "Failed", "status": "True"}]));
        let add = r#"status.conditions: Forbidden: updates may not add a condition of type "Approved""#;
        let remove = r#"status.conditions: Forbidden: updates may not remove a condition of type "Approved""#;
        let keep = r#"status.conditions: Forbidden: updates may not remove a condition of type "Failed""#;
        for (subresource, now, before, expected) in [
            ("approval", &approved, &none, vec![]),
            ("approval", &none, &approved, vec![remove]),
            ("status", &approved, &none, vec![add]),
            ("status", &none, &approved, vec![remove]),
            ("status", &failed, &none, vec![]),
            ("status", &none, &failed, vec![keep]),
        ] {
            assert_eq!(
                messages(validate_transition(now, before, subresource)),
                expected,
                "{subresource} {now}"
            );
        }
    }

    #[test]
    fn conditions_are_unique_and_true() {
        for (conditions, expected) in [
            (json!([{"type": "Ready", "status": "False"}]), vec![]),
            (
                json!([{}]),
                vec![
                    "status.conditions[0].type: Required value",
                    "status.conditions[0].status: Required value",
                ],
            ),
            (
                json!([{"type": "Denied", "status": "False"}]),
                vec![r#"status.conditions[0].status: Unsupported value: "False": supported values: "True""#],
            ),
            (
                json!([{"type": "Denied", "status": "True"}, {"type": "Approved", "status": "True"}]),
                vec![
                    r#"status.conditions: Invalid value: "Approved": Approved and Denied conditions are mutually exclusive"#,
                ],
            ),
            (
                json!([{"type": "a", "status": "True"}, {"type": "a", "status": "True"}]),
                vec![r#"status.conditions[1].type: Duplicate value: "a""#],
            ),
        ] {
            assert_eq!(messages(validate(&request(&conditions), &json!({}))), expected, "{conditions}");
        }
    }
}
