//! System fields of objects: uid, timestamps, metadata.

use std::time::{SystemTime, UNIX_EPOCH};

use orlop_api::{object_meta, time::Time};
use serde_json::{Map, Value, json};

/// Returns the current time.
pub fn now() -> Time {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time { unix_seconds: elapsed.as_secs() as i64, nanoseconds: elapsed.subsec_nanos() }
}

/// Returns a new object's uid: a random UUID, version 4.
pub fn new_uid() -> String {
    object_meta::uuid(rand::random())
}

/// Returns true if an object has a deletionTimestamp.
pub fn is_terminating(object: &Value) -> bool {
    !object_meta::text(object_meta::of(object), "deletionTimestamp").is_empty()
}

/// Returns an object's metadata to change; creates it if need be.
pub(crate) fn metadata_mut(object: &mut Value) -> &mut Map<String, Value> {
    if !object.is_object() {
        *object = json!({});
    }
    let slot = &mut object["metadata"];
    if !slot.is_object() {
        *slot = json!({});
    }
    match slot {
        Value::Object(map) => map,
        // The line above made it an object.
        _ => unreachable!("metadata is an object"),
    }
}
