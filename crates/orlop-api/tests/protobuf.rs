//! The protobuf codec: every built-in kind there and back, the special messages byte by byte, and bytes
//! that are nothing.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use orlop_api::{
    protobuf::{self, DecodeError, Envelope, ListWriter},
    schema::{AdditionalProperties, Schema, Type, builtin},
};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// A value for every field of a type, each different from zero. Types that refer to themselves end.
fn filled(schema: &Schema, name: &str, seed: &mut u32, within: &mut Vec<String>) -> Value {
    *seed += 1;
    let go_type = schema.go_type.unwrap_or_default();
    match go_type {
        "Time" => return "2026-11-15T04:05:06Z".into(),
        "MicroTime" => return "2026-11-15T04:05:06.000789Z".into(),
        "Quantity" => return format!("{seed}Mi").into(),
        "IntOrString" if seed.is_multiple_of(2) => return (*seed).into(),
        "IntOrString" => return format!("port-{seed}").into(),
        "FieldsV1" | "RawExtension" | "JSON" => return json!({"f:a": {".": {}}, "list": [1, 2.5, "x", null]}),
        "JSONSchemaPropsOrArray" if seed.is_multiple_of(2) => {
            return json!([{"type": "string"}, {"type": "integer"}]);
        }
        "JSONSchemaPropsOrArray" => return json!({"type": "string"}),
        "JSONSchemaPropsOrBool" if seed.is_multiple_of(2) => return json!({"type": "string"}),
        "JSONSchemaPropsOrBool" => return true.into(),
        "JSONSchemaPropsOrStringArray" => return json!(["a", "b"]),
        _ => {}
    }
    if within.iter().filter(|outer| *outer == go_type).count() > 1 && !go_type.is_empty() {
        return json!({});
    }
    within.push(go_type.to_owned());
    let value = match schema.kind {
        Type::String if schema.format.as_deref() == Some("byte") => "aGVsbG8=".into(),
        Type::String => format!("{name}-{seed}").into(),
        Type::Integer => (*seed).into(),
        Type::Number => (f64::from(*seed) + 0.5).into(),
        Type::Boolean => true.into(),
        Type::Array => {
            let items = schema.items().expect("items");
            json!([filled(items, name, seed, within), filled(items, name, seed, within)])
        }
        Type::Object => {
            let mut object = Map::new();
            if let AdditionalProperties::Of(values) = &schema.additional_properties {
                object.insert("one".into(), filled(values.get(), name, seed, within));
                object.insert("two".into(), filled(values.get(), name, seed, within));
            }
            // The kind of an object within another does not travel.
            let is_resource = schema.field("metadata").is_some() || go_type == "DeleteOptions";
            let travels = |name: &str| !(is_resource && matches!(name, "apiVersion" | "kind"));
            for (name, field) in schema.properties.iter().filter(|(name, _)| travels(name)) {
                object.insert(name.to_string(), filled(field.schema(), name, seed, within));
            }
            Value::Object(object)
        }
        Type::Any => json!({"any": [1]}),
    };
    within.pop();
    value
}

/// Returns the first difference of two values.
fn difference(path: &str, left: &Value, right: &Value) -> Option<String> {
    match (left, right) {
        (Value::Object(a), Value::Object(b)) => a.keys().chain(b.keys()).find_map(|key| {
            let null = Value::Null;
            difference(&format!("{path}.{key}"), a.get(key).unwrap_or(&null), b.get(key).unwrap_or(&null))
        }),
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            a.iter().zip(b).find_map(|(a, b)| difference(&format!("{path}[]"), a, b))
        }
        (a, b) => (a != b).then(|| format!("{path}: {a} {b}")),
    }
}

fn object_of(api_version: &str, kind: &str) -> Value {
    let schema =
        protobuf::type_for(api_version, kind).unwrap_or_else(|| panic!("{api_version} {kind}")).schema();
    let mut object = filled(schema, "", &mut 0, &mut Vec::new());
    object["apiVersion"] = api_version.into();
    object["kind"] = kind.into();
    object
}

