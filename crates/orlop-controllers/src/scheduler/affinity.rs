//! Affinity and anti-affinity between pods. Pure.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use k8s_openapi::{
    api::core::v1::{Namespace, Pod, PodAffinityTerm, WeightedPodAffinityTerm},
    apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement},
};
use orlop_client::ResourceExt;

use super::{
    cluster::{Cluster, NodeInfo, PodInfo},
    rejection::Rejection,
};
use crate::workload::selector::Labels;

/// Labels of namespaces, which terms can select by.
pub(super) type Namespaces = HashMap<String, BTreeMap<String, String>>;

/// Returns labels by namespace.
pub(super) fn namespaces(objects: &[Arc<Namespace>]) -> Namespaces {
    objects.iter().map(|namespace| (namespace.name_any(), namespace.labels().clone())).collect()
}

/// The meaning of a term.
#[derive(Debug)]
struct Term {
    topology_key: String,
    labels: Option<Labels>,
    namespaces: HashSet<String>,
    namespace_selector: Option<Labels>,
}

impl Term {
    fn new(term: &PodAffinityTerm, pod: &Pod) -> Self {
        let mut namespaces: HashSet<String> = term.namespaces.iter().flatten().cloned().collect();
        if namespaces.is_empty() && term.namespace_selector.is_none() {
            namespaces.insert(pod.namespace().unwrap_or_default());
        }
        Self {
            topology_key: term.topology_key.clone(),
            labels: with_label_keys(term, pod),
            namespaces,
            namespace_selector: Labels::of(term.namespace_selector.as_ref()),
        }
    }

    fn matches(&self, pod: &Pod, namespaces: &Namespaces) -> bool {
        let namespace = pod.namespace().unwrap_or_default();
        let in_namespace = self.namespaces.contains(&namespace)
            || self
                .namespace_selector
                .as_ref()
                .is_some_and(|selector| selector.matches(namespaces.get(&namespace)));
        in_namespace && self.labels.as_ref().is_some_and(|labels| labels.selects(pod))
    }
}

/// Returns the selector of a term, with the values of the incoming pod for the keys that it names.
fn with_label_keys(term: &PodAffinityTerm, pod: &Pod) -> Option<Labels> {
    let mut selector: LabelSelector = term.label_selector.clone()?;
    let keys = [("In", &term.match_label_keys), ("NotIn", &term.mismatch_label_keys)];
    for (operator, keys) in keys {
        for key in keys.iter().flat_map(|keys| keys.iter()) {
            if let Some(value) = pod.labels().get(key) {
                selector.match_expressions.get_or_insert_default().push(LabelSelectorRequirement {
                    key: key.clone(),
                    operator: operator.to_owned(),
                    values: Some(vec![value.clone()]),
                });
            }
        }
    }
    Labels::of(Some(&selector))
}

fn required_affinity(pod: &Pod) -> Vec<Term> {
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref()?.pod_affinity.as_ref());
    let terms =
        affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    terms.into_iter().flatten().map(|term| Term::new(term, pod)).collect()
}

fn required_anti_affinity(pod: &Pod) -> Vec<Term> {
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref()?.pod_anti_affinity.as_ref());
    let terms =
        affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    terms.into_iter().flatten().map(|term| Term::new(term, pod)).collect()
}

/// A topology domain: a label of nodes and its value.
type Domain = (String, String);

/// Domains that matter to one pod.
#[derive(Debug, Default)]
pub(super) struct AffinityState {
    /// Number of existing pods whose anti-affinity forbids the pod, by domain.
    forbidden: HashMap<Domain, usize>,
    /// Keys of the pod's affinity terms, and the number of pods that match all of them by domain.
    affinity_keys: Vec<String>,
    wanted: HashMap<Domain, usize>,
    /// Number of pods that match the pod's anti-affinity, by term and domain value.
    anti_keys: Vec<String>,
    unwanted: HashMap<Domain, usize>,
    /// The pod would be the first of its own kind: it may start a domain.
    matches_itself: bool,
}

impl AffinityState {
    /// Computes the state of a pod. Cheap where no pod has affinity.
    pub(super) fn new(pod: &PodInfo, cluster: &Cluster, namespaces: &Namespaces) -> Self {
        Self::of_nodes(pod, cluster.nodes.values(), namespaces)
    }

