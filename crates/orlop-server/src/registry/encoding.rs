//! Encoding of stored objects, which are served without being decoded.
//!
//! A stored value is the object's JSON without its resourceVersion, which is the row's revision. It begins with
//! the kind's prefix, up to and including the brace of `metadata`, so that the resourceVersion always belongs at the
//! same offset.

use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};
use orlop_api::group_version::GroupVersionKind;
use orlop_store::Revision;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::{Map, Value};

/// Field of the schema stamp. Never served.
const STAMP: &str = "$orlop";

/// Returns the prefix of stored objects of a kind, with the stamp of their schema if it can change.
pub(crate) fn prefix(gvk: &GroupVersionKind, stamp: Option<&str>) -> Bytes {
    let stamp = stamp.map(|stamp| format!("\"{STAMP}\":{},", Value::from(stamp))).unwrap_or_default();
    let (api_version, kind) = (Value::from(gvk.api_version()), Value::from(gvk.kind.as_str()));
    format!("{{{stamp}\"apiVersion\":{api_version},\"kind\":{kind},\"metadata\":{{").into()
}

/// Encodes an object for the store, without its resourceVersion.
pub(crate) fn encode(object: &Value, prefix: &[u8]) -> Bytes {
    let mut encoded = Vec::with_capacity(1024);
    encoded.extend_from_slice(prefix);
    let empty = Map::new();
    let metadata = object.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
    for (index, (key, value)) in metadata.iter().filter(|(key, _)| *key != "resourceVersion").enumerate() {
        if index > 0 {
            encoded.push(b',');
        }
        append(&mut encoded, key, value);
    }
    encoded.push(b'}');
    for (key, value) in object.as_object().into_iter().flatten() {
        if !matches!(key.as_str(), "apiVersion" | "kind" | "metadata") {
            encoded.push(b',');
            append(&mut encoded, key, value);
        }
    }
    encoded.push(b'}');
    encoded.into()
}

/// Appends a field. A `Value` and a key always encode.
fn append(to: &mut Vec<u8>, key: &str, value: &Value) {
    let _ = serde_json::to_writer(&mut *to, key);
    to.push(b':');
    let _ = serde_json::to_writer(to, value);
}

/// Appends an object with its resourceVersion. `rest` is the stored value after its prefix.
pub(crate) fn splice(to: &mut BytesMut, prefix: &[u8], rest: &[u8], revision: Revision) {
    to.reserve(prefix.len() + rest.len() + 48);
    to.put_slice(prefix);
    to.put_slice(b"\"resourceVersion\":\"");
    put_number(to, revision);
    to.put_slice(if rest.first() == Some(&b'}') { b"\"" } else { b"\"," });
    to.put_slice(rest);
}

/// Returns the part of a stored value after its prefix that is metadata, with the closing brace.
pub(crate) fn metadata(rest: &[u8]) -> Option<&[u8]> {
    let (mut depth, mut at) = (1usize, 0);
    loop {
        match rest.get(at)? {
            b'"' => at = end_of_text(rest, at)?,
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth -= 1,
            _ => {}
        }
        at += 1;
        if depth == 0 {
            return rest.get(..at);
        }
    }
}

/// Returns the index of the quotation mark that closes the string opened at an index.
fn end_of_text(json: &[u8], begun: usize) -> Option<usize> {
    let mut at = begun + 1;
    loop {
        at += json.get(at..)?.iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
        if json.get(at) == Some(&b'"') {
            return Some(at);
        }
        // Skips the escaped character.
        at += 2;
    }
}

fn put_number(to: &mut BytesMut, number: Revision) {
    // Writing to a buffer does not fail. (Faster than formatting, and every object has a version.)
    let _ = serde_json::to_writer(to.writer(), &number);
}

/// Decodes a stored object, and sets its resourceVersion.
pub(crate) fn decode(stored: &[u8], revision: Revision) -> serde_json::Result<Value> {
    let mut object: Value = serde_json::from_slice(stored)?;
    if let Some(map) = object.as_object_mut() {
        map.remove(STAMP);
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("resourceVersion".into(), Value::String(revision.to_string()));
    }
    Ok(object)
}

/// Decodes a stored object without managed fields, which are most of many objects and never in tables.
pub(crate) fn decode_unmanaged(stored: &[u8]) -> serde_json::Result<Value> {
    let mut json = serde_json::Deserializer::from_slice(stored);
    let object = Without { field: STAMP, inner: Some(&Without { field: "managedFields", inner: None }) }
        .deserialize(&mut json)?;
    json.end()?;
    Ok(object)
}

/// Deserializes an object without one of its fields.
#[derive(Clone, Copy)]
struct Without<'a> {
    field: &'static str,
    inner: Option<&'a Without<'a>>,
}

impl<'de> DeserializeSeed<'de> for Without<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Value, D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Without<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut fields: M) -> Result<Value, M::Error> {
        let mut object = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            let value = match self.inner {
                _ if name == self.field => {
                    fields.next_value::<IgnoredAny>()?;
                    continue;
                }
                Some(inner) if name == "metadata" => fields.next_value_seed(*inner)?,
                _ => fields.next_value()?,
            };
            object.insert(name, value);
        }
        Ok(object.into())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spliced(stored: &[u8], prefix: &[u8], served: &[u8], revision: Revision) -> Value {
        let mut bytes = BytesMut::new();
        splice(&mut bytes, served, stored.strip_prefix(prefix).unwrap(), revision);
        serde_json::from_slice(&bytes).unwrap()
    }

    #[test]
    fn metadata_ends_at_its_closing_brace() {
        let gvk = GroupVersionKind::new("", "v1", "ConfigMap");
        let begins = prefix(&gvk, None);
        for meta in [
            json!({}),
            json!({"name": "x"}),
            json!({"annotations": {"a": "}\\\"{]", "b": "\\"}, "finalizers": ["[", "}"]}),
        ] {
            let stored = encode(&json!({"metadata": meta, "data": {"name": "}"}}), &begins);
            let found = metadata(stored.strip_prefix(&*begins).unwrap()).unwrap();
            let whole = [b"{", found].concat();
            assert_eq!(serde_json::from_slice::<Value>(&whole).unwrap(), meta);
        }
        assert_eq!(metadata(b"\"name\":\"x\""), None);
    }

    #[test]
    fn stored_object_is_served_with_its_resource_version() {
        let gvk = GroupVersionKind::new("", "v1", "ConfigMap");
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"},
            "metadata": {"name": "x", "resourceVersion": "7"}});
        for stamp in [None, Some("5f2c")] {
            let begins = prefix(&gvk, stamp);
            let stored = encode(&object, &begins);
            assert!(!stored.windows(15).any(|window| window == b"resourceVersion"));
            let read = spliced(&stored, &begins, &prefix(&gvk, None), 42);
            assert_eq!(read["metadata"], json!({"name": "x", "resourceVersion": "42"}));
            assert_eq!(read["data"], object["data"]);
            assert_eq!(decode(&stored, 42).unwrap(), read, "the stamp is not served");
        }
    }

    #[test]
    fn empty_metadata_is_spliced() {
        let begins = prefix(&GroupVersionKind::new("g", "v1", "K"), None);
        let stored = encode(&json!({}), &begins);
        let read = spliced(&stored, &begins, &begins, 3);
        assert_eq!(read, json!({"apiVersion": "g/v1", "kind": "K", "metadata": {"resourceVersion": "3"}}));
    }
}
