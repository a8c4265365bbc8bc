//! Defaulting. A default neither creates a missing parent nor overwrites a given value.

use serde_json::{Map, Value, json};

/// Sets a field that is absent or null.
pub(crate) fn set_if_absent(parent: &mut Value, field: &str, value: impl Into<Value>) {
    if let Some(map) = parent.as_object_mut()
        && map.get(field).is_none_or(Value::is_null)
    {
        map.insert(field.to_owned(), value.into());
    }
}

/// Sets a field that is absent or has its type's zero value, where Kubernetes cannot tell the two apart.
pub(crate) fn set_if_zero(parent: &mut Value, field: &str, value: impl Into<Value>) {
    let Some(map) = parent.as_object_mut() else { return };
    let is_empty = match map.get(field) {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(Value::Number(number)) => number.as_i64() == Some(0),
        Some(_) => false,
    };
    if is_empty {
        map.insert(field.to_owned(), value.into());
    }
}

/// Returns a field that is an object.
pub(crate) fn object_mut<'a>(parent: &'a mut Value, field: &str) -> Option<&'a mut Value> {
    parent.get_mut(field).filter(|value| value.is_object())
}

/// Returns the object at a JSON pointer.
pub(crate) fn object_at_mut<'a>(parent: &'a mut Value, pointer: &str) -> Option<&'a mut Value> {
    parent.pointer_mut(pointer).filter(|value| value.is_object())
}

/// Returns the items of a list.
pub(crate) fn items_mut<'a>(parent: &'a mut Value, field: &str) -> impl Iterator<Item = &'a mut Value> {
    parent.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten()
}

/// Removes a field.
pub(crate) fn remove_field(parent: &mut Value, field: &str) {
    if let Some(map) = parent.as_object_mut() {
        map.remove(field);
    }
}

/// Returns a field that is an object, inserting it if absent.
pub(crate) fn object_mut_or_insert<'a>(
    parent: &'a mut Value,
    field: &str,
) -> Option<&'a mut Map<String, Value>> {
    set_if_absent(parent, field, json!({}));
    parent.get_mut(field).and_then(Value::as_object_mut)
}

/// Adds the entries of `from` that a map lacks.
pub(crate) fn set_absent_entries(parent: &mut Value, field: &str, from: &Map<String, Value>) {
    if from.is_empty() {
        return;
    }
    if let Some(map) = object_mut_or_insert(parent, field) {
        for (key, value) in from {
            map.entry(key.clone()).or_insert_with(|| value.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_keep_given_values() {
        let mut object = json!({"a": "", "b": 0, "c": null, "d": "x"});
        set_if_absent(&mut object, "a", "1");
        set_if_zero(&mut object, "b", 1);
        set_if_absent(&mut object, "c", 1);
        set_if_zero(&mut object, "d", "y");
        set_if_zero(&mut object, "e", "z");
        assert_eq!(object, json!({"a": "", "b": 1, "c": 1, "d": "x", "e": "z"}));
        set_if_zero(&mut object, "a", "1");
        assert_eq!(object["a"], "1");
        let mut text = json!("text");
        set_if_absent(&mut text, "a", 1);
        assert_eq!(text, "text");
    }
}
