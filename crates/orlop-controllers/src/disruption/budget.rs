//! The arithmetic of a PodDisruptionBudget. Pure.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::{
    api::{
        core::v1::Pod,
        policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus},
    },
    apimachinery::pkg::{
        apis::meta::v1::{Condition, Time},
        util::intstr::IntOrString,
    },
    jiff::Timestamp,
};
use orlop_client::ResourceExt;

use super::STALE_S;
use crate::workload::{
    int_or_percent::{Rounding, scaled},
    pods,
    time::{plus_seconds, seconds},
};

/// Returns whether the pods themselves are what is expected, not the scale of their controllers.
pub(super) fn counts_pods(spec: &PodDisruptionBudgetSpec) -> bool {
    match (&spec.max_unavailable, &spec.min_available) {
        (Some(_), _) => false,
        (None, Some(IntOrString::String(_))) => false,
        (None, _) => true,
    }
}

/// Returns the status, and the time at which a disrupted pod that still lives counts again.
pub(super) fn status(
    budget: &PodDisruptionBudget,
    pods: &[Arc<Pod>],
    expected: i32,
    now: Timestamp,
) -> (PodDisruptionBudgetStatus, Option<Timestamp>) {
    let spec = budget.spec.clone().unwrap_or_default();
    let desired = match (&spec.max_unavailable, &spec.min_available) {
        (Some(most), _) => (expected - scaled(most, expected, Rounding::Up)).max(0),
        (None, Some(least)) => scaled(least, expected, Rounding::Up),
        (None, None) => 0,
    };
    let old = budget.status.clone().unwrap_or_default();
    let (disrupted, next) = still_disrupted(&old, pods, now);
    let healthy = pods.iter().filter(|pod| {
        pods::is_ready(pod) && !pods::is_deleting(pod) && !disrupted.contains_key(&pod.name_any())
    });
    let healthy = i32::try_from(healthy.count()).unwrap_or(i32::MAX);
    let allowed = if expected <= 0 { 0 } else { (healthy - desired).max(0) };
    let (state, reason) =
        if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    let conditions = with_condition(&old, state, reason, String::new(), budget.metadata.generation, now);
    let status = PodDisruptionBudgetStatus {
        expected_pods: Some(expected),
        current_healthy: Some(healthy),
        desired_healthy: Some(desired),
        disruptions_allowed: Some(allowed),
        disrupted_pods: (!disrupted.is_empty()).then_some(disrupted),
        observed_generation: budget.metadata.generation,
        conditions: Some(conditions),
    };
    (status, next)
}

/// Returns the status of a budget that cannot be computed: nothing may be disrupted.
pub(super) fn failed(
    budget: &PodDisruptionBudget,
    message: String,
    now: Timestamp,
) -> PodDisruptionBudgetStatus {
    let old = budget.status.clone().unwrap_or_default();
    let conditions = with_condition(&old, "False", "SyncFailed", message, budget.metadata.generation, now);
    PodDisruptionBudgetStatus {
        disruptions_allowed: Some(0),
        observed_generation: budget.metadata.generation,
        conditions: Some(conditions),
        current_healthy: old.current_healthy.or(Some(0)),
        desired_healthy: old.desired_healthy.or(Some(0)),
        expected_pods: old.expected_pods.or(Some(0)),
        ..old
    }
}

/// Returns the pods that were to be disrupted, have lived on for too long, and count again from now on.
pub(super) fn not_deleted<'a>(
    budget: &PodDisruptionBudget,
    pods: &'a [Arc<Pod>],
    now: Timestamp,
) -> impl Iterator<Item = &'a Arc<Pod>> {
    let disrupted =
        budget.status.as_ref().and_then(|status| status.disrupted_pods.clone()).unwrap_or_default();
    pods.iter().filter(move |pod| {
        let at = pod.metadata.name.as_ref().and_then(|name| disrupted.get(name));
        !pods::is_deleting(pod) && at.is_some_and(|at| plus_seconds(at.0, STALE_S) <= now)
    })
}

