//! What is measured, and `/metrics`, where Prometheus reads it.
//!
//! Names and labels are Kubernetes', so that dashboards and alerts work unchanged. Labels take their values
//! from what is registered and never from what a client sends, so that nobody can make them many.

mod objects;
mod process;
mod requests;
mod text;

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Response, header};
use prometheus_client::{encoding::text::encode, metrics::gauge::Gauge, registry::Registry};

pub(crate) use requests::{Labels, Measured, Requests};

use crate::{body::Body, cluster::Cluster, health::Health, verbs::answer};

/// Everything that a server measures of itself.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    pub(crate) requests: Arc<Requests>,
    objects: objects::Objects,
}

impl Metrics {
    /// Answers `/metrics`, in the form that the client reads.
    pub(crate) async fn answer(&self, cluster: &Cluster, headers: &HeaderMap) -> Response<Body> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(requests::Collected(self.requests.clone())));
        registry.register_collector(Box::new(self.objects.counted(cluster).await));
        registry.register_collector(Box::new(process::Process::now()));
        cluster.store.metrics().register(&mut registry);
        page(&registry, headers)
    }
}

/// Answers `/metrics/slis`: every health check as a number.
pub(crate) async fn service_levels(
    health: &Health,
    cluster: &Cluster,
    headers: &HeaderMap,
) -> Response<Body> {
    let mut registry = Registry::default();
    let family = prometheus_client::metrics::family::Family::<Vec<(&'static str, String)>, Gauge>::default();
    for page in ["healthz", "livez", "readyz"] {
        for (name, passes) in health.checks(cluster, page).await {
            let labels = vec![("name", name), ("type", page.to_owned())];
            family.get_or_create(&labels).set(i64::from(passes));
        }
    }
    registry.register("kubernetes_healthcheck", "Whether a health check passes", family);
    page(&registry, headers)
}

fn page(registry: &Registry, headers: &HeaderMap) -> Response<Body> {
    let mut encoded = String::new();
    // Encoding into a string does not fail.
    let _ = encode(&mut encoded, registry);
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if accept.contains("application/openmetrics-text") {
        let media_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        return answer::bytes(200, media_type, Bytes::from(encoded));
    }
    let media_type = "text/plain; version=0.0.4; charset=utf-8";
    answer::bytes(200, media_type, Bytes::from(text::prometheus(&encoded)))
}
