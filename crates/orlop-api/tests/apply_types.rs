//! Two appliers of one field of every type: what they share, and where they conflict.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails loudly")]

use orlop_api::apply::{FieldManager, SingleVersion, TypeRef};
use orlop_api::group_version::GroupVersionKind;
use orlop_api::managed_fields::{ManagedFields, Path};
use orlop_api::schema::from_openapi;
use orlop_api::time::Time;
use serde_json::{Value, json};
use std::collections::BTreeMap;

fn object(spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "x"}, "spec": spec})
}

/// Fields that an applier owns.
fn owned(object: &Value, manager: &str) -> Vec<String> {
    let entries = ManagedFields::of(object).unwrap().entries;
    let sets =
        entries.iter().filter(|(found, _)| found.name == manager).map(|(_, entry)| entry.fields.to_set());
    sets.flat_map(|set| set.paths().iter().map(Path::to_string).collect::<Vec<_>>()).collect()
}

/// Outcome of two appliers of one field.
enum Outcome {
    Merged(Value),
    /// Paths in conflict.
    Conflict(&'static str),
}

#[test]
fn ownership_follows_list_and_map_types() {
    use Outcome::{Conflict, Merged};
    let number = || json!({"type": "integer"});
    let structure = |properties: Value| json!({"type": "object", "properties": properties});
    let numbers = || structure(json!({"a": number(), "b": number()}));
    let keyed = |keys: Value, properties: Value| {
        json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys,
            "items": {"type": "object", "properties": properties}})
    };
    let with = |mut schema: Value, key: &str, value: Value| {
        schema[key] = value;
        schema
    };
    let map = || json!({"type": "object", "additionalProperties": {"type": "integer"}});
    let list =
        |kind: &str| json!({"type": "array", "x-kubernetes-list-type": kind, "items": {"type": "integer"}});
    let free = || json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let (a, b) = (|| json!({"a": 1}), || json!({"b": 2}));
    let both = || Merged(json!({"a": 1, "b": 2}));
    let cases: Vec<(&str, Value, Value, Value, Outcome)> = vec![
        ("scalar", number(), json!(1), json!(2), Conflict(".spec.f")),
        (
            "number or text",
            json!({"x-kubernetes-int-or-string": true}),
            json!(1),
            json!("1"),
            Conflict(".spec.f"),
        ),
        ("struct", numbers(), a(), b(), both()),
        ("granular struct", with(numbers(), "x-kubernetes-map-type", json!("granular")), a(), b(), both()),
        (
            "atomic struct",
            with(numbers(), "x-kubernetes-map-type", json!("atomic")),
            a(),
            b(),
            Conflict(".spec.f"),
        ),
        ("map", map(), a(), b(), both()),
        ("map, same entry", map(), a(), json!({"a": 2}), Conflict(".spec.f.a")),
        ("granular map", with(map(), "x-kubernetes-map-type", json!("granular")), a(), b(), both()),
        ("atomic map", with(map(), "x-kubernetes-map-type", json!("atomic")), a(), b(), Conflict(".spec.f")),
        ("list", json!({"type": "array", "items": number()}), json!([1]), json!([2]), Conflict(".spec.f")),
        ("atomic list", list("atomic"), json!([1]), json!([2]), Conflict(".spec.f")),
        ("set", list("set"), json!([1, 2]), json!([2, 3]), Merged(json!([1, 2, 3]))),
        (
            "list by key",
            keyed(json!(["k"]), json!({"k": number(), "v": number()})),
            json!([{"k": 1, "v": 1}]),
            json!([{"k": 2, "v": 2}]),
            Merged(json!([{"k": 1, "v": 1}, {"k": 2, "v": 2}])),
        ),
        (
            "list by key, same item",
            keyed(json!(["k"]), json!({"k": number(), "v": number(), "w": number()})),
            json!([{"k": 1, "v": 1}]),
            json!([{"k": 1, "w": 2}]),
            Merged(json!([{"k": 1, "v": 1, "w": 2}])),
        ),
        (
            "list by key, same field",
            keyed(json!(["k"]), json!({"k": number(), "v": number()})),
            json!([{"k": 1, "v": 1}]),
            json!([{"k": 1, "v": 2}]),
            Conflict(".spec.f[k=1].v"),
        ),
        (
            "list by two keys, one of them by default",
            keyed(
                json!(["k", "l"]),
                json!({"k": number(), "l": {"type": "string", "default": "x"}, "v": number()}),
            ),
            json!([{"k": 1, "v": 1}]),
            json!([{"k": 1, "l": "x", "v": 2}, {"k": 1, "l": "y", "v": 3}]),
            Conflict(".spec.f[k=1,l=\"x\"].v"),
        ),
        (
            "set in a list by key",
            keyed(json!(["k"]), json!({"k": number(), "s": list("set")})),
            json!([{"k": 1, "s": [1]}]),
            json!([{"k": 1, "s": [2]}]),
            Merged(json!([{"k": 1, "s": [1, 2]}])),
        ),
        (
            "set in an atomic struct",
            with(structure(json!({"s": list("set")})), "x-kubernetes-map-type", json!("atomic")),
            json!({"s": [1]}),
            json!({"s": [2]}),
            Conflict(".spec.f"),
        ),
        (
            "anything",
            free(),
            json!({"a": {"a": 1}}),
            json!({"a": {"b": 2}}),
            Merged(json!({"a": {"a": 1, "b": 2}})),
        ),
        ("anything, with a list", free(), json!({"l": [1]}), json!({"l": [2]}), Conflict(".spec.f.l")),
    ];
    let (kind, reset) = (GroupVersionKind::new("example.com", "v1", "Thing"), BTreeMap::new());
    let now = Time::from_unix(1);
    for (name, schema, mine, theirs, expected) in cases {
        let schema = from_openapi(&structure(json!({"spec": structure(json!({"f": schema}))})));
        let versions = SingleVersion { api_version: "example.com/v1", of: TypeRef::resource(&schema) };
        let fields = FieldManager { kind: &kind, versions: &versions, subresource: "", owned_fields: &reset };
        let apply = |live: Option<&Value>, value: &Value, manager: &str, force: bool| {
            let applied = fields.apply(live, &object(json!({"f": value})), manager, force, now);
            applied.map(|applied| applied.object.into_owned()).map_err(|status| status.message)
        };
        let live = apply(None, &mine, "one", false).unwrap();
        match expected {
            Merged(merged) => {
                assert_eq!(apply(Some(&live), &theirs, "two", false).unwrap()["spec"]["f"], merged, "{name}");
            }
            Conflict(place) => {
                let refused = apply(Some(&live), &theirs, "two", false).unwrap_err();
                assert_eq!(
                    refused,
                    format!("Apply failed with 1 conflict: conflict with \"one\": {place}"),
                    "{name}"
                );
                let forced = apply(Some(&live), &theirs, "two", true).unwrap();
                assert!(owned(&forced, "two").contains(&place.to_owned()), "{name}");
                assert!(!owned(&forced, "one").contains(&place.to_owned()), "{name}");
            }
        }
        // Whoever lets go of everything leaves what the other has.
        let live = apply(Some(&live), &theirs, "two", true).unwrap();
        let left = fields.apply(Some(&live), &object(json!({})), "one", false, now).unwrap();
        assert_eq!(left.object["spec"]["f"], theirs, "{name}");
    }
}
