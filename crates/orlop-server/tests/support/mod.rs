//! An in-process server and its clients.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    reason = "each test program uses its part, and fails by panicking"
)]

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, header};
use http_body_util::{BodyExt, Full};
use orlop_server::{
    Tokens, User, auth::issuer::Issuer, bootstrap::bootstrap, chain::Chain, cluster::Cluster,
    http::body::Body, registry::Kinds,
};
use orlop_store::{Config, Endpoint, Store};
use serde_json::{Value, json};

/// Starts a bootstrapped server. Returns it and its store.
pub(crate) async fn server() -> (Chain, Store) {
    server_on(Config::new(Endpoint::Memory)).await
}

/// Starts a bootstrapped server on a store.
pub(crate) async fn server_on(config: Config) -> (Chain, Store) {
    let store = Store::open(config).await.unwrap();
    let cluster = Cluster::new(store.clone(), Kinds::builtin(), Issuer::generate().unwrap());
    (started(cluster).await, store)
}

/// Starts a bootstrapped server in memory that accepts tokens.
pub(crate) async fn started_with(tokens: Tokens) -> (Chain, Store) {
    let store = Store::open(Config::new(Endpoint::Memory)).await.unwrap();
    let cluster = Cluster::new(store.clone(), Kinds::builtin(), Issuer::generate().unwrap());
    let chain = Chain::new(Arc::new(cluster), tokens);
    bootstrap(&chain, 6443, "").await.unwrap();
    (chain, store)
}

/// Starts a bootstrapped server of a cluster.
pub(crate) async fn started(cluster: Cluster) -> Chain {
    let chain = Chain::new(Arc::new(cluster), Tokens::default());
    bootstrap(&chain, 6443, "").await.unwrap();
    chain
}

/// Sends a request as the administrator.
pub(crate) async fn ask(
    chain: &Chain,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: impl Into<Bytes>,
) -> Response<Body> {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(body.into())).unwrap();
    chain.answer(request, Some(&User::master("admin"))).await
}

/// Returns code, headers and complete body of a response.
pub(crate) async fn whole(response: Response<Body>) -> (u16, HeaderMap, Bytes) {
    let (parts, body) = response.into_parts();
    (parts.status.as_u16(), parts.headers, body.collect().await.unwrap().to_bytes())
}

/// Sends a request with or without a JSON body. Returns the code and the object.
pub(crate) async fn call(chain: &Chain, method: &str, path: &str, object: Option<&Value>) -> (u16, Value) {
    let body = object.map(Value::to_string).unwrap_or_default();
    let media_type = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let headers: &[(&str, &str)] = if body.is_empty() { &[] } else { &[("content-type", media_type)] };
    let (code, _, body) = whole(ask(chain, method, path, headers, body).await).await;
    (code, serde_json::from_slice(&body).unwrap_or_else(|_| String::from_utf8_lossy(&body).into()))
}

pub(crate) async fn get(chain: &Chain, path: &str) -> (u16, Value) {
    call(chain, "GET", path, None).await
}

/// Applies an object (server-side apply).
pub(crate) async fn apply(chain: &Chain, path: &str, object: &Value) -> (u16, Value) {
    let headers = [("content-type", "application/apply-patch+yaml")];
    let (code, _, body) = whole(ask(chain, "PATCH", path, &headers, object.to_string()).await).await;
    (code, serde_json::from_slice(&body).unwrap())
}

/// Creates an object. Returns its resourceVersion.
pub(crate) async fn create(chain: &Chain, path: &str, object: &Value) -> String {
    let (code, object) = call(chain, "POST", path, Some(object)).await;
    assert_eq!(code, 201, "{object}");
    version(&object)
}

pub(crate) fn version(object: &Value) -> String {
    object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned()
}

pub(crate) fn config_map(name: &str, labels: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}})
}

/// The events of a watch.
#[derive(Debug)]
pub(crate) struct Events {
    body: Body,
    rest: Vec<u8>,
}

impl Events {
    /// Opens a watch.
    pub(crate) async fn of(chain: &Chain, path: &str) -> Self {
        let response = ask(chain, "GET", path, &[], "").await;
        assert_eq!(response.status(), 200, "{path}");
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/json");
        Self { body: response.into_body(), rest: Vec::new() }
    }

    /// Returns the next event; `None` if the watch has ended.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame = tokio::time::timeout(Duration::from_secs(20), self.body.frame()).await;
            let frame = frame.expect("an event in time")?.unwrap();
            self.rest.extend_from_slice(&frame.into_data().unwrap());
        }
    }

    /// Returns the next events as type and name, `ADDED a`.
    pub(crate) async fn next_short(&mut self, count: usize) -> Vec<String> {
        let mut told = Vec::new();
        for _ in 0..count {
            let event = self.next().await.expect("the watch goes on");
            told.push(short(&event));
        }
        told
    }

    /// Returns all events until the watch ends.
    pub(crate) async fn all(mut self) -> Vec<String> {
        let mut told = Vec::new();
        while let Some(event) = self.next().await {
            told.push(short(&event));
        }
        told
    }
}

/// Returns the type and name of an event.
pub(crate) fn short(event: &Value) -> String {
    let object = &event["object"];
    let end = object["metadata"]["annotations"]["k8s.io/initial-events-end"].as_str();
    let what = match event["type"].as_str().unwrap() {
        "ERROR" => object["code"].to_string(),
        "BOOKMARK" => end.map_or("", |_| "end").to_owned(),
        _ => object["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
    };
    format!("{} {what}", event["type"].as_str().unwrap()).trim().to_owned()
}
