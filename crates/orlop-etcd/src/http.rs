//! `/health`, `/metrics` and `/version` over HTTP, as etcd serves them beside gRPC.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::IntoResponse,
    routing::get,
};
use orlop_store::{Error, KeyRange, Read};
use prometheus_client::{encoding::text::encode, registry::Registry};

use crate::node::Node;

/// Deadline of a health check's read.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns the routes that need no gRPC.
pub(crate) fn routes(node: Arc<Node>) -> Router {
    Router::new()
        .route("/health", get(health))
        .route("/livez", get(health))
        .route("/readyz", get(health))
        .route("/version", get(version))
        .route("/metrics", get(metrics))
        .with_state(node)
}

/// Healthy: a read succeeds and the NOSPACE alarm is not raised.
async fn health(State(node): State<Arc<Node>>) -> impl IntoResponse {
    let read = node.store.read(Read { limit: 1, ..Read::new(KeyRange::key("health")) });
    let reason = match tokio::time::timeout(HEALTH_TIMEOUT, read).await {
        _ if node.alarms.no_space() => "ALARM NOSPACE",
        _ if matches!(node.store.health(), Err(Error::Full(_))) => "ALARM NOSPACE",
        _ if node.store.health().is_err() => "STORE NOT WRITABLE",
        Ok(Ok(_)) => "",
        Ok(Err(error)) => {
            tracing::warn!(%error, "health check failed");
            "RANGE ERROR"
        }
        Err(_) => "RANGE TIMEOUT",
    };
    let code = if reason.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let body = format!("{{\"health\":\"{}\",\"reason\":\"{reason}\"}}", reason.is_empty());
    (code, [(CONTENT_TYPE, "application/json")], body)
}

async fn version(State(node): State<Arc<Node>>) -> impl IntoResponse {
    let version = &node.options.version;
    let minor = version.rsplit_once('.').map_or(&**version, |(minor, _)| minor);
    let body = format!(
        "{{\"etcdserver\":\"{version}\",\"etcdcluster\":\"{minor}.0\",\"orlop\":\"{}\"}}",
        env!("CARGO_PKG_VERSION")
    );
    ([(CONTENT_TYPE, "application/json")], body)
}

async fn metrics(State(node): State<Arc<Node>>) -> impl IntoResponse {
    // Updates the size gauge. An unreachable database shows in other metrics.
    let _ = node.store.size().await;
    let mut registry = Registry::default();
    node.store.metrics().register(&mut registry);
    let mut text = String::new();
    match encode(&mut text, &registry) {
        Ok(()) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(CONTENT_TYPE, kind)], text).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
