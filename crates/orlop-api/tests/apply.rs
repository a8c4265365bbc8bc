//! Server-side apply and update tracking, seen from outside.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails loudly")]

use orlop_api::apply::{Applied, ConversionError, FieldManager, SingleVersion, TypeRef, VersionConverter};
use orlop_api::group_version::GroupVersionKind;
use orlop_api::managed_fields::{Filter, ManagedFields, Operation, Path};
use orlop_api::schema::{Schema, builtin, from_openapi};
use orlop_api::status::Status;
use orlop_api::time::Time;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::LazyLock;

static NO_RESET: BTreeMap<String, Filter> = BTreeMap::new();

static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
    from_openapi(&json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "text": {"type": "string"},
            "number": {"type": "integer"},
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "list": {"type": "array", "items": {"type": "string"}},
            "map": {"type": "object", "additionalProperties": {"type": "string"}},
            "atomic": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": {"type": "string"}},
            "items": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name", "kind"],
                "items": {"type": "object", "required": ["name"], "properties": {
                    "name": {"type": "string"}, "kind": {"type": "string", "default": "K"},
                    "value": {"type": "integer"}, "other": {"type": "integer"}}}},
            "nested": {"type": "object", "properties": {"a": {"type": "object", "properties": {"b": {"type": "string"}, "c": {"type": "string"}}}}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "any": {"x-kubernetes-preserve-unknown-fields": true},
            "either": {"x-kubernetes-int-or-string": true}
        }},
        "status": {"type": "object", "properties": {"phase": {"type": "string"}}}
    }}))
});

static KIND: LazyLock<GroupVersionKind> =
    LazyLock::new(|| GroupVersionKind::new("example.com", "v1", "Thing"));

fn now(second: i64) -> Time {
    Time::from_unix(1_700_000_000 + second)
}

fn object(spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "x", "namespace": "n"}, "spec": spec})
}

fn with_manager<T>(subresource: &str, work: impl FnOnce(FieldManager<'_>) -> T) -> T {
    let versions = SingleVersion { api_version: "example.com/v1", of: TypeRef::resource(&SCHEMA) };
    work(FieldManager { kind: &KIND, versions: &versions, subresource, owned_fields: &NO_RESET })
}

fn apply<'v>(
    live: Option<&'v Value>,
    spec: Value,
    manager: &str,
    force: bool,
    second: i64,
) -> Result<Applied<'v>, Status> {
    with_manager("", |fields| fields.apply(live, &object(spec), manager, force, now(second)))
}

fn applied(live: Option<&Value>, spec: Value, manager: &str) -> Value {
    apply(live, spec, manager, false, 1).unwrap().object.into_owned()
}

/// An update of the spec by a PUT that keeps the rest.
fn updated(live: &Value, spec: Value, manager: &str, second: i64) -> Value {
    let mut new = live.clone();
    new["spec"] = spec;
    with_manager("", |fields| fields.update(live, new, manager, now(second)))
}

/// A stored object has a uid.
fn stored(mut object: Value) -> Value {
    object["metadata"]["uid"] = json!("u");
    object
}

fn owned(object: &Value, manager: &str, operation: Operation) -> Vec<String> {
    let managed = ManagedFields::of(object).unwrap();
    let entry =
        managed.entries.iter().find(|(found, _)| found.name == manager && found.operation == operation);
    entry.map_or(Vec::new(), |(_, entry)| {
        entry.fields.to_set().paths().iter().map(ToString::to_string).collect()
    })
}

