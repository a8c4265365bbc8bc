//! Order in which surplus pods are deleted. Pure.

use std::{cmp::Ordering, collections::HashMap, sync::Arc};

use k8s_openapi::{api::core::v1::Pod, jiff::Timestamp};

use crate::workload::pods;

/// Annotation with the cost of deleting a pod, relative to others of its set.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// Returns the `count` pods to delete first. `siblings` are the active pods of related sets, this one's included.
pub(super) fn choose(
    active: &[Arc<Pod>],
    siblings: &[Arc<Pod>],
    count: usize,
    now: Timestamp,
) -> Vec<Arc<Pod>> {
    let mut on_node: HashMap<&str, usize> = HashMap::new();
    for pod in siblings {
        *on_node.entry(pods::node_name(pod).unwrap_or_default()).or_default() += 1;
    }
    let rank = |pod: &Pod| on_node.get(pods::node_name(pod).unwrap_or_default()).copied().unwrap_or(0);
    let mut ranked = active.to_vec();
    ranked.sort_by(|one, other| compare(one, other, rank(one), rank(other), now));
    ranked.truncate(count);
    ranked
}

fn compare(one: &Pod, other: &Pod, rank_one: usize, rank_other: usize, now: Timestamp) -> Ordering {
    let is_assigned = |pod: &Pod| pods::node_name(pod).is_some();
    is_assigned(one)
        .cmp(&is_assigned(other))
        .then_with(|| phase_order(one).cmp(&phase_order(other)))
        .then_with(|| pods::is_ready(one).cmp(&pods::is_ready(other)))
        .then_with(|| deletion_cost(one).cmp(&deletion_cost(other)))
        .then_with(|| rank_other.cmp(&rank_one))
        .then_with(|| match pods::is_ready(one) && pods::is_ready(other) {
            true => younger_first(pods::ready_since(one), pods::ready_since(other), one, other, now),
            false => Ordering::Equal,
        })
        .then_with(|| restarts(other).cmp(&restarts(one)))
        .then_with(|| younger_first(created(one), created(other), one, other, now))
}

fn phase_order(pod: &Pod) -> u8 {
    match pods::phase(pod) {
        "Running" => 2,
        "Unknown" => 1,
        _ => 0,
    }
}

fn deletion_cost(pod: &Pod) -> i32 {
    let cost = pod.metadata.annotations.as_ref().and_then(|annotations| annotations.get(DELETION_COST));
    cost.and_then(|cost| cost.parse().ok()).unwrap_or(0)
}

/// Returns the most restarts of a container, then of a sidecar.
fn restarts(pod: &Pod) -> (i32, i32) {
    let status = pod.status.as_ref();
    let most = |statuses: Option<&Vec<k8s_openapi::api::core::v1::ContainerStatus>>| {
        statuses.into_iter().flatten().map(|status| status.restart_count).max().unwrap_or(0)
    };
    let sidecars = pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten());
    let has_sidecar =
        sidecars.into_iter().any(|container| container.restart_policy.as_deref() == Some("Always"));
    let containers = most(status.and_then(|status| status.container_statuses.as_ref()));
    let init = most(status.and_then(|status| status.init_container_statuses.as_ref()));
    (containers, if has_sidecar { init } else { 0 })
}

fn created(pod: &Pod) -> Option<Timestamp> {
    pod.metadata.creation_timestamp.as_ref().map(|time| time.0)
}

/// Compares ages in logarithmic steps, so that the victims among pods of about one age are spread.
fn younger_first(
    one: Option<Timestamp>,
    other: Option<Timestamp>,
    pod: &Pod,
    other_pod: &Pod,
    now: Timestamp,
) -> Ordering {
    match (one, other) {
        (one, other) if one == other => Ordering::Equal,
        (None, _) => Ordering::Less,
        (_, None) => Ordering::Greater,
        (Some(one), Some(other)) => {
            let step = |time: Timestamp| match now.duration_since(time).as_secs() {
                ..=0 => -1,
                age_s => i64::from(age_s.ilog2()),
            };
            step(one).cmp(&step(other)).then_with(|| pods::uid(pod).cmp(pods::uid(other_pod)))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(uid: &str, node: &str, phase: &str, ready: bool, age_s: i64, cost: i32) -> Arc<Pod> {
        let at = (Timestamp::from_second(1_000_000 - age_s).unwrap()).to_string();
        let status = if ready { "True" } else { "False" };
        let pod = json!({
            "metadata": {"uid": uid, "name": uid, "creationTimestamp": at,
                "annotations": {DELETION_COST: cost.to_string()}},
            "spec": {"nodeName": node, "containers": []},
            "status": {"phase": phase,
                "conditions": [{"type": "Ready", "status": status, "lastTransitionTime": at}]},
        });
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    fn order(pods: &[Arc<Pod>]) -> Vec<&str> {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let chosen = choose(pods, pods, pods.len(), now);
        let uids: Vec<String> = chosen.iter().map(|pod| pods::uid(pod).to_owned()).collect();
        uids.iter()
            .map(|uid| pods.iter().map(|pod| pods::uid(pod)).find(|known| known == uid).unwrap())
            .collect()
    }

    #[test]
    fn victims_come_in_kubernetes_order() {
        let pods = [
            pod("old", "a", "Running", true, 10_000, 0),
            pod("young", "b", "Running", true, 5, 0),
            pod("cheap", "c", "Running", true, 10_000, -5),
            pod("unready", "d", "Running", false, 10_000, 0),
            pod("pending", "e", "Pending", false, 10_000, 0),
            pod("unassigned", "", "Pending", false, 10_000, 0),
        ];
        assert_eq!(order(&pods), ["unassigned", "pending", "unready", "cheap", "young", "old"]);
    }

    #[test]
    fn crowded_node_loses_first() {
        let pods = [
            pod("alone", "a", "Running", true, 5, 0),
            pod("x", "b", "Running", true, 10_000, 0),
            pod("y", "b", "Running", true, 10_000, 0),
        ];
        assert_eq!(order(&pods)[..2], ["x", "y"]);
    }
}
