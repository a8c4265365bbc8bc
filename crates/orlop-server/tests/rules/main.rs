//! Rules and words of Kubernetes that clients compare, each as a kube-apiserver was seen to answer.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod bodies;
mod creation;
mod deletion;
mod discovery;
mod kinds;
mod metadata;
mod pods;
mod questions;
#[path = "../support/mod.rs"]
mod support;

use orlop_server::chain::Chain;
use serde_json::Value;

/// Where tests keep their config maps.
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Asks, and compares the code and the message of the refusal.
async fn refused(chain: &Chain, method: &str, path: &str, body: Option<&Value>, code: u16, message: &str) {
    let (answered, status) = support::call(chain, method, path, body).await;
    assert_eq!((answered, status["message"].as_str()), (code, Some(message)), "{method} {path} {body:?}");
}
