//! The decision on one pod. Pure.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use k8s_openapi::api::{
    core::v1::{Pod, PodSpec},
    policy::v1::PodDisruptionBudget,
};

use super::{
    affinity::{AffinityState, Namespaces},
    cluster::{Cluster, NodeInfo, PodInfo},
    filter::{Candidate, filter},
    preempt::{self, Victims},
    score,
    spread::SpreadState,
    volumes::{DelayedVolumes, Storage, VolumeNeeds},
};
use crate::workload::pods;

/// Decision on a pod.
#[derive(Debug)]
pub(super) enum Decision {
    /// It runs here.
    Bind { node: String, volumes: DelayedVolumes },
    /// No node can run it now.
    Unschedulable(Box<Failure>),
}

/// Reason that no node can run a pod.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) message: String,
    /// Pods that go so that it can run.
    pub(super) victims: Option<Victims>,
}

/// Decides on a pod.
pub(super) fn decide(
    pod: &Arc<Pod>,
    cluster: &Cluster,
    storage: &impl Storage,
    namespaces: &Namespaces,
    budgets: impl FnOnce() -> Vec<Arc<PodDisruptionBudget>>,
) -> Decision {
    let unschedulable = |message, victims| Decision::Unschedulable(Box::new(Failure { message, victims }));
    let all = cluster.nodes.len();
    if all == 0 {
        return unschedulable("no nodes available to schedule pods".to_owned(), None);
    }
    let info = PodInfo::new(pod.clone());
    let empty = PodSpec::default();
    let spec = pod.spec.as_ref().unwrap_or(&empty);
    let volumes = match VolumeNeeds::new(pod, storage, cluster) {
        Ok(volumes) => volumes,
        Err(reason) => {
            let preemption = histogram(all, BTreeMap::from([(NOT_HELPFUL.to_owned(), all)]), None);
            let message = format!("0/{all} nodes are available: {reason}. preemption: {preemption}");
            return unschedulable(message, None);
        }
    };
    let mut candidate = Candidate {
        affinity: AffinityState::new(&info, cluster, namespaces),
        spread: SpreadState::new(&info, spec, cluster),
        volumes,
        pod: &info,
        spec,
    };
    let mut feasible: Vec<&NodeInfo> = Vec::new();
    let mut curable: Vec<&NodeInfo> = Vec::new();
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    for node in cluster.nodes.values() {
        let seen: Cow<'_, NodeInfo> = cluster.node_for(&info, node);
        match filter(&candidate, &seen) {
            Ok(()) => feasible.push(node),
            Err(rejection) => {
                for reason in rejection.reasons {
                    *reasons.entry(reason).or_default() += 1;
                }
                if rejection.preemption_may_help {
                    curable.push(node);
                }
            }
        }
    }
    // The node that was made free for it comes first.
    let nominated = pod.status.as_ref().and_then(|status| status.nominated_node_name.as_deref());
    let kept = feasible.iter().find(|node| Some(node.name().as_str()) == nominated).copied();
    if let Some(best) = kept.or_else(|| score::best(&info, spec, &feasible, cluster, namespaces)) {
        let volumes = candidate.volumes.choose(&best.node).unwrap_or_default();
        return Decision::Bind { node: best.name(), volumes };
    }
    let (preemption, victims) = preempt(pod, &mut candidate, &curable, cluster, namespaces, budgets);
    unschedulable(histogram(all, reasons, preemption), victims)
}

const NOT_HELPFUL: &str = "Preemption is not helpful for scheduling";
const NO_VICTIMS: &str = "No preemption victims found for incoming pod";

/// Looks for pods that could go. Returns the text about it, and them.
fn preempt(
    pod: &Pod,
    candidate: &mut Candidate<'_>,
    curable: &[&NodeInfo],
    cluster: &Cluster,
    namespaces: &Namespaces,
    budgets: impl FnOnce() -> Vec<Arc<PodDisruptionBudget>>,
) -> (Option<String>, Option<Victims>) {
    let refused = |text: &str| (Some(format!("preemption: {text}")), None);
    if candidate.spec.preemption_policy.as_deref() == Some("Never") {
        return refused("not eligible due to preemptionPolicy=Never.");
    }
    let nominated = pod.status.as_ref().and_then(|status| status.nominated_node_name.as_deref());
    if let Some(info) = nominated.and_then(|name| cluster.nodes.get(name)) {
        let mut lower = info.pods.values().filter(|other| other.priority() < candidate.pod.priority());
        if lower.any(|other| pods::is_deleting(&other.pod)) {
            return refused("not eligible due to a terminating pod on the nominated node.");
        }
    }
    if !curable.is_empty()
        && let Some(victims) = preempt::choose(candidate, curable, cluster, namespaces, &budgets())
    {
        return (None, Some(victims));
    }
    let all = cluster.nodes.len();
    let counts = [(NO_VICTIMS, curable.len()), (NOT_HELPFUL, all - curable.len())];
    let counts = counts.into_iter().filter(|(_, count)| *count > 0);
    let counts = counts.map(|(reason, count)| (reason.to_owned(), count)).collect();
    refused(&histogram(all, counts, None))
}

