//! Authorization filter.

use std::time::{Duration, Instant};

use orlop_api::status::Status;
use prometheus_client::{
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::Registry,
};

use super::audit::Record;
use crate::{
    auth::{Decision, Evaluation, UnionAuthorizer, authorizer::forbidden},
    request::{Attributes, Verb},
};

type Labels = [(&'static str, &'static str); 1];

/// Metrics of authorization, under Kubernetes' names. Clones share their values.
#[derive(Clone, Debug)]
pub(crate) struct AuthorizationMetrics {
    attempts: Family<Labels, Counter>,
    durations: Family<Labels, Histogram, fn() -> Histogram>,
}

impl Default for AuthorizationMetrics {
    fn default() -> Self {
        // From a rule in memory to a slow webhook.
        let buckets = || Histogram::new((0..15).map(|power| 0.001 * f64::from(1 << power)));
        Self { attempts: Family::default(), durations: Family::new_with_constructor(buckets) }
    }
}

impl AuthorizationMetrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "authorization_attempts",
            "Requests that were authorized or not, by result",
            self.attempts.clone(),
        );
        registry.register(
            "authorization_duration_seconds",
            "Time of authorization, by result",
            self.durations.clone(),
        );
    }

    fn record(&self, evaluation: &Evaluation, duration: Duration) {
        let result = match &evaluation.decision {
            Decision::Allow(_) => "allowed",
            _ if !evaluation.errors.is_empty() => "error",
            Decision::Deny(_) => "denied",
            Decision::NoOpinion(_) => "no-opinion",
        };
        self.attempts.get_or_create(&[("result", result)]).inc();
        self.durations.get_or_create(&[("result", result)]).observe(duration.as_secs_f64());
    }
}

/// Returns Forbidden unless an authorizer allows the request; an internal error if one could not decide and none
/// allows it. The decision is audited.
pub(crate) async fn authorize(
    authorizer: &UnionAuthorizer,
    metrics: &AuthorizationMetrics,
    attributes: &Attributes,
    record: &mut Record,
) -> Result<(), Status> {
    let started = Instant::now();
    let attributes = &*attributes.for_authorizers();
    let mut evaluation = authorizer.evaluate(attributes).await;
    let is_head = !attributes.is_resource_request && attributes.verb.as_str() == "head";
    if is_head && !matches!(evaluation.decision, Decision::Allow(_)) {
        // Whoever may read a path may ask for its headers: load balancers check health so.
        let get = Attributes { verb: Verb::Get, ..attributes.clone() };
        let as_get = authorizer.evaluate(&get).await;
        if matches!(as_get.decision, Decision::Allow(_)) {
            evaluation = as_get;
        }
    }
    metrics.record(&evaluation, started.elapsed());
    record.authorized(&evaluation.decision);
    match &evaluation.decision {
        Decision::Allow(_) => Ok(()),
        Decision::Deny(reason) | Decision::NoOpinion(reason) => Err(match evaluation.error() {
            Some(error) => Status::internal(&error),
            None => forbidden(attributes, reason),
        }),
    }
}
