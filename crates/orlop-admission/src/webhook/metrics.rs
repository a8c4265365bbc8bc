//! Metrics of webhooks, named as in Kubernetes.

use std::time::Duration;

use prometheus_client::{
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::Registry,
};

use super::WebhookKind;
use crate::Operation;

type Labels<const N: usize> = [(&'static str, String); N];

/// Metrics of the webhooks of one server. Clones share them.
#[derive(Clone, Debug)]
pub struct WebhookMetrics {
    durations: Family<Labels<4>, Histogram, fn() -> Histogram>,
    requests: Family<Labels<5>, Counter>,
    rejections: Family<Labels<5>, Counter>,
    fail_open: Family<Labels<2>, Counter>,
    condition_errors: Family<Labels<4>, Counter>,
    condition_exclusions: Family<Labels<4>, Counter>,
    condition_durations: Family<Labels<4>, Histogram, fn() -> Histogram>,
}

impl Default for WebhookMetrics {
    fn default() -> Self {
        Self {
            durations: Family::new_with_constructor(|| {
                Histogram::new([0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 25.0])
            }),
            requests: Family::default(),
            rejections: Family::default(),
            fail_open: Family::default(),
            condition_errors: Family::default(),
            condition_exclusions: Family::default(),
            condition_durations: Family::new_with_constructor(|| {
                Histogram::new([0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25])
            }),
        }
    }
}

/// The reason of a rejection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ErrorType {
    CallingWebhook,
    Internal,
    NoError,
}

impl ErrorType {
    fn name(self) -> &'static str {
        match self {
            Self::CallingWebhook => "calling_webhook_error",
            Self::Internal => "apiserver_internal_error",
            Self::NoError => "no_error",
        }
    }
}

/// A call, as far as metrics are concerned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observed<'a> {
    pub(super) webhook: &'a str,
    pub(super) kind: WebhookKind,
    pub(super) operation: Operation,
}

impl Observed<'_> {
    fn labels(&self) -> [(&'static str, String); 3] {
        [
            ("name", self.webhook.to_owned()),
            ("type", self.kind.metric_type().to_owned()),
            ("operation", self.operation.name().to_owned()),
        ]
    }
}

impl WebhookMetrics {
    pub(super) fn call(&self, call: Observed<'_>, latency: Duration, rejected: bool, code: u16) {
        let [name, of, operation] = call.labels();
        let rejected = ("rejected", rejected.to_string());
        let code = ("code", code.min(600).to_string());
        self.requests
            .get_or_create(&[name.clone(), of.clone(), operation.clone(), code, rejected.clone()])
            .inc();
        self.durations.get_or_create(&[name, of, operation, rejected]).observe(latency.as_secs_f64());
    }

    pub(super) fn rejection(&self, call: Observed<'_>, error: ErrorType, code: u16) {
        let [name, of, operation] = call.labels();
        let labels = [
            name,
            of,
            operation,
            ("error_type", error.name().to_owned()),
            ("rejection_code", code.min(600).to_string()),
        ];
        self.rejections.get_or_create(&labels).inc();
    }

    pub(super) fn failed_open(&self, call: Observed<'_>) {
        let [name, of, _] = call.labels();
        self.fail_open.get_or_create(&[name, of]).inc();
    }

    pub(super) fn conditions(&self, call: Observed<'_>, latency: Duration, errors: usize, excluded: bool) {
        let [name, of, operation] = call.labels();
        let labels = [name, ("kind", "webhook".to_owned()), of, operation];
        self.condition_durations.get_or_create(&labels).observe(latency.as_secs_f64());
        if errors > 0 {
            self.condition_errors.get_or_create(&labels).inc_by(errors as u64);
        }
        if excluded {
            let [name, kind, _, operation] = labels;
            // Kubernetes names the type differently here.
            let of = match call.kind {
                WebhookKind::Mutating => "admit",
                WebhookKind::Validating => "validate",
            };
            let labels = [name, kind, ("type", of.to_owned()), operation];
            self.condition_exclusions.get_or_create(&labels).inc();
        }
    }

    /// Registers the metrics.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "apiserver_admission_webhook_admission_duration_seconds",
            "Time of calls of admission webhooks, by webhook, type, operation and outcome",
            self.durations.clone(),
        );
        registry.register(
            "apiserver_admission_webhook_request",
            "Calls of admission webhooks, by webhook, type, operation, HTTP code and outcome",
            self.requests.clone(),
        );
        registry.register(
            "apiserver_admission_webhook_rejection_count",
            "Requests that admission webhooks rejected, by webhook, type, operation, error and code",
            self.rejections.clone(),
        );
        registry.register(
            "apiserver_admission_webhook_fail_open_count",
            "Requests admitted because a webhook failed and its failure policy is Ignore, by webhook and type",
            self.fail_open.clone(),
        );
        registry.register(
            "apiserver_admission_match_condition_evaluation_errors",
            "Match conditions of webhooks that could not be evaluated, by webhook, type and operation",
            self.condition_errors.clone(),
        );
        registry.register(
            "apiserver_admission_match_condition_exclusions",
            "Requests that match conditions kept from a webhook, by webhook, type and operation",
            self.condition_exclusions.clone(),
        );
        registry.register(
            "apiserver_admission_match_condition_evaluation_seconds",
            "Time of the evaluation of a webhook's match conditions, by webhook, type and operation",
            self.condition_durations.clone(),
        );
    }
}
