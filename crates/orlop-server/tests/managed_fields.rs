//! Managed fields, as clients read them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use orlop_server::chain::Chain;
use orlop_store::{Config, Endpoint};
use serde_json::{Value, json};
use support::{apply, ask, call, create, get, server, version, whole};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
/// A time in the past, to tell a new one from.
const LONG_AGO: &str = "2020-01-01T00:00:00Z";

fn map(data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": data})
}

fn deployment() -> Value {
    let template =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}})
}

/// Returns each entry as `manager/operation/subresource`, sorted.
fn managers(object: &Value) -> Vec<String> {
    let text = |entry: &Value, field: &str| entry[field].as_str().unwrap_or_default().to_owned();
    let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let mut managers: Vec<String> = entries
        .iter()
        .map(|entry| {
            format!("{}/{}/{}", text(entry, "manager"), text(entry, "operation"), text(entry, "subresource"))
        })
        .collect();
    managers.sort_unstable();
    managers
}

/// Returns the fields of a manager.
fn owned(object: &Value, manager: &str) -> Value {
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    entries.iter().find(|entry| entry["manager"] == manager).unwrap()["fieldsV1"].clone()
}

/// Returns the time of a manager's entry.
fn time(object: &Value, manager: &str) -> String {
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    entries.iter().find(|entry| entry["manager"] == manager).unwrap()["time"].as_str().unwrap().to_owned()
}

/// Sets the time of every entry to the past.
async fn age(chain: &Chain, path: &str) -> Value {
    let (_, mut object) = get(chain, path).await;
    for entry in object["metadata"]["managedFields"].as_array_mut().unwrap() {
        entry["time"] = LONG_AGO.into();
    }
    // Not only times change: that would be a no-op.
    object["metadata"]["annotations"] = json!({"aged": "yes"});
    let (code, aged) = call(chain, "PUT", &format!("{path}?fieldManager=clock"), Some(&object)).await;
    assert_eq!(code, 200, "{aged}");
    aged
}

#[tokio::test]
async fn every_write_records_manager_operation_and_fields() {
    let (chain, _store) = server().await;
    // fieldManager, or the User-Agent up to its version.
    let headers = [("content-type", "application/json"), ("user-agent", "robot/1.2 (linux)")];
    whole(ask(&chain, "POST", DEPLOYMENTS, &headers, deployment().to_string()).await).await;
    let path = format!("{DEPLOYMENTS}/d");
    call(&chain, "PATCH", &format!("{path}?fieldManager=patcher"), Some(&json!({"spec": {"paused": true}})))
        .await;
    let status = json!({"status": {"replicas": 1}});
    call(&chain, "PATCH", &format!("{path}/status?fieldManager=kubelet"), Some(&status)).await;
    call(
        &chain,
        "PATCH",
        &format!("{path}/scale?fieldManager=scaler"),
        Some(&json!({"spec": {"replicas": 5}})),
    )
    .await;
    let wanted = json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"minReadySeconds": 3}});
    let (code, object) = apply(&chain, &format!("{path}?fieldManager=applier"), &wanted).await;
    assert_eq!(code, 200, "{object}");
    assert_eq!(
        managers(&object),
        [
            "applier/Apply/",
            "kubelet/Update/status",
            "patcher/Update/",
            "robot/Update/",
            "scaler/Update/scale"
        ]
    );
    assert_eq!(owned(&object, "applier"), json!({"f:spec": {"f:minReadySeconds": {}}}));
    assert_eq!(owned(&object, "kubelet"), json!({"f:status": {"f:replicas": {}}}));
    assert_eq!(owned(&object, "scaler"), json!({"f:spec": {"f:replicas": {}}}));
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    let scaler = entries.iter().find(|entry| entry["manager"] == "scaler").unwrap();
    assert_eq!((&scaler["apiVersion"], scaler.get("time")), (&json!("apps/v1"), None), "as in Kubernetes");
    // A scale that changes nothing leaves all managers what they have.
    let same = json!({"spec": {"replicas": 5}});
    call(&chain, "PATCH", &format!("{path}/scale?fieldManager=another"), Some(&same)).await;
    let (_, unchanged) = call(&chain, "GET", &path, None).await;
    assert_eq!(unchanged["metadata"]["managedFields"], object["metadata"]["managedFields"]);
    assert_eq!(owned(&object, "patcher"), json!({"f:spec": {"f:paused": {}}}));
    assert_eq!(owned(&object, "robot")["f:spec"]["f:replicas"], Value::Null, "whoever writes last owns");
    let (code, refused) =
        call(&chain, "PATCH", &format!("{path}?fieldManager={}", "m".repeat(129)), Some(&json!({}))).await;
    assert_eq!(code, 422);
    assert!(refused["message"].as_str().unwrap().contains("may not be more than 128 bytes"), "{refused}");
}

