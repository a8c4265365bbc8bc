//! Protobuf requests and responses.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::{BodyExt, Full};
use orlop_api::protobuf;
use orlop_server::{
    Tokens, User, auth::issuer::Issuer, bootstrap::bootstrap, chain::Chain, cluster::Cluster,
    http::body::Body, registry::Kinds,
};
use orlop_store::{Config, Endpoint, Store};
use serde_json::{Value, json};

const PROTOBUF: &str = protobuf::MEDIA_TYPE;

async fn server() -> Chain {
    let store = Store::open(Config::new(Endpoint::Memory)).await.unwrap();
    let chain = Chain::new(
        Arc::new(Cluster::new(store, Kinds::builtin(), Issuer::generate().unwrap())),
        Tokens::default(),
    );
    bootstrap(&chain, 6443, "").await.unwrap();
    chain
}

async fn call(
    chain: &Chain,
    method: &str,
    path: &str,
    types: (&str, &str),
    body: impl Into<Bytes>,
) -> Response<Body> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::CONTENT_TYPE, types.0)
        .header(header::ACCEPT, types.1)
        .body(Full::new(body.into()))
        .unwrap();
    let admin = User::authenticated("admin", ["system:masters".to_owned()]);
    chain.answer(request, Some(&admin)).await
}

/// Decodes a protobuf response.
async fn object(response: Response<Body>) -> (u16, Value) {
    assert_eq!(response.headers()[header::CONTENT_TYPE], PROTOBUF);
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (code, protobuf::decode(&body).unwrap())
}

fn config_map(name: &str) -> Vec<u8> {
    let object =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "v"}});
    protobuf::encode(&object).unwrap()
}

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test]
async fn protobuf_objects_round_trip() {
    let chain = server().await;
    let both = (PROTOBUF, PROTOBUF);
    let (code, created) = object(call(&chain, "POST", CONFIG_MAPS, both, config_map("a")).await).await;
    assert_eq!((code, &created["data"]), (201, &json!({"k": "v"})));
    assert_eq!(created["metadata"]["namespace"], "default");
    let path = format!("{CONFIG_MAPS}/a");
    let (_, read) = object(call(&chain, "GET", &path, both, "").await).await;
    assert_eq!(read, created);
    let (_, list) = object(call(&chain, "GET", CONFIG_MAPS, both, "").await).await;
    assert_eq!(list["kind"], "ConfigMapList");
    let mut item = created.clone();
    let fields = item.as_object_mut().unwrap();
    // Only the envelope of the list has apiVersion and kind.
    fields.remove("apiVersion");
    fields.remove("kind");
    assert!(list["items"].as_array().unwrap().contains(&item), "{list}");
    let patched =
        call(&chain, "PATCH", &path, ("application/merge-patch+json", PROTOBUF), "{\"data\":{\"k\":\"w\"}}");
    assert_eq!(object(patched.await).await.1["data"], json!({"k": "w"}));
    let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": "another"}});
    let refused = call(&chain, "DELETE", &path, both, protobuf::encode(&options).unwrap()).await;
    assert_eq!(object(refused).await.1["reason"], "Conflict");
    let (code, status) = object(call(&chain, "DELETE", &path, both, "").await).await;
    assert_eq!((code, &status["status"]), (200, &json!("Success")));
}

#[tokio::test]
async fn protobuf_offers_partial_metadata_but_not_tables() {
    let chain = server().await;
    let transform = |what: &str| format!("{PROTOBUF};as={what};g=meta.k8s.io;v=v1");
    call(&chain, "POST", CONFIG_MAPS, (PROTOBUF, PROTOBUF), config_map("a")).await;
    let accept = transform("PartialObjectMetadataList");
    let (_, list) = object(call(&chain, "GET", CONFIG_MAPS, ("", &accept), "").await).await;
    assert_eq!(
        (&list["kind"], &list["apiVersion"]),
        (&json!("PartialObjectMetadataList"), &json!("meta.k8s.io/v1"))
    );
    assert!(list["items"][0]["metadata"]["name"].is_string() && list["items"][0].get("data").is_none());
    let tables = call(&chain, "GET", CONFIG_MAPS, ("", &transform("Table")), "").await;
    assert_eq!(tables.status(), 406);
    let either = format!("{},application/json;as=Table;g=meta.k8s.io;v=v1", transform("Table"));
    let table = call(&chain, "GET", CONFIG_MAPS, ("", &either), "").await;
    assert_eq!(table.headers()[header::CONTENT_TYPE], "application/json");
}

#[tokio::test]
async fn protobuf_watch_events_are_length_delimited() {
    let chain = server().await;
    call(&chain, "POST", CONFIG_MAPS, (PROTOBUF, PROTOBUF), config_map("a")).await;
    let accept = format!("{PROTOBUF};stream=watch");
    let path = format!("{CONFIG_MAPS}?watch=true&fieldSelector=metadata.name%3Da");
    let response = call(&chain, "GET", &path, ("", &accept), "").await;
    assert_eq!(response.headers()[header::CONTENT_TYPE], "application/vnd.kubernetes.protobuf;stream=watch");
    let mut body = response.into_body();
    let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
    let length = u32::from_be_bytes(frame[..4].try_into().unwrap()) as usize;
    assert_eq!((length, &frame[4..11]), (frame.len() - 4, &b"\x0a\x05ADDED"[..]));
    let at = frame.windows(4).position(|window| window == protobuf::MAGIC).unwrap();
    assert_eq!(protobuf::decode(&frame[at..]).unwrap()["metadata"]["name"], "a");
}

#[tokio::test]
async fn malformed_protobuf_bodies_are_refused() {
    let chain = server().await;
    let both = (PROTOBUF, PROTOBUF);
    for body in [&b""[..], b"k8s\0", b"{}", b"k8s\0\x0a\xff\xff\xff\xff\x0f", &config_map("a")[..30]] {
        let (code, status) = object(call(&chain, "POST", CONFIG_MAPS, both, body.to_vec()).await).await;
        assert!(matches!(code, 400 | 422), "{status}");
    }
    let secret = protobuf::encode(&json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}));
    let (code, _) = object(call(&chain, "POST", CONFIG_MAPS, both, secret.unwrap()).await).await;
    assert_eq!(code, 400);
}