#[test]
fn apply_creates_and_owns_its_fields() {
    let created = applied(
        None,
        json!({"text": "a", "set": ["x"], "items": [{"name": "i", "value": 1}], "map": {"k": "v"}, "list": ["q"], "atomic": {"z": "z"}}),
        "one",
    );
    assert_eq!(
        owned(&created, "one", Operation::Apply),
        [
            ".spec.atomic",
            ".spec.list",
            ".spec.text",
            ".spec.items[kind=\"K\",name=\"i\"]",
            ".spec.items[kind=\"K\",name=\"i\"].name",
            ".spec.items[kind=\"K\",name=\"i\"].value",
            ".spec.map.k",
            ".spec.set[=\"x\"]",
        ]
    );
    let entry = &created["metadata"]["managedFields"][0];
    assert_eq!(entry["manager"], "one");
    assert_eq!(entry["operation"], "Apply");
    assert_eq!(entry["apiVersion"], "example.com/v1");
    assert_eq!(entry["time"], "2023-11-14T22:13:21Z");
    assert_eq!(entry["fieldsType"], "FieldsV1");
    assert_eq!(
        entry["fieldsV1"]["f:spec"]["f:items"]["k:{\"kind\":\"K\",\"name\":\"i\"}"],
        json!({".": {}, "f:name": {}, "f:value": {}})
    );
}

#[test]
fn reapply_is_a_no_op() {
    let spec = json!({"text": "a", "items": [{"name": "i"}]});
    let first = apply(None, spec.clone(), "one", false, 1).unwrap();
    assert!(first.changed);
    let second = apply(Some(&first.object), spec, "one", false, 9).unwrap();
    assert!(!second.changed);
    assert_eq!(second.object, first.object);
}

#[test]
fn fields_no_longer_applied_are_removed_unless_owned() {
    let live = applied(
        None,
        json!({"text": "a", "number": 1, "map": {"k": "v", "l": "w"}, "items": [{"name": "i", "value": 1}, {"name": "j"}]}),
        "one",
    );
    let live = applied(Some(&live), json!({"number": 1, "items": [{"name": "j", "other": 2}]}), "two");
    let live = applied(Some(&live), json!({"map": {"l": "w"}}), "one");
    assert_eq!(live["spec"], json!({"number": 1, "map": {"l": "w"}, "items": [{"name": "j", "other": 2}]}));
    let live = applied(Some(&live), json!({"text": "b"}), "two");
    assert_eq!(live["spec"], json!({"text": "b", "map": {"l": "w"}}));
}

