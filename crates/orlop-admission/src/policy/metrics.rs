//! Metrics of policies, named as in Kubernetes.

use std::time::Duration;

use prometheus_client::{
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::Registry,
};

use super::expression::OUT_OF_BUDGET;

type Durations<L> = Family<L, Histogram, fn() -> Histogram>;

/// Reason why an expression of a policy could not be evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PolicyErrorType {
    NoError,
    Compile,
    Invalid,
    OutOfBudget,
}

impl PolicyErrorType {
    /// Returns the type of an error by its message, as Kubernetes does.
    pub(super) fn of(message: &str) -> Self {
        if message.starts_with("compilation") {
            Self::Compile
        } else if message.starts_with(OUT_OF_BUDGET) {
            Self::OutOfBudget
        } else {
            Self::Invalid
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::NoError => "no_error",
            Self::Compile => "compile_error",
            Self::Invalid => "invalid_error",
            Self::OutOfBudget => "out_of_budget",
        }
    }
}

/// A policy and its binding.
#[derive(Clone, Copy, Debug)]
pub(super) struct Checked<'a> {
    pub(super) policy: &'a str,
    pub(super) binding: &'a str,
    pub(super) error: PolicyErrorType,
}

type Labels<const N: usize> = [(&'static str, String); N];

impl Checked<'_> {
    fn labels(&self) -> Labels<3> {
        [
            ("policy", self.policy.to_owned()),
            ("policy_binding", self.binding.to_owned()),
            ("error_type", self.error.name().to_owned()),
        ]
    }
}

/// Counts and durations of policies' expressions.
#[derive(Clone, Debug)]
pub struct PolicyMetrics {
    validations: Family<Labels<4>, Counter>,
    validation_durations: Durations<Labels<4>>,
    mutations: Family<Labels<3>, Counter>,
    mutation_durations: Durations<Labels<3>>,
}

impl Default for PolicyMetrics {
    fn default() -> Self {
        let buckets = || Histogram::new([0.000_000_5, 0.001, 0.01, 0.1, 1.0]);
        Self {
            validations: Family::default(),
            validation_durations: Family::new_with_constructor(buckets),
            mutations: Family::default(),
            mutation_durations: Family::new_with_constructor(buckets),
        }
    }
}

impl PolicyMetrics {
    /// Counts a validation and what its binding does about it: `allow`, `deny`, `warn` or `audit`.
    pub(super) fn validation(&self, checked: Checked<'_>, action: &'static str, latency: Duration) {
        let [policy, binding, error] = checked.labels();
        let labels = [policy, binding, error, ("enforcement_action", action.to_owned())];
        self.validations.get_or_create(&labels).inc();
        self.validation_durations.get_or_create(&labels).observe(latency.as_secs_f64());
    }

    pub(super) fn mutation(&self, checked: Checked<'_>, latency: Duration) {
        let labels = checked.labels();
        self.mutations.get_or_create(&labels).inc();
        self.mutation_durations.get_or_create(&labels).observe(latency.as_secs_f64());
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "apiserver_validating_admission_policy_check",
            "Checks of validating admission policies, by policy, binding, error and action",
            self.validations.clone(),
        );
        registry.register(
            "apiserver_validating_admission_policy_check_duration_seconds",
            "Time of the checks of validating admission policies, by policy, binding, error and action",
            self.validation_durations.clone(),
        );
        registry.register(
            "apiserver_mutating_admission_policy_check",
            "Checks of mutating admission policies, by policy, binding and error",
            self.mutations.clone(),
        );
        registry.register(
            "apiserver_mutating_admission_policy_check_duration_seconds",
            "Time of the checks of mutating admission policies, by policy, binding and error",
            self.mutation_durations.clone(),
        );
    }
}
