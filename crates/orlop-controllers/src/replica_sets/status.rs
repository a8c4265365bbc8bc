//! The status of a ReplicaSet. Pure.

use std::sync::Arc;

use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};

use super::kind::{Condition, Replicated, Status};
use crate::workload::{
    pods::{self, Availability},
    selector::Labels,
    time::seconds,
};

/// Type of the condition that pods could not be created or deleted.
pub(crate) const REPLICA_FAILURE: &str = "ReplicaFailure";

/// Returns the status, and the time at which another pod becomes available. `failure` is the reason and message of
/// a failed create or delete.
pub(super) fn calculate<K: Replicated>(
    set: &K,
    claimed: &[Arc<Pod>],
    failure: Option<(&'static str, String)>,
    now: Timestamp,
) -> (Status, Option<Timestamp>) {
    let template_labels = set.template().metadata.and_then(|meta| meta.labels).unwrap_or_default();
    let template_labels = Labels::of_map(&template_labels);
    let old = set.status();
    let mut status = Status {
        observed_generation: set.meta().generation.unwrap_or(0).max(old.observed_generation),
        terminating: K::HAS_TERMINATING.then_some(0),
        ..Status::default()
    };
    let mut next = None;
    for pod in claimed {
        if pods::is_terminating(pod)
            && let Some(terminating) = &mut status.terminating
        {
            *terminating += 1;
        }
        if !pods::is_active(pod) {
            continue;
        }
        status.replicas += 1;
        if template_labels.selects(&**pod) {
            status.fully_labeled += 1;
        }
        match pods::availability(pod, set.min_ready_seconds(), now) {
            Availability::Unavailable => {}
            Availability::Available => {
                status.ready += 1;
                status.available += 1;
            }
            Availability::At(at) => {
                status.ready += 1;
                next = Some(next.map_or(at, |next: Timestamp| next.min(at)));
            }
        }
    }
    status.conditions = conditions(old.conditions, failure, now);
    (status, next)
}

fn conditions(
    mut conditions: Vec<Condition>,
    failure: Option<(&'static str, String)>,
    now: Timestamp,
) -> Vec<Condition> {
    let known = conditions.iter().position(|condition| condition.type_ == REPLICA_FAILURE);
    match (failure, known) {
        (None, Some(known)) => drop(conditions.remove(known)),
        // One failure is reported until it is over.
        (Some(_), Some(_)) | (None, None) => {}
        (Some((reason, message)), None) => conditions.push(Condition {
            type_: REPLICA_FAILURE.to_owned(),
            status: "True".to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message),
            last_transition_time: Some(Time(seconds(now))),
        }),
    }
    conditions
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::ReplicaSet;
    use serde_json::json;

    use super::*;

    fn set() -> ReplicaSet {
        serde_json::from_value(json!({
            "metadata": {"name": "web", "generation": 3},
            "spec": {"replicas": 3, "minReadySeconds": 10, "selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": {"labels": {"app": "web", "tier": "a"}}}}
        }))
        .unwrap()
    }

    fn pod(value: serde_json::Value) -> Arc<Pod> {
        Arc::new(serde_json::from_value(value).unwrap())
    }

    fn ready(labels: serde_json::Value, since: &str) -> Arc<Pod> {
        pod(json!({"metadata": {"labels": labels}, "status": {"phase": "Running",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": since}]}}))
    }

    #[test]
    fn status_counts_as_kubernetes_does() {
        let now: Timestamp = "2026-01-01T00:01:00Z".parse().unwrap();
        let pods = [
            ready(json!({"app": "web", "tier": "a"}), "2026-01-01T00:00:00Z"),
            ready(json!({"app": "web"}), "2026-01-01T00:00:55Z"),
            pod(json!({"metadata": {"labels": {"app": "web"}, "deletionTimestamp": "2026-01-01T00:00:00Z"}})),
            pod(json!({"metadata": {"labels": {"app": "web"}}, "status": {"phase": "Failed"}})),
        ];
        let (status, next) = calculate(&set(), &pods, None, now);
        let counts =
            (status.replicas, status.fully_labeled, status.ready, status.available, status.terminating);
        assert_eq!(counts, (2, 1, 2, 1, Some(1)));
        assert_eq!(status.observed_generation, 3);
        assert_eq!(next, Some("2026-01-01T00:01:05Z".parse().unwrap()));
    }

    #[test]
    fn replica_failure_comes_and_goes() {
        let now = Timestamp::UNIX_EPOCH;
        let failed = conditions(Vec::new(), Some(("FailedCreate", "quota".to_owned())), now);
        assert_eq!(failed[0].reason.as_deref(), Some("FailedCreate"));
        assert_eq!(conditions(failed.clone(), Some(("FailedDelete", "other".to_owned())), now), failed);
        assert!(conditions(failed, None, now).is_empty());
    }
}
