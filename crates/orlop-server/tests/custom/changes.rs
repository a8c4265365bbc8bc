//! The change stream of the garbage collector.

use serde_json::{Value, json};

use crate::server::{DEFINITIONS, Server, Watch, path, version, widget, widgets};

const CHANGES: &str = "/orlop/v1/changes";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn map(name: &str, owner: Option<&str>) -> Value {
    let owners: Vec<Value> = owner
        .map(|uid| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}))
        .into_iter()
        .collect();
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "ownerReferences": owners},
        "data": {"deletionTimestamp": "is only a word here"}})
}

/// Returns the next event as type, kind and name.
async fn next(watch: &mut Watch) -> (String, String, String) {
    let event = watch.next().await.expect("the stream goes on");
    let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    (text("/type"), text("/object/kind"), text("/object/metadata/name"))
}

fn next_short(kind: &str, object: &str, name: &str) -> (String, String, String) {
    (kind.to_owned(), object.to_owned(), name.to_owned())
}

#[tokio::test]
async fn change_stream_orders_ownership_events_of_all_kinds() {
    let server = Server::start().await;
    server.create(DEFINITIONS, &widgets(json!([version("v1", true, json!({}))]))).await.ok();
    let owner = server.create(MAPS, &map("owner", None)).await.ok();
    let uid = owner["metadata"]["uid"].as_str().unwrap();
    server.create(MAPS, &map("before", Some(uid))).await.ok();

    // First the present objects by key, then a bookmark.
    let mut watch = server.watch(CHANGES).await;
    let mut present = Vec::new();
    let bookmark = loop {
        let event = watch.next().await.unwrap();
        if event["type"] == "BOOKMARK" {
            break event["object"]["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
        }
        present.push((event["object"]["kind"].clone(), event["object"]["metadata"]["name"].clone()));
    };
    let expected = [
        (json!("CustomResourceDefinition"), json!("widgets.example.com")),
        (json!("ConfigMap"), json!("before")),
    ];
    assert!(expected.iter().all(|object| present.contains(object)), "{present:?}");
    assert!(!present.contains(&(json!("ConfigMap"), json!("owner"))), "it has no owner: {present:?}");

    // Then changes.
    let mut owned = widget("v1", "w", json!({}));
    owned["metadata"]["ownerReferences"] = map("", Some(uid))["metadata"]["ownerReferences"].clone();
    owned["metadata"]["finalizers"] = json!(["example.com/hold"]);
    server.create(MAPS, &map("plain", None)).await.ok();
    server.create(&path("v1"), &owned).await.ok();
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"},
        "involvedObject": {"kind": "ConfigMap", "namespace": "default", "name": "owner"}});
    server.create("/api/v1/namespaces/default/events", &event).await.ok();
    server
        .merge(&format!("{}/w", path("v1")), json!({"spec": {}, "metadata": {"labels": {"a": "b"}}}))
        .await
        .ok();
    server.delete(&format!("{}/w", path("v1"))).await.ok();
    server.delete(&format!("{MAPS}/owner")).await.ok();
    server.merge(&format!("{}/w", path("v1")), json!({"metadata": {"finalizers": null}})).await.ok();
    server.delete("/api/v1/namespaces/default/events/e").await.ok();
    server.delete(&format!("{MAPS}/plain")).await.ok();
    let happened = [
        next_short("ADDED", "Widget", "w"),
        next_short("MODIFIED", "Widget", "w"),
        next_short("MODIFIED", "Widget", "w"),
        next_short("DELETED", "ConfigMap", "owner"),
        next_short("DELETED", "Widget", "w"),
        next_short("DELETED", "ConfigMap", "plain"),
    ];
    for expected in &happened {
        assert_eq!(next(&mut watch).await, *expected);
    }

    // A client resumes from its bookmark.
    let mut again = server.watch(&format!("{CHANGES}?resourceVersion={bookmark}")).await;
    for expected in &happened {
        assert_eq!(next(&mut again).await, *expected);
    }
}

#[tokio::test]
async fn change_stream_has_only_collector_metadata() {
    let server = Server::start().await;
    let mut watch = server.watch(&format!("{CHANGES}?resourceVersion=1")).await;
    let mut made = map("a", Some("b"));
    made["metadata"]["annotations"] = json!({"long": "x".repeat(1000)});
    made["metadata"]["finalizers"] = json!(["orphan"]);
    let made = server.create(MAPS, &made).await.ok();
    let event = loop {
        let event = watch.next().await.unwrap();
        if event["object"]["metadata"]["name"] == "a" {
            break event;
        }
    };
    let metadata = &made["metadata"];
    assert_eq!(
        event["object"],
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
            "name": "a", "namespace": "default", "uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"],
            "finalizers": ["orphan"], "ownerReferences": metadata["ownerReferences"]}})
    );
    assert_eq!(server.get("/orlop/v1/elsewhere").await.ok(), json!({"items": []}));
    assert_eq!(server.get(&format!("{CHANGES}?resourceVersion=x")).await.code, 400);
}