#[test]
fn all_fields_of_all_kinds_round_trip() {
    let mut kinds: Vec<(String, String)> = Vec::new();
    for resource in builtin::resources() {
        let api_version = if resource.group.is_empty() {
            "v1".into()
        } else {
            format!("{}/{}", resource.group, resource.version)
        };
        for subresource in &resource.subresources {
            let version =
                if subresource.api_version.is_empty() { &api_version } else { subresource.api_version };
            kinds.push((version.to_owned(), subresource.kind.to_owned()));
        }
        kinds.push((api_version, resource.kind.to_owned()));
    }
    for kind in ["Status", "DeleteOptions", "PartialObjectMetadata", "APIResourceList"] {
        kinds.push(("v1".into(), kind.into()));
    }
    kinds.sort();
    kinds.dedup();
    for (api_version, kind) in kinds {
        if protobuf::type_for(&api_version, &kind).is_none() {
            // The options of `log`, `exec` and their like are queries, never bodies.
            assert!(kind.ends_with("Options"), "{api_version} {kind}");
            continue;
        }
        let object = object_of(&api_version, &kind);
        let bytes = protobuf::encode(&object).unwrap();
        let decoded = protobuf::decode(&bytes).unwrap();
        assert_eq!(difference(&kind, &decoded, &object), None);
        assert!(protobuf::encode(&decoded).unwrap() == bytes, "{api_version} {kind}");
        let json = object.to_string();
        let from_json = protobuf::encode_json(&api_version, &kind, json.as_bytes());
        assert!(from_json == Some(bytes), "{api_version} {kind}, without decoding");
        let list = ListWriter::new(&api_version, &kind).unwrap();
        let from_json = list.item_of_json(json.as_bytes());
        assert!(from_json == Some(list.item(&object)), "{api_version} {kind}, without decoding");
    }
}

#[test]
fn transcoding_equals_encoding_or_falls_back() {
    let list = ListWriter::new("v1", "Pod").unwrap();
    let pod = |spec: Value| json!({"metadata": {"name": "a"}, "spec": spec, "unknown": [{"x": 1}]});
    for (spec, is_usual) in [
        (json!({}), true),
        (json!(null), true),
        (json!({"nodeName": null, "containers": null, "nodeSelector": null, "affinity": null}), true),
        (json!({"hostNetwork": false, "priority": 0, "nodeName": "", "containers": []}), true),
        (json!({"priority": -1, "terminationGracePeriodSeconds": i64::MIN}), true),
        (json!({"nodeName": "\u{1f600}\"\\\n"}), true),
        (json!({"overhead": {"cpu": 1, "memory": "1Mi"}}), true),
        (json!({"nodeName": 3}), false),
        (json!({"priority": "3"}), false),
        (json!({"priority": 3.5}), false),
        (json!({"priority": u64::MAX}), false),
        (json!({"containers": {}}), false),
        (json!({"containers": [null]}), false),
        (json!({"nodeSelector": {"a": null}}), false),
        (json!({"nodeSelector": ["a"]}), false),
        (json!({"hostNetwork": "yes"}), false),
        (json!("text"), false),
    ] {
        let object = pod(spec);
        let from_json = list.item_of_json(object.to_string().as_bytes());
        assert_eq!(from_json, is_usual.then(|| list.item(&object)), "{object}");
    }
    for damaged in ["", "{", "[]", "null", "{}}", "{\"metadata\":{\"name\":\"\u{1}\"}}"] {
        assert_eq!(list.item_of_json(damaged.as_bytes()), None, "{damaged}");
    }
    assert_eq!(list.item_of_json(b"{\"metadata\":{\"name\":\"\xff\"}}"), None);
}

/// `k8s\0` and the envelope around a message, by hand.
fn enclosed(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let text = |number: u8, text: &[u8]| [&[number << 3 | 2, text.len() as u8], text].concat();
    let types = [text(1, api_version.as_bytes()), text(2, kind.as_bytes())].concat();
    [b"k8s\0".to_vec(), text(1, &types), text(2, raw), vec![0x1a, 0, 0x22, 0]].concat()
}

#[test]
fn object_encoding_is_stable() {
    // ConfigMap{metadata{name: "a"}, data{"k": "v"}}
    let raw = [0x0a, 0x03, 0x0a, 0x01, b'a', 0x12, 0x06, 0x0a, 0x01, b'k', 0x12, 0x01, b'v'];
    let object =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}});
    let bytes = enclosed("v1", "ConfigMap", &raw);
    assert_eq!(protobuf::encode(&object).unwrap(), bytes);
    assert_eq!(protobuf::decode(&bytes).unwrap(), object);
    let envelope = Envelope::open(&bytes).unwrap();
    assert_eq!((envelope.api_version, envelope.kind, envelope.raw), ("v1", "ConfigMap", &raw[..]));
}