#[test]
fn conflict_reports_manager_and_fields() {
    let live = stored(applied(None, json!({"text": "a", "number": 1}), "one"));
    let conflict = apply(Some(&live), json!({"text": "b"}), "two", false, 2).unwrap_err();
    assert_eq!((conflict.code, conflict.reason.as_str()), (409, "Conflict"));
    assert_eq!(conflict.message, r#"Apply failed with 1 conflict: conflict with "one": .spec.text"#);
    let cause = &conflict.to_value()["details"]["causes"][0];
    assert_eq!(
        *cause,
        json!({"reason": "FieldManagerConflict", "message": "conflict with \"one\"", "field": ".spec.text"})
    );

    let live =
        updated(&live, json!({"text": "a", "number": 2, "items": [{"name": "i", "value": 1}]}), "editor", 2);
    let conflict = apply(
        Some(&live),
        json!({"text": "b", "number": 3, "items": [{"name": "i", "value": 2}]}),
        "two",
        false,
        2,
    )
    .unwrap_err();
    assert_eq!(
        conflict.message,
        "Apply failed with 3 conflicts: conflicts with \"editor\" using example.com/v1:\n- .spec.number\n- .spec.items[kind=\"K\",name=\"i\"].value\nconflicts with \"one\":\n- .spec.text"
    );
}

#[test]
fn force_takes_only_conflicting_fields() {
    let live = applied(None, json!({"text": "a", "number": 1}), "one");
    let live = apply(Some(&live), json!({"text": "b"}), "two", true, 2).unwrap().object.into_owned();
    assert_eq!(live["spec"], json!({"text": "b", "number": 1}));
    assert_eq!(owned(&live, "one", Operation::Apply), [".spec.number"]);
    assert_eq!(owned(&live, "two", Operation::Apply), [".spec.text"]);
    // One leaves its last field: its entry goes with it, the field too.
    let live = applied(Some(&live), json!({}), "one");
    assert_eq!(live["spec"], json!({"text": "b"}));
}

#[test]
fn equal_values_are_co_owned() {
    let live = applied(None, json!({"text": "a"}), "one");
    let second = apply(Some(&live), json!({"text": "a"}), "two", false, 2).unwrap();
    assert!(!second.changed);
    assert_eq!(owned(&second.object, "one", Operation::Apply), [".spec.text"]);
    assert_eq!(owned(&second.object, "two", Operation::Apply), [".spec.text"]);
    let live = applied(Some(&second.object), json!({}), "one");
    assert_eq!(live["spec"], json!({"text": "a"}));
}

#[test]
fn update_owns_changed_fields() {
    let live = stored(applied(None, json!({"text": "a", "number": 1, "map": {"k": "v"}}), "one"));
    let live = updated(&live, json!({"text": "b", "map": {"k": "v", "n": "w"}}), "editor", 5);
    assert_eq!(owned(&live, "one", Operation::Apply), [".spec.map.k"]);
    assert_eq!(owned(&live, "editor", Operation::Update), [".spec.text", ".spec.map.n"]);
    let entry = live["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .find(|entry| entry["manager"] == "editor")
        .unwrap();
    assert_eq!(entry["time"], "2023-11-14T22:13:25Z");
    // Changing nothing leaves even the time alone.
    assert_eq!(updated(&live, live["spec"].clone(), "editor", 9), live);
    assert_eq!(updated(&live, live["spec"].clone(), "other", 9), live);
}

#[test]
fn create_is_tracked_without_system_fields() {
    let mut new = object(json!({"text": "a"}));
    new["metadata"]["labels"] = json!({"app": "x"});
    new["metadata"]["generation"] = json!(1);
    new["metadata"]["uid"] = json!("u");
    let empty = json!({"apiVersion": "example.com/v1", "kind": "Thing"});
    let created = with_manager("", |fields| fields.update(&empty, new, "", now(1)));
    assert_eq!(
        owned(&created, "unknown", Operation::Update),
        [".spec", ".metadata.labels", ".metadata.labels.app", ".spec.text"]
    );
}

#[test]
fn untracked_object_is_owned_at_first_apply() {
    let live = stored(object(json!({"text": "a", "number": 1})));
    assert_eq!(
        updated(&live, json!({"text": "b", "number": 1}), "editor", 1)["metadata"].get("managedFields"),
        None
    );
    let conflict = apply(Some(&live), json!({"text": "b"}), "one", false, 1).unwrap_err();
    assert_eq!(
        conflict.message,
        r#"Apply failed with 1 conflict: conflict with "before-first-apply" using example.com/v1: .spec.text"#
    );
    let live = applied(Some(&live), json!({"text": "a"}), "one");
    assert_eq!(
        owned(&live, "before-first-apply", Operation::Update),
        [".spec", ".spec.number", ".spec.text"]
    );
}

#[test]
fn empty_managed_fields_reset_and_invalid_ones_are_ignored() {
    let live = stored(applied(None, json!({"text": "a"}), "one"));
    for reset in [json!([]), json!([{}])] {
        let mut new = live.clone();
        new["metadata"]["managedFields"] = reset;
        let new = with_manager("", |fields| fields.update(&live, new, "editor", now(2)));
        assert_eq!(new["metadata"].get("managedFields"), None);
    }
    let mut new = live.clone();
    new["metadata"]["managedFields"] = json!([{"manager": "x", "operation": "Nonsense"}]);
    assert_eq!(with_manager("", |fields| fields.update(&live, new, "editor", now(2))), live);
    let mut new = live.clone();
    new["metadata"].as_object_mut().unwrap().remove("managedFields");
    assert_eq!(with_manager("", |fields| fields.update(&live, new, "editor", now(2))), live);
}

#[test]
fn invalid_configurations_are_refused() {
    for (config, code, message) in [
        (json!({"apiVersion": "v2", "kind": "Thing"}), 400, "invalid object type: /v2, Kind=Thing"),
        (
            json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"managedFields": []}}),
            400,
            "metadata.managedFields must be nil",
        ),
        (
            object(json!({"nope": 1})),
            500,
            "failed to create typed patch object (n/x; example.com/v1, Kind=Thing): .spec.nope: field not declared in schema",
        ),
        (
            object(json!({"text": 1})),
            500,
            "failed to create typed patch object (n/x; example.com/v1, Kind=Thing): .spec.text: expected string, got &value.valueUnstructured{Value:1}",
        ),
        (
            object(json!({"number": "x"})),
            500,
            "failed to create typed patch object (n/x; example.com/v1, Kind=Thing): .spec.number: expected numeric (int or float), got string",
        ),
        (
            object(json!({"set": {"a": 1}})),
            500,
            "failed to create typed patch object (n/x; example.com/v1, Kind=Thing): .spec.set: expected list, got &{map[a:1]}",
        ),
        (
            object(json!({"set": ["a", "a"]})),
            500,
            "failed to create typed patch object (n/x; example.com/v1, Kind=Thing): .spec.set: duplicate entries for key [=\"a\"]",
        ),
        (
            object(json!({"items": [{"name": "a"}, {"name": "a", "kind": "K"}]})),
            500,
            "failed to create typed patch object (n/x; example.com/v1, Kind=Thing): .spec.items: duplicate entries for key [kind=\"K\",name=\"a\"]",
        ),
        (
            object(json!({"text": 1, "nope": 2})),
            500,
            "failed to create typed patch object (n/x; example.com/v1, Kind=Thing): errors:\n  .spec.nope: field not declared in schema\n  .spec.text: expected string, got &value.valueUnstructured{Value:1}",
        ),
    ] {
        let status =
            with_manager("", |fields| fields.apply(None, &config, "one", false, now(1))).unwrap_err();
        assert_eq!((status.code, status.message.as_str()), (code, message));
    }
}

