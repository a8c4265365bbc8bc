//! Validation of supported keywords and of `x-kubernetes-` extensions.

use super::{properties, relative_path};
use crate::field_error::{FieldError, FieldPath};
use crate::schema::unstructured::{entries, flag, list, non_empty, non_null, text};
use serde_json::Value;

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
const REASONS: [&str; 4] =
    ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// Context of a schema node.
#[derive(Clone, Copy)]
struct Context<'a> {
    root: bool,
    inside_metadata: bool,
    /// Reason why defaults are forbidden here.
    no_defaults: Option<&'a str>,
    options: ValidationOptions,
}

/// Validation that updates skip where the stored definition already violates it (ratcheting).
#[derive(Clone, Copy, Debug)]
pub struct ValidationOptions {
    /// Require types of OpenAPI v3.
    pub require_valid_property_type: bool,
    /// Require items of sets to be scalars or atomic.
    pub require_atomic_set_type: bool,
    /// Require items of sets and maps to have an identity: not null, keys required or defaulted.
    pub require_map_list_keys: bool,
}

impl Default for ValidationOptions {
    fn default() -> Self {
        Self { require_valid_property_type: true, require_atomic_set_type: true, require_map_list_keys: true }
    }
}

/// Validates keywords and their combinations, and the fields of CEL rules but not their expressions.
pub fn validate_keywords(schema: &Value, path: &FieldPath, options: ValidationOptions) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk(
        schema,
        path,
        Context { root: true, inside_metadata: false, no_defaults: None, options },
        &mut errors,
    );
    errors
}

/// Returns whether a node's type is not one of OpenAPI v3.
pub fn has_unknown_types(node: &Value) -> bool {
    let kind = text(node, "type");
    !kind.is_empty() && !TYPES.contains(&kind)
}

/// Returns whether a node is a set whose items are not atomic.
pub fn has_non_atomic_set_items(node: &Value) -> bool {
    let mut errors = Vec::new();
    if let (true, Some(items)) = (text(node, "x-kubernetes-list-type") == "set", single_items(node)) {
        validate_set_items(items, &FieldPath::nil(), &mut errors);
    }
    !errors.is_empty()
}

/// Returns whether a node is a set or map whose items may lack an identity.
pub fn has_unidentifiable_items(node: &Value) -> bool {
    let mut errors = Vec::new();
    validate_item_identity(node, &FieldPath::nil(), &mut errors);
    !errors.is_empty()
}

fn single_items(schema: &Value) -> Option<&Value> {
    schema.get("items").filter(|items| items.is_object())
}

fn walk(schema: &Value, path: &FieldPath, context: Context<'_>, errors: &mut Vec<FieldError>) {
    if !schema.is_object() {
        return;
    }
    validate_supported(schema, path, context, errors);
    if flag(schema, "uniqueItems") {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.push(FieldError::forbidden(&path.child("uniqueItems"), detail));
    }
    let inner = Context { root: false, ..context };
    if let Some(additional) = non_empty(schema, "additionalProperties") {
        let path = path.child("additionalProperties");
        if properties(schema).is_some() && *additional != Value::Bool(true) {
            errors.push(FieldError::forbidden(
                &path,
                "additionalProperties and properties are mutual exclusive",
            ));
        }
        let no_defaults = if context.inside_metadata {
            Some("inside additionalProperties applying to object metadata")
        } else {
            context.no_defaults
        };
        walk(additional, &path, Context { no_defaults, ..inner }, errors);
    }
    for (name, property) in entries(schema, "properties") {
        let mut inner = inner;
        let meta = matches!(name.as_str(), "metadata" | "kind" | "apiVersion");
        let reason = format!("in top-level {name}");
        if meta && (context.root || flag(schema, "x-kubernetes-embedded-resource")) {
            inner.inside_metadata = true;
            if context.root {
                inner.no_defaults = Some(&reason);
            }
        }
        walk(property, &path.child("properties").key(name), inner, errors);
    }
    if let Some(not) = schema.get("not") {
        walk(not, &path.child("not"), inner, errors);
    }
    for key in ["allOf", "oneOf", "anyOf"] {
        for (index, branch) in list(schema, key).iter().enumerate() {
            walk(branch, &path.child(key).index(index), inner, errors);
        }
    }
    match schema.get("items") {
        Some(items @ Value::Object(_)) => walk(items, &path.child("items"), inner, errors),
        Some(Value::Array(several)) => {
            for (index, items) in several.iter().enumerate() {
                walk(items, &path.child("items").index(index), inner, errors);
            }
        }
        _ => {}
    }
    validate_extensions(schema, path, context.options, errors);
    validate_rules(schema, path, errors);
}

