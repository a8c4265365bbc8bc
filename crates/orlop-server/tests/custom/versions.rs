//! Several versions of a custom kind.

use serde_json::json;

use crate::server::{DEFINITIONS, Server, path, version, widget, widgets};

#[tokio::test]
async fn object_is_read_and_watched_in_every_version() {
    let server = Server::start().await;
    let v1 = version("v1", true, json!({"size": {"type": "integer"}, "old": {"type": "string"}}));
    let v2 =
        version("v2", false, json!({"size": {"type": "integer"}, "new": {"type": "string", "default": "n"}}));
    server.create(DEFINITIONS, &widgets(json!([v1, v2]))).await.ok();
    let mut watch = server.watch(&format!("{}?watch=true", path("v2"))).await;
    server.create(&path("v1"), &widget("v1", "a", json!({"size": 1, "old": "o"}))).await.ok();
    let event = watch.next().await.unwrap();
    assert_eq!(event["object"]["apiVersion"], "example.com/v2");
    // Fields that v2 lacks are pruned. Its defaults are for objects that are written in it.
    assert_eq!(event["object"]["spec"], json!({"size": 1}));
    let read = server.get(&format!("{}/a", path("v2"))).await.ok();
    assert_eq!(read, event["object"]);
    let listed = server.get(&path("v2")).await.ok();
    assert_eq!((&listed["apiVersion"], &listed["items"][0]), (&json!("example.com/v2"), &read));

    let mut changed = read;
    changed["spec"]["size"] = json!(2);
    let answered = server.replace(&format!("{}/a", path("v2")), &changed).await.ok();
    assert_eq!(
        (&answered["apiVersion"], &answered["metadata"]["generation"]),
        (&json!("example.com/v2"), &json!(2))
    );
    // v1, which is stored, has no field for the default of v2.
    assert_eq!(answered["spec"], json!({"size": 2}));
    assert_eq!(server.get(&format!("{}/a", path("v2"))).await.ok(), answered);
    assert_eq!(server.get(&format!("{}/a", path("v1"))).await.ok()["spec"]["size"], 2);
    assert_eq!(watch.next().await.unwrap()["object"]["spec"]["size"], 2);
    server.delete(&format!("{}/a", path("v2"))).await.ok();
    assert_eq!(watch.next().await.unwrap()["type"], "DELETED");
}

#[tokio::test]
async fn answer_to_a_write_in_another_version_is_what_is_then_read() {
    let server = Server::start().await;
    let v1 =
        version("v1", true, json!({"size": {"type": "integer"}, "old": {"type": "string", "default": "o"}}));
    let v2 = version(
        "v2",
        false,
        json!({"size": {"type": "integer"}, "old": {"type": "string"},
        "new": {"type": "string", "default": "n"}}),
    );
    server.create(DEFINITIONS, &widgets(json!([v1, v2]))).await.ok();
    let wanted = widget("v2", "a", json!({"size": 1, "new": "mine"}));
    let tried = server.create(&format!("{}?dryRun=All", path("v2")), &wanted).await.ok();
    assert_eq!(tried["spec"], json!({"size": 1, "old": "o"}));
    let created = server.create(&path("v2"), &wanted).await.ok();
    assert_eq!(created["spec"], json!({"size": 1, "old": "o"}));
    assert_eq!(server.get(&format!("{}/a", path("v2"))).await.ok(), created);
    let own = format!("{}/a", path("v2"));
    let patch = json!({"spec": {"size": 2, "new": "mine"}});
    let tried = server.merge(&format!("{own}?dryRun=All"), patch.clone()).await.ok();
    assert_eq!(tried["spec"], json!({"size": 2, "old": "o"}));
    let patched = server.merge(&own, patch).await.ok();
    assert_eq!(server.get(&own).await.ok(), patched);
    assert_eq!(patched["spec"], tried["spec"]);
}

#[tokio::test]
async fn versions_with_the_same_schema_are_served_without_conversion() {
    let server = Server::start().await;
    let spec = json!({"size": {"type": "integer"}});
    let versions = json!([version("v1", true, spec.clone()), version("v2", false, spec)]);
    server.create(DEFINITIONS, &widgets(versions)).await.ok();
    server.create(&path("v2"), &widget("v2", "a", json!({"size": 1}))).await.ok();
    for name in ["v1", "v2"] {
        let read = server.get(&format!("{}/a", path(name))).await.ok();
        assert_eq!(
            (&read["apiVersion"], &read["spec"]),
            (&format!("example.com/{name}").into(), &json!({"size": 1}))
        );
    }
}

