//! Strategic merge patch on built-in kinds.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails loudly")]

use orlop_api::patch::{PatchError, strategic_merge_patch};
use orlop_api::schema::{Schema, builtin};
use orlop_api::status::Status;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

fn deployment() -> &'static Schema {
    builtin::type_of("apps", "v1", "Deployment").unwrap().schema()
}

fn pod() -> &'static Schema {
    builtin::type_of("", "v1", "Pod").unwrap().schema()
}

fn patch(original: Value, patch: Value) -> Result<Value, PatchError> {
    strategic_merge_patch(&original, &patch, pod())
}

fn containers(list: Value) -> Value {
    json!({"spec": {"containers": list}})
}

#[test]
fn directives_apply() {
    let cases: Vec<(&str, Value, Value, Value)> = vec![
        (
            "maps merge and null deletes",
            json!({"metadata": {"labels": {"a": "1", "b": "2"}}}),
            json!({"metadata": {"labels": {"a": null, "c": "3"}}}),
            json!({"metadata": {"labels": {"b": "2", "c": "3"}}}),
        ),
        (
            "lists merge by key",
            containers(json!([{"name": "a", "image": "x"}, {"name": "b"}])),
            containers(json!([{"name": "b", "image": "y"}, {"name": "c"}])),
            containers(json!([{"name": "a", "image": "x"}, {"name": "b", "image": "y"}, {"name": "c"}])),
        ),
        (
            "an item is deleted",
            containers(json!([{"name": "a"}, {"name": "b"}])),
            containers(json!([{"name": "a", "$patch": "delete"}])),
            containers(json!([{"name": "b"}])),
        ),
        (
            "a list is replaced",
            containers(json!([{"name": "a"}, {"name": "b"}])),
            containers(json!([{"$patch": "replace"}, {"name": "c"}])),
            containers(json!([{"name": "c"}])),
        ),
        (
            "a map is replaced",
            json!({"spec": {"nodeName": "n", "hostname": "h"}}),
            json!({"spec": {"$patch": "replace", "hostname": "i"}}),
            json!({"spec": {"hostname": "i"}}),
        ),
        (
            "a map is deleted",
            json!({"metadata": {"labels": {"a": "1"}}}),
            json!({"metadata": {"labels": {"$patch": "delete"}}}),
            json!({"metadata": {"labels": {}}}),
        ),
        (
            "atomic lists are replaced",
            containers(json!([{"name": "a", "args": ["x", "y"]}])),
            containers(json!([{"name": "a", "args": ["z"]}])),
            containers(json!([{"name": "a", "args": ["z"]}])),
        ),
        (
            "primitive lists merge",
            json!({"metadata": {"finalizers": ["a", "b"]}}),
            json!({"metadata": {"finalizers": ["c", "a"]}}),
            json!({"metadata": {"finalizers": ["c", "a", "b"]}}),
        ),
        (
            "values leave primitive lists",
            json!({"metadata": {"finalizers": ["a", "b", "c"]}}),
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["b"]}}),
            json!({"metadata": {"finalizers": ["a", "c"]}}),
        ),
        (
            "values leave and come",
            json!({"metadata": {"finalizers": ["a", "b"]}}),
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["b"], "finalizers": ["d"]}}),
            json!({"metadata": {"finalizers": ["d", "a"]}}),
        ),
        (
            "an order is set",
            containers(json!([{"name": "a"}, {"name": "b"}, {"name": "c"}])),
            json!({"spec": {"$setElementOrder/containers": [{"name": "c"}, {"name": "a"}, {"name": "b"}]}}),
            containers(json!([{"name": "c"}, {"name": "a"}, {"name": "b"}])),
        ),
        (
            "an order is set around what only the server has",
            containers(json!([{"name": "a"}, {"name": "s"}, {"name": "b"}])),
            json!({"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "n"}, {"name": "a"}], "containers": [{"name": "n"}]}}),
            containers(json!([{"name": "s"}, {"name": "b"}, {"name": "n"}, {"name": "a"}])),
        ),
        (
            "an order of values is set",
            json!({"metadata": {"finalizers": ["a", "b", "c"]}}),
            json!({"metadata": {"$setElementOrder/finalizers": ["c", "b", "d"], "finalizers": ["d"]}}),
            json!({"metadata": {"finalizers": ["a", "c", "b", "d"]}}),
        ),
        (
            "unlisted keys of a volume go",
            json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}),
            json!({"spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "configMap"], "configMap": {"name": "c"}}]}}),
            json!({"spec": {"volumes": [{"name": "v", "configMap": {"name": "c"}}]}}),
        ),
        (
            "a new value comes without its directives and nulls",
            json!({}),
            json!({"spec": {"hostname": null, "containers": [{"name": "a", "$patch": "delete"}, {"name": "b", "image": null}]}}),
            containers(json!([{"name": "b"}])),
        ),
        (
            "ports merge by containerPort alone",
            containers(json!([{"name": "a", "ports": [{"containerPort": 80, "protocol": "TCP"}]}])),
            containers(json!([{"name": "a", "ports": [{"containerPort": 80, "protocol": "UDP"}]}])),
            containers(json!([{"name": "a", "ports": [{"containerPort": 80, "protocol": "UDP"}]}])),
        ),
        (
            "another type replaces",
            json!({"metadata": {"labels": "x"}}),
            json!({"metadata": {"labels": {"a": "b"}}}),
            json!({"metadata": {"labels": {"a": "b"}}}),
        ),
    ];
    for (name, original, wanted, expected) in cases {
        assert_eq!(
            patch(original, wanted).unwrap_or_else(|error| panic!("{name}: {error}")),
            expected,
            "{name}"
        );
    }
    let strategy = strategic_merge_patch(
        &json!({"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}}),
        &json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}),
        deployment(),
    );
    assert_eq!(strategy.unwrap(), json!({"spec": {"strategy": {"type": "Recreate"}}}));
}