fn validate_supported(schema: &Value, path: &FieldPath, context: Context<'_>, errors: &mut Vec<FieldError>) {
    let kind = text(schema, "type");
    if context.options.require_valid_property_type && has_unknown_types(schema) {
        errors.push(FieldError::not_supported(&path.child("type"), kind, &TYPES));
    }
    if let Some(reason) = context.no_defaults.filter(|_| non_null(schema, "default").is_some()) {
        errors.push(FieldError::forbidden(&path.child("default"), format!("must not be set {reason}")));
    }
    for key in ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"] {
        let empty = |value: &Value| value.as_object().is_some_and(serde_json::Map::is_empty);
        if non_empty(schema, key)
            .is_some_and(|value| !empty(value) || matches!(key, "dependencies" | "additionalItems"))
        {
            errors.push(FieldError::forbidden(&path.child(key), format!("{key} is not supported")));
        }
    }
    if kind == "null" {
        errors.push(FieldError::forbidden(
            &path.child("type"),
            "type cannot be set to null, use nullable as an alternative",
        ));
    }
    if schema.get("items").is_some_and(|items| items.as_array().is_some_and(|several| !several.is_empty())) {
        errors.push(FieldError::forbidden(
            &path.child("items"),
            "items must be a schema object and not an array",
        ));
    }
    if context.inside_metadata && flag(schema, "x-kubernetes-embedded-resource") {
        let path = path.child("x-kubernetes-embedded-resource");
        errors.push(FieldError::forbidden(&path, "must not be used inside of resource meta"));
    }
}

fn validate_extensions(
    schema: &Value,
    path: &FieldPath,
    options: ValidationOptions,
    errors: &mut Vec<FieldError>,
) {
    let kind = text(schema, "type");
    if schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
        let path = path.child("x-kubernetes-preserve-unknown-fields");
        errors.push(FieldError::invalid(&path, false, "must be true or undefined"));
    }
    let must_be = |expected: &str, detail: &str, errors: &mut Vec<FieldError>| {
        let path = path.child("type");
        if kind.is_empty() {
            errors.push(FieldError::required(&path, detail));
        } else if kind != expected {
            errors.push(FieldError::invalid(&path, kind, detail));
        }
    };
    let map_type = schema.get("x-kubernetes-map-type").and_then(Value::as_str);
    if let Some(map_type) = map_type {
        must_be("object", "must be object if x-kubernetes-map-type is specified", errors);
        if !matches!(map_type, "atomic" | "granular") {
            errors.push(FieldError::not_supported(
                &path.child("x-kubernetes-map-type"),
                map_type,
                &["atomic", "granular"],
            ));
        }
    }
    let list_type = schema.get("x-kubernetes-list-type").and_then(Value::as_str);
    let items = single_items(schema);
    if let Some(list_type) = list_type {
        must_be("array", "must be array if x-kubernetes-list-type is specified", errors);
        if let ("set", "array", Some(items), true) = (list_type, kind, items, options.require_atomic_set_type)
        {
            validate_set_items(items, &path.child("items"), errors);
        }
        if !matches!(list_type, "atomic" | "set" | "map") {
            errors.push(FieldError::not_supported(
                &path.child("x-kubernetes-list-type"),
                list_type,
                &["atomic", "set", "map"],
            ));
        }
    }
    validate_map_keys(schema, list_type, items, path, errors);
    if options.require_map_list_keys {
        validate_item_identity(schema, path, errors);
    }
}

/// Validates that items of a set are scalars or atomic.
fn validate_set_items(items: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
    let written = items.get("x-kubernetes-list-type").cloned().unwrap_or_default();
    match text(items, "type") {
        "array" if !matches!(text(items, "x-kubernetes-list-type"), "" | "atomic") => {
            errors.push(FieldError::invalid(&path.child("x-kubernetes-list-type"), written, detail));
        }
        "object" if text(items, "x-kubernetes-map-type") != "atomic" => {
            errors.push(FieldError::invalid(&path.child("x-kubernetes-map-type"), written, detail));
        }
        _ => {}
    }
}

