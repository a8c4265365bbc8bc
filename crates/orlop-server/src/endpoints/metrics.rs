//! Endpoints of metrics.

use bytes::Bytes;
use http::{HeaderMap, Response, header};
use prometheus_client::{
    encoding::text::encode,
    metrics::{family::Family, gauge::Gauge},
    registry::Registry,
};

use super::health::{Health, Outcome};
use crate::{
    cluster::Cluster,
    http::{body::Body, response},
    metrics::{Metrics, prometheus_text},
};

/// Answers `/metrics`.
pub(super) async fn metrics(metrics: &Metrics, cluster: &Cluster, headers: &HeaderMap) -> Response<Body> {
    let mut registry = Registry::default();
    metrics.register(&cluster.objects, &mut registry).await;
    page(&registry, headers)
}

/// Answers `/metrics/slis`: each health check as a gauge.
pub(super) async fn service_levels(
    health: &Health,
    cluster: &Cluster,
    headers: &HeaderMap,
) -> Response<Body> {
    let mut registry = Registry::default();
    let family = Family::<Vec<(&'static str, String)>, Gauge>::default();
    for page in ["healthz", "livez", "readyz"] {
        for (name, outcome) in health.checks(cluster, page).await {
            let labels = vec![("name", name), ("type", page.to_owned())];
            family.get_or_create(&labels).set(i64::from(outcome == Outcome::Passed));
        }
    }
    registry.register("kubernetes_healthcheck", "Result of a health check: 1 if it passes", family);
    page(&registry, headers)
}

fn page(registry: &Registry, headers: &HeaderMap) -> Response<Body> {
    let mut encoded = String::new();
    // Encoding into a string does not fail.
    let _ = encode(&mut encoded, registry);
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if accept.contains("application/openmetrics-text") {
        let media_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        return response::bytes(200, media_type, Bytes::from(encoded));
    }
    let media_type = "text/plain; version=0.0.4; charset=utf-8";
    response::bytes(200, media_type, Bytes::from(prometheus_text(&encoded)))
}
