//! Error texts of Kubernetes' strategicpatch package.

use super::{Object, Outcome};
use crate::go_text::display;
use crate::patch::PatchError;
use serde_json::Value;

pub(super) fn rejected<T>(message: impl Into<String>) -> Outcome<T> {
    Err(PatchError::Rejected(message.into()))
}

pub(super) fn bad_retain_keys<T>() -> Outcome<T> {
    Err(PatchError::Malformed("invalid patch format of retainKeys".to_owned()))
}

pub(super) fn bad_set_order<T>() -> Outcome<T> {
    Err(PatchError::Malformed("invalid patch format of setElementOrder list".to_owned()))
}

pub(super) fn no_merge_key<T>(item: &Object, key: &str) -> Outcome<T> {
    rejected(format!(
        "map: {} does not contain declared merge key: {key}",
        display(&Value::Object(item.clone()))
    ))
}

pub(super) fn bad_type<T>(expected: &str, found: &Value) -> Outcome<T> {
    rejected(format!("expected a {expected}, but received a {}", go_type(found)))
}

pub(super) fn unknown_directive<T>(directive: &Value, item: &Object) -> Outcome<T> {
    let item = display(&Value::Object(item.clone()));
    rejected(format!("unknown patch type: {} in map: {item}", display(directive)))
}

pub(super) fn go_type(value: &Value) -> &'static str {
    if value.is_null() { "%!s(<nil>)" } else { crate::go_text::type_name(value) }
}
