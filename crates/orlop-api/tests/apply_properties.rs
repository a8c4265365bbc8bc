//! Properties of server-side apply.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails loudly")]

use orlop_api::apply::{FieldManager, SingleVersion, TypeRef, remove_items};
use orlop_api::group_version::GroupVersionKind;
use orlop_api::managed_fields::{Filter, ManagedFields, Operation, Set};
use orlop_api::schema::{Schema, from_openapi};
use orlop_api::time::Time;
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::LazyLock;

static NO_RESET: BTreeMap<String, Filter> = BTreeMap::new();
static KIND: LazyLock<GroupVersionKind> =
    LazyLock::new(|| GroupVersionKind::new("example.com", "v1", "Thing"));
static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
    let leaf = json!({"type": "integer"});
    from_openapi(&json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "a": leaf, "b": leaf, "c": leaf,
        "map": {"type": "object", "additionalProperties": leaf},
        "nested": {"type": "object", "properties": {"x": leaf, "deep": {"type": "object", "additionalProperties": {"type": "object", "properties": {"p": leaf, "q": leaf}}}}},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "atomic": {"type": "array", "items": leaf},
        "items": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "properties": {"name": {"type": "string"}, "v": leaf, "w": leaf}}}
    }}}}))
});

fn number() -> impl Strategy<Value = Value> {
    (0..4i64).prop_map(Value::from)
}

fn keys(keys: &'static [&'static str]) -> impl Strategy<Value = Vec<&'static str>> {
    proptest::sample::subsequence(keys, 0..=keys.len())
}

/// Maps with at least one entry: an empty one is a leaf of its own.
fn map_of(names: &'static [&'static str]) -> impl Strategy<Value = Option<Value>> {
    keys(names).prop_flat_map(|names| {
        let values = proptest::collection::vec(number(), names.len());
        values.prop_map(move |values| {
            let map: Map<String, Value> = names.iter().map(|name| (*name).to_owned()).zip(values).collect();
            (!map.is_empty()).then_some(Value::Object(map))
        })
    })
}

fn items() -> impl Strategy<Value = Option<Value>> {
    proptest::collection::btree_map("[ijk]", map_of(&["v", "w"]), 0..3).prop_shuffle_items()
}

trait Items {
    fn prop_shuffle_items(self) -> BoxedStrategy<Option<Value>>;
}

impl<S: Strategy<Value = BTreeMap<String, Option<Value>>> + 'static> Items for S {
    fn prop_shuffle_items(self) -> BoxedStrategy<Option<Value>> {
        self.prop_map(|items| items.into_iter().collect::<Vec<_>>())
            .prop_shuffle()
            .prop_map(|items| {
                let list: Vec<Value> = items
                    .into_iter()
                    .map(|(name, fields)| {
                        let mut item =
                            fields.and_then(|fields| fields.as_object().cloned()).unwrap_or_default();
                        item.insert("name".to_owned(), name.into());
                        Value::Object(item)
                    })
                    .collect();
                (!list.is_empty()).then_some(Value::Array(list))
            })
            .boxed()
    }
}

fn nested() -> impl Strategy<Value = Option<Value>> {
    let deep = proptest::collection::btree_map("[mn]", map_of(&["p", "q"]), 0..2);
    (proptest::option::of(number()), deep).prop_map(|(x, deep)| {
        let mut map = Map::new();
        map.extend(x.map(|x| ("x".to_owned(), x)));
        let deep: Map<String, Value> =
            deep.into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
        if !deep.is_empty() {
            map.insert("deep".to_owned(), Value::Object(deep));
        }
        (!map.is_empty()).then_some(Value::Object(map))
    })
}

fn spec() -> impl Strategy<Value = Value> {
    let set = keys(&["s", "t", "u"]).prop_shuffle().prop_map(|list| (!list.is_empty()).then(|| json!(list)));
    let atomic = proptest::option::of(proptest::collection::vec(number(), 1..3).prop_map(Value::from));
    (map_of(&["a", "b", "c"]), map_of(&["k", "l"]), nested(), set, atomic, items()).prop_map(
        |(scalars, map, nested, set, atomic, items)| {
            let mut spec = scalars.and_then(|scalars| scalars.as_object().cloned()).unwrap_or_default();
            for (key, value) in
                [("map", map), ("nested", nested), ("set", set), ("atomic", atomic), ("items", items)]
            {
                spec.extend(value.map(|value| (key.to_owned(), value)));
            }
            Value::Object(spec)
        },
    )
}

fn config(spec: &Value) -> Value {
    let mut object = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "x"}});
    if spec.as_object().is_some_and(|spec| !spec.is_empty()) {
        object["spec"] = spec.clone();
    }
    object
}