#[tokio::test]
async fn no_op_write_keeps_the_resource_version() {
    let (chain, _store) = server().await;
    create(&chain, &format!("{MAPS}?fieldManager=one"), &map(&json!({"a": "1"}))).await;
    let path = format!("{MAPS}/m");
    let before = age(&chain, &path).await;
    for (method, object) in [
        ("PUT", map(&json!({"a": "1"}))),
        ("PATCH", json!({"data": {"a": "1"}})),
        ("PATCH", json!({"metadata": {"labels": {}}})),
    ] {
        let mut object = object;
        if method == "PUT" {
            object["metadata"]["annotations"] = before["metadata"]["annotations"].clone();
        }
        let (code, after) = call(&chain, method, &format!("{path}?fieldManager=two"), Some(&object)).await;
        assert_eq!(code, 200, "{after}");
        assert_eq!(after, before, "{method} {object}");
    }
}

#[tokio::test]
async fn managed_fields_time_changes_only_with_fields() {
    let (chain, _store) = server().await;
    create(&chain, &format!("{MAPS}?fieldManager=one"), &map(&json!({"a": "1"}))).await;
    let path = format!("{MAPS}/m");
    let wanted = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"b": "1"}});
    apply(&chain, &format!("{path}?fieldManager=two"), &wanted).await;
    let aged = age(&chain, &path).await;
    assert_eq!((time(&aged, "one").as_str(), time(&aged, "two").as_str()), (LONG_AGO, LONG_AGO));
    // Applying the same again keeps the time.
    let (_, same) = apply(&chain, &format!("{path}?fieldManager=two"), &wanted).await;
    assert_eq!(version(&same), version(&aged));
    let (_, patched) = call(
        &chain,
        "PATCH",
        &format!("{path}?fieldManager=one"),
        Some(&json!({"data": {"a": "2", "c": "3"}})),
    )
    .await;
    assert_ne!(time(&patched, "one"), LONG_AGO);
    assert_eq!(time(&patched, "two"), LONG_AGO);
    assert_eq!(owned(&patched, "two"), json!({"f:data": {"f:b": {}}}));
}

#[tokio::test]
async fn empty_managed_fields_reset_tracking_until_the_next_apply() {
    let (chain, _store) = server().await;
    let path = format!("{MAPS}/m");
    for none in [json!([]), json!([{}])] {
        create(&chain, &format!("{MAPS}?fieldManager=one"), &map(&json!({"a": "1"}))).await;
        let (_, reset) =
            call(&chain, "PATCH", &path, Some(&json!({"metadata": {"managedFields": none}}))).await;
        assert_eq!(reset["metadata"]["managedFields"], Value::Null);
        let (_, updated) = call(&chain, "PATCH", &path, Some(&json!({"data": {"b": "2"}}))).await;
        assert_eq!(updated["metadata"]["managedFields"], Value::Null, "an update does not begin it again");
        // Existing fields have an owner: they are not removed because an applier omits them.
        let wanted = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"c": "3"}});
        let (_, applied) = apply(&chain, &format!("{path}?fieldManager=two"), &wanted).await;
        assert_eq!(managers(&applied), ["before-first-apply/Update/", "two/Apply/"]);
        assert_eq!(applied["data"], json!({"a": "1", "b": "2", "c": "3"}));
        call(&chain, "DELETE", &path, None).await;
    }
}

#[tokio::test]
async fn oldest_update_managers_are_merged() {
    let (chain, _store) = server().await;
    create(&chain, &format!("{MAPS}?fieldManager=first"), &map(&json!({"first": "1"}))).await;
    let path = format!("{MAPS}/m");
    let mut object = Value::Null;
    for number in 0..30 {
        let key = format!("k{number:02}");
        let patch = json!({"data": {key: "1"}});
        (_, object) = call(&chain, "PATCH", &format!("{path}?fieldManager=m{number:02}"), Some(&patch)).await;
    }
    let managers = managers(&object);
    assert_eq!(managers.len(), 10, "{managers:?}");
    assert!(managers.contains(&"ancient-changes/Update/".to_owned()), "{managers:?}");
    // No field is lost.
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    let fields = entries.iter().flat_map(|entry| entry["fieldsV1"]["f:data"].as_object().unwrap().keys());
    assert_eq!(fields.filter(|field| field.starts_with("f:k")).count(), 30);
}

