//! Typed kinds through kube-rs.

use std::time::Duration;

use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams},
    core::GroupVersionKind,
};
use orlop_server::registry::Kinds;
use orlop_test::Server;
use serde_json::{Value, json};

/// A server with lamps and switches, and the one that keeps its recipes.
async fn servers() -> (Server, Server) {
    let mut kept = Kinds::builtin();
    kept.insert(own_kinds::recipes_kept_here());
    let kitchen = Server::with(kept, &[]).await.expect("the kitchen starts");
    let remote = orlop_typed::Cluster::new(kitchen.client());
    let home = Server::with(own_kinds::kinds(Some(remote)), &[]).await.expect("the home starts");
    (home, kitchen)
}

fn api(client: Client, group: &str, kind: &str, plural: &str) -> Api<DynamicObject> {
    let gvk = GroupVersionKind::gvk(group, "v1", kind);
    Api::namespaced_with(client, "default", &ApiResource::from_gvk_with_plural(&gvk, plural))
}

fn lamps(server: &Server) -> Api<DynamicObject> {
    api(server.client(), "home.example.com", "Lamp", "lamps")
}

fn switches(server: &Server) -> Api<DynamicObject> {
    api(server.client(), "simple.example.com", "Switch", "switches")
}

fn object(value: Value) -> DynamicObject {
    serde_json::from_value(value).expect("an object")
}

fn lamp(name: &str, spec: Value) -> DynamicObject {
    object(json!({
        "apiVersion": "home.example.com/v1", "kind": "Lamp", "metadata": {"name": name}, "spec": spec,
    }))
}

async fn message(creating: impl Future<Output = kube::Result<DynamicObject>>) -> String {
    let error = creating.await.expect_err("it is refused");
    assert!(matches!(error, kube::Error::Api(_)), "not a Status: {error:?}");
    let kube::Error::Api(status) = error else { return String::new() };
    status.message.clone()
}

#[tokio::test]
async fn typed_kind_is_defaulted_prepared_and_validated() {
    let (home, _kitchen) = servers().await;
    let lamps = lamps(&home);
    let made = lamps.create(&PostParams::default(), &lamp("a", json!({"room": "hall"}))).await.unwrap();
    assert_eq!(made.data["spec"], json!({"room": "hall", "on": false, "lumen": 800, "color": "White"}));
    assert_eq!(made.metadata.labels.unwrap()["home.example.com/room"], "hall");
    let refused = |spec: Value| {
        let lamps = &lamps;
        async move { message(lamps.create(&PostParams::default(), &lamp("b", spec))).await }
    };
    assert_eq!(
        refused(json!({"room": "hall", "lumen": 0})).await,
        "Lamp.home.example.com \"b\" is invalid: spec.lumen: Invalid value: 0: spec.lumen in body should be \
         greater than or equal to 1"
    );
    assert_eq!(
        refused(json!({"room": "hall", "color": "Green"})).await,
        "Lamp.home.example.com \"b\" is invalid: spec.color: Unsupported value: \"Green\": supported values: \
         \"White\", \"Warm\", \"Red\""
    );
    assert_eq!(
        refused(json!({"room": "hall", "color": "Red"})).await,
        "Lamp.home.example.com \"b\" is invalid: spec.lumen: Invalid value: 800: red lamps have at most 400 \
         lumen"
    );
    let moved = Patch::Merge(json!({"spec": {"room": "cellar"}}));
    assert_eq!(
        message(lamps.patch("a", &PatchParams::default(), &moved)).await,
        "Lamp.home.example.com \"a\" is invalid: spec.room: Forbidden: lamps stay where they are"
    );
}

#[tokio::test]
async fn typed_kind_has_warnings_and_a_name_rule() {
    let (home, _kitchen) = servers().await;
    let warned = |name: &'static str, lumen: i64| {
        let body = json!({"apiVersion": "home.example.com/v1", "kind": "Lamp", "metadata": {"name": name},
            "spec": {"room": "hall", "lumen": lumen}});
        let request = http::Request::post("/apis/home.example.com/v1/namespaces/default/lamps")
            .header("content-type", "application/json")
            .body(body.to_string().into_bytes().into())
            .expect("a request");
        let client = home.client();
        async move {
            let answer = client.send(request).await.expect("an answer");
            assert_eq!(answer.status(), 201);
            answer.headers().get("warning").map(|warning| warning.to_str().expect("text").to_owned())
        }
    };
    assert_eq!(warned("dim", 800).await, None);
    let glaring = warned("glaring", 6000).await;
    assert_eq!(glaring.as_deref(), Some("299 - \"spec.lumen: do not look into this lamp\""));
    // Most kinds take dots in names; lamps do not.
    let dotted = lamp("a.b", json!({"room": "hall"}));
    let refused = message(lamps(&home).create(&PostParams::default(), &dotted)).await;
    let why = "metadata.name: Invalid value: \"a.b\": must not contain dots";
    assert_eq!(refused, format!("Lamp.home.example.com \"a.b\" is invalid: {why}"));
}