fn validate_map_keys(
    schema: &Value,
    list_type: Option<&str>,
    items: Option<&Value>,
    path: &FieldPath,
    errors: &mut Vec<FieldError>,
) {
    let keys = list(schema, "x-kubernetes-list-map-keys");
    let keys_path = path.child("x-kubernetes-list-map-keys");
    let type_path = path.child("x-kubernetes-list-type");
    let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
    match list_type {
        None if !keys.is_empty() => errors.push(FieldError::required(&type_path, detail)),
        Some(other) if other != "map" && !keys.is_empty() => {
            errors.push(FieldError::invalid(&type_path, other, detail));
        }
        _ => {}
    }
    if list_type != Some("map") {
        return;
    }
    if keys.is_empty() {
        errors.push(FieldError::required(&keys_path, "must not be empty if x-kubernetes-list-type is map"));
    }
    let items_path = path.child("items");
    let Some(items) = items else {
        match schema.get("items") {
            None => errors.push(FieldError::required(
                &items_path,
                "must have a schema if x-kubernetes-list-type is map",
            )),
            Some(several) => {
                let detail = "must only have a single schema if x-kubernetes-list-type is map";
                errors.push(FieldError::invalid(&items_path, several.clone(), detail));
            }
        }
        return;
    };
    let kind = text(items, "type");
    if kind != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        errors.push(FieldError::invalid(&items_path.child("type"), kind, detail));
        return;
    }
    for (index, key) in keys.iter().enumerate() {
        let name = key.as_str().unwrap_or_default();
        match items.get("properties").and_then(|properties| properties.get(name)) {
            None => errors.push(FieldError::invalid(
                &keys_path,
                keys.to_vec(),
                "entries must all be names of item properties",
            )),
            Some(property) if matches!(text(property, "type"), "array" | "object") => {
                let path = items_path.child("properties").key(name).child("type");
                let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                errors.push(FieldError::invalid(&path, kind, detail));
            }
            Some(_) => {}
        }
        if keys[..index].contains(key) {
            errors.push(FieldError::invalid(&keys_path, keys.to_vec(), "must not contain duplicate entries"));
        }
    }
}

/// Validates that items have an identity: not null, keys required or defaulted.
fn validate_item_identity(schema: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let list_type = text(schema, "x-kubernetes-list-type");
    let Some(items) = single_items(schema).filter(|_| matches!(list_type, "set" | "map")) else { return };
    let path = path.child("items");
    if flag(items, "nullable") {
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        errors.push(FieldError::forbidden(&path.child("nullable"), detail));
    }
    if list_type != "map" {
        return;
    }
    for key in list(schema, "x-kubernetes-list-map-keys").iter().filter_map(Value::as_str) {
        let Some(property) = items.get("properties").and_then(|properties| properties.get(key)) else {
            continue;
        };
        let path = path.child("properties").key(key);
        let required = list(items, "required").iter().any(|required| required.as_str() == Some(key));
        if !required && non_null(property, "default").is_none() {
            let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            errors.push(FieldError::required(&path.child("default"), detail));
        }
        if flag(property, "nullable") {
            let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            errors.push(FieldError::forbidden(&path.child("nullable"), detail));
        }
    }
}

/// Validates the fields of CEL rules, but not their expressions.
fn validate_rules(schema: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    for (index, rule) in list(schema, "x-kubernetes-validations").iter().enumerate() {
        let path = path.child("x-kubernetes-validations").index(index);
        let (message, expression) = (text(rule, "message"), text(rule, "rule").trim());
        let broken = |text: &str| text.contains(['\n', '\r']);
        if expression.is_empty() {
            errors.push(FieldError::required(&path.child("rule"), "rule is not specified"));
        } else if !message.is_empty() && message.trim().is_empty() {
            errors.push(FieldError::invalid(
                &path.child("message"),
                message,
                "must be non-empty if specified",
            ));
        } else if broken(message.trim()) {
            errors.push(FieldError::invalid(&path.child("message"), message, "must not contain line breaks"));
        } else if broken(expression) && message.trim().is_empty() {
            let detail = "message must be specified if rule contains line breaks";
            errors.push(FieldError::required(&path.child("message"), detail));
        }
        let message_expression = text(rule, "messageExpression");
        if !message_expression.is_empty() && message_expression.trim().is_empty() {
            let detail = "messageExpression must be non-empty if specified";
            errors.push(FieldError::required(&path.child("messageExpression"), detail));
        }
        if let Some(reason) = rule.get("reason").and_then(Value::as_str)
            && !REASONS.contains(&reason)
        {
            errors.push(FieldError::not_supported(&path.child("reason"), reason, &REASONS));
        }
        validate_field_path(rule, schema, &path.child("fieldPath"), errors);
    }
}

fn validate_field_path(rule: &Value, schema: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let written = text(rule, "fieldPath");
    if written.is_empty() {
        return;
    }
    if written.trim().is_empty() {
        errors.push(FieldError::invalid(path, written, "must be non-empty if specified"));
    }
    if written.contains(['\n', '\r']) {
        errors.push(FieldError::invalid(path, written, "must not contain line breaks"));
    }
    // A conversion error is reported elsewhere.
    if super::conversion_error(schema).is_none() && relative_path::resolve(written, schema, true).is_err() {
        errors.push(FieldError::invalid(path, written, "must be a valid path"));
    }
}
