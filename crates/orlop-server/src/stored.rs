//! Objects as they are stored, and how they leave without being decoded.
//!
//! A stored value is the object's JSON without its resourceVersion, which is the row's revision. The
//! encoding puts `metadata` first, so that the place where the version belongs is always the same and
//! reading an object is copying bytes around it.

use bytes::{BufMut, Bytes, BytesMut};
use orlop_store::Revision;
use serde_json::{Map, Value};

const OPENING: &[u8] = b"{\"metadata\":{";

/// Encodes an object for the store. Its resourceVersion is left out.
pub fn encode(object: &Value) -> Bytes {
    let mut encoded = Vec::with_capacity(512);
    encoded.extend_from_slice(b"{\"metadata\":");
    let empty = Map::new();
    let mut metadata = object.get("metadata").and_then(Value::as_object).unwrap_or(&empty).clone();
    metadata.remove("resourceVersion");
    append(&mut encoded, &metadata);
    for (key, value) in object.as_object().into_iter().flatten().filter(|(key, _)| *key != "metadata") {
        encoded.push(b',');
        append(&mut encoded, key);
        encoded.push(b':');
        append(&mut encoded, value);
    }
    encoded.push(b'}');
    encoded.into()
}

/// Appends JSON. A `Value` and a key always encode.
fn append<T: serde::Serialize + ?Sized>(to: &mut Vec<u8>, value: &T) {
    let _ = serde_json::to_writer(to, value);
}

/// Appends the object to a buffer with its resourceVersion in place.
pub fn splice(to: &mut BytesMut, stored: &[u8], revision: Revision) {
    match stored.strip_prefix(OPENING) {
        Some(rest) => {
            to.reserve(stored.len() + 48);
            to.put_slice(OPENING);
            to.put_slice(b"\"resourceVersion\":\"");
            put_number(to, revision);
            to.put_slice(if rest.first() == Some(&b'}') { b"\"" } else { b"\"," });
            to.put_slice(rest);
        }
        // Written by somebody else, in another order.
        None => match decode(stored, revision) {
            Ok(object) => to.put_slice(object.to_string().as_bytes()),
            Err(_) => to.put_slice(stored),
        },
    }
}

/// The object with its resourceVersion in place.
pub fn spliced(stored: &[u8], revision: Revision) -> Bytes {
    let mut object = BytesMut::new();
    splice(&mut object, stored, revision);
    object.freeze()
}

fn put_number(to: &mut BytesMut, number: Revision) {
    use std::fmt::Write;
    // Writing to a buffer does not fail.
    let _ = write!(to, "{number}");
}

/// Decodes a stored object, its resourceVersion in place.
pub fn decode(stored: &[u8], revision: Revision) -> serde_json::Result<Value> {
    let mut object: Value = serde_json::from_slice(stored)?;
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("resourceVersion".into(), Value::String(revision.to_string()));
    }
    Ok(object)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_stored_comes_back_with_its_version() {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"},
            "metadata": {"name": "x", "resourceVersion": "7"}});
        let stored = encode(&object);
        assert!(!stored.windows(15).any(|window| window == b"resourceVersion"));
        let read: Value = serde_json::from_slice(&spliced(&stored, 42)).unwrap();
        assert_eq!(read["metadata"]["resourceVersion"], "42");
        assert_eq!(read["data"], object["data"]);
        assert_eq!(decode(&stored, 42).unwrap(), read);
    }

    #[test]
    fn metadata_may_be_empty_or_stand_elsewhere() {
        let read = |stored: &[u8]| -> Value { serde_json::from_slice(&spliced(stored, 3)).unwrap() };
        assert_eq!(read(b"{\"metadata\":{}}"), json!({"metadata": {"resourceVersion": "3"}}));
        let foreign = read(b"{\"apiVersion\":\"v1\",\"metadata\":{\"name\":\"x\"}}");
        assert_eq!(foreign["metadata"], json!({"name": "x", "resourceVersion": "3"}));
    }
}
