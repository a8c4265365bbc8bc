//! Admission webhooks over TLS, through the whole server.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod failures;
mod matching;
mod mutation;
mod observing;
mod subresources;
mod validation;

#[path = "../support/hook.rs"]
mod hook;
#[path = "../support/mod.rs"]
mod support;

use hook::{Hook, Reply};
use orlop_server::{
    admission::{Settings, chain},
    auth::issuer::Issuer,
    chain::Chain,
    cluster::Cluster,
    registry::Kinds,
};
use orlop_store::{Config, Endpoint, Store};
use serde_json::{Value, json};
use support::{ask, call, started, whole};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

/// Starts a server with the webhook plugins.
async fn server() -> Chain {
    let store = Store::open(Config::new(Endpoint::Memory)).await.unwrap();
    let cluster = Cluster::new(store, Kinds::builtin(), Issuer::generate().unwrap());
    let names = chain::defaults().into_iter().filter(|name| name.contains("Webhook"));
    let names: Vec<&str> = names.collect();
    started(cluster.with_admission_plugins(&names, Settings::default()).unwrap()).await
}

/// A webhook of a configuration for writes of ConfigMaps.
fn webhook(hook: &Hook, name: &str) -> Value {
    json!({
        "name": name, "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": format!("https://127.0.0.1:{}/admit", hook.port), "caBundle": hook.ca_bundle},
        "rules": [rule("", "v1", "configmaps")],
    })
}

fn rule(group: &str, version: &str, resource: &str) -> Value {
    json!({"operations": ["*"], "apiGroups": [group], "apiVersions": [version], "resources": [resource]})
}

fn configuration(kind: &str, name: &str, webhooks: &[Value]) -> Value {
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name},
        "webhooks": webhooks})
}

/// Creates a configuration. It is in force when this returns.
async fn configure(chain: &Chain, path: &str, name: &str, webhooks: &[Value]) {
    let kind =
        if path == MUTATING { "MutatingWebhookConfiguration" } else { "ValidatingWebhookConfiguration" };
    let (code, made) = call(chain, "POST", path, Some(&configuration(kind, name, webhooks))).await;
    assert_eq!(code, 201, "{made}");
}

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"}})
}

/// Returns the answer to a review with a response.
fn response(review: &Value, mut response: Value) -> Reply {
    response["uid"] = review["request"]["uid"].clone();
    Reply::Json(json!({"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response}))
}

fn allow(review: &Value) -> Reply {
    response(review, json!({"allowed": true}))
}

fn patch(review: &Value, patch: &Value) -> Reply {
    use base64::{Engine, engine::general_purpose::STANDARD};
    let patch = STANDARD.encode(patch.to_string());
    response(review, json!({"allowed": true, "patchType": "JSONPatch", "patch": patch}))
}

/// Sends a request with a body. Returns code, object and warnings.
async fn send(chain: &Chain, method: &str, path: &str, object: &Value) -> (u16, Value, Vec<String>) {
    let media_type = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let response = ask(chain, method, path, &[("content-type", media_type)], object.to_string()).await;
    let (code, headers, body) = whole(response).await;
    let warnings = headers.get_all("warning").iter().map(|value| value.to_str().unwrap().to_owned());
    (code, serde_json::from_slice(&body).unwrap(), warnings.collect())
}
