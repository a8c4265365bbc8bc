//! Metrics.

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
    pub(crate) documents: Gauge,
    pub(crate) bytes: Gauge,
    pub(crate) cursors: Gauge,
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
    /// Returns all metrics in OpenMetrics' text format.
    pub(crate) fn to_text(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = encode(&mut text, &self.registry.lock());
        text
    }
}
