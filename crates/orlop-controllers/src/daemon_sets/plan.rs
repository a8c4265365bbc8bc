//! The pods that a DaemonSet needs and does not. Pure.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::{
    api::{
        apps::v1::{DaemonSet, DaemonSetStatus},
        core::v1::{Node, Pod},
    },
    jiff::Timestamp,
};
use orlop_client::ResourceExt;

use super::{REVISION, placement};
use crate::workload::{
    int_or_percent::{Rounding, scaled},
    pods::{self, Availability},
};

/// Changes.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Nodes that need a pod.
    pub(super) create: Vec<String>,
    pub(super) delete: Vec<Arc<Pod>>,
    /// Pods that have failed or succeeded, with their nodes: deleted once their back-off allows.
    pub(super) finished: Vec<(Arc<Pod>, String)>,
}

type ByNode<'a> = BTreeMap<String, Vec<&'a Arc<Pod>>>;

fn by_node(pods: &[Arc<Pod>]) -> ByNode<'_> {
    let mut by_node = ByNode::new();
    for pod in pods {
        if let Some(node) = placement::node_of(pod) {
            by_node.entry(node).or_default().push(pod);
        }
    }
    for pods in by_node.values_mut() {
        // Those that have a node come first.
        pods.sort_by_key(|pod| {
            let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
            (pods::node_name(pod).is_none(), created, pod.name_any())
        });
    }
    by_node
}

fn is_of(pod: &Pod, hash: &str) -> bool {
    pod.labels().get(REVISION).is_some_and(|own| own == hash)
}

fn is_available(set: &DaemonSet, pod: &Pod, now: Timestamp) -> bool {
    let min_ready = set.spec.min_ready_seconds.unwrap_or(0);
    pods::is_active(pod) && pods::availability(pod, min_ready, now) == Availability::Available
}

/// Returns maxSurge and maxUnavailable for a number of nodes. Not both are zero.
fn limits(set: &DaemonSet, desired: i32) -> (usize, usize) {
    let strategy = set.spec.update_strategy.as_ref();
    let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
    let surge = rolling.and_then(|rolling| rolling.max_surge.as_ref());
    let surge = surge.map_or(0, |surge| scaled(surge, desired, Rounding::Up));
    let unavailable = rolling.and_then(|rolling| rolling.max_unavailable.as_ref());
    let unavailable = unavailable.map_or(1, |unavailable| scaled(unavailable, desired, Rounding::Up));
    let count = |number: i32| usize::try_from(number).unwrap_or(0);
    if surge == 0 && unavailable == 0 { (0, 1) } else { (count(surge), count(unavailable)) }
}

/// Returns the changes to make.
pub(super) fn plan(
    set: &DaemonSet,
    nodes: &[Arc<Node>],
    owned: &[Arc<Pod>],
    hash: &str,
    now: Timestamp,
) -> Plan {
    let by_node = by_node(owned);
    let template = placement::template(set);
    let desired = nodes.iter().filter(|node| placement::should_run(&template, node).0).count();
    let (max_surge, max_unavailable) = limits(set, i32::try_from(desired).unwrap_or(i32::MAX));
    let mut plan = Plan::default();
    for node in nodes {
        let (runs, stays) = placement::should_run(&template, node);
        let name = node.name_any();
        let pods: &[&Arc<Pod>] = by_node.get(&name).map(Vec::as_slice).unwrap_or_default();
        let living = || pods.iter().filter(|pod| !pods::is_deleting(pod));
        if !stays {
            plan.delete.extend(living().map(|pod| Arc::clone(pod)));
            continue;
        }
        let (finished, active): (Vec<&Arc<Pod>>, Vec<&Arc<Pod>>) =
            living().copied().partition(|pod| pods::is_terminal(pod));
        plan.finished.extend(finished.into_iter().map(|pod| (Arc::clone(pod), name.clone())));
        // With surge a pod in deletion is replaced before it has gone.
        if runs && (pods.is_empty() || max_surge > 0 && active.is_empty()) {
            plan.create.push(name);
            continue;
        }
        if max_surge == 0 {
            // One pod a node: the oldest stays.
            plan.delete.extend(active.iter().skip(1).map(|pod| Arc::clone(pod)));
            continue;
        }
        // With surge an old and a new pod may be together, until the new one is available or the old one serves nobody.
        let (new, old): (Vec<&Arc<Pod>>, Vec<&Arc<Pod>>) =
            active.into_iter().partition(|pod| is_of(pod, hash));
        plan.delete.extend(new.iter().skip(1).chain(old.iter().skip(1)).map(|pod| Arc::clone(pod)));
        if let (Some(new), Some(old)) = (new.first(), old.first())
            && (is_available(set, new, now) || !pods::is_ready(old))
        {
            plan.delete.push(Arc::clone(old));
        }
    }
    // Pods of nodes that do not exist wait for garbage collection, unless they were never bound.
    for (name, pods) in &by_node {
        if !nodes.iter().any(|node| node.name_any() == *name) {
            let unbound = pods.iter().filter(|pod| pods::node_name(pod).is_none() && !pods::is_deleting(pod));
            plan.delete.extend(unbound.map(|pod| Arc::clone(pod)));
        }
    }
    let is_rolling =
        set.spec.update_strategy.as_ref().and_then(|strategy| strategy.type_.as_deref()) != Some("OnDelete");
    if is_rolling && plan.create.is_empty() && plan.delete.is_empty() {
        let places = nodes.iter().filter_map(|node| {
            let name = node.name_any();
            let pods = by_node.get(&name).map(Vec::as_slice).unwrap_or_default();
            let runs = placement::should_run(&template, node).0;
            (runs || !pods.is_empty()).then(|| Place::new(name, runs, pods, hash))
        });
        let places: Vec<Place<'_>> = places.collect();
        match max_surge {
            0 => plan.replace(set, &places, max_unavailable, now),
            _ => plan.surge(set, &places, max_surge, now),
        }
    }
    plan
}

