//! Metrics of authentication, under Kubernetes' names.

use std::time::Duration;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

/// Buckets of durations in seconds, as in Kubernetes: from a cached token to a slow webhook.
const DURATION_BUCKETS: [f64; 15] = [
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384,
];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatusLabel {
    status: &'static str,
}

/// Metrics of a server's authentication. Clones share their values.
#[derive(Clone, Debug)]
pub struct AuthenticationMetrics {
    /// A gauge, as Kubernetes' counter has no suffix.
    attempts: Family<ResultLabel, Gauge>,
    durations: Family<ResultLabel, Histogram, fn() -> Histogram>,
    cache_requests: Family<StatusLabel, Counter>,
}

impl Default for AuthenticationMetrics {
    fn default() -> Self {
        Self {
            attempts: Family::default(),
            durations: Family::new_with_constructor(|| Histogram::new(DURATION_BUCKETS)),
            cache_requests: Family::default(),
        }
    }
}

/// The result of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    /// A user was found.
    Success,
    /// No credential was presented, and one is needed.
    Failure,
    /// A credential is not valid, or could not be checked.
    Error,
}

impl AuthenticationMetrics {
    /// Registers every metric.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "authentication_attempts",
            "Authenticated attempts by result",
            self.attempts.clone(),
        );
        registry.register(
            "authentication_duration_seconds",
            "Duration of authentication in seconds by result",
            self.durations.clone(),
        );
        registry.register(
            "authentication_token_cache_request",
            "Requests to the token cache by status",
            self.cache_requests.clone(),
        );
    }

    pub(super) fn record(&self, attempt: Attempt, duration: Duration) {
        let result = match attempt {
            Attempt::Success => "success",
            Attempt::Failure => "failure",
            Attempt::Error => "error",
        };
        self.attempts.get_or_create(&ResultLabel { result }).inc();
        self.durations.get_or_create(&ResultLabel { result }).observe(duration.as_secs_f64());
    }

    pub(super) fn record_cache(&self, hit: bool) {
        let status = if hit { "hit" } else { "miss" };
        self.cache_requests.get_or_create(&StatusLabel { status }).inc();
    }
}
