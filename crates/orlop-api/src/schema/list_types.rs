//! Validation of list types: sets without duplicates, map lists with unique keys.

use super::{AdditionalProperties, ListType, Schema};
use crate::field_error::{FieldError, FieldPath};
use serde_json::{Map, Value};
use std::collections::HashMap;

/// Validates every list of an object against its list type.
pub fn validate_list_types(value: &Value, schema: &Schema, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk(value, schema, path, &mut errors);
    errors
}

fn walk(value: &Value, schema: &Schema, path: &FieldPath, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(map) => {
            for (key, item) in map {
                if let AdditionalProperties::Of(inner) = &schema.additional_properties {
                    walk_child(item, inner.get(), || path.key(key), errors);
                }
                if let Some(field) = schema.field(key) {
                    walk_child(item, field.schema(), || path.child(key), errors);
                }
            }
        }
        Value::Array(items) => {
            match &schema.list_type {
                ListType::Atomic => {}
                ListType::Set => {
                    let repeated = repeats(items);
                    errors.extend(
                        repeated
                            .into_iter()
                            .map(|index| FieldError::duplicate(&path.index(index), items[index].clone())),
                    );
                }
                ListType::Map(keys) => check_map(items, keys, path, errors),
            }
            if let Some(inner) = schema.items() {
                for (index, item) in items.iter().enumerate() {
                    walk_child(item, inner, || path.index(index), errors);
                }
            }
        }
        _ => {}
    }
}

/// Builds paths only for lists and objects.
fn walk_child(
    value: &Value,
    schema: &Schema,
    path: impl FnOnce() -> FieldPath,
    errors: &mut Vec<FieldError>,
) {
    if value.is_object() || value.is_array() {
        walk(value, schema, &path(), errors);
    }
}

fn check_map(items: &[Value], keys: &[Box<str>], path: &FieldPath, errors: &mut Vec<FieldError>) {
    if let Some(index) = items.iter().position(|item| !item.is_null() && !item.is_object()) {
        let detail = "must be an object for an array of list-type map";
        errors.push(FieldError::invalid(&path.index(index), items[index].clone(), detail));
        return;
    }
    let identity = |item: &Value| {
        let known = keys.iter().filter_map(|key| Some((key.to_string(), item.get(&**key)?.clone())));
        Value::Object(known.collect::<Map<_, _>>())
    };
    let identities: Vec<_> = items.iter().map(identity).collect();
    for index in repeats(&identities) {
        errors.push(FieldError::duplicate(&path.index(index), identities[index].clone()));
    }
}

/// Returns the indices of second occurrences. Later duplicates are not reported.
fn repeats(items: &[Value]) -> Vec<usize> {
    let mut seen: HashMap<String, usize> = HashMap::with_capacity(items.len());
    let mut repeated = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let count = seen.entry(item.to_string()).or_default();
        *count += 1;
        if *count == 2 {
            repeated.push(index);
        }
    }
    repeated
}

#[cfg(test)]
mod tests {
    use super::super::from_openapi;
    use super::*;
    use serde_json::json;

    #[test]
    fn duplicate_items_and_keys_are_reported_once() {
        let schema = from_openapi(&json!({"type": "object", "properties": {
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a", "b"], "items": {"type": "object"}},
            "one": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"], "items": {"type": "object"}},
            "deep": {"type": "object", "additionalProperties": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}}
        }}));
        let check = |value: Value| -> Vec<String> {
            validate_list_types(&value, &schema, &FieldPath::nil()).iter().map(ToString::to_string).collect()
        };
        assert_eq!(check(json!({"set": ["a", "b", "a", "a"]})), [r#"set[2]: Duplicate value: "a""#]);
        assert_eq!(
            check(json!({"map": [{"a": 1, "b": 2}, {"a": 1}, {"b": 2, "a": 1, "c": 3}]})),
            [r#"map[2]: Duplicate value: {"a":1,"b":2}"#]
        );
        assert_eq!(check(json!({"one": [{}, {"x": 1}]})), ["one[1]: Duplicate value: {}"]);
        assert_eq!(
            check(json!({"one": [1]})),
            ["one[0]: Invalid value: 1: must be an object for an array of list-type map"]
        );
        assert_eq!(check(json!({"deep": {"k": ["x", "x"]}})), [r#"deep[k][1]: Duplicate value: "x""#]);
    }
}
