//! A CRD's `openAPIV3Schema` as a [`Schema`].
//!
//! Ignores unknown keywords. [`super::structural`] validates the schema when the CRD
//! is written.

use super::{
    AdditionalProperties, Field, ListType, MapType, Pattern, Schema, SchemaRef, Type, ValueValidation,
};
use serde_json::{Map, Value};

/// Reads a schema. Depth is bounded by the decoder that made the value.
pub fn from_openapi(source: &Value) -> Schema {
    let Some(object) = source.as_object() else { return Schema::default() };
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    let flag = |key: &str| object.get(key) == Some(&Value::Bool(true));
    Schema {
        kind: match text("type") {
            "object" => Type::Object,
            "array" => Type::Array,
            "string" => Type::String,
            "integer" => Type::Integer,
            "number" => Type::Number,
            "boolean" => Type::Boolean,
            _ => Type::Any,
        },
        format: object.get("format").and_then(Value::as_str).filter(|text| !text.is_empty()).map(Into::into),
        nullable: flag("nullable"),
        properties: entries(object, "properties")
            .map(|(name, value)| (name.as_str().into(), Field::from(from_openapi(value))))
            .collect(),
        additional_properties: match object.get("additionalProperties") {
            None | Some(Value::Null) => AdditionalProperties::Unspecified,
            Some(Value::Bool(true)) => AdditionalProperties::Anything,
            Some(Value::Bool(false)) => AdditionalProperties::Forbidden,
            Some(schema) => AdditionalProperties::Of(from_openapi(schema).into()),
        },
        items: object
            .get("items")
            .filter(|items| items.is_object())
            .map(|items| SchemaRef::from(from_openapi(items))),
        required: strings(object, "required"),
        list_type: match text("x-kubernetes-list-type") {
            "set" => ListType::Set,
            "map" => ListType::Map(strings(object, "x-kubernetes-list-map-keys").into()),
            _ => ListType::Atomic,
        },
        map_type: if text("x-kubernetes-map-type") == "atomic" { MapType::Atomic } else { MapType::Granular },
        preserve_unknown: flag("x-kubernetes-preserve-unknown-fields"),
        embedded_resource: flag("x-kubernetes-embedded-resource"),
        int_or_string: flag("x-kubernetes-int-or-string"),
        opaque: false,
        default: object.get("default").filter(|value| !value.is_null()).cloned(),
        value_validation: value_validation(object),
        go_type: None,
    }
}

const CHECK_KEYWORDS: [&str; 19] = [
    "enum",
    "maximum",
    "minimum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "multipleOf",
    "maxLength",
    "minLength",
    "maxItems",
    "minItems",
    "uniqueItems",
    "maxProperties",
    "minProperties",
    "pattern",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "dependencies",
];

/// Reads the value validation of a node. Most nodes have none, and a thousand CRDs have many nodes.
fn value_validation(object: &Map<String, Value>) -> Option<Box<ValueValidation>> {
    if !CHECK_KEYWORDS.iter().any(|keyword| object.contains_key(*keyword)) {
        return None;
    }
    let number = |key: &str| object.get(key).and_then(Value::as_f64);
    let count = |key: &str| object.get(key).and_then(Value::as_u64);
    let flag = |key: &str| object.get(key) == Some(&Value::Bool(true));
    let schemas = |key: &str| list(object, key).map(from_openapi).collect();
    Some(Box::new(ValueValidation {
        enumeration: list(object, "enum").cloned().collect(),
        maximum: number("maximum"),
        exclusive_maximum: flag("exclusiveMaximum"),
        minimum: number("minimum"),
        exclusive_minimum: flag("exclusiveMinimum"),
        multiple_of: number("multipleOf"),
        length_max: count("maxLength"),
        length_min: count("minLength"),
        items_max: count("maxItems"),
        items_min: count("minItems"),
        unique_items: flag("uniqueItems"),
        properties_max: count("maxProperties"),
        properties_min: count("minProperties"),
        pattern: object
            .get("pattern")
            .and_then(Value::as_str)
            .filter(|text| !text.is_empty())
            .map(Pattern::new),
        all_of: schemas("allOf"),
        any_of: schemas("anyOf"),
        one_of: schemas("oneOf"),
        not: object.get("not").filter(|not| not.is_object()).map(|not| Box::new(from_openapi(not))),
    }))
}

pub(super) fn entries<'a>(
    object: &'a Map<String, Value>,
    key: &str,
) -> impl Iterator<Item = (&'a String, &'a Value)> + use<'a> {
    object.get(key).and_then(Value::as_object).into_iter().flatten()
}

pub(super) fn list<'a>(object: &'a Map<String, Value>, key: &str) -> std::slice::Iter<'a, Value> {
    object.get(key).and_then(Value::as_array).map_or(&[][..], Vec::as_slice).iter()
}

fn strings(object: &Map<String, Value>, key: &str) -> Vec<Box<str>> {
    list(object, key).filter_map(Value::as_str).map(Into::into).collect()
}
