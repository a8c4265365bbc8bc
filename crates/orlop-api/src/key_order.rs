//! The order of keys in JSON, as Go's structs have it.
//!
//! Maps here are sorted by key. Scripts match the text of discovery and of Status as kube-apiserver writes it, so
//! those are encoded in Go's order.

use serde::{
    Serialize, Serializer,
    ser::{SerializeMap, SerializeSeq},
};
use serde_json::{Map, Value};

/// The order of an object's keys, each with that of its own value. Other keys follow in alphabetical order.
#[derive(Debug)]
struct KeyOrder(&'static [(&'static str, &'static KeyOrder)]);

/// A value whose keys are in alphabetical order.
const ANY: &KeyOrder = &KeyOrder(&[]);

const STATUS: &KeyOrder = &KeyOrder(&[
    ("kind", ANY),
    ("apiVersion", ANY),
    ("metadata", ANY),
    ("status", ANY),
    ("message", ANY),
    ("reason", ANY),
    ("details", DETAILS),
    ("code", ANY),
]);
const DETAILS: &KeyOrder = &KeyOrder(&[
    ("name", ANY),
    ("group", ANY),
    ("kind", ANY),
    ("uid", ANY),
    ("causes", &KeyOrder(&[("reason", ANY), ("message", ANY), ("field", ANY)])),
    ("retryAfterSeconds", ANY),
]);
const API_VERSIONS: &KeyOrder =
    &KeyOrder(&[("kind", ANY), ("apiVersion", ANY), ("versions", ANY), ("serverAddressByClientCIDRs", ANY)]);
const API_GROUP_LIST: &KeyOrder = &KeyOrder(&[("kind", ANY), ("apiVersion", ANY), ("groups", API_GROUP)]);
const API_GROUP: &KeyOrder = &KeyOrder(&[
    ("kind", ANY),
    ("apiVersion", ANY),
    ("name", ANY),
    ("versions", ANY),
    ("preferredVersion", ANY),
    ("serverAddressByClientCIDRs", ANY),
]);
const API_RESOURCE_LIST: &KeyOrder =
    &KeyOrder(&[("kind", ANY), ("apiVersion", ANY), ("groupVersion", ANY), ("resources", API_RESOURCE)]);
const API_RESOURCE: &KeyOrder = &KeyOrder(&[
    ("name", ANY),
    ("singularName", ANY),
    ("namespaced", ANY),
    ("group", ANY),
    ("version", ANY),
    ("kind", ANY),
    ("verbs", ANY),
    ("shortNames", ANY),
    ("categories", ANY),
    ("storageVersionHash", ANY),
]);
const DISCOVERY: &KeyOrder =
    &KeyOrder(&[("kind", ANY), ("apiVersion", ANY), ("metadata", ANY), ("items", DISCOVERY_GROUP)]);
const DISCOVERY_GROUP: &KeyOrder = &KeyOrder(&[
    ("metadata", &KeyOrder(&[("name", ANY), ("creationTimestamp", ANY)])),
    ("versions", &KeyOrder(&[("version", ANY), ("resources", DISCOVERY_RESOURCE), ("freshness", ANY)])),
]);
const RESPONSE_KIND: &KeyOrder = &KeyOrder(&[("group", ANY), ("version", ANY), ("kind", ANY)]);
const DISCOVERY_RESOURCE: &KeyOrder = &KeyOrder(&[
    ("resource", ANY),
    ("responseKind", RESPONSE_KIND),
    ("scope", ANY),
    ("singularResource", ANY),
    ("verbs", ANY),
    ("shortNames", ANY),
    ("categories", ANY),
    (
        "subresources",
        &KeyOrder(&[
            ("subresource", ANY),
            ("responseKind", RESPONSE_KIND),
            ("acceptedTypes", RESPONSE_KIND),
            ("verbs", ANY),
        ]),
    ),
]);

/// The document of `/version`, which names no kind.
const VERSION: &KeyOrder = &KeyOrder(&[
    ("major", ANY),
    ("minor", ANY),
    ("emulationMajor", ANY),
    ("emulationMinor", ANY),
    ("minCompatibilityMajor", ANY),
    ("minCompatibilityMinor", ANY),
    ("gitVersion", ANY),
    ("gitCommit", ANY),
    ("gitTreeState", ANY),
    ("buildDate", ANY),
    ("goVersion", ANY),
    ("compiler", ANY),
    ("platform", ANY),
]);

fn order_of(value: &Value) -> &'static KeyOrder {
    match value.get("kind").and_then(Value::as_str) {
        Some("Status") if value.get("spec").is_none() => STATUS,
        Some("APIVersions") => API_VERSIONS,
        Some("APIGroupList") => API_GROUP_LIST,
        Some("APIGroup") => API_GROUP,
        Some("APIResourceList") => API_RESOURCE_LIST,
        Some("APIGroupDiscoveryList") => DISCOVERY,
        None if value.get("gitVersion").is_some() => VERSION,
        _ => ANY,
    }
}