#[test]
fn special_message_encoding_is_stable() {
    // Lease.spec: leaseDurationSeconds=2, acquireTime=3{seconds=1, nanos=2}.
    let lease = [0x12, 0x0b, 0x10, 0x0f, 0x1a, 0x07, 0x08, 0x05, 0x10, 0xc0, 0xcf, 0x24, 0x00];
    let bytes = enclosed("coordination.k8s.io/v1", "Lease", &lease[..12]);
    assert!(protobuf::decode(&bytes).is_err(), "cut short");
    let lease = [0x12, 0x0a, 0x10, 0x0f, 0x1a, 0x06, 0x08, 0x05, 0x10, 0xc0, 0x84, 0x3d];
    let bytes = enclosed("coordination.k8s.io/v1", "Lease", &lease);
    let object = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "spec": {"leaseDurationSeconds": 15, "acquireTime": "1970-01-01T00:00:05.001000Z"}});
    assert_eq!(protobuf::decode(&bytes).unwrap(), object);
    assert_eq!(protobuf::encode(&object).unwrap(), bytes);
    // Service.spec.ports[0]: port=3, targetPort=4{type=1, intVal=2, strVal=3}.
    for (target, encoded) in [
        (json!(8080), &[0x08, 0x00, 0x10, 0x90, 0x3f, 0x1a, 0x00][..]),
        (json!("web"), &[0x08, 0x01, 0x10, 0x00, 0x1a, 0x03, b'w', b'e', b'b'][..]),
    ] {
        let length = encoded.len() as u8;
        let raw = [&[0x12, length + 6, 0x0a, length + 4, 0x18, 80, 0x22, length], encoded].concat();
        let object = json!({"apiVersion": "v1", "kind": "Service", "spec": {"ports": [{"port": 80, "targetPort": target}]}});
        let bytes = enclosed("v1", "Service", &raw);
        assert_eq!(protobuf::decode(&bytes).unwrap(), object);
        assert_eq!(protobuf::encode(&object).unwrap(), bytes);
    }
}

#[test]
fn explicit_zeros_are_kept_and_implicit_ones_omitted() {
    // Pod.spec: restartPolicy=3 "", terminationGracePeriodSeconds=4 0 (a pointer), hostNetwork=11 false.
    let pod = enclosed("v1", "Pod", &[0x12, 0x06, 0x1a, 0x00, 0x20, 0x00, 0x58, 0x00]);
    assert_eq!(protobuf::decode(&pod).unwrap()["spec"], json!({"terminationGracePeriodSeconds": 0}));
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 0}});
    assert_eq!(protobuf::decode(&protobuf::encode(&deployment).unwrap()).unwrap(), deployment);
    // A time that was never set: metadata.creationTimestamp is an empty message.
    let created = enclosed("v1", "ConfigMap", &[0x0a, 0x05, 0x0a, 0x01, b'a', 0x42, 0x00]);
    assert_eq!(protobuf::decode(&created).unwrap()["metadata"], json!({"name": "a"}));
}

#[test]
fn inlined_structs_are_flattened() {
    let object = json!({"apiVersion": "v1", "kind": "Pod", "spec": {
        "volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "configMap": {"name": "c", "optional": false}}],
        "containers": [{"name": "x", "livenessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 3},
            "envFrom": [{"secretRef": {"name": "s"}}]}]}});
    assert_eq!(protobuf::decode(&protobuf::encode(&object).unwrap()).unwrap(), object);
}

#[test]
fn unknown_fields_are_skipped_and_repeated_messages_merged() {
    let raw = [
        &[0x0a, 0x03, 0x0a, 0x01, b'a'][..],               // metadata.name
        &[0xf8, 0x3f, 0x05],                               // field 1023, a varint
        &[0xfb, 0x3f, 0xfb, 0x3f, 0xfc, 0x3f, 0xfc, 0x3f], // field 1023, a group in a group
        &[0x0a, 0x03, 0x1a, 0x01, b'n'],                   // metadata.namespace
    ]
    .concat();
    let decoded = protobuf::decode(&enclosed("v1", "ConfigMap", &raw)).unwrap();
    assert_eq!(decoded["metadata"], json!({"name": "a", "namespace": "n"}));
}

