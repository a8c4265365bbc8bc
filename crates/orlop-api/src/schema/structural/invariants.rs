//! Structural schema rules: every node has a type; value validation has no structural keywords and refers only to
//! declared fields.

use super::properties;
use crate::field_error::{FieldError, FieldPath};
use crate::schema::unstructured::{entries, flag, list, non_empty, non_null, text};
use orlop_regex::ValidationBudget;
use serde_json::{Value, json};
use std::sync::LazyLock;

static INT_OR_STRING: LazyLock<Value> = LazyLock::new(|| json!([{"type": "integer"}, {"type": "string"}]));

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// Collects violations. All patterns of a definition share a validation budget.
struct Violations<'b> {
    errors: Vec<FieldError>,
    patterns: &'b mut ValidationBudget,
}

impl Violations<'_> {
    fn push(&mut self, error: FieldError) {
        self.errors.push(error);
    }
}

/// Returns the validate_structural_schema of the structural schema rules, sorted by text as in Kubernetes.
pub fn validate_structural_schema(
    schema: &Value,
    path: &FieldPath,
    patterns: &mut ValidationBudget,
) -> Vec<FieldError> {
    let mut errors = Violations { errors: Vec::new(), patterns };
    structure(schema, Level::Root, path, &mut errors);
    // Only the root's value validation is checked against the structure, as in Kubernetes.
    value_validation_complete(schema, Some(schema), path, path, &mut errors);
    let mut errors = errors.errors;
    errors.sort_by_cached_key(ToString::to_string);
    errors
}

fn structure(schema: &Value, level: Level, path: &FieldPath, errors: &mut Violations<'_>) {
    let kind = text(schema, "type");
    let items = schema.get("items").filter(|items| items.is_object());
    if kind == "array" && items.is_none() {
        errors.push(FieldError::required(&path.child("items"), "must be specified"));
    }
    if let Some(items) = items {
        structure(items, Level::Item, &path.child("items"), errors);
    }
    for (name, property) in entries(schema, "properties") {
        structure(property, Level::Field, &path.child("properties").key(name), errors);
    }
    let additional = non_empty(schema, "additionalProperties");
    let additional_path = path.child("additionalProperties");
    if let Some(additional) = additional {
        if level == Level::Root {
            errors.push(FieldError::forbidden(&additional_path, "must not be used at the root"));
        }
        if additional.is_object() {
            structure(additional, Level::Field, &additional_path, errors);
        }
    }
    let embedded = flag(schema, "x-kubernetes-embedded-resource");
    let preserves = flag(schema, "x-kubernetes-preserve-unknown-fields");
    let int_or_string = flag(schema, "x-kubernetes-int-or-string");
    for (is_set, key) in
        [(preserves, "x-kubernetes-preserve-unknown-fields"), (embedded, "x-kubernetes-embedded-resource")]
    {
        if int_or_string && is_set {
            let detail = "must be false if x-kubernetes-int-or-string is true";
            errors.push(FieldError::invalid(&path.child(key), true, detail));
        }
    }
    value_checks(schema, is_int_or_string(schema), first_all_of_is_int_or_string(schema), path, errors);
    check_type(kind, level, embedded, preserves || int_or_string, path, errors);
    if embedded && additional.is_some() {
        errors.push(FieldError::forbidden(
            &additional_path,
            "must not be used if x-kubernetes-embedded-resource is set",
        ));
    }
    let is_resource = level == Level::Root || embedded;
    for name in ["kind", "apiVersion"] {
        let property = schema.get("properties").and_then(|properties| properties.get(name));
        if let Some(property) = property.filter(|property| is_resource && text(property, "type") != "string")
        {
            let path = path.child("properties").key(name).child("type");
            errors.push(FieldError::invalid(&path, text(property, "type"), "must be string"));
        }
    }
    if let Some(metadata) = schema.get("properties").and_then(|properties| properties.get("metadata")) {
        check_metadata(metadata, is_resource, level, &path.child("properties").key("metadata"), errors);
    }
    if embedded && !preserves && properties(schema).is_none() {
        let detail = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        errors.push(FieldError::required(&path.child("properties"), detail));
    }
}

fn check_type(
    kind: &str,
    level: Level,
    embedded: bool,
    may_be_untyped: bool,
    path: &FieldPath,
    errors: &mut Violations<'_>,
) {
    let path = path.child("type");
    if embedded && kind != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(if kind.is_empty() {
            FieldError::required(&path, detail)
        } else {
            FieldError::invalid(&path, kind, detail)
        });
    } else if kind.is_empty() && !may_be_untyped {
        let detail = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        errors.push(FieldError::required(&path, detail));
    }
    if level == Level::Root && !kind.is_empty() && kind != "object" {
        errors.push(FieldError::invalid(&path, kind, "must be object at the root"));
    }
}

/// Validates the root's metadata, which may only restrict name and generateName.
fn check_metadata(
    metadata: &Value,
    is_resource: bool,
    level: Level,
    path: &FieldPath,
    errors: &mut Violations<'_>,
) {
    if is_resource && text(metadata, "type") != "object" {
        errors.push(FieldError::invalid(&path.child("type"), text(metadata, "type"), "must be object"));
    }
    if level != Level::Root {
        return;
    }
    let allowed = |key: &String, value: &Value| match key.as_str() {
        "type" | "default" => true,
        "properties" => {
            entries(metadata, "properties").all(|(name, _)| name == "name" || name == "generateName")
        }
        _ => matches!(value, Value::Null | Value::Bool(false)),
    };
    if !metadata.as_object().is_some_and(|map| map.iter().all(|(key, value)| allowed(key, value))) {
        let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        errors.push(FieldError::forbidden(path, detail));
    }
}

