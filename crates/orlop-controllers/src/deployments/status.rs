//! Status and conditions of a Deployment. Pure.

use std::sync::Arc;

use k8s_openapi::{
    api::apps::v1::{Deployment, DeploymentCondition, DeploymentStatus, ReplicaSet},
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::Timestamp,
};
use orlop_client::ResourceExt;

use super::{
    sets::{actual, available, size, total},
    strategy::{max_unavailable, progress_deadline, replicas},
};
use crate::{
    replica_sets::REPLICA_FAILURE,
    runtime::Action,
    workload::time::{plus_seconds, seconds, until},
};

const PROGRESSING: &str = "Progressing";
const NEW_SET_AVAILABLE: &str = "NewReplicaSetAvailable";
const TIMED_OUT: &str = "ProgressDeadlineExceeded";
const PAUSED: &str = "DeploymentPaused";

/// A new condition.
pub(super) fn condition(
    type_: &str,
    status: &str,
    reason: &str,
    message: String,
    now: Timestamp,
) -> DeploymentCondition {
    let now = Some(Time(seconds(now)));
    DeploymentCondition {
        type_: Some(type_.to_owned()),
        status: Some(status.to_owned()),
        reason: Some(reason.to_owned()),
        message: Some(message),
        last_update_time: now.clone(),
        last_transition_time: now,
    }
}

/// A new condition Progressing.
pub(super) fn progressing(
    status: &str,
    reason: &str,
    message: String,
    now: Timestamp,
) -> DeploymentCondition {
    condition(PROGRESSING, status, reason, message, now)
}

fn find<'a>(status: Option<&'a DeploymentStatus>, type_: &str) -> Option<&'a DeploymentCondition> {
    status?.conditions.as_ref()?.iter().find(|condition| condition.type_.as_deref() == Some(type_))
}

fn remove(status: &mut DeploymentStatus, type_: &str) {
    if let Some(conditions) = &mut status.conditions {
        conditions.retain(|condition| condition.type_.as_deref() != Some(type_));
    }
}

/// Sets a condition, unless it has that status and reason already.
pub(super) fn set(status: &mut DeploymentStatus, mut condition: DeploymentCondition) {
    let type_ = condition.type_.clone().unwrap_or_default();
    if let Some(known) = find(Some(status), &type_) {
        if known.status == condition.status && known.reason == condition.reason {
            return;
        }
        if known.status == condition.status {
            condition.last_transition_time.clone_from(&known.last_transition_time);
        }
    }
    remove(status, &type_);
    status.conditions.get_or_insert_default().push(condition);
}

/// Notes that the Deployment was paused or resumed, so that the time in between does not count as no progress.
pub(super) fn note_pause(deployment: &mut Deployment, now: Timestamp) {
    if progress_deadline(deployment).is_none() {
        return;
    }
    let is_paused = deployment.spec.paused == Some(true);
    let reason = find(deployment.status.as_ref(), PROGRESSING).and_then(|known| known.reason.as_deref());
    let (reason, message) = match (is_paused, reason) {
        (_, Some(TIMED_OUT)) | (true, Some(PAUSED)) => return,
        (true, _) => (PAUSED, "Deployment is paused"),
        (false, Some(PAUSED)) => ("DeploymentResumed", "Deployment is resumed"),
        (false, _) => return,
    };
    let condition = progressing("Unknown", reason, message.to_owned(), now);
    set(deployment.status.get_or_insert_default(), condition);
}

/// Returns whether the Deployment is what it should be.
pub(super) fn is_complete(deployment: &Deployment, status: &DeploymentStatus) -> bool {
    let wanted = replicas(deployment);
    status.updated_replicas.unwrap_or(0) == wanted
        && status.replicas.unwrap_or(0) == wanted
        && status.available_replicas.unwrap_or(0) == wanted
        && status.observed_generation >= deployment.metadata.generation
}

/// Returns whether the new status is a step forward.
fn has_progressed(old: &DeploymentStatus, new: &DeploymentStatus) -> bool {
    let count = |number: Option<i32>| number.unwrap_or(0);
    let outdated = |status: &DeploymentStatus| count(status.replicas) - count(status.updated_replicas);
    count(new.updated_replicas) > count(old.updated_replicas)
        || outdated(new) < outdated(old)
        || count(new.ready_replicas) > count(old.ready_replicas)
        || count(new.available_replicas) > count(old.available_replicas)
}

fn has_timed_out(status: &DeploymentStatus, deadline_s: i32, now: Timestamp) -> bool {
    let Some(condition) = find(Some(status), PROGRESSING) else { return false };
    match condition.reason.as_deref() {
        Some(NEW_SET_AVAILABLE) => false,
        Some(TIMED_OUT) => true,
        _ => condition
            .last_update_time
            .as_ref()
            .is_some_and(|updated| plus_seconds(updated.0, deadline_s.into()) < now),
    }
}

