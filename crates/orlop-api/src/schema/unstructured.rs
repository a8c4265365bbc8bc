//! Accessors of unstructured JSON. Absent values and values of other types are empty.

use serde_json::{Map, Value};

pub fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

pub fn flag(value: &Value, key: &str) -> bool {
    value.get(key) == Some(&Value::Bool(true))
}

/// Returns a keyword's value unless it is null. An empty string or list is a value: `default: ""`.
pub fn non_null<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    value.get(key).filter(|value| !value.is_null())
}

/// Returns a keyword's value unless it is Go's zero value: null, `""` or `[]`.
pub fn non_empty<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    value.get(key).filter(|value| match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => true,
    })
}

pub fn entries<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = (&'a String, &'a Value)> + use<'a> {
    value.get(key).and_then(Value::as_object).into_iter().flatten()
}

pub fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Returns the strings among the items of a list.
pub fn strings<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a str> + use<'a> {
    list(value, key).iter().filter_map(Value::as_str)
}

/// Returns the object below a key and creates it if absent or null; `None` for other types.
pub fn entry<'a>(map: &'a mut Map<String, Value>, key: &str) -> Option<&'a mut Map<String, Value>> {
    let value = map.entry(key).or_insert(Value::Null);
    if value.is_null() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut()
}
