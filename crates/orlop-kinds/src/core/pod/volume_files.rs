//! Validation of the files of a volume: their modes, and paths relative to it.

use orlop_api::field_error::{FieldError, FieldPath};
use serde_json::Value;

use super::environment;
use crate::{accessors::text, validation};

const FILE_MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";
const FILE_MODE_MAX: i64 = 0o777;

pub(super) fn validate_file_mode(object: &Value, field: &str, path: &FieldPath) -> Option<FieldError> {
    let mode = object.get(field)?.as_i64()?;
    (!(0..=FILE_MODE_MAX).contains(&mode)).then(|| FieldError::invalid(&path.child(field), mode, FILE_MODE))
}

pub(super) fn validate_key_to_path(item: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors: Vec<FieldError> =
        ["key", "path"].iter().filter_map(|field| validation::require_text(item, field, path)).collect();
    errors.extend(validate_local_non_reserved_path(text(item, "/path"), &path.child("path")));
    errors.extend(validate_file_mode(item, "mode", path));
    errors
}

pub(super) fn validate_downward_api_file(item: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors: Vec<FieldError> = validation::require_text(item, "path", path).into_iter().collect();
    errors.extend(validate_local_non_reserved_path(text(item, "/path"), &path.child("path")));
    errors.extend(environment::validate_volume_field(item, path));
    errors.extend(validate_file_mode(item, "mode", path));
    errors
}

pub(super) fn validate_no_backsteps(given: &str, path: &FieldPath) -> Vec<FieldError> {
    if given.split('/').any(|part| part == "..") {
        return vec![FieldError::invalid(path, given, "must not contain '..'")];
    }
    Vec::new()
}

/// Validates a relative path without `..`.
pub(crate) fn validate_local_descending_path(given: &str, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if given.starts_with('/') {
        errors.push(FieldError::invalid(path, given, "must be a relative path"));
    }
    errors.extend(validate_no_backsteps(given, path));
    errors
}

/// Validates a relative path without `..` that does not start with a reserved name.
pub(super) fn validate_local_non_reserved_path(given: &str, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = validate_local_descending_path(given, path);
    if given.starts_with("..") && !given.starts_with("../") {
        errors.push(FieldError::invalid(path, given, "must not start with '..'"));
    }
    errors
}
