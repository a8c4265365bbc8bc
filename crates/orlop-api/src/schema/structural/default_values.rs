//! Defaults must be valid under the schema that gives them, and have nothing it would prune.

use super::entries;
use crate::field_error::{FieldError, FieldPath};
use crate::schema::{self, Malformed, Root, from_openapi};
use serde_json::Value;

pub(super) fn validate(source: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk(source, path, &mut errors);
    errors
}

fn walk(source: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if let Some(default) = source.get("default").filter(|default| !default.is_null()) {
        check(default, source, &path.child("default"), errors);
    }
    if let Some(items) = source.get("items").filter(|items| items.is_object()) {
        walk(items, &path.child("items"), errors);
    }
    for (name, property) in entries(source, "properties") {
        walk(property, &path.child("properties").key(name), errors);
    }
}

fn check(default: &Value, source: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let node = from_openapi(source);
    let root = if node.embedded_resource { Root::Resource } else { Root::Plain };
    let mut pruned = default.clone();
    schema::prune(&mut pruned, &node, root);
    if pruned != *default {
        errors.push(FieldError::invalid(path, default.clone(), "must not have unknown fields"));
    }
    let mut coerced = default.clone();
    if node.embedded_resource
        && let Err(error) = schema::coerce_metadata(&mut coerced, &node, Malformed::Refuse)
    {
        errors.push(beneath(error, path));
        return;
    }
    let embedded = schema::validate_embedded_resources(default, &node);
    let found = if embedded.is_empty() { schema::validate(default, &node) } else { embedded };
    errors.extend(found.into_iter().map(|error| beneath(error, path)));
}

/// The same error, its path seen from above the default.
fn beneath(mut error: FieldError, path: &FieldPath) -> FieldError {
    error.field = if error.field.is_nil() { path.clone() } else { path.child(error.field.as_str()) };
    error
}
