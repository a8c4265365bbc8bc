//! Topology spread constraints. Pure.

use std::collections::{HashMap, HashSet};

use k8s_openapi::{
    api::core::v1::{PodSpec, TopologySpreadConstraint},
    apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement},
};
use orlop_client::ResourceExt;

use super::{
    cluster::{Cluster, NodeInfo, PodInfo},
    rejection::Rejection,
};
use crate::workload::{
    node_match::{matches_pod, taints, untolerated},
    ownership::controller_of,
    pods,
    selector::Labels,
};

/// The meaning of a constraint.
#[derive(Debug)]
struct Constraint {
    key: String,
    max_skew: i64,
    min_domains: usize,
    pods: Matching,
    honours_affinity: bool,
    honours_taints: bool,
}

/// The pods that a constraint counts.
#[derive(Debug)]
enum Matching {
    Labels(Option<Labels>),
    /// Those of the same controller, for the default constraints.
    SameController(String),
}

impl Constraint {
    fn new(constraint: &TopologySpreadConstraint, pod: &PodInfo) -> Self {
        let mut selector: Option<LabelSelector> = constraint.label_selector.clone();
        for key in constraint.match_label_keys.iter().flatten() {
            if let (Some(selector), Some(value)) = (&mut selector, pod.pod.labels().get(key)) {
                selector.match_expressions.get_or_insert_default().push(LabelSelectorRequirement {
                    key: key.clone(),
                    operator: "In".to_owned(),
                    values: Some(vec![value.clone()]),
                });
            }
        }
        Self {
            key: constraint.topology_key.clone(),
            max_skew: constraint.max_skew.into(),
            min_domains: usize::try_from(constraint.min_domains.unwrap_or(1)).unwrap_or(1),
            pods: Matching::Labels(Labels::of(selector.as_ref())),
            honours_affinity: constraint.node_affinity_policy.as_deref() != Some("Ignore"),
            honours_taints: constraint.node_taints_policy.as_deref() == Some("Honor"),
        }
    }

    fn matches(&self, pod: &PodInfo) -> bool {
        match &self.pods {
            Matching::Labels(labels) => labels.as_ref().is_some_and(|labels| labels.selects(&*pod.pod)),
            Matching::SameController(uid) => controller_of(&*pod.pod).is_some_and(|owner| owner.uid == *uid),
        }
    }

    fn includes(&self, info: &NodeInfo, spec: &PodSpec) -> bool {
        let tolerations = spec.tolerations.as_deref().unwrap_or_default();
        let is_tolerated =
            || untolerated(taints(&info.node), tolerations, &["NoSchedule", "NoExecute"]).is_none();
        (!self.honours_affinity || matches_pod(spec, &info.node)) && (!self.honours_taints || is_tolerated())
    }

    /// Returns the number of matching pods of the same namespace in every domain.
    fn count<'a>(
        &self,
        pod: &PodInfo,
        spec: &PodSpec,
        nodes: impl Iterator<Item = &'a NodeInfo>,
    ) -> HashMap<String, i64> {
        let mut counts = HashMap::new();
        for info in nodes.filter(|info| self.includes(info, spec)) {
            let Some(domain) = info.domain(&self.key) else { continue };
            let matching = info.pods.values().filter(|other| {
                other.pod.namespace() == pod.pod.namespace()
                    && !pods::is_deleting(&other.pod)
                    && self.matches(other)
            });
            *counts.entry(domain.to_owned()).or_default() += i64::try_from(matching.count()).unwrap_or(0);
        }
        counts
    }
}

/// Constraints of one pod that must hold, with the pods counted.
#[derive(Debug, Default)]
pub(super) struct SpreadState {
    constraints: Vec<(Constraint, HashMap<String, i64>, i64)>,
}

impl SpreadState {
    pub(super) fn new(pod: &PodInfo, spec: &PodSpec, cluster: &Cluster) -> Self {
        Self::of_nodes(pod, spec, || cluster.nodes.values())
    }