/// Returns the pods that an eviction has been granted for and that are not gone yet.
fn still_disrupted(
    old: &PodDisruptionBudgetStatus,
    pods: &[Arc<Pod>],
    now: Timestamp,
) -> (BTreeMap<String, Time>, Option<Timestamp>) {
    let mut left = BTreeMap::new();
    let mut next: Option<Timestamp> = None;
    for (name, at) in old.disrupted_pods.iter().flatten() {
        let is_living =
            pods.iter().any(|pod| pod.metadata.name.as_ref() == Some(name) && !pods::is_deleting(pod));
        let due = plus_seconds(at.0, STALE_S);
        if is_living && due > now {
            left.insert(name.clone(), at.clone());
            next = Some(next.map_or(due, |next| next.min(due)));
        }
    }
    (left, next)
}

fn with_condition(
    old: &PodDisruptionBudgetStatus,
    status: &str,
    reason: &str,
    message: String,
    generation: Option<i64>,
    now: Timestamp,
) -> Vec<Condition> {
    const TYPE: &str = "DisruptionAllowed";
    let mut conditions = old.conditions.clone().unwrap_or_default();
    let known = conditions.iter().find(|condition| condition.type_ == TYPE && condition.status == status);
    let since = known.map_or(Time(seconds(now)), |known| known.last_transition_time.clone());
    conditions.retain(|condition| condition.type_ != TYPE);
    conditions.push(Condition {
        type_: TYPE.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message,
        observed_generation: generation,
        last_transition_time: since,
    });
    conditions
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn budget(spec: Value, status: Value) -> PodDisruptionBudget {
        serde_json::from_value(json!({"metadata": {"generation": 4}, "spec": spec, "status": status}))
            .unwrap()
    }

    fn pods(count: usize) -> Vec<Arc<Pod>> {
        let pod = |number: usize| {
            let pod = json!({"metadata": {"name": number.to_string()},
                "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
            Arc::new(serde_json::from_value(pod).unwrap())
        };
        (0..count).map(pod).collect()
    }

    fn allowed(spec: Value, healthy: usize, expected: i32) -> (i32, i32) {
        let (status, _) = status(&budget(spec, json!({})), &pods(healthy), expected, Timestamp::UNIX_EPOCH);
        (status.desired_healthy.unwrap(), status.disruptions_allowed.unwrap())
    }

    #[test]
    fn percentages_round_up() {
        assert_eq!(allowed(json!({"minAvailable": 2}), 3, 3), (2, 1));
        assert_eq!(allowed(json!({"minAvailable": "50%"}), 3, 3), (2, 1));
        assert_eq!(allowed(json!({"maxUnavailable": "34%"}), 3, 3), (1, 2));
        assert_eq!(allowed(json!({"maxUnavailable": 1}), 2, 3), (2, 0));
        assert_eq!(allowed(json!({"maxUnavailable": 5}), 3, 3), (0, 3));
        assert_eq!(allowed(json!({"minAvailable": 0}), 0, 0), (0, 0));
    }

    #[test]
    fn granted_evictions_count_for_two_minutes() {
        let granted = json!({"disruptedPods": {"0": "1970-01-01T00:00:00Z", "gone": "1970-01-01T00:00:00Z"}});
        let budget = budget(json!({"minAvailable": 1}), granted);
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let (status, next) = super::status(&budget, &pods(3), 3, at(10));
        assert_eq!((status.current_healthy, status.disruptions_allowed), (Some(2), Some(1)));
        assert_eq!((status.disrupted_pods.unwrap().len(), next), (1, Some(at(120))));
        assert_eq!(not_deleted(&budget, &pods(3), at(10)).count(), 0);
        assert_eq!(
            not_deleted(&budget, &pods(3), at(130)).map(|pod| pod.name_any()).collect::<Vec<_>>(),
            ["0"]
        );
        let (status, _) = super::status(&budget, &pods(3), 3, at(130));
        assert_eq!((status.current_healthy, status.disrupted_pods), (Some(3), None));
        assert_eq!(status.conditions.unwrap()[0].reason, "SufficientPods");
    }
}
