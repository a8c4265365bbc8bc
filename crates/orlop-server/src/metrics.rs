//! `/metrics`.

use bytes::Bytes;
use http::Response;
use prometheus_client::{encoding::text::encode, registry::Registry};

use crate::{body::Body, cluster::Cluster, verbs::answer};

/// Everything measured, as Prometheus reads it.
pub(crate) fn answer(cluster: &Cluster) -> Response<Body> {
    let mut registry = Registry::default();
    cluster.store.metrics().register(&mut registry);
    let mut text = String::new();
    // Encoding into a string does not fail.
    let _ = encode(&mut text, &registry);
    answer::bytes(200, "application/openmetrics-text; version=1.0.0; charset=utf-8", Bytes::from(text))
}