/// A value that is encoded with the keys of discovery and Status in Go's order, and all others sorted.
#[derive(Clone, Copy, Debug)]
pub struct GoOrdered<'a> {
    value: &'a Value,
    order: &'static KeyOrder,
}

impl<'a> GoOrdered<'a> {
    /// Returns a document with the order of its kind.
    pub fn new(value: &'a Value) -> Self {
        Self { value, order: order_of(value) }
    }
}

impl Serialize for GoOrdered<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { value, order } = *self;
        match value {
            Value::Object(map) if !order.0.is_empty() => serialize_map(map, order, serializer),
            Value::Array(items) if !order.0.is_empty() => {
                let mut sequence = serializer.serialize_seq(Some(items.len()))?;
                for value in items {
                    sequence.serialize_element(&GoOrdered { value, order })?;
                }
                sequence.end()
            }
            value => value.serialize(serializer),
        }
    }
}

fn serialize_map<S: Serializer>(
    map: &Map<String, Value>,
    order: &KeyOrder,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut output = serializer.serialize_map(Some(map.len()))?;
    for (key, order) in order.0 {
        if let Some(value) = map.get(*key) {
            output.serialize_entry(key, &GoOrdered { value, order })?;
        }
    }
    for (key, value) in map {
        if !order.0.iter().any(|(known, _)| known == key) {
            output.serialize_entry(key, value)?;
        }
    }
    output.end()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use serde_json::json;

    use super::*;

    fn encode(value: &Value) -> String {
        serde_json::to_string(&GoOrdered::new(value)).unwrap()
    }

    #[test]
    fn keys_of_a_status_are_in_the_order_of_its_go_struct() {
        let status = json!({"apiVersion": "v1", "code": 422, "details": {"causes": [{"field": "f", "message": "m",
            "reason": "r"}], "kind": "k", "name": "n"}, "kind": "Status", "message": "m", "metadata": {},
            "reason": "Invalid", "status": "Failure"});
        assert_eq!(
            encode(&status),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"m","reason":"Invalid","details":{"name":"n","kind":"k","causes":[{"reason":"r","message":"m","field":"f"}]},"code":422}"#
        );
    }

    #[test]
    fn keys_of_a_resource_begin_with_its_name() {
        let list = json!({"groupVersion": "v1", "kind": "APIResourceList", "resources":
            [{"kind": "Pod", "name": "pods", "namespaced": true, "verbs": ["get"], "other": 1}]});
        assert_eq!(
            encode(&list),
            r#"{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"pods","namespaced":true,"kind":"Pod","verbs":["get"],"other":1}]}"#
        );
    }

    #[test]
    fn other_kinds_are_encoded_as_they_are() {
        let object = json!({"kind": "ConfigMap", "apiVersion": "v1", "data": {"b": "1", "a": "2"}});
        assert_eq!(encode(&object), object.to_string());
    }
}
