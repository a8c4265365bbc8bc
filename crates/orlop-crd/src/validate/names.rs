//! Validation of names.

use orlop_api::field_error::{FieldError, FieldPath};
use orlop_api::names::dns1035_label;
use orlop_api::schema::unstructured::{strings, text};
use serde_json::Value;

/// Validates that required names are present.
pub(super) fn required(names: &Value, path: &FieldPath) -> Vec<FieldError> {
    let absent =
        ["plural", "singular", "kind", "listKind"].into_iter().filter(|key| text(names, key).is_empty());
    absent.map(|key| FieldError::required(&path.child(key), "")).collect()
}

/// Validates the names of a spec or a status.
pub(super) fn validate(names: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for key in ["plural", "singular"] {
        let name = text(names, key);
        if !name.is_empty() {
            errors.extend(label(name, &path.child(key)));
        }
    }
    for key in ["kind", "listKind"] {
        let name = text(names, key);
        let problems = dns1035_label(&name.to_lowercase());
        if !name.is_empty() && !problems.is_empty() {
            let detail = format!("may have mixed case, but should otherwise match: {}", problems.join(","));
            errors.push(FieldError::invalid(&path.child(key), name, detail));
        }
    }
    for (index, name) in strings(names, "shortNames").enumerate() {
        errors.extend(label(name, &path.child("shortNames").index(index)));
    }
    let (kind, list_kind) = (text(names, "kind"), text(names, "listKind"));
    if !kind.is_empty() && kind == list_kind {
        // Otherwise objects and lists could not be distinguished.
        let detail = "kind and listKind may not be the same";
        errors.push(FieldError::invalid(&path.child("listKind"), list_kind, detail));
    }
    for (index, name) in strings(names, "categories").enumerate() {
        errors.extend(label(name, &path.child("categories").index(index)));
    }
    errors
}

/// Validates a DNS-1035 label, with all problems in one error.
pub(super) fn label(name: &str, path: &FieldPath) -> Option<FieldError> {
    let problems = dns1035_label(name);
    (!problems.is_empty()).then(|| FieldError::invalid(path, name, problems.join(",")))
}
