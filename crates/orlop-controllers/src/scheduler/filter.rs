//! Filters: whether a pod can run on a node, and why not. Pure.

use k8s_openapi::api::core::v1::{PodSpec, Taint};

use super::{
    affinity::AffinityState,
    cluster::{NodeInfo, PodInfo},
    rejection::Rejection,
    spread::SpreadState,
    volumes::VolumeNeeds,
};
use crate::workload::node_match::{matches_pod, taints, untolerated};

const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// A pod to place, with what was computed of it and of the cluster once for all nodes.
#[derive(Debug)]
pub(super) struct Candidate<'a> {
    pub(super) pod: &'a PodInfo,
    pub(super) spec: &'a PodSpec,
    pub(super) affinity: AffinityState,
    pub(super) spread: SpreadState,
    pub(super) volumes: VolumeNeeds,
}

/// Returns whether the pod can run on the node. The order of filters is that of kube-scheduler, and the first that
/// rejects says why.
pub(super) fn filter(candidate: &Candidate<'_>, info: &NodeInfo) -> Result<(), Rejection> {
    let spec = candidate.spec;
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    let node_spec = info.node.spec.as_ref();
    if node_spec.and_then(|spec| spec.unschedulable) == Some(true) {
        let taint =
            Taint { key: UNSCHEDULABLE.to_owned(), effect: "NoSchedule".to_owned(), ..Taint::default() };
        if untolerated(&[taint], tolerations, &["NoSchedule"]).is_some() {
            return Err(Rejection::final_reason("node(s) were unschedulable"));
        }
    }
    if let Some(name) = spec.node_name.as_deref().filter(|name| !name.is_empty())
        && name != info.name()
    {
        return Err(Rejection::final_reason("node(s) didn't match the requested node name"));
    }
    if untolerated(taints(&info.node), tolerations, &["NoSchedule", "NoExecute"]).is_some() {
        return Err(Rejection::final_reason("node(s) had untolerated taint(s)"));
    }
    if !matches_pod(spec, &info.node) {
        return Err(Rejection::final_reason("node(s) didn't match Pod's node affinity/selector"));
    }
    let taken = info.pods.values().flat_map(|other| &other.ports);
    if taken.into_iter().any(|taken| candidate.pod.ports.iter().any(|port| port.conflicts(taken))) {
        return Err(Rejection::passing("node(s) didn't have free ports for the requested pod ports"));
    }
    fits(candidate.pod, info)?;
    candidate.volumes.filter(info)?;
    candidate.spread.filter(info)?;
    candidate.affinity.filter(info)
}

/// Returns whether the node has the resources that the pod requests.
fn fits(pod: &PodInfo, info: &NodeInfo) -> Result<(), Rejection> {
    let mut reasons = Vec::new();
    let mut preemption_may_help = true;
    let count = i64::try_from(info.pods.len()).unwrap_or(i64::MAX);
    // A node that has not reported its resources yet takes none.
    if count + 1 > info.allocatable.get("pods") {
        reasons.push("Too many pods".to_owned());
    }
    for (name, amount) in &pod.requests.0 {
        let allocatable = info.allocatable.get(name);
        if *amount > 0 && *amount > allocatable.saturating_sub(info.requested.get(name)) {
            reasons.push(format!("Insufficient {name}"));
            // More than the whole node has: nobody's going would help.
            preemption_may_help &= *amount <= allocatable;
        }
    }
    if reasons.is_empty() { Ok(()) } else { Err(Rejection { reasons, preemption_may_help }) }
}