#[tokio::test]
async fn malformed_managed_fields_are_ignored() {
    let (chain, _store) = server().await;
    create(&chain, &format!("{MAPS}?fieldManager=one"), &map(&json!({"a": "1"}))).await;
    let path = format!("{MAPS}/m");
    let (_, before) = get(&chain, &path).await;
    let nonsense = json!({"metadata": {"managedFields": [{"manager": "x", "operation": "Update", "apiVersion": "v1",
        "fieldsType": "FieldsV1", "fieldsV1": {"nonsense": {}}}]}});
    let (code, after) = call(&chain, "PATCH", &path, Some(&nonsense)).await;
    assert_eq!(
        (code, &after["metadata"]["managedFields"]),
        (200, &before["metadata"]["managedFields"]),
        "{after}"
    );
    let mut wanted = map(&json!({"a": "1"}));
    wanted["metadata"]["managedFields"] = before["metadata"]["managedFields"].clone();
    let (code, refused) = apply(&chain, &format!("{path}?fieldManager=two"), &wanted).await;
    assert_eq!((code, refused["message"].as_str()), (400, Some("metadata.managedFields must be nil")));
    let (code, refused) = apply(&chain, &path, &map(&json!({}))).await;
    assert_eq!(code, 422);
    assert!(
        refused["message"]
            .as_str()
            .unwrap()
            .contains("fieldManager: Required value: is required for apply patch"),
        "{refused}"
    );
}

#[tokio::test]
async fn duplicate_keys_in_apply_follow_field_validation() {
    let (chain, _store) = server().await;
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata:\n  a: \"1\"\n  a: \"2\"\n";
    let json = "{\"apiVersion\": \"v1\", \"kind\": \"ConfigMap\",\n\n\n\"metadata\": {\"name\": \"m\"},\n\"data\": {\"a\": \"1\",\n\"a\": \"2\"}}";
    let path = |validation: &str| format!("{MAPS}/m?fieldManager=x&fieldValidation={validation}");
    let headers = [("content-type", "application/apply-patch+yaml")];
    let line = "line 6: key \"a\" already set in map";
    let told = format!("error converting YAML to JSON: yaml: unmarshal errors:\n  {line}");
    for body in [yaml, json] {
        let (code, _, answer) = whole(ask(&chain, "PATCH", &path("Strict"), &headers, body).await).await;
        let status: Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!(code, 400, "{status}");
        assert_eq!(status["message"], format!("error strict decoding patch: {told}"));
        assert_eq!(get(&chain, &format!("{MAPS}/m")).await.0, 404, "what is refused leaves no trace");

        let (code, warned, answer) = whole(ask(&chain, "PATCH", &path("Warn"), &headers, body).await).await;
        let object: Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!((code, &object["data"]), (201, &json!({"a": "2"})));
        let expected = format!("299 - \"{}\"", line.replace('"', "\\\""));
        assert_eq!(warned["warning"].to_str().unwrap(), expected);
        call(&chain, "DELETE", &format!("{MAPS}/m"), None).await;
    }
}

fn scale(replicas: &Value) -> Value {
    json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": replicas}})
}

