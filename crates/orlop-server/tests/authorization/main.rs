//! Authorization: RBAC, its bootstrap policy, escalation checks and access reviews.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod bootstrap;
mod decisions;
mod devices;
mod escalation;
mod nodes;
mod reviews;
mod shared_database;
mod signers;
#[path = "../support/mod.rs"]
mod support;
mod verbs;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use orlop_server::{User, chain::Chain};
use serde_json::{Value, json};

/// Path of the RBAC group.
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// Sends a request of a user. Returns the code and the object.
async fn call_as(
    chain: &Chain,
    user: &User,
    method: &str,
    path: &str,
    object: Option<&Value>,
) -> (u16, Value) {
    let media_type = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let body = object.map(Value::to_string).unwrap_or_default();
    let request = Request::builder().method(method).uri(path).header("content-type", media_type);
    let request = request.body(Full::new(Bytes::from(body))).unwrap();
    let (code, _, body) = support::whole(chain.answer(request, Some(user)).await).await;
    (code, serde_json::from_slice(&body).unwrap_or_else(|_| String::from_utf8_lossy(&body).into()))
}

fn user(name: &str) -> User {
    User::authenticated(name, [])
}

fn role(kind: &str, name: &str, rules: Value) -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "rules": rules})
}

/// Returns a binding of a role, written `Kind/name`, to subjects, written `Kind:name`.
fn binding(kind: &str, name: &str, role: &str, subjects: &[&str]) -> Value {
    let (role_kind, role) = role.split_once('/').unwrap();
    let subject = |text: &&str| {
        let (kind, name) = text.split_once(':').unwrap();
        json!({"kind": kind, "name": name, "apiGroup": "rbac.authorization.k8s.io"})
    };
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": role},
        "subjects": subjects.iter().map(subject).collect::<Vec<_>>(),
    })
}

fn in_namespace(namespace: &str, resource: &str) -> String {
    format!("{RBAC}/namespaces/{namespace}/{resource}")
}