#[test]
fn lists_merge_in_configuration_order() {
    let names = |value: &Value| -> String {
        value["spec"]["set"].as_array().unwrap().iter().filter_map(Value::as_str).collect()
    };
    for (live, config, expected) in [
        ("abc", "abc", "abc"),
        ("abc", "cba", "cba"),
        ("abc", "d", "abcd"),
        ("abc", "ac", "abc"),
        ("abc", "ca", "bca"),
        ("abcd", "xb", "axbcd"),
        ("", "ba", "ba"),
        ("aXbY", "ba", "XbYa"),
    ] {
        let list = |text: &str| text.chars().map(String::from).collect::<Vec<_>>();
        let live = stored(object(json!({"set": list(live)})));
        let merged = applied(Some(&live), json!({"set": list(config)}), "one");
        assert_eq!(names(&merged), expected, "{config} over {live}");
    }
}

#[test]
fn list_item_stays_while_any_field_is_owned() {
    // Two appliers share an item; the first leaves it, the second's part of it stays.
    let live = applied(None, json!({"items": [{"name": "i"}, {"name": "j", "value": 1}]}), "one");
    let live = applied(Some(&live), json!({"items": [{"name": "j", "other": 2}]}), "two");
    let left = applied(Some(&live), json!({"items": [{"name": "i"}]}), "one");
    assert_eq!(left["spec"]["items"], json!([{"name": "i"}, {"name": "j", "other": 2}]));
    assert_eq!(owned(&left, "two", Operation::Apply).len(), 3);
    // A controller's addition to a shared item stays with the item.
    let mut spec = live["spec"].clone();
    spec["set"] = json!(["e"]);
    let controlled = updated(&stored(live), spec, "controller", 3);
    let left = applied(Some(&controlled), json!({"items": [{"name": "i"}]}), "one");
    assert_eq!(left["spec"]["set"], json!(["e"]));
    // Its addition to an item that only the leaving applier owned goes with the item.
    let live = applied(None, json!({"items": [{"name": "i"}, {"name": "j"}]}), "one");
    let controlled =
        updated(&stored(live), json!({"items": [{"name": "i"}, {"name": "j", "value": 7}]}), "controller", 3);
    let left = applied(Some(&controlled), json!({"items": [{"name": "i"}]}), "one");
    assert_eq!(left["spec"]["items"], json!([{"name": "i"}]));
    assert_eq!(owned(&left, "controller", Operation::Update), Vec::<String>::new());
}

