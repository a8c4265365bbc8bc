//! Metrics and health over HTTP.

use std::sync::Arc;

use axum::{Router, extract::State, http::header, response::IntoResponse, routing::get};
use parking_lot::Mutex;
use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

use crate::context::SharedContext;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct RequestLabels {
    pub(crate) protocol: &'static str,
    pub(crate) request: &'static str,
    pub(crate) outcome: &'static str,
}

#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Mutex<Registry>,
    pub(crate) requests: Family<RequestLabels, Counter>,
    pub(crate) seconds: Histogram,
    pub(crate) connections: Gauge,
    pub(crate) refused: Counter,
    documents: Gauge,
    bytes: Gauge,
    cursors: Gauge,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("slate");
        let requests = Family::default();
        registry.register("requests", "Requests answered", requests.clone());
        let seconds = Histogram::new(exponential_buckets(0.000_01, 4.0, 12));
        registry.register("batch_seconds", "Time to answer what a client sent at once", seconds.clone());
        let connections = Gauge::default();
        registry.register("connections", "Open connections", connections.clone());
        let refused = Counter::default();
        registry.register("connections_refused", "Connections above the limit", refused.clone());
        let (documents, bytes, cursors) = (Gauge::default(), Gauge::default(), Gauge::default());
        registry.register("documents", "Documents in all collections", documents.clone());
        registry.register("store_bytes", "Size of the store", bytes.clone());
        registry.register("cursors", "Open cursors", cursors.clone());
        Self {
            registry: Mutex::new(registry),
            requests,
            seconds,
            connections,
            refused,
            documents,
            bytes,
            cursors,
        }
    }
}

/// Routes of the HTTP port.
pub(crate) fn router(context: SharedContext) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(|| async { "ok" }))
        .route("/metrics", get(metrics))
        .with_state(context)
}

async fn metrics(State(context): State<SharedContext>) -> impl IntoResponse {
    let engine = context.engine.clone();
    let counted = tokio::task::spawn_blocking(move || {
        let catalog = engine.catalog();
        let documents: u64 =
            catalog.collections().filter_map(|collection| engine.document_count(&collection.name).ok()).sum();
        (documents, engine.size_bytes())
    });
    let (documents, bytes) = counted.await.unwrap_or_default();
    let metrics = &context.metrics;
    metrics.documents.set(documents.cast_signed());
    metrics.bytes.set(bytes.cast_signed());
    metrics.cursors.set(context.cursors.len() as i64);
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = encode(&mut text, &metrics.registry.lock());
    ([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text)
}

/// Counts an open connection while it lives.
#[derive(Debug)]
pub(crate) struct ConnectionGuard(SharedContext);

impl ConnectionGuard {
    pub(crate) fn new(context: &SharedContext) -> Self {
        context.metrics.connections.inc();
        Self(Arc::clone(context))
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.0.metrics.connections.dec();
    }
}