#[tokio::test]
async fn typed_kind_is_in_discovery_and_openapi() {
    let (home, _kitchen) = servers().await;
    let read = |path: &'static str| {
        let client = home.client();
        async move {
            let request = http::Request::get(path).body(Vec::new()).expect("a request");
            client.request::<Value>(request).await.expect("a document")
        }
    };
    let resources = read("/apis/home.example.com/v1").await;
    let lamps = &resources["resources"][0];
    assert_eq!(
        (&lamps["name"], &lamps["shortNames"], &lamps["categories"]),
        (&json!("lamps"), &json!(["lp"]), &json!(["all"]))
    );
    let resources = read("/apis/simple.example.com/v1").await;
    assert_eq!(resources["resources"][0]["verbs"], json!(["get", "list", "patch", "update", "watch"]));
    let document = read("/openapi/v3/apis/home.example.com/v1").await;
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let (_, schema) = schemas.iter().find(|(name, _)| name.ends_with(".Lamp")).expect("a schema of lamps");
    // `kubectl explain` shows the doc comments of the type.
    let room = schema.pointer("/properties/spec/properties/room/description");
    assert_eq!(room, Some(&json!("Room.")), "{schema}");
}

#[tokio::test]
async fn typed_kind_has_columns_index_and_status() {
    let (home, _kitchen) = servers().await;
    let lamps = lamps(&home);
    for (name, room) in [("a", "hall"), ("b", "cellar"), ("c", "hall")] {
        lamps.create(&PostParams::default(), &lamp(name, json!({"room": room}))).await.unwrap();
    }
    let in_hall = lamps.list(&ListParams::default().fields("spec.room=hall")).await.unwrap();
    assert_eq!(
        in_hall.items.iter().map(|lamp| lamp.metadata.name.as_deref().unwrap()).collect::<Vec<_>>(),
        ["a", "c"]
    );
    let request = http::Request::get("/apis/home.example.com/v1/namespaces/default/lamps")
        .header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
        .body(Vec::new())
        .unwrap();
    let table: Value = home.client().request(request).await.unwrap();
    let headings: Vec<&str> =
        table["columnDefinitions"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
    assert_eq!(headings, ["Name", "Room", "On", "Lumen", "Age"]);
    assert_eq!(
        table["rows"][1]["cells"].as_array().unwrap()[..4],
        [json!("b"), json!("cellar"), json!(false), json!(800)]
    );
    let status = Patch::Merge(json!({"status": {"watts": 7.5}, "spec": {"on": true}}));
    let patched = lamps.patch_status("a", &PatchParams::default(), &status).await.unwrap();
    assert_eq!((&patched.data["status"]["watts"], &patched.data["spec"]["on"]), (&json!(7.5), &json!(false)));
}

#[tokio::test]
async fn translated_kind_reads_and_writes_another_kind() {
    let (home, _kitchen) = servers().await;
    let (lamps, switches) = (lamps(&home), switches(&home));
    lamps.create(&PostParams::default(), &lamp("a", json!({"room": "hall", "lumen": 300}))).await.unwrap();
    lamps.create(&PostParams::default(), &lamp("b", json!({"room": "cellar"}))).await.unwrap();

    let switch = switches.get("a").await.unwrap();
    assert_eq!((&switch.data["room"], &switch.data["on"]), (&json!("hall"), &json!(false)));
    let some = switches.list(&ListParams::default().fields("room=cellar")).await.unwrap();
    assert_eq!(some.items.len(), 1);
    assert_eq!(some.items[0].metadata.name.as_deref(), Some("b"));

    let version = switches.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    let mut events = Box::pin(switches.watch(&WatchParams::default(), &version).await.unwrap());
    let on = Patch::Merge(json!({"on": true}));
    let switched = switches.patch("a", &PatchParams::default(), &on).await.unwrap();
    assert_eq!(switched.data["on"], true);
    let lamp = lamps.get("a").await.unwrap();
    assert_eq!(lamp.data["spec"], json!({"room": "hall", "on": true, "lumen": 300, "color": "White"}));
    let event = tokio::time::timeout(Duration::from_secs(10), next(&mut events)).await.expect("an event");
    let WatchEvent::Modified(seen) = event else { panic!("expected a change, got {event:?}") };
    assert_eq!((seen.metadata.name.as_deref(), &seen.data["on"]), (Some("a"), &json!(true)));

    let new = object(json!({"apiVersion": "simple.example.com/v1", "kind": "Switch",
        "metadata": {"name": "c"}, "room": "hall", "on": true}));
    assert_eq!(
        message(switches.create(&PostParams::default(), &new)).await,
        "the server does not allow this method on the requested resource"
    );
}

async fn next(
    events: &mut (impl futures_util::Stream<Item = kube::Result<WatchEvent<DynamicObject>>> + Unpin),
) -> WatchEvent<DynamicObject> {
    futures_util::StreamExt::next(events).await.expect("the watch goes on").expect("an event")
}

#[tokio::test]
async fn remote_kind_is_forwarded() {
    let (home, kitchen) = servers().await;
    let recipes = |server: &Server| api(server.client(), "kitchen.example.com", "Recipe", "recipes");
    let soup = object(json!({"apiVersion": "kitchen.example.com/v1", "kind": "Recipe",
        "metadata": {"name": "soup"}, "ingredients": ["water", "salt"]}));
    let here = recipes(&home);
    assert_eq!(
        message(here.create(&PostParams::default(), &soup)).await,
        "the server does not allow this method on the requested resource"
    );
    let version = here.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    let mut events = Box::pin(here.watch(&WatchParams::default(), &version).await.unwrap());
    recipes(&kitchen).create(&PostParams::default(), &soup).await.unwrap();
    assert_eq!(here.get("soup").await.unwrap().data["ingredients"], json!(["water", "salt"]));
    let event = tokio::time::timeout(Duration::from_secs(10), next(&mut events)).await.expect("an event");
    assert!(matches!(event, WatchEvent::Added(seen) if seen.metadata.name.as_deref() == Some("soup")));
    assert_eq!(message(here.get("cake")).await, "recipes.kitchen.example.com \"cake\" not found");
}