fn is_int_or_string(schema: &Value) -> bool {
    schema.get("anyOf") == Some(&*INT_OR_STRING)
}

fn first_all_of_is_int_or_string(schema: &Value) -> bool {
    list(schema, "allOf").first().is_some_and(is_int_or_string)
}

fn value_checks(
    schema: &Value,
    skip_any_of: bool,
    skip_first_all_of: bool,
    path: &FieldPath,
    errors: &mut Violations<'_>,
) {
    if !skip_any_of {
        for (index, branch) in list(schema, "anyOf").iter().enumerate() {
            nested(branch, false, &path.child("anyOf").index(index), errors);
        }
    }
    for (index, branch) in list(schema, "allOf").iter().enumerate() {
        nested(branch, skip_first_all_of && index == 0, &path.child("allOf").index(index), errors);
    }
    for (index, branch) in list(schema, "oneOf").iter().enumerate() {
        nested(branch, false, &path.child("oneOf").index(index), errors);
    }
    if let Some(not) = schema.get("not").filter(|not| not.is_object()) {
        nested(not, false, &path.child("not"), errors);
    }
    let pattern = text(schema, "pattern");
    if !pattern.is_empty()
        && let Err(error) = orlop_regex::validate(pattern, errors.patterns)
    {
        let detail = format!("must be a valid regular expression, but isn't: {error}");
        errors.push(FieldError::invalid(&path.child("pattern"), pattern, detail));
    }
}

/// Keywords that are forbidden inside value validation (`allOf`, `anyOf`, `oneOf`, `not`).
const STRUCTURE: [(&str, &str); 12] = [
    ("type", "must be empty to be structural"),
    ("additionalProperties", "must be undefined to be structural"),
    ("default", "must be undefined to be structural"),
    ("title", "must be empty to be structural"),
    ("description", "must be empty to be structural"),
    ("nullable", "must be false to be structural"),
    ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
    ("x-kubernetes-embedded-resource", "must be false to be structural"),
    ("x-kubernetes-int-or-string", "must be false to be structural"),
    ("x-kubernetes-list-map-keys", "must be empty to be structural"),
    ("x-kubernetes-list-type", "must be undefined to be structural"),
    ("x-kubernetes-map-type", "must be undefined to be structural"),
];

fn nested(schema: &Value, skip_any_of: bool, path: &FieldPath, errors: &mut Violations<'_>) {
    value_checks(schema, skip_any_of, false, path, errors);
    if let Some(items) = schema.get("items").filter(|items| items.is_object()) {
        nested(items, false, &path.child("items"), errors);
    }
    for (name, property) in entries(schema, "properties") {
        nested(property, false, &path.child("properties").key(name), errors);
    }
    let rules = ("x-kubernetes-validations", "must be empty to be structural");
    for (key, detail) in STRUCTURE.into_iter().chain([rules]) {
        let value = if key == "default" { non_null(schema, key) } else { non_empty(schema, key) };
        let set = value.is_some_and(|value| key == "default" || *value != Value::Bool(false));
        if set {
            errors.push(FieldError::forbidden(&path.child(key), detail));
        }
    }
    if schema.get("properties").is_some_and(|properties| properties.get("metadata").is_some()) {
        let path = path.child("properties").key("metadata");
        errors.push(FieldError::forbidden(&path, "must not be specified in a nested context"));
    }
}

/// Validates that value validation refers only to fields of the structure.
fn value_validation_complete(
    validation: &Value,
    structure: Option<&Value>,
    at: &FieldPath,
    from: &FieldPath,
    errors: &mut Violations<'_>,
) {
    if let Some(not) = validation.get("not").filter(|not| not.is_object()) {
        nested_complete(not, structure, at, &from.child("not"), errors);
    }
    for key in ["allOf", "anyOf", "oneOf"] {
        for (index, branch) in list(validation, key).iter().enumerate() {
            nested_complete(branch, structure, at, &from.child(key).index(index), errors);
        }
    }
}

fn nested_complete(
    validation: &Value,
    structure: Option<&Value>,
    at: &FieldPath,
    from: &FieldPath,
    errors: &mut Violations<'_>,
) {
    let Some(structure) = structure else {
        errors.push(FieldError::required(at, format!("because it is defined in {from}")));
        return;
    };
    value_validation_complete(validation, Some(structure), at, from, errors);
    if let Some(items) = validation.get("items").filter(|items| items.is_object()) {
        let inner = structure.get("items").filter(|items| items.is_object());
        nested_complete(items, inner, &at.child("items"), &from.child("items"), errors);
    }
    for (name, property) in entries(validation, "properties") {
        let inner = structure.get("properties").and_then(|properties| properties.get(name));
        let (at, from) = (at.child("properties").key(name), from.child("properties").key(name));
        nested_complete(property, inner, &at, &from, errors);
    }
}