/// Returns the counts of ReplicaSets and the condition Available.
fn calculate(
    deployment: &Deployment,
    all: &[Arc<ReplicaSet>],
    new: Option<&ReplicaSet>,
    now: Timestamp,
) -> DeploymentStatus {
    let old = deployment.status.clone().unwrap_or_default();
    let sum = |count: fn(&ReplicaSet) -> i32| total(all.iter().map(|set| &**set), count);
    let nonzero = |count: i32| (count != 0).then_some(count);
    let ready = |set: &ReplicaSet| set.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or(0);
    // Unknown as soon as it is unknown for one.
    let terminating =
        all.iter().map(|set| set.status.as_ref().and_then(|status| status.terminating_replicas));
    let terminating: Option<Vec<i32>> = terminating.collect();
    let available = sum(available);
    let mut status = DeploymentStatus {
        observed_generation: deployment.metadata.generation,
        replicas: nonzero(sum(actual)),
        updated_replicas: nonzero(new.map_or(0, actual)),
        ready_replicas: nonzero(sum(ready)),
        available_replicas: nonzero(available),
        unavailable_replicas: nonzero((sum(size) - available).max(0)),
        terminating_replicas: terminating.map(|counts| counts.into_iter().sum()),
        collision_count: old.collision_count,
        conditions: old.conditions,
    };
    let is_available = available >= replicas(deployment) - max_unavailable(deployment);
    let (state, reason, message) = match is_available {
        true => ("True", "MinimumReplicasAvailable", "Deployment has minimum availability."),
        false => ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability."),
    };
    set(&mut status, condition("Available", state, reason, message.to_owned(), now));
    status
}

/// Brings counts and availability up to date.
pub(super) fn update(
    deployment: &mut Deployment,
    all: &[Arc<ReplicaSet>],
    new: Option<&ReplicaSet>,
    now: Timestamp,
) {
    deployment.status = Some(calculate(deployment, all, new, now));
}

/// Brings the whole status up to date during a rollout. Returns when its progress is checked next.
pub(super) fn update_rollout(
    deployment: &mut Deployment,
    all: &[Arc<ReplicaSet>],
    new: Option<&ReplicaSet>,
    now: Timestamp,
) -> Action {
    let old = deployment.status.clone().unwrap_or_default();
    let mut status = calculate(deployment, all, new, now);
    let deadline = progress_deadline(deployment);
    let current = find(Some(&old), PROGRESSING).cloned();
    let was_complete = status.replicas == status.updated_replicas
        && current.as_ref().is_some_and(|current| current.reason.as_deref() == Some(NEW_SET_AVAILABLE));
    let subject = match new {
        Some(new) => format!("ReplicaSet {:?}", new.name_any()),
        None => format!("Deployment {:?}", deployment.name_any()),
    };
    match deadline {
        None => remove(&mut status, PROGRESSING),
        Some(_) if was_complete => {}
        Some(_) if is_complete(deployment, &status) => {
            let message = format!("{subject} has successfully progressed.");
            set(&mut status, progressing("True", NEW_SET_AVAILABLE, message, now));
        }
        Some(_) if has_progressed(&old, &status) => {
            let message = format!("{subject} is progressing.");
            let mut progress = progressing("True", "ReplicaSetUpdated", message, now);
            if let Some(current) =
                current.as_ref().filter(|current| current.status.as_deref() == Some("True"))
            {
                progress.last_transition_time.clone_from(&current.last_transition_time);
            }
            remove(&mut status, PROGRESSING);
            set(&mut status, progress);
        }
        Some(deadline_s) if has_timed_out(&status, deadline_s, now) => {
            let message = format!("{subject} has timed out progressing.");
            set(&mut status, progressing("False", TIMED_OUT, message, now));
        }
        Some(_) => {}
    }
    match replica_failure(all, new) {
        Some(failure) => set(&mut status, failure),
        None => remove(&mut status, REPLICA_FAILURE),
    }
    let next = next_check(deployment, &status, deadline, now);
    deployment.status = Some(status);
    next
}