    /// Computes the state of a pod among nodes.
    pub(super) fn of_nodes<'a>(
        pod: &PodInfo,
        nodes: impl Iterator<Item = &'a NodeInfo>,
        namespaces: &Namespaces,
    ) -> Self {
        let affinity = required_affinity(&pod.pod);
        let anti = required_anti_affinity(&pod.pod);
        let mut state = Self {
            affinity_keys: affinity.iter().map(|term| term.topology_key.clone()).collect(),
            anti_keys: anti.iter().map(|term| term.topology_key.clone()).collect(),
            matches_itself: affinity.iter().all(|term| term.matches(&pod.pod, namespaces)),
            ..Self::default()
        };
        for info in nodes {
            for other in info.pods.values() {
                if other.has_anti_affinity() {
                    for term in required_anti_affinity(&other.pod) {
                        if term.matches(&pod.pod, namespaces) {
                            count(&mut state.forbidden, info, &term.topology_key);
                        }
                    }
                }
                if affinity.is_empty() && anti.is_empty() {
                    continue;
                }
                if !affinity.is_empty() && affinity.iter().all(|term| term.matches(&other.pod, namespaces)) {
                    affinity.iter().for_each(|term| count(&mut state.wanted, info, &term.topology_key));
                }
                for term in anti.iter().filter(|term| term.matches(&other.pod, namespaces)) {
                    count(&mut state.unwanted, info, &term.topology_key);
                }
            }
        }
        state
    }

    /// Filters a node.
    pub(super) fn filter(&self, info: &NodeInfo) -> Result<(), Rejection> {
        let has = |counts: &HashMap<Domain, usize>, key: &String| {
            let domain = info.domain(key).map(|value| (key.clone(), value.to_owned()));
            domain.is_some_and(|domain| counts.get(&domain).is_some_and(|count| *count > 0))
        };
        let all_labelled = self.affinity_keys.iter().all(|key| info.domain(key).is_some());
        let is_satisfied = all_labelled && self.affinity_keys.iter().all(|key| has(&self.wanted, key));
        let may_begin = all_labelled && self.wanted.is_empty() && self.matches_itself;
        if !self.affinity_keys.is_empty() && !is_satisfied && !may_begin {
            return Err(Rejection::final_reason("node(s) didn't match pod affinity rules"));
        }
        if self.anti_keys.iter().any(|key| has(&self.unwanted, key)) {
            return Err(Rejection::passing("node(s) didn't match pod anti-affinity rules"));
        }
        let forbidden = self.forbidden.iter().filter(|(_, count)| **count > 0);
        if forbidden.into_iter().any(|((key, value), _)| info.domain(key) == Some(value.as_str())) {
            return Err(Rejection::passing("node(s) didn't satisfy existing pods anti-affinity rules"));
        }
        Ok(())
    }
}

fn count(counts: &mut HashMap<Domain, usize>, info: &NodeInfo, key: &str) {
    if let Some(value) = info.domain(key) {
        *counts.entry((key.to_owned(), value.to_owned())).or_default() += 1;
    }
}

/// Returns the raw score of every node for preferred affinity, of the pod and of the pods that are there.
pub(super) fn scores(
    pod: &PodInfo,
    nodes: &[&NodeInfo],
    cluster: &Cluster,
    namespaces: &Namespaces,
) -> Vec<i64> {
    let mut by_domain: HashMap<Domain, i64> = HashMap::new();
    let own = preferences(&pod.pod);
    for info in cluster.nodes.values() {
        for other in info.pods.values() {
            for (weight, term) in &own {
                if term.matches(&other.pod, namespaces) {
                    weigh(&mut by_domain, info, &term.topology_key, *weight);
                }
            }
            for (weight, term) in preferences(&other.pod) {
                if term.matches(&pod.pod, namespaces) {
                    weigh(&mut by_domain, info, &term.topology_key, weight);
                }
            }
            // The affinity that an existing pod requires is a preference of weight 1 for the new one.
            for term in required_affinity(&other.pod) {
                if term.matches(&pod.pod, namespaces) {
                    weigh(&mut by_domain, info, &term.topology_key, 1);
                }
            }
        }
    }
    let score = |info: &&NodeInfo| {
        let own = by_domain.iter().filter(|((key, value), _)| info.domain(key) == Some(value.as_str()));
        own.map(|(_, weight)| weight).sum()
    };
    nodes.iter().map(score).collect()
}

fn weigh(by_domain: &mut HashMap<Domain, i64>, info: &NodeInfo, key: &str, weight: i64) {
    if let Some(value) = info.domain(key) {
        *by_domain.entry((key.to_owned(), value.to_owned())).or_default() += weight;
    }
}

/// Returns the preferred terms of a pod with their weights, negative for anti-affinity.
fn preferences(pod: &Pod) -> Vec<(i64, Term)> {
    let Some(affinity) = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref()) else { return Vec::new() };
    let near = affinity.pod_affinity.as_ref();
    let near = near.and_then(|near| near.preferred_during_scheduling_ignored_during_execution.as_ref());
    let far = affinity.pod_anti_affinity.as_ref();
    let far = far.and_then(|far| far.preferred_during_scheduling_ignored_during_execution.as_ref());
    let terms = |terms: Option<&Vec<WeightedPodAffinityTerm>>, sign: i64| {
        let terms = terms.into_iter().flatten();
        let terms =
            terms.map(|term| (sign * i64::from(term.weight), Term::new(&term.pod_affinity_term, pod)));
        terms.collect::<Vec<_>>()
    };
    [terms(near, 1), terms(far, -1)].into_iter().flatten().collect()
}
