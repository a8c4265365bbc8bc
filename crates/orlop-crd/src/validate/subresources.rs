//! Validation of subresources, printer columns and selectable fields.

use super::options::{Options, SELECTABLE_MAX};
use super::spec::{Spec, open_api};
use orlop_api::field_error::{FieldError, FieldPath};
use orlop_api::go_text;
use orlop_api::schema::structural::{conversion_error, resolve};
use orlop_api::schema::unstructured::text;
use serde_json::Value;
use std::collections::HashSet;

const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: [&str; 8] =
    ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];

pub(super) fn validate(subresources: &Value, path: &FieldPath) -> Vec<FieldError> {
    let Some(scale) = subresources.get("scale").filter(|scale| !scale.is_null()) else { return Vec::new() };
    let mut errors = Vec::new();
    for (key, prefix) in [("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")] {
        let (written, path) = (text(scale, key), path.child("scale").child(key));
        if written.is_empty() {
            errors.push(FieldError::required(&path, ""));
        } else if let Some(error) = simple(written, &path) {
            errors.push(error);
        } else if !written.starts_with(prefix) {
            let detail = format!("should be a json path under {}", prefix.trim_end_matches('.'));
            errors.push(FieldError::invalid(&path, written, detail));
        }
    }
    let (written, path) = (text(scale, "labelSelectorPath"), path.child("scale").child("labelSelectorPath"));
    if written.is_empty() {
        return errors;
    }
    if let Some(error) = simple(written, &path) {
        errors.push(error);
    } else if !written.starts_with(".spec.") && !written.starts_with(".status.") {
        let printed = go_text::json(&written.into());
        let detail = "should be a json path under either .spec or .status";
        errors.push(FieldError::invalid_printed(&path, printed, detail));
    }
    errors
}

fn simple(written: &str, path: &FieldPath) -> Option<FieldError> {
    let refused = || FieldError::invalid(path, written, "must be a simple json path starting with .");
    (!written.starts_with('.')).then(refused)
}

pub(super) fn validate_columns(columns: &Value, path: &FieldPath) -> Vec<FieldError> {
    let columns = columns.as_array().into_iter().flatten();
    columns.enumerate().flat_map(|(index, column)| validate_column(column, &path.index(index))).collect()
}

fn validate_column(column: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if text(column, "name").is_empty() {
        errors.push(FieldError::required(&path.child("name"), ""));
    }
    let kind = text(column, "type");
    let detail = format!("must be one of {}", COLUMN_TYPES.join(","));
    if kind.is_empty() {
        errors.push(FieldError::required(&path.child("type"), detail));
    } else if !COLUMN_TYPES.contains(&kind) {
        errors.push(FieldError::invalid(&path.child("type"), kind, detail));
    }
    let format = text(column, "format");
    if !format.is_empty() && !COLUMN_FORMATS.contains(&format) {
        let detail = format!("must be one of {}", COLUMN_FORMATS.join(","));
        errors.push(FieldError::invalid(&path.child("format"), format, detail));
    }
    let (written, path) = (text(column, "jsonPath"), path.child("JSONPath"));
    if written.is_empty() {
        errors.push(FieldError::required(&path, ""));
    } else {
        errors.extend(simple(written, &path));
    }
    errors
}

/// Validates the selectable fields shared by all versions.
pub(super) fn validate_shared_selectable(
    spec: &Spec<'_>,
    options: &Options,
    path: &FieldPath,
) -> Vec<FieldError> {
    if spec.selectable.is_null() {
        return Vec::new();
    }
    let fields_path = path.child("selectableFields");
    if spec.validation.is_null() {
        let detail = "may only be set when validations.schema is included";
        return vec![FieldError::invalid(&fields_path, "", detail)];
    }
    let schema = open_api(spec.validation).unwrap_or(&Value::Null);
    validate_selectable(spec.selectable, schema, options, "", &fields_path)
}

/// Validates the selectable fields of a version; the empty name means all versions.
pub(super) fn validate_selectable(
    fields: &Value,
    schema: &Value,
    options: &Options,
    version: &str,
    path: &FieldPath,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let Some(problem) = conversion_error(schema) {
        // Kubernetes reports this at the path of the schema.
        let beside = path.as_str().strip_suffix("selectableFields").unwrap_or_default();
        let path = FieldPath::root(format!("{beside}schema.openAPIV3Schema"));
        errors.push(FieldError::invalid(&path, "", problem));
    }
    let mut seen = HashSet::new();
    for (index, field) in fields.as_array().into_iter().flatten().enumerate() {
        let (written, path) = (text(field, "jsonPath"), path.index(index).child("jsonPath"));
        if written.is_empty() {
            errors.push(FieldError::required(&path, ""));
            continue;
        }
        let (found, found_schema) = match resolve(written, schema, false) {
            Ok(found) => found,
            Err(problem) => {
                errors.push(FieldError::invalid(&path, written, format!("is an invalid path: {problem}")));
                continue;
            }
        };
        let found = found.to_string();
        if found.split(['.', '[']).next() == Some("metadata") {
            errors.push(FieldError::invalid(&path, written, "must not point to fields in metadata"));
        }
        if !matches!(text(found_schema, "type"), "string" | "boolean" | "integer") {
            let detail = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.";
            errors.push(FieldError::invalid(&path, written, detail));
        }
        if !seen.insert(found) {
            errors.push(FieldError::duplicate(&path, written));
        }
    }
    if seen.len() > SELECTABLE_MAX && !options.too_many_selectable.contains(version) {
        errors.push(FieldError::too_many(path, seen.len(), SELECTABLE_MAX));
    }
    errors
}