#[tokio::test]
async fn scale_apply_owns_replicas() {
    let (chain, _store) = server().await;
    let path = format!("{DEPLOYMENTS}/d");
    let mut wanted = deployment();
    wanted["spec"]["replicas"] = 2.into();
    assert_eq!(apply(&chain, &format!("{path}?fieldManager=owner"), &wanted).await.0, 201);

    let (code, refused) =
        apply(&chain, &format!("{path}/scale?fieldManager=scaler"), &scale(&json!(5))).await;
    assert_eq!(code, 409);
    assert_eq!(refused["message"], "Apply failed with 1 conflict: conflict with \"owner\": .spec.replicas");
    let (code, same) = apply(&chain, &format!("{path}/scale?fieldManager=scaler"), &scale(&json!(2))).await;
    assert_eq!((code, &same["spec"]["replicas"]), (200, &json!(2)));
    let (_, object) = get(&chain, &path).await;
    assert_eq!(managers(&object), ["owner/Apply/", "scaler/Apply/scale"]);
    assert_eq!(owned(&object, "owner")["f:spec"]["f:replicas"], json!({}), "shared");

    let (code, scaled) =
        apply(&chain, &format!("{path}/scale?fieldManager=scaler&force=true"), &scale(&json!(5))).await;
    assert_eq!((code, &scaled["spec"]["replicas"]), (200, &json!(5)));
    assert_eq!(scaled["metadata"].get("managedFields"), None, "a scale shows no managers");
    let (_, object) = get(&chain, &path).await;
    assert_eq!(object["spec"]["replicas"], 5);
    assert_eq!(owned(&object, "scaler"), json!({"f:spec": {"f:replicas": {}}}));
    assert_eq!(owned(&object, "owner")["f:spec"].get("f:replicas"), None);

    // The owner of the other fields may now omit replicas, and conflicts if it sets them.
    let (code, refused) = apply(&chain, &format!("{path}?fieldManager=owner"), &wanted).await;
    assert_eq!(code, 409);
    assert_eq!(
        refused["message"],
        "Apply failed with 1 conflict: conflict with \"scaler\" with subresource \"scale\": .spec.replicas"
    );
    let (code, object) = apply(&chain, &format!("{path}?fieldManager=owner"), &deployment()).await;
    assert_eq!((code, &object["spec"]["replicas"]), (200, &json!(5)));
}

#[tokio::test]
async fn malformed_scale_is_refused() {
    let (chain, _store) = server().await;
    create(&chain, DEPLOYMENTS, &deployment()).await;
    let path = format!("{DEPLOYMENTS}/d/scale");
    let mut named = scale(&json!("many"));
    named["metadata"] = json!({"name": "d"});
    assert_eq!(call(&chain, "PUT", &path, Some(&named)).await.0, 400);
    assert_eq!(call(&chain, "PATCH", &path, Some(&json!({"spec": {"replicas": "many"}}))).await.0, 422);
    let (code, refused) =
        call(&chain, "PATCH", &format!("{path}?fieldValidation=Strict"), Some(&json!({"spec": {"x": 1}})))
            .await;
    assert_eq!(code, 422);
    assert!(refused["message"].as_str().unwrap().contains("unknown field \"spec.x\""), "{refused}");
    let mut strange = scale(&json!(1));
    strange["kind"] = "Deployment".into();
    assert_eq!(apply(&chain, &format!("{path}?fieldManager=m"), &strange).await.0, 400);
    let mut other = scale(&json!(3));
    other["metadata"] = json!({"name": "d", "uid": "another"});
    let (code, refused) = call(&chain, "PUT", &path, Some(&other)).await;
    assert_eq!((code, &refused["reason"]), (409, &json!("Conflict")), "{refused}");
    let (_, object) = get(&chain, &format!("{DEPLOYMENTS}/d")).await;
    assert_eq!(object["spec"]["replicas"], 1);
}

#[tokio::test]
async fn oversized_object_drops_managed_fields_unless_applied() {
    let mut config = Config::new(Endpoint::Memory);
    config.limits.value_bytes = 16 << 10;
    let (chain, _store) = support::server_on(config).await;
    let many = |count: usize| -> Value {
        (0..count)
            .map(|number| (format!("key-{number}"), json!("v")))
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    // About 15 bytes per key, and 15 more for its owner.
    create(&chain, &format!("{MAPS}?fieldManager=one"), &map(&many(400))).await;
    let path = format!("{MAPS}/m");
    assert_eq!(managers(&get(&chain, &path).await.1), ["one/Update/"]);
    let patch = json!({"data": many(700)});
    let (code, object) = call(&chain, "PATCH", &format!("{path}?fieldManager=two"), Some(&patch)).await;
    assert_eq!(code, 200, "{object}");
    assert_eq!(object["data"].as_object().unwrap().len(), 700);
    assert_eq!(object["metadata"].get("managedFields"), None);

    let mut other = map(&many(700));
    other["metadata"]["name"] = "n".into();
    create(&chain, MAPS, &other).await;
    assert_eq!(get(&chain, &format!("{MAPS}/n")).await.1["metadata"].get("managedFields"), None);
    let (code, refused) = apply(&chain, &format!("{MAPS}/o?fieldManager=m"), &{
        other["metadata"]["name"] = "o".into();
        other.clone()
    })
    .await;
    assert_eq!((code, &refused["reason"]), (413, &json!("RequestEntityTooLarge")));
    other["metadata"]["name"] = "p".into();
    other["data"] = many(2000);
    assert_eq!(call(&chain, "POST", MAPS, Some(&other)).await.0, 413, "too large by itself");
}