/// Returns the message of kube-scheduler: how many nodes were rejected for which reason.
fn histogram(all: usize, reasons: BTreeMap<String, usize>, preemption: Option<String>) -> String {
    let mut parts: Vec<String> = reasons.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    parts.sort_unstable();
    let mut message = format!("0/{all} nodes are available:");
    if !parts.is_empty() {
        message.push_str(&format!(" {}.", parts.join(", ")));
    }
    if let Some(preemption) = preemption {
        message.push_str(&format!(" {preemption}"));
    }
    message
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::{
        core::v1::{Node, PersistentVolume, PersistentVolumeClaim},
        storage::v1::StorageClass,
    };
    use serde_json::{Value, json};

    use super::*;
    use crate::runtime::Key;

    struct NoStorage;

    impl Storage for NoStorage {
        fn claim(&self, _: &Key) -> Option<Arc<PersistentVolumeClaim>> {
            None
        }
        fn volume(&self, _: &str) -> Option<Arc<PersistentVolume>> {
            None
        }
        fn volumes(&self) -> Vec<Arc<PersistentVolume>> {
            Vec::new()
        }
        fn class(&self, _: &str) -> Option<Arc<StorageClass>> {
            None
        }
    }

    fn node(name: &str, change: Value) -> Arc<Node> {
        let mut node = json!({"metadata": {"name": name,
                "labels": {"kubernetes.io/hostname": name, "zone": name[..1].to_owned()}},
            "status": {"allocatable": {"cpu": "2", "memory": "4Gi", "pods": "10"}}});
        for (key, value) in change.as_object().into_iter().flatten() {
            node[key] = value.clone();
        }
        Arc::new(serde_json::from_value(node).unwrap())
    }

    fn pod(name: &str, spec: Value) -> Arc<Pod> {
        let mut whole = json!({"containers": [{"name": "a", "image": "b"}]});
        for (key, value) in spec.as_object().into_iter().flatten() {
            whole[key] = value.clone();
        }
        let pod = json!({"metadata": {"name": name, "uid": name, "namespace": "default", "labels": {"app": "web"}},
            "spec": whole});
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    fn cpu(amount: &str) -> Value {
        json!([{"name": "a", "resources": {"requests": {"cpu": amount}}}])
    }

    fn cluster(nodes: &[Arc<Node>], pods: &[Arc<Pod>]) -> Cluster {
        let mut cluster = Cluster::default();
        nodes.iter().for_each(|node| cluster.put_node(node.clone()));
        for pod in pods {
            cluster.put_pod(pod);
        }
        cluster
    }

    fn decision(pod: &Arc<Pod>, cluster: &Cluster) -> Decision {
        decide(pod, cluster, &NoStorage, &Namespaces::new(), Vec::new)
    }

    fn message(pod: &Arc<Pod>, cluster: &Cluster) -> String {
        match decision(pod, cluster) {
            Decision::Unschedulable(failure) => failure.message,
            other => panic!("{other:?}"),
        }
    }

    fn bound(pod: &Arc<Pod>, cluster: &Cluster) -> String {
        match decision(pod, cluster) {
            Decision::Bind { node, .. } => node,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn messages_match_kubernetes() {
        assert_eq!(message(&pod("p", json!({})), &cluster(&[], &[])), "no nodes available to schedule pods");
        let one = cluster(&[node("a", json!({}))], &[]);
        assert_eq!(
            message(&pod("p", json!({"containers": cpu("3")})), &one),
            "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 Preemption is not \
             helpful for scheduling."
        );
        let silent = cluster(&[node("a", json!({"status": {}}))], &[]);
        let text = message(&pod("p", json!({})), &silent);
        assert!(
            text.starts_with("0/1 nodes are available: 1 Too many pods. "),
            "no resources reported: {text}"
        );
        let full =
            cluster(&[node("a", json!({}))], &[pod("x", json!({"nodeName": "a", "containers": cpu("2")}))]);
        assert_eq!(
            message(&pod("p", json!({"containers": cpu("1")})), &full),
            "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption \
             victims found for incoming pod."
        );
        let three = cluster(
            &[
                node("a", json!({"spec": {"unschedulable": true}})),
                node("b", json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}})),
                node("c", json!({})),
            ],
            &[],
        );
        assert_eq!(
            message(&pod("p", json!({"nodeSelector": {"x": "y"}, "preemptionPolicy": "Never"})), &three),
            "0/3 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) had untolerated \
             taint(s), 1 node(s) were unschedulable. preemption: not eligible due to preemptionPolicy=Never."
        );
        let claim = json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]});
        assert!(message(&pod("p", claim), &one).starts_with(
            "0/1 nodes are available: persistentvolumeclaim \"c\" not found. preemption: 0/1 nodes are available: 1 \
             Preemption is not helpful for scheduling."
        ));
        let own = json!({"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]});
        assert!(message(&pod("p", own), &one).starts_with(
            "0/1 nodes are available: waiting for ephemeral volume controller to create the persistentvolumeclaim \
             \"p-v\"."
        ));
    }

    #[test]
    fn the_emptier_node_is_chosen() {
        let nodes = [node("a", json!({})), node("b", json!({}))];
        let busy = pod("x", json!({"nodeName": "a", "containers": cpu("1")}));
        assert_eq!(bound(&pod("p", json!({})), &cluster(&nodes, &[busy])), "b");
    }

    #[test]
    fn host_ports_conflict_on_all_addresses() {
        let port = |address: &str| json!([{"name": "a", "ports": [{"containerPort": 1, "hostPort": 8080, "hostIP": address}]}]);
        let one = cluster(
            &[node("a", json!({}))],
            &[pod("x", json!({"nodeName": "a", "containers": port("127.0.0.1")}))],
        );
        assert!(
            message(&pod("p", json!({"containers": port("0.0.0.0")})), &one)
                .contains("1 node(s) didn't have free ports for the requested pod ports")
        );
        assert_eq!(bound(&pod("p", json!({"containers": port("127.0.0.2")})), &one), "a");
    }

    #[test]
    fn anti_affinity_holds_in_both_directions() {
        let anti = json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}]}}});
        let mut there = anti.clone();
        there["nodeName"] = json!("a");
        let nodes = [node("a", json!({})), node("b", json!({}))];
        let with_anti = cluster(&nodes, &[pod("x", there)]);
        assert_eq!(bound(&pod("p", json!({})), &with_anti), "b");
        let without = cluster(&nodes, &[pod("x", json!({"nodeName": "a"}))]);
        assert_eq!(bound(&pod("p", anti.clone()), &without), "b");
        let both = cluster(&nodes, &[pod("x", json!({"nodeName": "a"})), pod("y", json!({"nodeName": "b"}))]);
        assert!(message(&pod("p", anti), &both).contains("2 node(s) didn't match pod anti-affinity rules"));
    }

    #[test]
    fn affinity_lets_the_first_pod_begin_and_the_next_follow() {
        let near = json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "zone"}]}}});
        let nodes = [node("a1", json!({})), node("b1", json!({})), node("b2", json!({}))];
        bound(&pod("p", near.clone()), &cluster(&nodes, &[]));
        let busy = pod("x", json!({"nodeName": "b1", "containers": cpu("1900m")}));
        assert_eq!(bound(&pod("p", near), &cluster(&nodes, &[busy])), "b2");
    }

    #[test]
    fn spread_constraints_bound_the_skew() {
        let spread = json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone",
            "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "web"}}}]});
        let nodes = [node("a", json!({})), node("b", json!({}))];
        let there = pod("x", json!({"nodeName": "a"}));
        assert_eq!(bound(&pod("p", spread), &cluster(&nodes, &[there])), "b");
    }

    #[test]
    fn preemption_takes_the_least_important_pods() {
        let low = |name: &str, node: &str, priority: i32, amount: &str| {
            pod(name, json!({"nodeName": node, "priority": priority, "containers": cpu(amount)}))
        };
        let full = cluster(
            &[node("a", json!({})), node("b", json!({}))],
            &[low("a1", "a", 5, "1"), low("a2", "a", 1, "1"), low("b1", "b", 7, "2")],
        );
        let incoming = pod("p", json!({"priority": 10, "containers": cpu("1")}));
        let Decision::Unschedulable(failure) = decision(&incoming, &full) else { panic!() };
        let victims = failure.victims.expect("victims");
        assert_eq!(victims.node, "a");
        assert_eq!(victims.pods.iter().map(|pod| pods::uid(&pod.pod)).collect::<Vec<_>>(), ["a2"]);
        let equal = pod("p", json!({"priority": 1, "containers": cpu("1")}));
        let Decision::Unschedulable(failure) = decision(&equal, &full) else { panic!() };
        assert!(failure.victims.is_none());
    }
}
