//! Validation of versions.

use super::names::label;
use super::schema::SchemaValidator;
use super::spec::{Spec, SpecVersion, open_api};
use super::subresources;
use orlop_api::field_error::{FieldError, FieldPath};
use orlop_api::go_text;
use orlop_api::schema::structural::format_schema;
use orlop_api::schema::unstructured::{flag, text};
use serde_json::Value;

pub(super) fn validate(
    spec: &Spec<'_>,
    validator: &mut SchemaValidator<'_>,
    path: &FieldPath,
) -> Vec<FieldError> {
    let versions_path = path.child("versions");
    let mut errors = Vec::new();
    for (index, version) in spec.versions.iter().enumerate() {
        let path = versions_path.index(index);
        errors.extend(label(version.name, &path.child("name")));
        errors.extend(validate_version(version, has_status(spec, version), validator, &path));
    }
    let names: Vec<_> = spec.versions.iter().map(|version| version.name).collect();
    let repeated = (1..names.len()).any(|index| names[..index].contains(&names[index]));
    let refused = |detail: &str| FieldError::invalid_printed(&versions_path, printed(spec), detail);
    if repeated {
        errors.push(refused("must contain unique version names"));
    }
    if spec.versions.iter().filter(|version| version.storage).count() != 1 {
        errors.push(refused("must have exactly one version marked as storage version"));
    }
    let first = spec.version();
    if !first.is_empty() {
        errors.extend(label(first, &path.child("version")));
    }
    errors
}

fn validate_version(
    version: &SpecVersion<'_>,
    status: bool,
    validator: &mut SchemaValidator<'_>,
    path: &FieldPath,
) -> Vec<FieldError> {
    let mut errors = deprecation(version.source, &path.child("deprecationWarning"));
    errors.extend(validator.validate(version.schema, version.name, status, &path.child("schema")));
    errors.extend(subresources::validate(version.subresources, &path.child("subresources")));
    errors.extend(subresources::validate_columns(version.columns, &path.child("additionalPrinterColumns")));
    if !version.selectable.is_null() {
        let path = path.child("selectableFields");
        match open_api(version.schema) {
            None => {
                let detail = "may only be set when `version.schema.openAPIV3Schema` is not included";
                errors.push(FieldError::invalid(&path, "", detail));
            }
            Some(schema) => {
                errors.extend(subresources::validate_selectable(
                    version.selectable,
                    schema,
                    validator.options,
                    version.name,
                    &path,
                ));
            }
        }
    }
    errors
}

fn has_status(spec: &Spec<'_>, version: &SpecVersion<'_>) -> bool {
    let own = spec.versions.iter().any(|version| !version.subresources.is_null());
    is_set(if own { version.subresources } else { spec.subresources })
}

/// Returns whether any version has a status subresource.
pub(super) fn any_has_status(spec: &Spec<'_>) -> bool {
    is_set(spec.subresources) || spec.versions.iter().any(|version| is_set(version.subresources))
}

fn is_set(subresources: &Value) -> bool {
    subresources.get("status").is_some_and(|status| !status.is_null())
}

fn deprecation(version: &Value, path: &FieldPath) -> Vec<FieldError> {
    let Some(warning) = version.get("deprecationWarning").and_then(Value::as_str) else { return Vec::new() };
    let refused = |detail: String| {
        FieldError::invalid_printed(path, go_text::json(&Value::String(warning.to_owned())), detail)
    };
    if !flag(version, "deprecated") {
        return vec![refused("can only be set for deprecated versions".to_owned())];
    }
    let mut errors = Vec::new();
    if warning.len() > 256 {
        errors.push(refused("must be <= 256 characters long".to_owned()));
    }
    if warning.is_empty() {
        errors.push(refused("must not be an empty string".to_owned()));
    }
    if let Some((index, _)) = warning.char_indices().find(|(_, character)| !go_text::is_printable(*character))
    {
        errors.push(refused(format!(
            "must only contain printable UTF-8 characters; non-printable character found at index {index}"
        )));
    }
    errors
}

/// Formats the versions as Kubernetes prints its internal type.
fn printed(spec: &Spec<'_>) -> String {
    if spec.versions.is_empty() {
        return if spec.source.get("versions").is_some_and(Value::is_array) { "[]" } else { "null" }
            .to_owned();
    }
    let versions: Vec<_> = spec.versions.iter().map(printed_version).collect();
    format!("[{}]", versions.join(","))
}

fn printed_version(version: &SpecVersion<'_>) -> String {
    let value = |key: &str| go_text::json(version.source.get(key).unwrap_or(&Value::Null));
    let schema = if version.schema.is_null() {
        "null".to_owned()
    } else {
        let inner = open_api(version.schema).map_or_else(|| "null".to_owned(), format_schema);
        format!("{{\"OpenAPIV3Schema\":{inner}}}")
    };
    format!(
        "{{\"Name\":{},\"Served\":{},\"Storage\":{},\"Deprecated\":{},\"DeprecationWarning\":{},\"Schema\":{schema},\"Subresources\":{},\"AdditionalPrinterColumns\":{},\"SelectableFields\":{}}}",
        go_text::json(&version.name.into()),
        flag(version.source, "served"),
        version.storage,
        flag(version.source, "deprecated"),
        value("deprecationWarning"),
        printed_subresources(version.subresources),
        printed_columns(version.columns),
        printed_selectable(version.selectable),
    )
}

fn printed_subresources(subresources: &Value) -> String {
    if subresources.is_null() {
        return "null".to_owned();
    }
    let status = if is_set(subresources) { "{}" } else { "null" };
    let scale = subresources.get("scale").filter(|scale| !scale.is_null()).map_or_else(
        || "null".to_owned(),
        |scale| {
            let value = |key: &str| go_text::json(&text(scale, key).into());
            let selector = go_text::json(scale.get("labelSelectorPath").unwrap_or(&Value::Null));
            format!(
                "{{\"SpecReplicasPath\":{},\"StatusReplicasPath\":{},\"LabelSelectorPath\":{selector}}}",
                value("specReplicasPath"),
                value("statusReplicasPath")
            )
        },
    );
    format!("{{\"Status\":{status},\"Scale\":{scale}}}")
}

fn printed_columns(columns: &Value) -> String {
    let Some(columns) = columns.as_array() else { return "null".to_owned() };
    let print = |column: &Value| {
        let value = |key: &str| go_text::json(&text(column, key).into());
        let priority = column.get("priority").and_then(Value::as_i64).unwrap_or_default();
        format!(
            "{{\"Name\":{},\"Type\":{},\"Format\":{},\"Description\":{},\"Priority\":{priority},\"JSONPath\":{}}}",
            value("name"),
            value("type"),
            value("format"),
            value("description"),
            value("jsonPath")
        )
    };
    format!("[{}]", columns.iter().map(print).collect::<Vec<_>>().join(","))
}

fn printed_selectable(fields: &Value) -> String {
    let Some(fields) = fields.as_array() else { return "null".to_owned() };
    let print =
        |field: &Value| format!("{{\"JSONPath\":{}}}", go_text::json(&text(field, "jsonPath").into()));
    format!("[{}]", fields.iter().map(print).collect::<Vec<_>>().join(","))
}
