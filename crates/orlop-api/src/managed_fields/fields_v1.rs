//! Encoding of field sets as `fieldsV1`.
//!
//! An object per node, a key per path element; a leaf is `{}`, and a node that is itself
//! in the set and has children has the key `"."`.

use super::path_element::PathElement;
use super::set::{Node, Set};
use serde_json::{Map, Value};

/// Encodes a set as a JSON value.
pub fn to_value(set: &Set) -> Value {
    Value::Object(to_map(set, false))
}

pub(super) fn to_map(set: &Set, include_self: bool) -> Map<String, Value> {
    let mut map = Map::new();
    if include_self && !set.is_empty() {
        map.insert(".".to_owned(), Value::Object(Map::new()));
    }
    for node in set.nodes() {
        map.insert(node.element.to_wire(), Value::Object(to_map(&node.children, node.member)));
    }
    map
}

/// Encodes a set as JSON text, in the order of [`PathElement`].
pub fn to_json(set: &Set) -> String {
    fn write(set: &Set, include_self: bool, out: &mut String) {
        out.push('{');
        let mut first = true;
        if include_self && !set.is_empty() {
            out.push_str("\".\":{}");
            first = false;
        }
        for node in set.nodes() {
            if !first {
                out.push(',');
            }
            first = false;
            out.push_str(&crate::go_text::json(&Value::String(node.element.to_wire())));
            out.push(':');
            write(&node.children, node.member, out);
        }
        out.push('}');
    }
    let mut out = String::new();
    write(set, false, &mut out);
    out
}

/// Decodes a set. Unknown kinds of path elements are skipped.
pub fn from_value(value: &Value) -> Result<Set, String> {
    match value {
        Value::Null => Ok(Set::new()),
        Value::Object(map) => from_map(map).map(|(children, _)| children),
        _ => Err("fieldsV1 must be an object".to_owned()),
    }
}

/// Returns the children of a node, and whether the node itself is in the set.
fn from_map(map: &Map<String, Value>) -> Result<(Set, bool), String> {
    let mut set = Set::new();
    let mut member = false;
    for (key, value) in map {
        if key == "." {
            member = true;
            continue;
        }
        let Some(element) = PathElement::from_wire(key)? else { continue };
        let (children, child_member) = match value {
            Value::Object(map) => from_map(map)?,
            Value::Null => (Set::new(), true),
            _ => return Err(format!("the value of {} must be an object", crate::go_text::quote(key))),
        };
        set.push(Node { element, member: child_member, children });
    }
    // A node without children is a leaf, hence a member.
    let leaf = set.is_empty();
    Ok((set, member || leaf))
}

#[cfg(test)]
mod tests {
    use super::super::set::tests::sets;
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn fields_v1_round_trips() {
        let wire = json!({
            "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
            "f:spec": {
                "f:containers": {"k:{\"name\":\"a\"}": {".": {}, "f:image": {}, "f:name": {}}},
                "f:finalizers": {"v:\"x\"": {}},
                "f:replicas": {}
            }
        });
        let set = from_value(&wire).unwrap();
        assert_eq!(to_value(&set), wire);
        assert_eq!(
            set.to_string(),
            ".metadata.labels\n.metadata.labels.app\n.spec.replicas\n.spec.containers[name=\"a\"]\n.spec.containers[name=\"a\"].image\n.spec.containers[name=\"a\"].name\n.spec.finalizers[=\"x\"]"
        );
    }

    #[test]
    fn json_text_orders_keys_by_value() {
        let wire = json!({"k:{\"port\":443}": {}, "k:{\"port\":80}": {}});
        assert_eq!(to_json(&from_value(&wire).unwrap()), r#"{"k:{\"port\":80}":{},"k:{\"port\":443}":{}}"#);
    }

    #[test]
    fn unknown_path_elements_are_skipped_and_invalid_ones_refused() {
        assert_eq!(
            to_value(&from_value(&json!({"f:a": {}, "q:new": {"f:b": {}}})).unwrap()),
            json!({"f:a": {}})
        );
        for broken in [json!(1), json!({"x": {}}), json!({"f:a": 1}), json!({"k:[]": {}})] {
            assert!(from_value(&broken).is_err(), "{broken}");
        }
    }

    proptest! {
        #[test]
        fn round_trips(set in sets()) {
            prop_assert_eq!(from_value(&to_value(&set)).unwrap(), set.clone());
            let text: Value = serde_json::from_str(&to_json(&set)).unwrap();
            prop_assert_eq!(from_value(&text).unwrap(), set);
        }

        #[test]
        fn decoding_never_panics(keys in proptest::collection::vec("[fkvi.]?:?.{0,12}", 0..6)) {
            let map: Map<String, Value> = keys.into_iter().map(|key| (key, json!({}))).collect();
            let _ = from_value(&Value::Object(map));
        }
    }
}
