//! Behaviour and messages that clients compare, each as a kube-apiserver was seen to answer.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod bodies;
mod creation;
mod deletion;
mod discovery;
mod kind_validation;
mod kinds;
mod metadata;
mod negotiation;
mod patching;
mod pods;
mod reviews;
#[path = "../support/mod.rs"]
mod support;

use orlop_server::chain::Chain;
use serde_json::{Value, json};

/// Path of the tests' ConfigMaps.
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Sends a request, and compares the code and message of its error.
async fn refused(chain: &Chain, method: &str, path: &str, body: Option<&Value>, code: u16, message: &str) {
    let (answered, status) = support::call(chain, method, path, body).await;
    assert_eq!((answered, status["message"].as_str()), (code, Some(message)), "{method} {path} {body:?}");
}

/// Creates a CustomResourceDefinition in `example.com` with a scale subresource.
async fn define_gizmos(chain: &Chain) {
    let number = json!({"type": "object", "properties": {"replicas": {"type": "integer"}}});
    let schema = json!({"type": "object", "properties": {"spec": number, "status": number}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "gizmos.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "gizmos", "singular": "gizmo", "kind": "Gizmo"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    });
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    support::create(chain, path, &definition).await;
}