#[test]
fn errors_match_kubernetes() {
    for (original, wanted, code, message) in [
        (
            containers(json!([{"name": "a"}])),
            containers(json!([{"image": "x"}])),
            500,
            "map: map[image:x] does not contain declared merge key: name",
        ),
        (
            containers(json!([{"name": "a"}])),
            containers(json!([{"$patch": "delete"}])),
            500,
            "map: map[$patch:delete] does not contain declared merge key: name",
        ),
        (
            containers(json!([{"name": "a"}])),
            containers(json!([{"$patch": "merge"}])),
            500,
            "merging lists cannot yet be specified in the patch",
        ),
        (
            containers(json!([{"name": "a"}])),
            containers(json!([{"$patch": "dance"}])),
            500,
            "unknown patch type: dance in map: map[$patch:dance]",
        ),
        (json!({}), json!({"$patch": "merge"}), 500, "unknown patch type: merge in map: map[$patch:merge]"),
        (
            containers(json!([{"name": "a"}])),
            containers(json!(["x"])),
            500,
            "list element types are not identical: [[map[name:a]] [x]]",
        ),
        (
            json!({"spec": {"nope": {}}}),
            json!({"spec": {"nope": {"a": 1}}}),
            500,
            "unable to find api field in struct PodSpec for the json field \"nope\"",
        ),
        (
            json!({"spec": {}}),
            json!({"spec": {"$retainKeys": "x"}}),
            400,
            "invalid patch format of retainKeys",
        ),
        (
            json!({"spec": {}}),
            json!({"spec": {"$retainKeys": ["hostname"], "nodeName": "x"}}),
            400,
            "invalid patch format of retainKeys",
        ),
        (
            json!({"spec": {}}),
            json!({"spec": {"$setElementOrder": []}}),
            400,
            "invalid patch format of setElementOrder list",
        ),
        (
            json!({"spec": {}}),
            json!({"spec": {"$setElementOrder/containers": "x"}}),
            500,
            "expected a []interface {}, but received a string",
        ),
        (
            json!({"metadata": {}}),
            json!({"metadata": {"$deleteFromPrimitiveList": []}}),
            400,
            "invalid patch format of primitive list",
        ),
        (
            containers(json!([{"name": "a"}])),
            json!({"spec": {"$setElementOrder/containers": [{"name": "a"}], "containers": [{"name": "b"}]}}),
            500,
            "The order in patch list:\n[map[name:b]]\n doesn't match $setElementOrder list:\n[map[name:a]]\n",
        ),
    ] {
        let status = Status::from(patch(original, wanted.clone()).unwrap_err());
        assert_eq!((status.code, status.message.as_str()), (code, message), "{wanted}");
    }
    assert_eq!(
        strategic_merge_patch(&json!({}), &json!([]), pod()),
        Err(PatchError::Malformed("invalid JSON document".to_owned()))
    );
}

// === A patch made from a difference leads to what it was made from ===