fn apply(live: Option<&Value>, spec: &Value, manager: &str, force: bool) -> Result<Value, String> {
    let versions = SingleVersion { api_version: "example.com/v1", of: TypeRef::resource(&SCHEMA) };
    let fields = FieldManager { kind: &KIND, versions: &versions, subresource: "", owned_fields: &NO_RESET };
    let applied = fields.apply(live, &config(spec), manager, force, Time::from_unix(1));
    applied.map(|applied| applied.object.into_owned()).map_err(|status| status.message)
}

fn bare(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    object
}

fn set_of(object: &Value, manager: &str) -> Set {
    let managed = ManagedFields::of(object).unwrap();
    let found = managed
        .entries
        .into_iter()
        .find(|(found, _)| found.name == manager && found.operation == Operation::Apply);
    found.map(|(_, entry)| entry.fields.to_set()).unwrap_or_default()
}

/// The second spec without any scalar, item or entry that the first has.
fn without(left: &Value, right: &Value) -> Value {
    let owned = set_of(&apply(None, left, "m", false).unwrap(), "m");
    let rest = remove_items(&config(right), &owned, TypeRef::resource(&SCHEMA));
    rest.get("spec").cloned().unwrap_or_else(|| json!({}))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn apply_is_idempotent(first in spec(), other in spec()) {
        let live = apply(None, &other, "other", false).unwrap();
        let once = apply(Some(&live), &first, "one", true).unwrap();
        let twice = apply(Some(&once), &first, "one", true).unwrap();
        prop_assert_eq!(&once, &twice);
    }

    #[test]
    fn applying_an_empty_configuration_restores_the_object(base in spec(), extra in spec()) {
        let live = apply(None, &base, "base", false).unwrap();
        // Only where nothing of the base was overwritten can it come back.
        if let Ok(with_extra) = apply(Some(&live), &extra, "extra", false) {
            let restored = apply(Some(&with_extra), &json!({}), "extra", false).unwrap();
            let sorted = |value: &Value| {
                let mut value = bare(value);
                for list in ["items", "set"] {
                    if let Some(Value::Array(items)) = value.pointer_mut(&format!("/spec/{list}")) {
                        items.sort_by_key(ToString::to_string);
                    }
                }
                value
            };
            prop_assert_eq!(sorted(&restored), sorted(&live));
            prop_assert!(set_of(&restored, "extra").is_empty());
        }
    }

    #[test]
    fn scalars_with_different_values_have_one_owner(left in spec(), right in spec()) {
        let live = apply(None, &left, "left", false).unwrap();
        let live = apply(Some(&live), &right, "right", true).unwrap();
        let (one, another) = (set_of(&live, "left"), set_of(&live, "right"));
        // Whatever both own, both applied with the value it has.
        for path in one.leaves().intersection(&another.leaves()).paths() {
            let pointer = |object: &Value| -> Option<Value> {
                let mut value = object.clone();
                for element in &path.0 {
                    value = match element {
                        orlop_api::managed_fields::PathElement::Field(name) => value.get(&**name)?.clone(),
                        orlop_api::managed_fields::PathElement::Key(fields) => {
                            value.as_array()?.iter().find(|item| fields.iter().all(|(name, key)| item.get(&**name) == Some(&key.0)))?.clone()
                        }
                        orlop_api::managed_fields::PathElement::Value(item) => item.0.clone(),
                        orlop_api::managed_fields::PathElement::Index(_) => return None,
                    };
                }
                Some(value)
            };
            prop_assert_eq!(pointer(&config(&left)), pointer(&config(&right)), "{}", path);
        }
        // Every leaf of the object has an owner.
        let all = set_of(&apply(None, &bare(&live)["spec"], "all", false).unwrap(), "all");
        prop_assert!(all.leaves().difference(&one.union(&another)).is_empty());
    }

    #[test]
    fn disjoint_appliers_commute(left in spec(), right in spec()) {
        let right = without(&left, &right);
        let order = |first: (&Value, &str), second: (&Value, &str)| {
            let live = apply(None, first.0, first.1, false).unwrap();
            let mut live = apply(Some(&live), second.0, second.1, false).unwrap();
            for list in ["items", "set"] {
                if let Some(Value::Array(items)) = live.pointer_mut(&format!("/spec/{list}")) {
                    items.sort_by_key(ToString::to_string);
                }
            }
            live
        };
        prop_assert_eq!(order((&left, "left"), (&right, "right")), order((&right, "right"), (&left, "left")));
    }

    #[test]
    fn apply_conflicts_iff_force_takes_ownership(left in spec(), right in spec()) {
        let live = apply(None, &left, "left", false).unwrap();
        let forced = apply(Some(&live), &right, "right", true).unwrap();
        let lost = !set_of(&live, "left").difference(&set_of(&forced, "left")).is_empty();
        prop_assert_eq!(apply(Some(&live), &right, "right", false).is_err(), lost);
    }
}