#[test]
fn emptied_struct_keeps_owned_and_applied_fields() {
    let a = |fields: Value| json!({"nested": {"a": fields}});
    let live = applied(None, a(json!({"b": "1"})), "one");
    assert_eq!(applied(Some(&live), json!({}), "one").get("spec"), Some(&json!({})));
    assert_eq!(applied(Some(&live), a(json!({})), "one")["spec"], a(json!({})));
    assert_eq!(applied(Some(&live), a(json!(null)), "one")["spec"], a(json!(null)));
    let shared = updated(&stored(live), a(json!({"b": "1", "c": "2"})), "controller", 2);
    for emptied in [json!({}), a(json!({})), a(json!(null))] {
        assert_eq!(applied(Some(&shared), emptied, "one")["spec"], a(json!({"c": "2"})));
    }
    let taken = updated(&shared, a(json!({"b": "9", "c": "2"})), "controller", 3);
    assert_eq!(applied(Some(&taken), a(json!(null)), "one")["spec"], a(json!({"b": "9", "c": "2"})));
}

#[test]
fn duplicates_in_a_live_list_are_tolerated() {
    let live = stored(object(
        json!({"set": ["a", "a", "b"], "items": [{"name": "i", "value": 1}, {"name": "i", "value": 2}]}),
    ));
    let after = applied(Some(&live), json!({"text": "x"}), "one");
    assert_eq!(after["spec"]["set"], json!(["a", "a", "b"]));
    assert_eq!(after["spec"]["items"].as_array().unwrap().len(), 2);
    let fixed = apply(Some(&after), json!({"items": [{"name": "i", "value": 3}]}), "one", true, 2)
        .unwrap()
        .object
        .into_owned();
    assert_eq!(fixed["spec"]["items"], json!([{"name": "i", "value": 3}]));
}

