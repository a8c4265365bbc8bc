//! Migration from client-side apply: the last-applied annotation.
//!
//! Only for the manager `kubectl`: fields that are unchanged since client-side
//! apply are taken over without a conflict, and the annotation is kept current
//! so that client-side apply can resume.

use super::compare::compare;
use super::conflicts::Conflict;
use super::to_field_set::to_field_set;
use super::typed::{TypeRef, validate};
use crate::managed_fields::Set;
use crate::object_meta;
use serde_json::{Map, Value};

pub const LAST_APPLIED_ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
pub(crate) const KUBECTL_MANAGER: &str = "kubectl";

fn annotation(object: &Value) -> Option<&str> {
    let annotations = object_meta::of(object).get("annotations")?;
    annotations.get(LAST_APPLIED_ANNOTATION)?.as_str().filter(|text| !text.is_empty())
}

/// Returns the fields that client-side apply set and that are unchanged since.
pub(crate) fn untouched_fields(live: &Value, of: TypeRef<'_>, api_version: &str) -> Option<Set> {
    let last = crate::decode::json(annotation(live)?.as_bytes()).ok()?.value;
    if last.get("apiVersion").and_then(Value::as_str) != Some(api_version) {
        return None;
    }
    validate(&last, of, false).ok()?;
    validate(live, of, false).ok()?;
    let set = to_field_set(&last, of).ok()?;
    let changes = compare(&last, live, of).ok()?;
    Some(set.difference(&changes.modified).difference(&changes.added).difference(&changes.removed))
}

/// Returns the conflicts that remain when unchanged fields are taken over.
pub(crate) fn remaining(conflicts: Vec<Conflict>, untouched: &Set) -> Vec<Conflict> {
    conflicts.into_iter().filter(|conflict| !untouched.has(&conflict.path.0)).collect()
}

/// Updates the annotation with the applied configuration, if it exists.
/// Returns whether anything changed.
pub(crate) fn refresh(object: &mut Value, config: &Value) -> bool {
    let Some(before) = annotation(object).map(str::to_owned) else { return false };
    let mut config = config.clone();
    if let Some(annotations) = config.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.remove(LAST_APPLIED_ANNOTATION);
    }
    // kubectl writes a line of JSON.
    let text = format!("{}\n", crate::go_text::json(&config));
    let Some(annotations) = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) else {
        return false;
    };
    annotations.insert(LAST_APPLIED_ANNOTATION.to_owned(), text.into());
    drop_if_too_big(annotations);
    annotation(object) != Some(before.as_str())
}

fn drop_if_too_big(annotations: &mut Map<String, Value>) {
    if object_meta::annotations_bytes(annotations) > object_meta::ANNOTATIONS_BYTES_MAX {
        annotations.remove(LAST_APPLIED_ANNOTATION);
    }
}