    /// Computes the state of a pod among nodes.
    pub(super) fn of_nodes<'a, I: Iterator<Item = &'a NodeInfo>>(
        pod: &PodInfo,
        spec: &PodSpec,
        nodes: impl Fn() -> I,
    ) -> Self {
        let required = spec.topology_spread_constraints.iter().flatten();
        let required = required.filter(|constraint| constraint.when_unsatisfiable == "DoNotSchedule");
        let constraints = required.map(|constraint| {
            let constraint = Constraint::new(constraint, pod);
            let counts = constraint.count(pod, spec, nodes());
            let own = i64::from(constraint.matches(pod));
            (constraint, counts, own)
        });
        Self { constraints: constraints.collect() }
    }

    /// Filters a node.
    pub(super) fn filter(&self, info: &NodeInfo) -> Result<(), Rejection> {
        const TEXT: &str = "node(s) didn't match pod topology spread constraints";
        for (constraint, counts, own) in &self.constraints {
            let Some(domain) = info.domain(&constraint.key) else {
                return Err(Rejection::final_reason(&format!("{TEXT} (missing required label)")));
            };
            let minimum = match counts.len() < constraint.min_domains {
                true => 0,
                false => counts.values().copied().min().unwrap_or(0),
            };
            let skew = counts.get(domain).copied().unwrap_or(0) + own - minimum;
            if skew > constraint.max_skew {
                return Err(Rejection::passing(TEXT));
            }
        }
        Ok(())
    }
}

/// Returns the score of every node, up to 100, for constraints that are only wished for: those of the pod, or else
/// kube-scheduler's default of hosts and zones.
pub(super) fn scores(pod: &PodInfo, spec: &PodSpec, nodes: &[&NodeInfo], cluster: &Cluster) -> Vec<i64> {
    let own = spec.topology_spread_constraints.as_deref().unwrap_or_default();
    let mut constraints: Vec<Constraint> = own
        .iter()
        .filter(|constraint| constraint.when_unsatisfiable == "ScheduleAnyway")
        .map(|constraint| Constraint::new(constraint, pod))
        .collect();
    if own.is_empty()
        && let Some(owner) = controller_of(&*pod.pod)
    {
        for (key, max_skew) in [("kubernetes.io/hostname", 3), ("topology.kubernetes.io/zone", 5)] {
            constraints.push(Constraint {
                key: key.to_owned(),
                max_skew,
                min_domains: 1,
                pods: Matching::SameController(owner.uid.clone()),
                honours_affinity: true,
                honours_taints: false,
            });
        }
    }
    // Of the default constraints one may lack its label on every node; it says nothing then.
    constraints.retain(|constraint| nodes.iter().any(|info| info.domain(&constraint.key).is_some()));
    if constraints.is_empty() {
        return vec![0; nodes.len()];
    }
    let mut crowding = vec![0.0; nodes.len()];
    for constraint in &constraints {
        let counts = constraint.count(pod, spec, cluster.nodes.values());
        let domains: HashSet<&str> = nodes.iter().filter_map(|info| info.domain(&constraint.key)).collect();
        let weight = ((domains.len() + 2) as f64).ln();
        for (crowd, info) in crowding.iter_mut().zip(nodes) {
            let count =
                info.domain(&constraint.key).and_then(|domain| counts.get(domain)).copied().unwrap_or(0);
            *crowd += count as f64 * weight + (constraint.max_skew - 1) as f64;
        }
    }
    let rounded: Vec<i64> = crowding.iter().map(|crowd| crowd.round() as i64).collect();
    let (least, most) =
        (rounded.iter().min().copied().unwrap_or(0), rounded.iter().max().copied().unwrap_or(0));
    rounded.iter().map(|crowd| if most == 0 { 100 } else { 100 * (most + least - crowd) / most }).collect()
}