#[test]
fn untyped_maps_are_granular_and_lists_atomic() {
    let live =
        applied(None, json!({"free": {"a": {"b": 1}, "l": [1, 2]}, "any": {"x": 1}, "either": "10%"}), "one");
    assert_eq!(
        owned(&live, "one", Operation::Apply),
        [".spec.either", ".spec.any.x", ".spec.free.a", ".spec.free.l", ".spec.free.a.b"]
    );
    let live = applied(Some(&live), json!({"free": {"a": {"c": 2}}, "any": {"y": 2}}), "two");
    assert_eq!(live["spec"]["free"], json!({"a": {"b": 1, "c": 2}, "l": [1, 2]}));
    let conflict = apply(Some(&live), json!({"free": {"l": [3]}}), "two", false, 2).unwrap_err();
    assert_eq!(conflict.message, r#"Apply failed with 1 conflict: conflict with "one": .spec.free.l"#);
    // A map where a number was.
    let live = updated(&stored(live), json!({"any": 5}), "editor", 3);
    assert!(owned(&live, "editor", Operation::Update).contains(&".spec.any".to_owned()));
    assert_eq!(owned(&live, "one", Operation::Apply), Vec::<String>::new());
}

#[test]
fn kind_without_schema_is_deduced() {
    let versions = SingleVersion { api_version: "example.com/v1", of: TypeRef::Deduced };
    let fields = FieldManager { kind: &KIND, versions: &versions, subresource: "", owned_fields: &NO_RESET };
    let live = fields
        .apply(None, &object(json!({"m": {"a": 1}, "l": [{"x": 1}]})), "one", false, now(1))
        .unwrap()
        .object
        .into_owned();
    assert_eq!(owned(&live, "one", Operation::Apply), [".spec", ".spec.l", ".spec.m", ".spec.m.a"]);
}

#[test]
fn subresources_have_own_entries_and_reset_fields() {
    let versions = SingleVersion { api_version: "example.com/v1", of: TypeRef::resource(&SCHEMA) };
    let reset = |field: &str| BTreeMap::from([("example.com/v1".to_owned(), Filter::all_but(&[field]))]);
    let (reset_status, reset_spec) = (reset("status"), reset("spec"));
    let main =
        FieldManager { kind: &KIND, versions: &versions, subresource: "", owned_fields: &reset_status };
    let status =
        FieldManager { kind: &KIND, versions: &versions, subresource: "status", owned_fields: &reset_spec };
    let mut config = object(json!({"text": "a"}));
    config["status"] = json!({"phase": "Ready"});
    let mut live = stored(main.apply(None, &config, "one", false, now(1)).unwrap().object.into_owned());
    assert_eq!(owned(&live, "one", Operation::Apply), [".spec.text"]);
    live.as_object_mut().unwrap().remove("status");
    let live = status.apply(Some(&live), &config, "one", false, now(2)).unwrap().object.into_owned();
    let entries = live["metadata"]["managedFields"].as_array().unwrap();
    assert_eq!(entries.len(), 2);
    assert_eq!(entries[1]["subresource"], "status");
    assert_eq!(entries[1]["fieldsV1"], json!({"f:status": {"f:phase": {}}}));
    config["status"]["phase"] = json!("Gone");
    let conflict = status.apply(Some(&live), &config, "two", false, now(3)).unwrap_err();
    assert_eq!(
        conflict.message,
        r#"Apply failed with 1 conflict: conflict with "one" with subresource "status": .status.phase"#
    );
}

#[test]
fn oldest_updaters_are_merged_beyond_the_limit() {
    let empty = json!({"apiVersion": "example.com/v1", "kind": "Thing"});
    let mut live = stored(with_manager("", |fields| {
        fields.update(&empty, object(json!({"map": {"k": "v"}})), "creator", now(0))
    }));
    for index in 0..12 {
        let mut spec = live["spec"].clone();
        spec["map"][format!("k{index}")] = json!("v");
        live = updated(&live, spec, &format!("editor-{index}"), index + 1);
    }
    let managed = ManagedFields::of(&live).unwrap();
    assert_eq!(managed.entries.len(), 10);
    let ancient = owned(&live, "ancient-changes", Operation::Update);
    assert!(ancient.contains(&".spec.map.k0".to_owned()) && ancient.contains(&".spec.map.k".to_owned()));
    assert_eq!(owned(&live, "editor-11", Operation::Update), [".spec.map.k11"]);
}

#[test]
fn kubectl_takes_over_client_side_applied_fields() {
    let config = object(json!({"text": "a", "number": 1}));
    let mut live = stored(object(json!({"text": "a", "number": 1})));
    live["metadata"]["annotations"] =
        json!({"kubectl.kubernetes.io/last-applied-configuration": config.to_string()});
    let empty = json!({"apiVersion": "example.com/v1", "kind": "Thing"});
    let live =
        stored(with_manager("", |fields| fields.update(&empty, live, "kubectl-client-side-apply", now(1))));
    // Another manager conflicts, kubectl does not.
    assert!(apply(Some(&live), json!({"text": "b"}), "other", false, 2).is_err());
    let after = apply(Some(&live), json!({"text": "b", "number": 2}), "kubectl", false, 2)
        .unwrap()
        .object
        .into_owned();
    assert_eq!(after["spec"], json!({"text": "b", "number": 2}));
    let annotation = after["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"]
        .as_str()
        .unwrap();
    assert_eq!(serde_json::from_str::<Value>(annotation).unwrap()["spec"], json!({"text": "b", "number": 2}));
    // What somebody changed since stays a conflict.
    let edited = updated(&live, json!({"text": "edited", "number": 1}), "editor", 2);
    let conflict = apply(Some(&edited), json!({"text": "b", "number": 2}), "kubectl", false, 3).unwrap_err();
    assert_eq!(
        conflict.message,
        r#"Apply failed with 1 conflict: conflict with "editor" using example.com/v1: .spec.text"#
    );
}

/// v2 calls `text` by another name.
struct TwoVersions;

static SCHEMA_V2: LazyLock<Schema> = LazyLock::new(|| {
    from_openapi(&json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "title": {"type": "string"}, "number": {"type": "integer"}}}}}))
});