fn diff_maps(original: &Map<String, Value>, modified: &Map<String, Value>, path: &str) -> Map<String, Value> {
    let mut patch = Map::new();
    for key in original.keys().filter(|key| !modified.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    for (key, new) in modified {
        let here = format!("{path}.{key}");
        match (original.get(key), new) {
            (Some(old), new) if old == new => {}
            (Some(Value::Object(old)), Value::Object(new)) => {
                drop(patch.insert(key.clone(), Value::Object(diff_maps(old, new, &here))));
            }
            (Some(Value::Array(old)), Value::Array(new)) if here == ".spec.containers" => {
                let name = |item: &Value| item["name"].clone();
                let mut items: Vec<Value> = Vec::new();
                for item in new {
                    match old.iter().find(|other| name(other) == name(item)) {
                        Some(other) if other == item => {}
                        Some(other) => {
                            let mut difference =
                                diff_maps(other.as_object().unwrap(), item.as_object().unwrap(), "");
                            difference.insert("name".to_owned(), name(item));
                            items.push(Value::Object(difference));
                        }
                        None => items.push(item.clone()),
                    }
                }
                for item in old.iter().filter(|item| !new.iter().any(|other| name(other) == name(item))) {
                    items.push(json!({"name": name(item), "$patch": "delete"}));
                }
                let order: Vec<Value> = new.iter().map(|item| json!({"name": name(item)})).collect();
                patch.insert(format!("$setElementOrder/{key}"), Value::Array(order));
                patch.insert(key.clone(), Value::Array(items));
            }
            (Some(Value::Array(old)), Value::Array(new)) if here == ".metadata.finalizers" => {
                let gone: Vec<Value> = old.iter().filter(|item| !new.contains(item)).cloned().collect();
                let come: Vec<Value> = new.iter().filter(|item| !old.contains(item)).cloned().collect();
                patch.insert(format!("$deleteFromPrimitiveList/{key}"), Value::Array(gone));
                patch.insert(format!("$setElementOrder/{key}"), Value::Array(new.clone()));
                patch.insert(key.clone(), Value::Array(come));
            }
            (_, new) => drop(patch.insert(key.clone(), new.clone())),
        }
    }
    patch
}

fn pods() -> impl Strategy<Value = Value> {
    let container =
        (proptest::option::of("[xy]"), proptest::option::of(proptest::collection::vec("[pq]", 1..3)));
    let containers = proptest::collection::btree_map("[abcd]", container, 1..4)
        .prop_map(|map| map.into_iter().collect::<Vec<_>>())
        .prop_shuffle();
    let labels = proptest::collection::btree_map("[kl]", "[vw]", 0..3);
    let finalizers = proptest::sample::subsequence(vec!["f", "g", "h"], 1..=3).prop_shuffle();
    (containers, labels, finalizers, proptest::option::of("[mn]")).prop_map(|(containers, labels, finalizers, hostname)| {
        let containers: Vec<Value> = containers
            .into_iter()
            .map(|(name, (image, args))| {
                let mut item = json!({"name": name});
                if let Some(image) = image {
                    item["image"] = json!(image);
                }
                if let Some(args) = args {
                    item["args"] = json!(args);
                }
                item
            })
            .collect();
        let mut pod = json!({"metadata": {"labels": labels, "finalizers": finalizers}, "spec": {"containers": containers}});
        if let Some(hostname) = hostname {
            pod["spec"]["hostname"] = json!(hostname);
        }
        pod
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn applying_a_diff_yields_the_modified_object(original in pods(), modified in pods()) {
        let patch = Value::Object(diff_maps(original.as_object().unwrap(), modified.as_object().unwrap(), ""));
        prop_assert_eq!(strategic_merge_patch(&original, &patch, pod()).unwrap(), modified, "{}", patch);
    }

    #[test]
    fn strategic_merge_is_idempotent(original in pods(), patch in pods()) {
        let once = strategic_merge_patch(&original, &patch, pod()).unwrap();
        prop_assert_eq!(strategic_merge_patch(&once, &patch, pod()).unwrap(), once);
    }
}

#[test]
fn merging_ten_thousand_items_is_not_quadratic() {
    let item = |n: usize, image: &str| json!({"name": format!("c{n}"), "image": image});
    let list = |range: std::ops::Range<usize>, image: &str| {
        containers(range.map(|n| item(n, image)).collect::<Vec<_>>().into())
    };
    let started = std::time::Instant::now();
    let merged = patch(list(0..10_000, "a"), list(5_000..15_000, "b")).unwrap();
    let merged = merged["spec"]["containers"].as_array().unwrap();
    assert_eq!(merged.len(), 15_000);
    assert_eq!((&merged[0], &merged[5_000]), (&item(0, "a"), &item(5_000, "b")));
    let deletions: Vec<Value> =
        (0..10_000).map(|n| json!({"name": format!("c{n}"), "$patch": "delete"})).collect();
    let deleted = patch(list(0..10_000, "a"), containers(deletions.into())).unwrap();
    assert_eq!(deleted, containers(json!([])));
    let finalizers = |range: std::ops::Range<usize>| json!({"metadata": {"finalizers": range.map(|n| format!("x/{n}")).collect::<Vec<_>>()}});
    let merged = patch(finalizers(0..10_000), finalizers(5_000..15_000)).unwrap();
    assert_eq!(merged["metadata"]["finalizers"].as_array().unwrap().len(), 15_000);
    // A quadratic merge takes minutes in a debug build.
    assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
}
