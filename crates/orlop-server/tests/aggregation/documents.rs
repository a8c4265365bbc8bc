//! Discovery and OpenAPI, merged.

use serde_json::{Value, json};

use crate::{
    extension::{Extension, SERVICES, answer, condition, eventually, json_answer},
    support::{ask, call, get, server, whole},
};

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Returns the group `home.example.com` of the aggregated document.
async fn group(chain: &orlop_server::chain::Chain) -> Value {
    let (_, _, body) = whole(ask(chain, "GET", "/apis", &[("accept", AGGREGATED)], "").await).await;
    let list: Value = serde_json::from_slice(&body).unwrap();
    let mut groups = list["items"].as_array().unwrap().iter();
    groups.find(|group| group["metadata"]["name"] == "home.example.com").cloned().unwrap_or_default()
}

#[tokio::test]
async fn legacy_discovery_of_an_extension_server_is_merged() {
    let (chain, _store) = server().await;
    let extension = Extension::start().await;
    extension.available(&chain).await;
    let found = eventually(|| group(&chain), |group| group["versions"][0]["freshness"] == "Current").await;
    let lamps = &found["versions"][0]["resources"][0];
    assert_eq!((&lamps["resource"], &lamps["shortNames"]), (&json!("lamps"), &json!(["lp"])));
    let kind = json!({"group": "home.example.com", "version": "v1", "kind": "Lamp"});
    assert_eq!((&lamps["responseKind"], &lamps["subresources"][0]["subresource"]), (&kind, &json!("status")));
    let (_, list) = get(&chain, "/apis").await;
    let groups = list["groups"].as_array().unwrap();
    assert!(groups.iter().any(|group| group["name"] == "home.example.com"), "{list}");
    let (code, group_document) = get(&chain, "/apis/home.example.com").await;
    assert_eq!((code, &group_document["preferredVersion"]["version"]), (200, &json!("v1")));
    let (code, resources) = get(&chain, "/apis/home.example.com/v1").await;
    assert_eq!((code, &resources["resources"][0]["name"]), (200, &json!("lamps")));
    let (_, index) = get(&chain, "/").await;
    assert!(index["paths"].as_array().unwrap().contains(&json!("/apis/home.example.com/v1")));

    assert_eq!(call(&chain, "DELETE", &format!("{SERVICES}/v1.home.example.com"), None).await.0, 200);
    assert_eq!(group(&chain).await, Value::Null);
    assert_eq!(get(&chain, "/apis/home.example.com/v1").await.0, 404);
}

#[tokio::test]
async fn unusable_discovery_is_stale_and_leaves_the_rest_alone() {
    let (chain, _store) = server().await;
    let extension = Extension::start().await;
    let lists: [(&str, String); 4] = [
        ("nonsense", "nonsense".to_owned()),
        ("other types", json!({"items": [{"versions": "many"}]}).to_string()),
        ("cut off", json!({"items": []}).to_string().replace(']', "")),
        ("too long", format!("{{\"items\":[{}", " ".repeat(9 << 20))),
    ];
    extension.available(&chain).await;
    eventually(|| group(&chain), |group| group["versions"][0]["freshness"] == "Current").await;
    for (what, list) in lists {
        extension.answers(move |request| {
            let list = list.clone();
            async move {
                match request.uri().path() {
                    "/apis" => answer(200, AGGREGATED, list),
                    _ => answer(404, "text/plain", ""),
                }
            }
        });
        // A change of the spec makes it ask again.
        let again = |port: u16| json!({"spec": {"service": {"port": port}}});
        let path = format!("{SERVICES}/v1.home.example.com");
        assert_eq!(call(&chain, "PATCH", &path, Some(&again(1))).await.0, 200);
        condition(&chain, |found| found["status"] == "False").await;
        assert_eq!(call(&chain, "PATCH", &path, Some(&again(extension.port))).await.0, 200);
        condition(&chain, |found| found["status"] == "True").await;
        let found = eventually(|| group(&chain), |group| group["versions"][0]["freshness"] == "Stale").await;
        assert_eq!(found["versions"][0]["resources"], json!([]), "{what}");
        assert_eq!(get(&chain, "/apis").await.0, 200, "{what}");
    }
}

fn open_api() -> Value {
    let reference = |name: &str| json!({"$ref": format!("#/definitions/{name}")});
    json!({
        "swagger": "2.0", "info": {},
        "paths": {
            "/apis/home.example.com/v1/lamps": {"get": {"operationId": "listLamp", "produces": ["application/json"],
                "responses": {"200": {"description": "OK", "schema": reference("com.example.home.v1.Lamp")}}}},
            "/api/v1/pods": {"get": {"operationId": "evil"}},
        },
        "definitions": {
            "com.example.home.v1.Lamp": {"type": "object", "properties": {
                "metadata": reference("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")}},
            "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta": {"type": "object", "description": "another"},
            "unused": {"type": "object"},
        },
    })
}

