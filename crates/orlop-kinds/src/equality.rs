//! Semantic equality, after Kubernetes' `equality.Semantic.DeepEqual`.
//!
//! Go's encoder omits empty values, so a client that reads an object and writes it back unchanged may drop
//! `{}`, `[]`, `""`, `0` and `false`. That is not a change.

use serde_json::Value;

/// Returns true if two values differ in empty fields only.
pub(crate) fn semantically_equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let covers = |one: &serde_json::Map<String, Value>, other: &serde_json::Map<String, Value>| {
                one.iter().all(|(key, value)| match other.get(key) {
                    Some(other) => semantically_equal(value, other),
                    None => is_empty(value),
                })
            };
            covers(one, other) && other.iter().all(|(key, value)| one.contains_key(key) || is_empty(value))
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len()
                && one.iter().zip(other).all(|(one, other)| semantically_equal(one, other))
        }
        _ => one == other || (is_empty(one) && is_empty(other)),
    }
}

/// Returns true if the value equals an absent field.
pub(crate) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.values().all(is_empty),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn omitted_empty_values_are_equal() {
        assert!(semantically_equal(&json!({"a": {"b": []}, "c": 1}), &json!({"c": 1, "d": "", "e": false})));
        assert!(semantically_equal(&json!([{"a": 0}]), &json!([{}])));
        assert!(!semantically_equal(&json!({"a": 1}), &json!({})));
        assert!(!semantically_equal(&json!({}), &json!({"a": 1})));
        assert!(!semantically_equal(&json!([]), &json!([{}])));
        assert!(!semantically_equal(&json!({"a": "x"}), &json!({"a": "y"})));
    }
}
