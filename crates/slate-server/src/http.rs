//! Metrics and health over HTTP.

use axum::{Router, extract::State, http::header, response::IntoResponse, routing::get};

use crate::context::SharedContext;

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
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, content_type)], metrics.to_text())
}
