//! Scores: which of the nodes that can run a pod suits it best. Pure.

use k8s_openapi::api::core::v1::{NodeAffinity, PodSpec};
use orlop_client::ResourceExt;

use super::{
    affinity::{self, Namespaces},
    cluster::{Cluster, NodeInfo, PodInfo},
    spread,
};
use crate::workload::{
    hash::fnv1a,
    node_match::{matches_term, taints, tolerates},
    pods,
};

const MAX: i64 = 100;

/// Returns the best of the nodes. Ties are broken by a hash, so that pods spread.
pub(super) fn best<'a>(
    pod: &PodInfo,
    spec: &PodSpec,
    nodes: &[&'a NodeInfo],
    cluster: &Cluster,
    namespaces: &Namespaces,
) -> Option<&'a NodeInfo> {
    if nodes.len() <= 1 {
        return nodes.first().copied();
    }
    let scores = total(pod, spec, nodes, cluster, namespaces);
    let tie = |info: &NodeInfo| fnv1a(format!("{}{}", pods::uid(&pod.pod), info.name()).into_bytes());
    let best = scores.into_iter().zip(nodes).max_by_key(|(score, info)| (*score, tie(info)));
    best.map(|(_, info)| *info)
}

/// Returns the weighted sum of scores of every node.
fn total(
    pod: &PodInfo,
    spec: &PodSpec,
    nodes: &[&NodeInfo],
    cluster: &Cluster,
    namespaces: &Namespaces,
) -> Vec<i64> {
    let weighted = [
        (1, nodes.iter().map(|info| least_allocated(pod, info)).collect::<Vec<i64>>()),
        (1, nodes.iter().map(|info| balanced(pod, info)).collect()),
        (3, reversed(nodes.iter().map(|info| unwelcome_taints(spec, info)).collect())),
        (2, normalized(nodes.iter().map(|info| preferred_affinity(spec, info)).collect())),
        (2, spread::scores(pod, spec, nodes, cluster)),
        (2, between(affinity::scores(pod, nodes, cluster, namespaces))),
        (1, nodes.iter().map(|info| image_locality(spec, info, nodes)).collect()),
    ];
    (0..nodes.len()).map(|node| weighted.iter().map(|(weight, scores)| weight * scores[node]).sum()).collect()
}

/// Returns how much of a node is free, in percent.
fn least_allocated(pod: &PodInfo, info: &NodeInfo) -> i64 {
    let free = ["cpu", "memory"].map(|name| {
        let allocatable = info.allocatable.get(name);
        let requested = info.scoring.get(name).saturating_add(pod.scoring.get(name));
        if allocatable <= 0 || requested > allocatable {
            return 0;
        }
        i64::try_from(i128::from(allocatable - requested) * i128::from(MAX) / i128::from(allocatable))
            .unwrap_or(0)
    });
    free.iter().sum::<i64>() / 2
}

/// Returns how evenly cpu and memory of a node would be used.
fn balanced(pod: &PodInfo, info: &NodeInfo) -> i64 {
    let fraction = |name: &str| {
        let allocatable = info.allocatable.get(name);
        let requested = info.requested.get(name).saturating_add(pod.requests.get(name));
        if allocatable <= 0 { 1.0 } else { (requested as f64 / allocatable as f64).min(1.0) }
    };
    let deviation = (fraction("cpu") - fraction("memory")).abs() / 2.0;
    ((1.0 - deviation) * MAX as f64) as i64
}

/// Returns the number of PreferNoSchedule taints that the pod does not tolerate.
fn unwelcome_taints(spec: &PodSpec, info: &NodeInfo) -> i64 {
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    let unwelcome = taints(&info.node)
        .iter()
        .filter(|taint| taint.effect == "PreferNoSchedule")
        .filter(|taint| !tolerations.iter().any(|toleration| tolerates(toleration, taint)));
    i64::try_from(unwelcome.count()).unwrap_or(i64::MAX)
}

fn preferred_affinity(spec: &PodSpec, info: &NodeInfo) -> i64 {
    let affinity: Option<&NodeAffinity> = spec.affinity.as_ref().and_then(|all| all.node_affinity.as_ref());
    let terms =
        affinity.and_then(|affinity| affinity.preferred_during_scheduling_ignored_during_execution.as_ref());
    let (name, labels) = (info.name(), info.node.labels());
    let matching = terms.into_iter().flatten().filter(|term| matches_term(&term.preference, &name, labels));
    matching.map(|term| i64::from(term.weight)).sum()
}

/// Returns a score for images that a node has, weighed by how many nodes have them.
fn image_locality(spec: &PodSpec, info: &NodeInfo, nodes: &[&NodeInfo]) -> i64 {
    const MIB: i64 = 1 << 20;
    let size_on = |info: &NodeInfo, image: &str| {
        let images = info.node.status.as_ref().and_then(|status| status.images.as_ref());
        let mut images = images.into_iter().flatten();
        let known = images.find(|known| known.names.iter().flatten().any(|name| name == image));
        known.map(|known| known.size_bytes.unwrap_or(0))
    };
    let count = i64::try_from(spec.containers.len()).unwrap_or(1).max(1);
    let images = spec.containers.iter().filter_map(|container| container.image.as_deref());
    let sum: i64 = images
        .filter_map(|image| {
            let size = size_on(info, image)?;
            let having = nodes.iter().filter(|other| size_on(other, image).is_some()).count();
            Some((size as f64 * having as f64 / nodes.len() as f64) as i64)
        })
        .sum();
    let (low, high) = (23 * MIB, 1000 * MIB * count);
    MAX * (sum.clamp(low, high) - low) / (high - low).max(1)
}

/// Scales to 0–100, the largest being 100.
fn normalized(scores: Vec<i64>) -> Vec<i64> {
    match scores.iter().max().copied() {
        Some(most) if most > 0 => scores.iter().map(|score| score * MAX / most).collect(),
        _ => scores,
    }
}

/// Scales to 0–100, the smallest being 100.
fn reversed(scores: Vec<i64>) -> Vec<i64> {
    normalized(scores).iter().map(|score| MAX - score).collect()
}

/// Scales to 0–100 between the smallest and the largest.
fn between(scores: Vec<i64>) -> Vec<i64> {
    let (least, most) =
        (scores.iter().min().copied().unwrap_or(0), scores.iter().max().copied().unwrap_or(0));
    if most == least {
        return vec![0; scores.len()];
    }
    scores.iter().map(|score| MAX * (score - least) / (most - least)).collect()
}
