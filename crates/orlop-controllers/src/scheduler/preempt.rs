//! Preemption: the pods that must go so that one of higher priority can run. Pure.

use std::sync::Arc;

use k8s_openapi::{api::policy::v1::PodDisruptionBudget, jiff::Timestamp};
use orlop_client::ResourceExt;

use super::{
    affinity::{AffinityState, Namespaces},
    cluster::{Cluster, NodeInfo, PodInfo},
    filter::{Candidate, filter},
    spread::SpreadState,
};
use crate::workload::{pods, selector::Labels};

/// A node, and the pods that must go from it.
#[derive(Clone, Debug)]
pub(super) struct Victims {
    pub(super) node: String,
    pub(super) pods: Vec<Arc<PodInfo>>,
    /// Number of them whose going violates a disruption budget.
    violations: usize,
}

/// Returns the node to preempt on, among those whose rejection preemption may cure.
pub(super) fn choose(
    candidate: &mut Candidate<'_>,
    nodes: &[&NodeInfo],
    cluster: &Cluster,
    namespaces: &Namespaces,
    budgets: &[Arc<PodDisruptionBudget>],
) -> Option<Victims> {
    let mut found: Vec<Victims> = Vec::new();
    for info in nodes {
        found.extend(on_node(candidate, info, cluster, namespaces, budgets));
    }
    found.into_iter().min_by(|one, other| rank(one).cmp(&rank(other)))
}

/// Order of preference: fewest violated budgets, lowest top priority, lowest sum of priorities, fewest victims, the
/// latest start of the most important victims.
fn rank(victims: &Victims) -> (usize, i32, i64, usize, std::cmp::Reverse<Option<Timestamp>>, String) {
    let top = victims.pods.iter().map(|pod| pod.priority()).max().unwrap_or(i32::MIN);
    // Priorities are shifted so that more victims never weigh less.
    let sum = victims.pods.iter().map(|pod| i64::from(pod.priority()) + i64::from(i32::MAX) + 1).sum();
    let important = victims.pods.iter().filter(|pod| pod.priority() == top);
    let earliest = important.filter_map(|pod| pod.started()).min();
    let node = victims.node.clone();
    (victims.violations, top, sum, victims.pods.len(), std::cmp::Reverse(earliest), node)
}

/// Returns the fewest victims of one node.
fn on_node(
    candidate: &mut Candidate<'_>,
    info: &NodeInfo,
    cluster: &Cluster,
    namespaces: &Namespaces,
    budgets: &[Arc<PodDisruptionBudget>],
) -> Option<Victims> {
    let priority = candidate.pod.priority();
    let mut without = cluster.node_for(candidate.pod, info).into_owned();
    let lower: Vec<Arc<PodInfo>> =
        without.pods.values().filter(|pod| pod.priority() < priority).cloned().collect();
    if lower.is_empty() {
        return None;
    }
    lower.iter().for_each(|pod| drop(without.remove(pods::uid(&pod.pod))));
    if !fits(candidate, &without, cluster, namespaces) {
        return None;
    }
    let (mut violating, mut harmless) = split_by_budgets(lower, budgets);
    let importance = |pod: &Arc<PodInfo>| (std::cmp::Reverse(pod.priority()), pod.started());
    violating.sort_by_key(importance);
    harmless.sort_by_key(importance);
    // Take them back, those whose going hurts most first; whoever does not fit any more is a victim.
    let mut victims = Vec::new();
    let mut violations = 0;
    let all =
        violating.into_iter().map(|pod| (true, pod)).chain(harmless.into_iter().map(|pod| (false, pod)));
    for (is_violation, pod) in all {
        without.add(pod.clone());
        if !fits(candidate, &without, cluster, namespaces) {
            without.remove(pods::uid(&pod.pod));
            violations += usize::from(is_violation);
            victims.push(pod);
        }
    }
    (!victims.is_empty()).then(|| Victims { node: info.name(), pods: victims, violations })
}

/// Filters with the node in a changed state.
fn fits(candidate: &mut Candidate<'_>, info: &NodeInfo, cluster: &Cluster, namespaces: &Namespaces) -> bool {
    let name = info.name();
    let others = || cluster.nodes.values().filter(|other| other.name() != name);
    candidate.affinity =
        AffinityState::of_nodes(candidate.pod, others().chain(std::iter::once(info)), namespaces);
    candidate.spread =
        SpreadState::of_nodes(candidate.pod, candidate.spec, || others().chain(std::iter::once(info)));
    filter(candidate, info).is_ok()
}

/// Splits pods into those whose disruption a budget does not allow, and the others.
fn split_by_budgets(
    pods: Vec<Arc<PodInfo>>,
    budgets: &[Arc<PodDisruptionBudget>],
) -> (Vec<Arc<PodInfo>>, Vec<Arc<PodInfo>>) {
    let mut left: Vec<(Labels, Option<String>, i32, &PodDisruptionBudget)> = budgets
        .iter()
        .filter_map(|budget| {
            let labels = Labels::of(budget.spec.as_ref()?.selector.as_ref())?;
            let allowed = budget.status.as_ref().and_then(|status| status.disruptions_allowed).unwrap_or(0);
            Some((labels, budget.namespace(), allowed, &**budget))
        })
        .collect();
    pods.into_iter().partition(|pod| {
        let mut violates = false;
        for (labels, namespace, allowed, budget) in &mut left {
            if *namespace != pod.pod.namespace() || labels.selects_all() || !labels.selects(&*pod.pod) {
                continue;
            }
            let disrupted = budget.status.as_ref().and_then(|status| status.disrupted_pods.as_ref());
            if disrupted.is_some_and(|disrupted| disrupted.contains_key(&pod.pod.name_any())) {
                continue;
            }
            *allowed -= 1;
            violates |= *allowed < 0;
        }
        violates
    })
}
