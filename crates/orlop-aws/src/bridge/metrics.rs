//! Metrics of the Bridge's passes.

use std::time::Duration;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::Registry,
};

/// Buckets of a pass in seconds: from reads of a ready object to a wait in the token buckets.
const DURATION_BUCKETS: [f64; 8] = [0.01, 0.05, 0.25, 1.0, 2.5, 10.0, 30.0, 60.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    kind: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    kind: &'static str,
}

/// Metrics of the Bridge's passes. Clones share their values.
#[derive(Clone, Debug)]
pub(crate) struct BridgeMetrics {
    passes: Family<Outcome, Counter>,
    durations: Family<Kind, Histogram, fn() -> Histogram>,
}

impl Default for BridgeMetrics {
    fn default() -> Self {
        let histogram: fn() -> Histogram = || Histogram::new(DURATION_BUCKETS);
        Self { passes: Family::default(), durations: Family::new_with_constructor(histogram) }
    }
}

impl BridgeMetrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register("bridge_reconcile", "Passes over objects of the Bridge", self.passes.clone());
        registry.register(
            "bridge_reconcile_duration_seconds",
            "Time that a pass over an object of the Bridge takes",
            self.durations.clone(),
        );
    }

    pub(super) fn observe(&self, kind: &'static str, outcome: &'static str, took: Duration) {
        self.passes.get_or_create(&Outcome { kind, outcome }).inc();
        self.durations.get_or_create(&Kind { kind }).observe(took.as_secs_f64());
    }
}