#[tokio::test]
async fn object_in_an_old_storage_version_is_read() {
    let server = Server::start().await;
    let name = format!("{DEFINITIONS}/widgets.example.com");
    let versions = |storage: &str| {
        json!([
            version("v1", storage == "v1", json!({"size": {"type": "integer"}})),
            version(
                "v2",
                storage == "v2",
                json!({"size": {"type": "integer"}, "new": {"type": "string", "default": "n"}})
            )
        ])
    };
    server.create(DEFINITIONS, &widgets(versions("v1"))).await.ok();
    server.create(&path("v1"), &widget("v1", "old", json!({"size": 1}))).await.ok();
    let changed = server.merge(&name, json!({"spec": {"versions": versions("v2")}})).await.ok();
    assert_eq!(changed["status"]["storedVersions"], json!(["v1", "v2"]));
    server.create(&path("v1"), &widget("v1", "young", json!({"size": 2}))).await.ok();
    let listed = server.get(&path("v2")).await.ok();
    let items = listed["items"].as_array().unwrap();
    assert!(items.iter().all(|item| item["apiVersion"] == "example.com/v2"), "{listed}");
    // Objects get the defaults of the version that they are stored in.
    assert_eq!(items[0]["spec"], json!({"size": 1}));
    assert_eq!(items[1]["spec"], json!({"size": 2, "new": "n"}));
    let listed = server.get(&path("v1")).await.ok();
    let items = listed["items"].as_array().unwrap();
    assert!(
        items.iter().all(|item| item["apiVersion"] == "example.com/v1" && item["spec"].get("new").is_none()),
        "{listed}"
    );
}

#[tokio::test]
async fn unserving_a_version_ends_its_watches() {
    let server = Server::start().await;
    let name = format!("{DEFINITIONS}/widgets.example.com");
    let mut old = version("v1", true, json!({}));
    let new = version("v2", false, json!({}));
    server.create(DEFINITIONS, &widgets(json!([old, new]))).await.ok();
    let mut watch = server.watch(&format!("{}?watch=true", path("v1"))).await;
    old["served"] = json!(false);
    server.merge(&name, json!({"spec": {"versions": [old, new]}})).await.ok();
    assert!(watch.next().await.is_none());
    assert_eq!(server.get(&path("v1")).await.code, 404);
    assert_eq!(server.get("/openapi/v3/apis/example.com/v1").await.code, 404);
    server.create(&path("v2"), &widget("v2", "a", json!({}))).await.ok();
}

#[tokio::test]
async fn deprecated_version_returns_a_warning() {
    let server = Server::start().await;
    let mut old = version("v1", true, json!({}));
    old["deprecated"] = json!(true);
    let mut older = version("v1beta1", false, json!({}));
    older["deprecated"] = json!(true);
    older["deprecationWarning"] = json!("use another");
    server.create(DEFINITIONS, &widgets(json!([old, older]))).await.ok();
    let told = server.get(&path("v1")).await.warnings;
    assert_eq!(told, ["299 - \"example.com/v1 Widget is deprecated\""]);
    assert_eq!(server.get(&path("v1beta1")).await.warnings, ["299 - \"use another\""]);
}

#[tokio::test]
async fn managed_fields_span_custom_versions() {
    let server = Server::start().await;
    let spec = json!({"size": {"type": "integer"}, "color": {"type": "string"}});
    let versions = json!([version("v1", true, spec.clone()), version("v2", false, spec)]);
    server.create(DEFINITIONS, &widgets(versions)).await.ok();
    let at = |version: &str, manager: &str| format!("{}/a?fieldManager={manager}", path(version));
    server.apply(&at("v1", "one"), &widget("v1", "a", json!({"size": 1}))).await.ok();
    let conflict = server.apply(&at("v2", "two"), &widget("v2", "a", json!({"size": 2}))).await.refused(409);
    assert!(conflict.contains("conflict with \"one\": .spec.size"), "{conflict}");
    server.apply(&at("v2", "two"), &widget("v2", "a", json!({"color": "red"}))).await.ok();
    // Fields that their applier drops are removed, whichever version they were applied in.
    let left = server.apply(&at("v1", "one"), &widget("v1", "a", json!({}))).await.ok();
    assert_eq!(left["spec"], json!({"color": "red"}));
}