#[test]
fn lists_and_watch_events_embed_objects() {
    let object =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}});
    let list = ListWriter::new("v1", "ConfigMap").unwrap();
    let items = list.item(&object).repeat(2);
    let metadata = json!({"resourceVersion": "7", "remainingItemCount": 3});
    let opening = list.opening("v1", "ConfigMapList", items.len(), &metadata);
    let bytes = [opening, items, list.closing(&metadata)].concat();
    let decoded = protobuf::decode(&bytes).unwrap();
    let item = json!({"metadata": {"name": "a"}, "data": {"k": "v"}});
    let expected = json!({"apiVersion": "v1", "kind": "ConfigMapList", "items": [item, item],
        "metadata": {"resourceVersion": "7", "remainingItemCount": 3}});
    assert_eq!(decoded, expected);
    let envelope = protobuf::encode(&object).unwrap();
    let frame = protobuf::watch_frame("ADDED", &envelope);
    let length = u32::from_be_bytes(frame[..4].try_into().unwrap());
    assert_eq!(length as usize, frame.len() - 4);
    assert_eq!(frame[4..11], *b"\x0a\x05ADDED");
    assert!(frame.ends_with(&envelope));
}

#[test]
fn invalid_envelopes_are_refused() {
    assert_eq!(protobuf::decode(b""), Err(DecodeError::Empty));
    assert_eq!(protobuf::decode(b"{}"), Err(DecodeError::NotAnObject));
    assert!(matches!(protobuf::decode(b"k8s\0"), Err(DecodeError::UnknownKind { .. })));
    let latin = enclosed("v1", "ConfigMap", &[0x0a, 0x03, 0x0a, 0x01, 0xe9]);
    assert_eq!(protobuf::decode(&latin), Err(DecodeError::InvalidText("name".into())));
    let number = enclosed("v1", "ConfigMap", &[0x08, 0x03]);
    assert_eq!(protobuf::decode(&number), Err(DecodeError::WrongWireType { field: "metadata".into() }));
}

#[test]
fn nesting_is_bounded() {
    // CustomResourceDefinition.spec.versions[].schema.openAPIV3Schema.not.not.not…
    let mut inner = Vec::new();
    for _ in 0..5000 {
        let mut outer = vec![0xe2, 0x01];
        let (mut length, mut bytes) = (inner.len(), Vec::new());
        while length >= 0x80 {
            bytes.push(length as u8 | 0x80);
            length >>= 7;
        }
        bytes.push(length as u8);
        outer.extend(bytes);
        outer.extend(&inner);
        inner = outer;
    }
    let entry = protobuf::type_for("apiextensions.k8s.io/v1", "JSONSchemaProps").unwrap();
    let mut body = b"k8s\0\x12".to_vec();
    let (mut length, mut bytes) = (inner.len(), Vec::new());
    while length >= 0x80 {
        bytes.push(length as u8 | 0x80);
        length >>= 7;
    }
    bytes.push(length as u8);
    body.extend(bytes);
    body.extend(&inner);
    assert_eq!(protobuf::decode_as(&body, entry), Err(DecodeError::TooDeep));
}

#[test]
fn truncations_never_panic() {
    let bytes = protobuf::encode(&object_of("v1", "Pod")).unwrap();
    for end in (0..bytes.len()).step_by(3) {
        let _ = protobuf::decode(&bytes[..end]);
    }
}

proptest! {
    #[test]
    fn bytes_never_panic(raw in proptest::collection::vec(any::<u8>(), 0..200), kind in 0..5usize) {
        let kind = [("v1", "Pod"), ("apps/v1", "Deployment"), ("v1", "Status"), ("v1", "ConfigMap"),
            ("apiextensions.k8s.io/v1", "CustomResourceDefinition")][kind];
        let _ = protobuf::decode(&enclosed(kind.0, kind.1, &raw[..raw.len().min(120)]));
        let _ = protobuf::decode(&raw);
    }

    #[test]
    fn flipped_bytes_never_panic(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = protobuf::encode(&object_of("batch/v1", "CronJob")).unwrap();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(object) = protobuf::decode(&bytes) {
            prop_assert!(protobuf::encode(&object).is_some() || object["kind"] != "CronJob");
        }
    }
}