/// A node that should run a pod or has one, during an update.
struct Place<'a> {
    node: String,
    /// It should run a pod. One that is there may stay in any case, until it is updated.
    runs: bool,
    new: Option<&'a Arc<Pod>>,
    old: Option<&'a Arc<Pod>>,
}

impl<'a> Place<'a> {
    fn new(node: String, runs: bool, pods: &[&'a Arc<Pod>], hash: &str) -> Self {
        let of = |is_new: bool| {
            pods.iter().copied().find(|pod| pods::is_active(pod) && is_of(pod, hash) == is_new)
        };
        Self { node, runs, new: of(true), old: of(false) }
    }
}

impl Plan {
    /// Deletes pods of an old revision within the limit. Others are created once they are gone.
    fn replace(&mut self, set: &DaemonSet, places: &[Place<'_>], max_unavailable: usize, now: Timestamp) {
        let mut candidates: Vec<&Arc<Pod>> = Vec::new();
        let mut unavailable = 0;
        for place in places {
            match (place.new, place.old) {
                (None, None) | (Some(_), Some(_)) => unavailable += 1,
                (Some(new), None) => unavailable += usize::from(!is_available(set, new, now)),
                (None, Some(old)) if is_available(set, old, now) => candidates.push(old),
                (None, Some(old)) => {
                    // It serves nobody: its replacement costs nothing.
                    self.delete.push(Arc::clone(old));
                    unavailable += 1;
                }
            }
        }
        let budget = max_unavailable.saturating_sub(unavailable);
        self.delete.extend(candidates.into_iter().take(budget).cloned());
    }

    /// Creates pods beside those of an old revision within the limit. The old ones go when the new ones are available, and
    /// those of nodes that should run none once enough others are.
    fn surge(&mut self, set: &DaemonSet, places: &[Place<'_>], max_surge: usize, now: Timestamp) {
        let (mut candidates, mut misplaced): (Vec<&str>, Vec<&Arc<Pod>>) = (Vec::new(), Vec::new());
        let (mut surging, mut available, mut desired) = (0, 0, 0);
        for place in places {
            desired += usize::from(place.runs);
            let is_served = place.old.or(place.new).is_some_and(|pod| is_available(set, pod, now));
            available += usize::from(is_served);
            match (place.new, place.old) {
                (_, None) => {}
                (Some(new), Some(_)) => surging += usize::from(!is_available(set, new, now)),
                // It serves nobody: its replacement is no surge.
                (None, Some(_)) if place.runs && !is_served => self.create.push(place.node.clone()),
                (None, Some(_)) if place.runs => candidates.push(&place.node),
                (None, Some(old)) if is_served => misplaced.push(old),
                (None, Some(old)) => self.delete.push(Arc::clone(old)),
            }
        }
        let surplus = available.saturating_sub(desired);
        self.delete.extend(misplaced.into_iter().take(surplus).cloned());
        let budget = max_surge.saturating_sub(surging);
        self.create.extend(candidates.into_iter().take(budget).map(str::to_owned));
    }
}

/// Returns the status, and the time at which another pod becomes available.
pub(super) fn status(
    set: &DaemonSet,
    nodes: &[Arc<Node>],
    owned: &[Arc<Pod>],
    hash: &str,
    now: Timestamp,
) -> (DaemonSetStatus, Option<Timestamp>) {
    let by_node = by_node(owned);
    let template = placement::template(set);
    let (mut desired, mut current, mut misscheduled, mut ready, mut updated, mut available) =
        (0, 0, 0, 0, 0, 0);
    let mut next: Option<Timestamp> = None;
    for node in nodes {
        let pods: &[&Arc<Pod>] = by_node.get(&node.name_any()).map(Vec::as_slice).unwrap_or_default();
        let is_scheduled = !pods.is_empty();
        if !placement::should_run(&template, node).0 {
            misscheduled += i32::from(is_scheduled);
            continue;
        }
        desired += 1;
        if !is_scheduled {
            continue;
        }
        current += 1;
        // The oldest pod counts, and of an update with surge the new one for being updated.
        if let Some(pod) = pods.iter().find(|pod| pods::is_ready(pod) && !pods::is_deleting(pod)) {
            ready += 1;
            match pods::availability(pod, set.spec.min_ready_seconds.unwrap_or(0), now) {
                Availability::Available => available += 1,
                Availability::At(at) => next = Some(next.map_or(at, |next| next.min(at))),
                Availability::Unavailable => {}
            }
        }
        updated += i32::from(pods.iter().any(|pod| is_of(pod, hash)));
    }
    let nonzero = |count: i32| (count != 0).then_some(count);
    let old = set.status.clone().unwrap_or_default();
    let status = DaemonSetStatus {
        desired_number_scheduled: desired,
        current_number_scheduled: current,
        number_misscheduled: misscheduled,
        number_ready: ready,
        updated_number_scheduled: nonzero(updated),
        number_available: nonzero(available),
        number_unavailable: nonzero(desired - available),
        observed_generation: set.metadata.generation,
        collision_count: old.collision_count,
        conditions: old.conditions,
    };
    (status, next)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn set(change: Value) -> DaemonSet {
        let mut spec = json!({"selector": {}, "template": {"spec": {"containers": []}},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}});
        for (key, value) in change.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        serde_json::from_value(json!({"metadata": {"name": "d"}, "spec": spec})).unwrap()
    }

    fn node(name: &str, taint: Option<(&str, &str)>) -> Arc<Node> {
        let taints: Vec<Value> =
            taint.iter().map(|(key, effect)| json!({"key": key, "effect": effect})).collect();
        let node = json!({"metadata": {"name": name, "labels": {"name": name}}, "spec": {"taints": taints}});
        Arc::new(serde_json::from_value(node).unwrap())
    }

    fn pod(name: &str, node: &str, hash: &str, ready: bool) -> Arc<Pod> {
        let status = if ready { "True" } else { "False" };
        let pod = json!({"metadata": {"name": name, "uid": name, "labels": {REVISION: hash}},
            "spec": {"nodeName": node, "containers": []},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": status}]}});
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    fn planned(set: &DaemonSet, nodes: &[Arc<Node>], pods: &[Arc<Pod>]) -> (Vec<String>, Vec<String>) {
        let plan = plan(set, nodes, pods, "new", Timestamp::UNIX_EPOCH);
        (plan.create, plan.delete.iter().map(|pod| pod.name_any()).collect())
    }

    #[test]
    fn every_suitable_node_gets_one_pod() {
        let nodes = [
            node("a", None),
            node("b", Some(("dedicated", "NoSchedule"))),
            node("c", Some(("node.kubernetes.io/unschedulable", "NoSchedule"))),
        ];
        let (create, _) = planned(&set(json!({})), &nodes, &[]);
        assert_eq!(create, ["a", "c"], "daemons run on cordoned nodes");
        let there = [pod("x", "a", "new", true), pod("y", "b", "new", true), pod("z", "c", "new", true)];
        assert_eq!(
            planned(&set(json!({})), &nodes, &there),
            (vec![], vec![]),
            "NoSchedule drives nobody out"
        );
        let driven = [node("a", Some(("bad", "NoExecute")))];
        assert_eq!(planned(&set(json!({})), &driven, &there[..1]).1, ["x"]);
        let selected = json!({"template": {"spec": {"containers": [], "nodeSelector": {"name": "other"}}}});
        assert_eq!(planned(&set(selected), &nodes[..1], &there[..1]).1, ["x"]);
        let two = [pod("x", "a", "new", true), pod("y", "a", "new", true)];
        assert_eq!(planned(&set(json!({})), &nodes[..1], &two).1, ["y"]);
    }

    #[test]
    fn update_keeps_its_limits() {
        let nodes: Vec<_> = ["a", "b", "c"].iter().map(|name| node(name, None)).collect();
        let old: Vec<_> = ["a", "b", "c"].iter().map(|name| pod(name, name, "old", true)).collect();
        assert_eq!(planned(&set(json!({})), &nodes, &old).1.len(), 1);
        let half = [old[0].clone(), old[1].clone(), pod("n", "c", "new", false)];
        assert_eq!(planned(&set(json!({})), &nodes, &half).1.len(), 0, "the new one is not available yet");
        let broken = [old[0].clone(), pod("b", "b", "old", false), old[2].clone()];
        assert_eq!(planned(&set(json!({})), &nodes, &broken).1, ["b"], "an unavailable one goes at once");
        let surge = set(json!({"updateStrategy": {"type": "RollingUpdate",
            "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}}));
        assert_eq!(planned(&surge, &nodes, &old).0.len(), 1);
        let together = [old[0].clone(), pod("n", "a", "new", true), old[1].clone(), old[2].clone()];
        assert_eq!(
            planned(&surge, &nodes, &together).1,
            ["a"],
            "the old one goes when the new one is available"
        );
        let failing =
            [pod("a", "a", "old", false), pod("n", "a", "new", false), old[1].clone(), old[2].clone()];
        assert_eq!(
            planned(&surge, &nodes, &failing).1,
            ["a"],
            "an old one that is not ready makes room at once"
        );
        let broken = [pod("a", "a", "old", false), old[1].clone(), old[2].clone()];
        assert_eq!(planned(&surge, &nodes, &broken).0, ["a", "b"], "its replacement is no surge");
        let mut leaving = Pod::clone(&old[0]);
        leaving.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Timestamp::UNIX_EPOCH));
        let leaving = [Arc::new(leaving), old[1].clone(), old[2].clone()];
        assert_eq!(
            planned(&surge, &nodes, &leaving).0,
            ["a"],
            "one in deletion is replaced before it has gone"
        );
        assert_eq!(planned(&set(json!({})), &nodes, &leaving), (vec![], vec![]), "or else when it has gone");
        let on_delete = set(json!({"updateStrategy": {"type": "OnDelete"}}));
        assert_eq!(planned(&on_delete, &nodes, &old), (vec![], vec![]));
    }

    #[test]
    fn update_removes_old_pods_from_nodes_that_should_run_none() {
        let nodes = [node("a", None), node("b", Some(("dedicated", "NoSchedule")))];
        let pods = [pod("a", "a", "new", true), pod("b", "b", "old", true)];
        assert_eq!(planned(&set(json!({})), &nodes, &pods), (vec![], vec!["b".to_owned()]));
        let surge = set(json!({"updateStrategy": {"type": "RollingUpdate",
            "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}}));
        assert_eq!(planned(&surge, &nodes, &pods).1, ["b"], "enough others are available");
        let starting = [pod("a", "a", "new", false), pods[1].clone()];
        assert_eq!(planned(&surge, &nodes, &starting), (vec![], vec![]), "it is the last that is available");
        let current = [pods[0].clone(), pod("b", "b", "new", true)];
        assert_eq!(
            planned(&set(json!({})), &nodes, &current),
            (vec![], vec![]),
            "NoSchedule drives nobody out"
        );
    }

    #[test]
    fn status_counts_nodes() {
        let nodes = [node("a", None), node("b", None), node("c", Some(("x", "NoSchedule")))];
        let pods = [pod("x", "a", "new", true), pod("z", "c", "old", true)];
        let (status, _) = status(&set(json!({})), &nodes, &pods, "new", Timestamp::UNIX_EPOCH);
        let counts =
            (status.desired_number_scheduled, status.current_number_scheduled, status.number_misscheduled);
        assert_eq!(counts, (2, 1, 1));
        assert_eq!(
            (status.number_ready, status.number_available, status.number_unavailable),
            (1, Some(1), Some(1))
        );
        assert_eq!(status.updated_number_scheduled, Some(1));
    }
}
