//! Metrics of the chain and its plugins, named as in Kubernetes.

pub(crate) mod pod_security;

use std::time::Duration;

use prometheus_client::{
    metrics::{family::Family, histogram::Histogram},
    registry::Registry,
};

use self::pod_security::PodSecurityMetrics;
use crate::{Operation, Phase, policy::PolicyMetrics, webhook::WebhookMetrics};

type Durations<const N: usize> = Family<StaticLabels<N>, Histogram, fn() -> Histogram>;

/// Metrics of the admission of one server. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct AdmissionMetrics {
    pub(crate) chain: ChainMetrics,
    pub(crate) pod_security: PodSecurityMetrics,
    pub(crate) policies: PolicyMetrics,
    pub(crate) webhooks: WebhookMetrics,
}

impl AdmissionMetrics {
    /// Registers the metrics.
    pub fn register(&self, registry: &mut Registry) {
        self.chain.register(registry);
        self.pod_security.register(registry);
        self.policies.register(registry);
        self.webhooks.register(registry);
    }
}

/// Labels that need no allocation: plugins are timed on every write.
type StaticLabels<const N: usize> = [(&'static str, &'static str); N];

/// Durations of passes and of plugins.
#[derive(Clone, Debug)]
pub(crate) struct ChainMetrics {
    steps: Durations<3>,
    plugins: Durations<4>,
}

impl Default for ChainMetrics {
    fn default() -> Self {
        let buckets = || Histogram::new([0.005, 0.025, 0.1, 0.5, 1.0, 2.5]);
        Self { steps: Family::new_with_constructor(buckets), plugins: Family::new_with_constructor(buckets) }
    }
}

impl ChainMetrics {
    fn labels(phase: Phase, operation: Operation, rejected: bool) -> StaticLabels<3> {
        let phase = match phase {
            Phase::Mutating => "admit",
            Phase::Validating => "validate",
        };
        let rejected = if rejected { "true" } else { "false" };
        [("type", phase), ("operation", operation.name()), ("rejected", rejected)]
    }

    pub(crate) fn step(&self, phase: Phase, operation: Operation, rejected: bool, latency: Duration) {
        let labels = Self::labels(phase, operation, rejected);
        self.steps.get_or_create(&labels).observe(latency.as_secs_f64());
    }

    pub(crate) fn plugin(
        &self,
        name: &'static str,
        phase: Phase,
        operation: Operation,
        rejected: bool,
        latency: Duration,
    ) {
        let [of, operation, rejected] = Self::labels(phase, operation, rejected);
        self.plugins.get_or_create(&[("name", name), of, operation, rejected]).observe(latency.as_secs_f64());
    }

    fn register(&self, registry: &mut Registry) {
        registry.register(
            "apiserver_admission_step_admission_duration_seconds",
            "Time of a pass of admission, by type (admit or validate), operation and outcome",
            self.steps.clone(),
        );
        registry.register(
            "apiserver_admission_controller_admission_duration_seconds",
            "Time of an admission plugin, by name, type (admit or validate), operation and outcome",
            self.plugins.clone(),
        );
    }
}
