//! The next steps of a StatefulSet. Pure.

use std::sync::Arc;

use k8s_openapi::{
    api::{
        apps::v1::{ControllerRevision, StatefulSet, StatefulSetStatus},
        core::v1::Pod,
    },
    jiff::Timestamp,
};
use orlop_client::ResourceExt;

use super::{identity, is_healthy};
use crate::workload::{
    int_or_percent::{Rounding, scaled},
    pods::{self, Availability},
};

/// Pods that are created or deleted in one step where order does not matter.
const BURST: usize = 500;

/// A step.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// Creates the pod of an ordinal, of the current revision or of the new one.
    Create {
        ordinal: i32,
        is_current: bool,
    },
    /// Creates claims that a pod waits for.
    CreateClaims(i32),
    Delete(Arc<Pod>),
    /// Restores the labels of a pod's identity.
    Repair(Arc<Pod>),
}

/// A StatefulSet and its pods.
pub(super) struct View<'a> {
    set: &'a StatefulSet,
    /// The pod of every ordinal.
    replicas: Vec<Option<Arc<Pod>>>,
    /// Pods beyond the range, the highest first.
    condemned: Vec<Arc<Pod>>,
    update: String,
    is_rollout: bool,
    now: Timestamp,
}

impl<'a> View<'a> {
    pub(super) fn new(
        set: &'a StatefulSet,
        members: &[Arc<Pod>],
        current: &ControllerRevision,
        update: &ControllerRevision,
        now: Timestamp,
    ) -> Self {
        let (start, count) = (identity::start(set), set.spec.replicas.unwrap_or(1).max(0));
        let mut replicas = vec![None; usize::try_from(count).unwrap_or(0)];
        let mut condemned = Vec::new();
        for pod in members {
            let Some(ordinal) = identity::ordinal(set, pod) else { continue };
            let place = usize::try_from(ordinal - start).ok().and_then(|index| replicas.get_mut(index));
            match place {
                Some(place) => *place = Some(pod.clone()),
                None => condemned.push(pod.clone()),
            }
        }
        condemned.sort_by_key(|pod| std::cmp::Reverse(identity::ordinal(set, pod)));
        let is_rollout = current.name_any() != update.name_any();
        Self { set, replicas, condemned, update: update.name_any(), is_rollout, now }
    }

    fn is_parallel(&self) -> bool {
        self.set.spec.pod_management_policy.as_deref() == Some("Parallel")
    }

    fn is_available(&self, pod: &Pod) -> bool {
        let min_ready = self.set.spec.min_ready_seconds.unwrap_or(0);
        is_healthy(pod) && pods::availability(pod, min_ready, self.now) == Availability::Available
    }

    fn partition(&self) -> usize {
        let rolling =
            self.set.spec.update_strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref());
        usize::try_from(rolling.and_then(|rolling| rolling.partition).unwrap_or(0)).unwrap_or(0)
    }

    fn is_on_delete(&self) -> bool {
        let strategy = self.set.spec.update_strategy.as_ref();
        strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("OnDelete")
    }

    /// Returns the steps to take now.
    pub(super) fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        let start = identity::start(self.set);
        for (index, replica) in self.replicas.iter().enumerate() {
            let ordinal = start + i32::try_from(index).unwrap_or(i32::MAX);
            let must_wait = match replica {
                None => {
                    let is_current = self.is_rollout && !self.is_on_delete() && index < self.partition();
                    steps.push(Step::Create { ordinal, is_current });
                    true
                }
                Some(pod) if pods::is_terminal(pod) => {
                    if !pods::is_deleting(pod) {
                        steps.push(Step::Delete(pod.clone()));
                    }
                    true
                }
                Some(pod) => {
                    if pods::phase(pod) == "Pending" && !pods::is_deleting(pod) {
                        steps.push(Step::CreateClaims(ordinal));
                    }
                    if !identity::is_labelled(pod) && !pods::is_deleting(pod) {
                        steps.push(Step::Repair(pod.clone()));
                    }
                    !self.is_available(pod)
                }
            };
            if must_wait && !self.is_parallel() {
                return steps;
            }
            if steps.len() >= BURST {
                return steps;
            }
        }
        if self.is_parallel() {
            let condemned = self.condemned.iter().filter(|pod| !pods::is_deleting(pod));
            steps.extend(condemned.take(BURST).cloned().map(Step::Delete));
        } else if let Some(pod) = self.condemned.first() {
            // One at a time. The pods in range are all available here. A pod that is not goes only when no lower one is
            // unavailable too.
            let lowest_unavailable = self.condemned.iter().rev().find(|pod| !self.is_available(pod));
            let is_blocked = !self.is_available(pod)
                && lowest_unavailable.is_some_and(|lowest| pods::uid(lowest) != pods::uid(pod));
            if !pods::is_deleting(pod) && !is_blocked {
                steps.push(Step::Delete(pod.clone()));
            }
            return steps;
        }
        if steps.iter().any(|step| matches!(step, Step::Create { .. } | Step::Delete(_))) {
            return steps;
        }
        steps.extend(self.updates());
        steps
    }

    /// Returns the pods of an old revision to delete, the highest ordinals first.
    fn updates(&self) -> Vec<Step> {
        if self.is_on_delete() {
            return Vec::new();
        }
        let rolling =
            self.set.spec.update_strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref());
        let count = i32::try_from(self.replicas.len()).unwrap_or(i32::MAX);
        let limit = rolling.and_then(|rolling| rolling.max_unavailable.as_ref());
        let limit = limit.map_or(1, |limit| scaled(limit, count, Rounding::Down).max(1));
        let pods = || self.replicas.iter().flatten();
        let unavailable = pods().filter(|pod| !self.is_available(pod)).count();
        let mut budget = usize::try_from(limit).unwrap_or(1).saturating_sub(unavailable);
        let mut steps = Vec::new();
        for (index, replica) in self.replicas.iter().enumerate().rev() {
            let Some(pod) = replica else { continue };
            let is_old = identity::revision(pod) != Some(self.update.as_str());
            if index < self.partition() || !is_old || pods::is_deleting(pod) {
                continue;
            }
            // An unavailable old pod costs nothing more.
            let is_free = self.is_parallel() && !self.is_available(pod);
            if is_free || budget > 0 {
                budget -= usize::from(!is_free);
                steps.push(Step::Delete(pod.clone()));
            }
        }
        steps
    }
}

