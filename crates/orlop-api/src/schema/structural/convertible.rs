//! Errors of converting an OpenAPI schema to a structural schema.

use crate::schema::unstructured::{entries, list};
use serde_json::Value;

/// Returns the error of converting a schema to a structural schema. Such a schema is not validated further.
pub fn conversion_error(schema: &Value) -> Option<String> {
    let set = |key: &str| match schema.get(key) {
        None | Some(Value::Null) => false,
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Object(map)) => !map.is_empty() || key == "additionalItems",
        Some(_) => true,
    };
    for (key, called) in [
        ("id", "id"),
        ("$schema", "schema"),
        ("$ref", "$ref"),
        ("patternProperties", "patternProperties"),
        ("dependencies", "dependencies"),
        ("additionalItems", "additionalItems"),
        ("definitions", "definitions"),
    ] {
        if set(key) {
            return Some(format!("OpenAPIV3Schema '{called}' is not supported"));
        }
    }
    let below = |key: &str| schema.get(key).filter(|nested| nested.is_object()).and_then(conversion_error);
    let among = |key: &str| list(schema, key).iter().find_map(conversion_error);
    below("not")
        .or_else(|| among("allOf"))
        .or_else(|| among("anyOf"))
        .or_else(|| among("oneOf"))
        .or_else(|| {
            let forbidden = schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false));
            forbidden.then(|| {
                "internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined".to_owned()
            })
        })
        .or_else(|| {
            let several =
                schema.get("items").and_then(Value::as_array).is_some_and(|items| !items.is_empty());
            several.then(|| "OpenAPIV3Schema 'items' must be a schema, but is an array".to_owned())
        })
        .or_else(|| below("items"))
        .or_else(|| entries(schema, "properties").find_map(|(_, property)| conversion_error(property)))
        .or_else(|| below("additionalProperties"))
}