#[tokio::test]
async fn open_api_documents_are_merged_and_converted() {
    let (chain, _store) = server().await;
    let extension = Extension::start().await;
    extension.answers(|request| async move {
        match request.uri().path() {
            "/openapi/v2" => json_answer(&open_api()),
            _ => answer(404, "text/plain", ""),
        }
    });
    let (_, before) = get(&chain, "/openapi/v2").await;
    extension.available(&chain).await;
    let path = "/apis/home.example.com/v1/lamps";
    let merged = eventually(
        || async { get(&chain, "/openapi/v2").await.1 },
        |found| found["paths"].get(path).is_some(),
    )
    .await;
    assert_eq!(merged["paths"][path]["get"]["operationId"], "listLamp");
    assert_ne!(merged["paths"]["/api/v1/pods"]["get"]["operationId"], "evil");
    let meta = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
    assert_eq!(merged["definitions"][meta], before["definitions"][meta], "the server's own keeps its name");
    let renamed = &merged["definitions"][format!("{meta}_v2")];
    assert_eq!(renamed["description"], "another");
    let lamp = &merged["definitions"]["com.example.home.v1.Lamp"]["properties"]["metadata"]["$ref"];
    assert_eq!(*lamp, format!("#/definitions/{meta}_v2"));
    assert!(merged["definitions"].get("unused").is_none());
    let protobuf = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
    let (code, _, body) = whole(ask(&chain, "GET", "/openapi/v2", &[("accept", protobuf)], "").await).await;
    assert!(code == 200 && body.windows(8).any(|window| window == b"listLamp"));

    let (_, index) = get(&chain, "/openapi/v3").await;
    assert_eq!(
        index["paths"]["apis/home.example.com/v1"]["serverRelativeURL"],
        "/openapi/v3/apis/home.example.com/v1"
    );
    let (code, v3) = get(&chain, "/openapi/v3/apis/home.example.com/v1").await;
    let schema =
        &v3["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]["$ref"];
    assert_eq!((code, schema), (200, &json!("#/components/schemas/com.example.home.v1.Lamp")));
}

#[tokio::test]
async fn unusable_open_api_keeps_nothing_else_from_working() {
    let (chain, _store) = server().await;
    let extension = Extension::start().await;
    extension.answers(|request| async move {
        match request.uri().path() {
            path if path.starts_with("/openapi") => answer(200, "application/json", "{\"paths\":[1]}"),
            _ => answer(404, "text/plain", ""),
        }
    });
    extension.available(&chain).await;
    eventually(|| group(&chain), |group| group["versions"][0]["freshness"] == "Current").await;
    let (code, document) = get(&chain, "/openapi/v2").await;
    assert!(code == 200 && document["paths"].get("/api/v1/pods").is_some());
    let (code, index) = get(&chain, "/openapi/v3").await;
    assert!(code == 200 && index["paths"].get("apis/home.example.com/v1").is_none());
    assert_eq!(get(&chain, "/openapi/v3/apis/home.example.com/v1").await.0, 404);
}

#[tokio::test]
async fn own_version_3_document_is_served_by_the_extension_server() {
    let (chain, _store) = server().await;
    let extension = Extension::start().await;
    let own = "/openapi/v3/apis/home.example.com/v1";
    extension.answers(move |request| async move {
        let url = |url: &str| json!({"serverRelativeURL": url});
        match request.uri().path() {
            "/openapi/v3" => json_answer(&json!({"paths": {
                "apis/home.example.com/v1": url(&format!("{own}?hash=AB")),
                "apis/apps/v1": url("/openapi/v3/apis/apps/v1?hash=evil"),
            }})),
            path if path == own => json_answer(&json!({"openapi": "3.0.0",
                "asked": [request.uri().query(), request.headers()["x-remote-user"].to_str().unwrap()]})),
            _ => answer(404, "text/plain", ""),
        }
    });
    extension.available(&chain).await;
    let index = eventually(
        || async { get(&chain, "/openapi/v3").await.1 },
        |index| index["paths"].get("apis/home.example.com/v1").is_some(),
    )
    .await;
    assert_eq!(index["paths"]["apis/home.example.com/v1"]["serverRelativeURL"], format!("{own}?hash=AB"));
    assert!(!index["paths"]["apis/apps/v1"].to_string().contains("evil"));
    let (code, document) = get(&chain, &format!("{own}?hash=AB")).await;
    assert_eq!((code, &document["asked"]), (200, &json!(["hash=AB", "admin"])));
}