/// Returns the failure of the new ReplicaSet to create pods, or else that of another.
fn replica_failure(all: &[Arc<ReplicaSet>], new: Option<&ReplicaSet>) -> Option<DeploymentCondition> {
    let mut sets = new.into_iter().chain(all.iter().map(|set| &**set));
    sets.find_map(|set| {
        let conditions = set.status.as_ref()?.conditions.as_ref()?;
        let failure =
            conditions.iter().find(|condition| condition.type_.as_deref() == Some(REPLICA_FAILURE))?.clone();
        Some(DeploymentCondition {
            type_: failure.type_,
            status: failure.status,
            reason: failure.reason,
            message: failure.message,
            last_update_time: failure.last_transition_time.clone(),
            last_transition_time: failure.last_transition_time,
        })
    })
}

/// Returns when the progress deadline must be checked.
fn next_check(
    deployment: &Deployment,
    status: &DeploymentStatus,
    deadline: Option<i32>,
    now: Timestamp,
) -> Action {
    let (Some(deadline_s), Some(current)) = (deadline, find(Some(status), PROGRESSING)) else {
        return Action::Done;
    };
    let is_over = matches!(current.reason.as_deref(), Some(TIMED_OUT | NEW_SET_AVAILABLE));
    if is_over || is_complete(deployment, status) {
        return Action::Done;
    }
    let Some(updated) = &current.last_update_time else { return Action::Done };
    let due = plus_seconds(updated.0, i64::from(deadline_s) + 1);
    Action::After(until(due, now))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployment(status: serde_json::Value) -> Deployment {
        serde_json::from_value(json!({"metadata": {"name": "web", "generation": 2},
            "spec": {"replicas": 2, "selector": {}, "template": {}, "progressDeadlineSeconds": 60},
            "status": status}))
        .unwrap()
    }

    fn set_of(replicas: i32, available: i32) -> Arc<ReplicaSet> {
        let set = json!({"metadata": {"name": "web-1"}, "spec": {"replicas": replicas, "selector": {}},
            "status": {"replicas": replicas, "readyReplicas": available, "availableReplicas": available,
                "terminatingReplicas": 0}});
        Arc::new(serde_json::from_value(set).unwrap())
    }

    fn reasons(deployment: &Deployment) -> Vec<(String, String)> {
        let conditions = deployment.status.clone().unwrap().conditions.unwrap();
        let mut reasons: Vec<_> = conditions
            .into_iter()
            .map(|known| (known.status.unwrap_or_default(), known.reason.unwrap_or_default()))
            .collect();
        reasons.sort();
        reasons
    }

    fn pair(status: &str, reason: &str) -> (String, String) {
        (status.to_owned(), reason.to_owned())
    }

    #[test]
    fn rollout_progresses_completes_and_times_out() {
        let at = |second: i64| Timestamp::from_second(1_000_000 + second).unwrap();
        let mut web = deployment(json!({}));
        let created = progressing("True", "NewReplicaSetCreated", "…".to_owned(), at(0));
        set(web.status.as_mut().unwrap(), created);
        let new = set_of(2, 0);
        let next = update_rollout(&mut web, std::slice::from_ref(&new), Some(&new), at(1));
        assert_eq!(
            reasons(&web),
            [pair("False", "MinimumReplicasUnavailable"), pair("True", "ReplicaSetUpdated")]
        );
        assert_eq!(next, Action::After(std::time::Duration::from_secs(61)));

        let mut late = web.clone();
        update_rollout(&mut late, std::slice::from_ref(&new), Some(&new), at(70));
        assert!(reasons(&late).contains(&pair("False", TIMED_OUT)));
        let timed_out = find(late.status.as_ref(), PROGRESSING).unwrap();
        assert_eq!(timed_out.message.as_deref(), Some("ReplicaSet \"web-1\" has timed out progressing."));

        let new = set_of(2, 2);
        let next = update_rollout(&mut web, std::slice::from_ref(&new), Some(&new), at(5));
        assert_eq!(
            reasons(&web),
            [pair("True", "MinimumReplicasAvailable"), pair("True", NEW_SET_AVAILABLE)]
        );
        assert_eq!(next, Action::Done);
        let status = web.status.unwrap();
        assert_eq!(
            (status.replicas, status.updated_replicas, status.unavailable_replicas),
            (Some(2), Some(2), None)
        );
        assert_eq!((status.terminating_replicas, status.observed_generation), (Some(0), Some(2)));
    }

    #[test]
    fn pause_and_resume_are_noted_once() {
        let now = Timestamp::UNIX_EPOCH;
        let mut web = deployment(json!({}));
        web.spec.paused = Some(true);
        note_pause(&mut web, now);
        assert_eq!(reasons(&web), [pair("Unknown", PAUSED)]);
        web.spec.paused = None;
        note_pause(&mut web, now);
        assert_eq!(reasons(&web), [pair("Unknown", "DeploymentResumed")]);
        let before = web.clone();
        note_pause(&mut web, now);
        assert_eq!(web, before);
    }
}
