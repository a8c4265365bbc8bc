//! JSON merge patch (RFC 7386): maps are merged, null deletes, other values replace.

use super::PatchError;
use crate::decode;
use serde_json::{Map, Value};

/// Applies a merge patch. A list replaces the object; the Go library refuses other values.
pub fn merge_patch(object: &Value, patch: &Value) -> Result<Value, PatchError> {
    if !patch.is_object() && !patch.is_array() {
        return Err(PatchError::Malformed("Invalid JSON Patch".to_owned()));
    }
    let mut merged = object.clone();
    merge_into(&mut merged, patch);
    decode::check_depth(&merged)?;
    Ok(merged)
}

fn merge_into(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(map) = target else { return };
    for (key, value) in patch {
        if value.is_null() {
            map.remove(key);
        } else {
            merge_into(map.entry(key.as_str()).or_insert(Value::Null), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rfc_7386_test_cases() {
        for (target, patch, expected) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
            (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
            (json!({"a": "foo"}), json!({"a": {"b": {"c": null, "d": 1}}}), json!({"a": {"b": {"d": 1}}})),
        ] {
            assert_eq!(merge_patch(&target, &patch).unwrap(), expected, "{patch}");
        }
    }

    #[test]
    fn merge_patch_must_be_an_object_or_a_list() {
        assert_eq!(merge_patch(&json!({"a": 1}), &json!([1])).unwrap(), json!([1]));
        for patch in [json!("x"), json!(1), json!(null)] {
            let status = crate::status::Status::from(merge_patch(&json!({}), &patch).unwrap_err());
            assert_eq!((status.code, status.message.as_str()), (400, "Invalid JSON Patch"));
        }
    }
}