/// Returns the status, and the time at which another pod becomes available.
pub(super) fn status(
    set: &StatefulSet,
    members: &[Arc<Pod>],
    current: &ControllerRevision,
    update: &ControllerRevision,
    now: Timestamp,
) -> (StatefulSetStatus, Option<Timestamp>) {
    let (mut replicas, mut ready, mut available, mut of_current, mut of_update) = (0, 0, 0, 0, 0);
    let mut next: Option<Timestamp> = None;
    for pod in members {
        replicas += 1;
        if pods::phase(pod) == "Running" && pods::is_ready(pod) {
            ready += 1;
            match pods::availability(pod, set.spec.min_ready_seconds.unwrap_or(0), now) {
                Availability::Available => available += 1,
                Availability::At(at) => next = Some(next.map_or(at, |next| next.min(at))),
                Availability::Unavailable => {}
            }
        }
        if !pods::is_deleting(pod) {
            let revision = identity::revision(pod).unwrap_or_default();
            of_current += i32::from(revision == current.name_any());
            of_update += i32::from(revision == update.name_any());
        }
    }
    let wanted = set.spec.replicas.unwrap_or(1);
    let old = set.status.clone().unwrap_or_default();
    let is_on_delete =
        set.spec.update_strategy.as_ref().and_then(|strategy| strategy.type_.as_deref()) == Some("OnDelete");
    let is_done = !is_on_delete && of_update == wanted && ready == wanted && replicas == wanted;
    let nonzero = |count: i32| (count != 0).then_some(count);
    let status = StatefulSetStatus {
        replicas,
        ready_replicas: nonzero(ready),
        available_replicas: Some(available),
        current_replicas: nonzero(if is_done { of_update } else { of_current }),
        updated_replicas: nonzero(of_update),
        current_revision: Some(if is_done { update.name_any() } else { current.name_any() }),
        update_revision: Some(update.name_any()),
        collision_count: old.collision_count.or(Some(0)),
        observed_generation: set.metadata.generation,
        conditions: old.conditions,
    };
    (status, next)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn set(replicas: i32, change: Value) -> StatefulSet {
        let mut spec = json!({"replicas": replicas, "selector": {"matchLabels": {"app": "db"}}, "serviceName": "db",
            "template": {}, "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}});
        for (key, value) in change.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        serde_json::from_value(json!({"metadata": {"name": "db"}, "spec": spec})).unwrap()
    }

    fn pod(ordinal: i32, revision: &str, is_ready: bool) -> Arc<Pod> {
        let name = format!("db-{ordinal}");
        let status = if is_ready { "True" } else { "False" };
        let pod = json!({"metadata": {"name": name, "uid": name,
            "labels": {identity::REVISION: revision, "statefulset.kubernetes.io/pod-name": name}},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": status}]}});
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    fn revision(name: &str) -> ControllerRevision {
        serde_json::from_value(json!({"metadata": {"name": name}, "data": {}, "revision": 1})).unwrap()
    }

    fn steps(set: &StatefulSet, pods: &[Arc<Pod>]) -> Vec<String> {
        let view = View::new(set, pods, &revision("one"), &revision("two"), Timestamp::UNIX_EPOCH);
        let text = |step: Step| match step {
            Step::Create { ordinal, is_current } => format!("create {ordinal} {is_current}"),
            Step::Delete(pod) => format!("delete {}", pod.name_any()),
            Step::CreateClaims(ordinal) => format!("claims {ordinal}"),
            Step::Repair(pod) => format!("repair {}", pod.name_any()),
        };
        view.steps().into_iter().map(text).collect()
    }

    #[test]
    fn pods_come_in_order_and_wait_for_each_other() {
        let set = set(3, json!({}));
        assert_eq!(steps(&set, &[]), ["create 0 false"]);
        assert!(steps(&set, &[pod(0, "two", false)]).is_empty());
        assert_eq!(steps(&set, &[pod(0, "two", true)]), ["create 1 false"]);
    }

    #[test]
    fn parallel_pods_do_not_wait() {
        let set = set(3, json!({"podManagementPolicy": "Parallel"}));
        assert_eq!(steps(&set, &[pod(1, "two", false)]), ["create 0 false", "create 2 false"]);
    }

    #[test]
    fn surplus_pods_go_one_at_a_time_the_highest_first() {
        let set = set(1, json!({}));
        let pods = [pod(0, "two", true), pod(1, "two", true), pod(2, "two", true)];
        assert_eq!(steps(&set, &pods), ["delete db-2"]);
        assert!(steps(&set, &[pod(0, "two", false), pods[1].clone()]).is_empty(), "a lower pod is unhealthy");
        let middle = [pods[0].clone(), pod(1, "two", false), pods[2].clone()];
        assert_eq!(steps(&set, &middle), ["delete db-2"], "a surplus pod does not hold up a healthy one");
        let both = [pods[0].clone(), pod(1, "two", false), pod(2, "two", false)];
        assert!(steps(&set, &both).is_empty(), "the lowest unavailable one comes first");
        assert_eq!(steps(&set, &[pods[0].clone(), pod(2, "two", false)]), ["delete db-2"]);
    }

    #[test]
    fn update_begins_at_the_end_and_keeps_the_partition() {
        let pods = [pod(0, "one", true), pod(1, "one", true), pod(2, "one", true)];
        assert_eq!(steps(&set(3, json!({})), &pods), ["delete db-2"]);
        let partition =
            json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}});
        assert_eq!(steps(&set(3, partition.clone()), &pods), ["delete db-2"]);
        let done = [pods[0].clone(), pods[1].clone(), pod(2, "two", true)];
        assert!(steps(&set(3, partition.clone()), &done).is_empty());
        assert_eq!(
            steps(&set(3, partition), &done[1..]),
            ["create 0 true"],
            "below the partition: the old revision"
        );
        let two =
            json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2}}});
        assert_eq!(steps(&set(3, two), &pods), ["delete db-2", "delete db-1"]);
        assert!(steps(&set(3, json!({"updateStrategy": {"type": "OnDelete"}})), &pods).is_empty());
    }

    #[test]
    fn ordinals_may_start_elsewhere() {
        let set = set(2, json!({"ordinals": {"start": 5}}));
        assert_eq!(steps(&set, &[]), ["create 5 false"]);
        assert_eq!(
            steps(&set, &[pod(0, "two", true), pod(5, "two", true), pod(6, "two", true)]),
            ["delete db-0"]
        );
    }

    #[test]
    fn finished_rollout_makes_the_new_revision_current() {
        let set = set(2, json!({}));
        let half = [pod(0, "one", true), pod(1, "two", true)];
        let (status, _) = status(&set, &half, &revision("one"), &revision("two"), Timestamp::UNIX_EPOCH);
        assert_eq!((status.current_replicas, status.updated_replicas), (Some(1), Some(1)));
        assert_eq!(status.current_revision.as_deref(), Some("one"));
        let all = [pod(0, "two", true), pod(1, "two", true)];
        let (status, _) =
            super::status(&set, &all, &revision("one"), &revision("two"), Timestamp::UNIX_EPOCH);
        assert_eq!((status.current_replicas, status.current_revision.as_deref()), (Some(2), Some("two")));
    }
}