impl VersionConverter for TwoVersions {
    fn type_of(&self, api_version: &str) -> Option<TypeRef<'_>> {
        match api_version {
            "example.com/v1" => Some(TypeRef::resource(&SCHEMA)),
            "example.com/v2" => Some(TypeRef::resource(&SCHEMA_V2)),
            _ => None,
        }
    }

    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, ConversionError> {
        let mut object = object.clone();
        let (from, to) = match api_version {
            "example.com/v1" => ("title", "text"),
            "example.com/v2" => ("text", "title"),
            other => return Err(ConversionError::MissingVersion(other.to_owned())),
        };
        object["apiVersion"] = json!(api_version);
        if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
            && let Some(value) = spec.remove(from)
        {
            spec.insert(to.to_owned(), value);
        }
        Ok(object)
    }
}

#[test]
fn managers_are_compared_in_their_own_version() {
    let kind_v2 = GroupVersionKind::new("example.com", "v2", "Thing");
    let v1 = FieldManager { kind: &KIND, versions: &TwoVersions, subresource: "", owned_fields: &NO_RESET };
    let v2 =
        FieldManager { kind: &kind_v2, versions: &TwoVersions, subresource: "", owned_fields: &NO_RESET };
    let live = stored(
        v1.apply(None, &object(json!({"text": "a", "number": 1})), "one", false, now(1))
            .unwrap()
            .object
            .into_owned(),
    );
    let live_v2 = TwoVersions.convert(&live, "example.com/v2").unwrap();
    let mut config = object(json!({"title": "b"}));
    config["apiVersion"] = json!("example.com/v2");
    let conflict = v2.apply(Some(&live_v2), &config, "two", false, now(2)).unwrap_err();
    assert_eq!(conflict.message, r#"Apply failed with 1 conflict: conflict with "one": .spec.text"#);
    // The same applier in another version: what it no longer says goes, by its old set.
    config["spec"] = json!({"title": "a"});
    let moved = v2.apply(Some(&live_v2), &config, "one", false, now(3)).unwrap().object.into_owned();
    assert_eq!(moved["spec"], json!({"title": "a"}));
    assert_eq!(moved["metadata"]["managedFields"][0]["apiVersion"], "example.com/v2");
}

#[test]
fn managers_of_missing_versions_are_removed() {
    let mut live = stored(applied(None, json!({"text": "a"}), "one"));
    live["metadata"]["managedFields"][0]["apiVersion"] = json!("example.com/v0");
    let after = applied(Some(&live), json!({"number": 1}), "two");
    assert_eq!(owned(&after, "one", Operation::Apply), Vec::<String>::new());
    assert_eq!(after["spec"], json!({"text": "a", "number": 1}));
}

#[test]
fn owners_of_parts_own_the_whole_field_once_atomic() {
    let mut live = stored(applied(None, json!({"atomic": {"a": "1"}}), "one"));
    live["metadata"]["managedFields"][0]["fieldsV1"] = json!({"f:spec": {"f:atomic": {".": {}, "f:a": {}}}});
    let after = applied(Some(&live), json!({"text": "x"}), "two");
    assert_eq!(owned(&after, "one", Operation::Apply), [".spec.atomic"]);
}

#[test]
fn built_in_kinds_apply_by_schema() {
    let kind = GroupVersionKind::new("", "v1", "Pod");
    let schema = builtin::type_of("", "v1", "Pod").unwrap().schema();
    let versions = SingleVersion { api_version: "v1", of: TypeRef::resource(schema) };
    let fields = FieldManager { kind: &kind, versions: &versions, subresource: "", owned_fields: &NO_RESET };
    let pod = |containers: Value| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": containers}});
    let live = fields
        .apply(
            None,
            &pod(json!([{"name": "a", "image": "x", "ports": [{"containerPort": 80}]}])),
            "one",
            false,
            now(1),
        )
        .unwrap()
        .object
        .into_owned();
    let set = &live["metadata"]["managedFields"][0]["fieldsV1"];
    assert_eq!(
        *set,
        json!({"f:spec": {"f:containers": {"k:{\"name\":\"a\"}": {".": {}, "f:image": {}, "f:name": {}, "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}}}}}})
    );
    let live = fields
        .apply(Some(&live), &pod(json!([{"name": "b", "image": "y"}])), "two", false, now(2))
        .unwrap()
        .object
        .into_owned();
    assert_eq!(live["spec"]["containers"].as_array().unwrap().len(), 2);
    let conflict = fields
        .apply(Some(&live), &pod(json!([{"name": "a", "image": "z"}])), "two", false, now(3))
        .unwrap_err();
    assert_eq!(
        conflict.message,
        r#"Apply failed with 1 conflict: conflict with "one": .spec.containers[name="a"].image"#
    );
}

#[test]
fn scale_handler_maps_replicas() {
    use orlop_api::apply::ScaleHandler;
    let handler = ScaleHandler {
        replicas_paths: BTreeMap::from([
            ("apps/v1".to_owned(), Some(Path::of_fields(&["spec", "replicas"]))),
            ("apps/v2".to_owned(), None),
        ]),
        api_version: "apps/v1".to_owned(),
    };
    let entry = |manager: &str, operation: &str, version: &str, fields: Value| json!({"manager": manager, "operation": operation, "apiVersion": version, "fieldsType": "FieldsV1", "fieldsV1": fields});
    let parent = ManagedFields::decode(vec![
        entry("deployer", "Apply", "apps/v1", json!({"f:spec": {"f:replicas": {}, "f:selector": {}}})),
        entry("other", "Update", "apps/v1", json!({"f:spec": {"f:template": {}}})),
        entry("gone", "Update", "apps/v0", json!({"f:spec": {}})),
    ])
    .unwrap();
    let scale = handler.to_scale(&parent);
    assert_eq!(
        scale.clone().encode(),
        [entry("deployer", "Apply", "autoscaling/v1", json!({"f:spec": {"f:replicas": {}}}))]
    );
    // Untouched: everything stays, except the version nobody knows.
    assert_eq!(handler.to_parent(&parent, scale).entries.len(), 2);
    // Taken through the scale by somebody else.
    let mut taken = entry("scaler", "Update", "autoscaling/v1", json!({"f:spec": {"f:replicas": {}}}));
    taken["subresource"] = json!("scale");
    let after = handler.to_parent(&parent, ManagedFields::decode(vec![taken]).unwrap());
    let wire = after.encode();
    assert_eq!(wire[0]["fieldsV1"], json!({"f:spec": {"f:selector": {}}}));
    let scaler = wire.iter().find(|entry| entry["manager"] == "scaler").unwrap();
    assert_eq!(
        (scaler["apiVersion"].as_str(), scaler["subresource"].as_str()),
        (Some("apps/v1"), Some("scale"))
    );
    assert_eq!(scaler["fieldsV1"], json!({"f:spec": {"f:replicas": {}}}));
}

#[test]
fn apply_with_many_conflicts_is_not_quadratic() {
    let map = |value: &str| json!({"map": (0..30_000).map(|n| (format!("k{n}"), value.into())).collect::<serde_json::Map<_, _>>()});
    let items = |value: usize| json!({"items": (0..10_000).map(|n| json!({"name": format!("n{n}"), "value": value})).collect::<Vec<_>>()});
    let started = std::time::Instant::now();
    for (mine, theirs, conflicts) in [(map("a"), map("b"), 30_000), (items(1), items(2), 10_000)] {
        let live = stored(applied(None, mine, "me"));
        let status = apply(Some(&live), theirs, "them", false, 2).unwrap_err();
        assert_eq!((status.code, status.details.unwrap().causes.len()), (409, conflicts));
    }
    // A quadratic comparison takes minutes in a debug build.
    assert!(started.elapsed().as_secs() < 30, "{:?}", started.elapsed());
}
