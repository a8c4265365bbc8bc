//! Nodes of a DaemonSet. Pure.

use k8s_openapi::api::{
    apps::v1::DaemonSet,
    core::v1::{
        Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodTemplateSpec, Toleration,
    },
};
use orlop_client::ResourceExt;

use crate::workload::{
    node_match::{matches_pod, taints, untolerated},
    pods,
};

/// Returns whether a node has changed in what decides on its pods.
pub(super) fn is_other_place(old: Option<&Node>, new: Option<&Node>) -> bool {
    match (old, new) {
        (Some(old), Some(new)) => old.metadata.labels != new.metadata.labels || taints(old) != taints(new),
        _ => true,
    }
}

/// Returns the template with the tolerations that daemons have.
pub(super) fn template(set: &DaemonSet) -> PodTemplateSpec {
    let mut template = set.spec.template.clone();
    let spec = template.spec.get_or_insert_default();
    let mut wanted = vec![
        ("node.kubernetes.io/not-ready", "NoExecute"),
        ("node.kubernetes.io/unreachable", "NoExecute"),
        ("node.kubernetes.io/disk-pressure", "NoSchedule"),
        ("node.kubernetes.io/memory-pressure", "NoSchedule"),
        ("node.kubernetes.io/pid-pressure", "NoSchedule"),
        ("node.kubernetes.io/unschedulable", "NoSchedule"),
    ];
    if spec.host_network == Some(true) {
        wanted.push(("node.kubernetes.io/network-unavailable", "NoSchedule"));
    }
    let tolerations = spec.tolerations.get_or_insert_default();
    for (key, effect) in wanted {
        let is_there = tolerations.iter().any(|known| {
            known.key.as_deref() == Some(key)
                && known.effect.as_deref() == Some(effect)
                && known.operator.as_deref() == Some("Exists")
        });
        if !is_there {
            tolerations.push(Toleration {
                key: Some(key.to_owned()),
                operator: Some("Exists".to_owned()),
                effect: Some(effect.to_owned()),
                ..Toleration::default()
            });
        }
    }
    template
}

/// Returns whether a pod should be on a node, and whether one that is there may stay.
pub(super) fn should_run(template: &PodTemplateSpec, node: &Node) -> (bool, bool) {
    let Some(spec) = &template.spec else { return (false, false) };
    let named = spec.node_name.as_deref().filter(|name| !name.is_empty());
    if named.is_some_and(|name| name != node.name_any()) || !matches_pod(spec, node) {
        return (false, false);
    }
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    match untolerated(taints(node), tolerations, &["NoSchedule", "NoExecute"]) {
        None => (true, true),
        // A taint against new pods does not drive out those that run.
        Some(_) => (false, untolerated(taints(node), tolerations, &["NoExecute"]).is_none()),
    }
}

/// Makes a pod for one node: the scheduler binds it there and nowhere else.
pub(super) fn pin(pod: &mut Pod, node: &str) {
    let requirement = NodeSelectorRequirement {
        key: "metadata.name".to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![node.to_owned()]),
    };
    let term = NodeSelectorTerm { match_fields: Some(vec![requirement]), match_expressions: None };
    let affinity = pod.spec.get_or_insert_default().affinity.get_or_insert_default();
    let affinity = affinity.node_affinity.get_or_insert_default();
    affinity.required_during_scheduling_ignored_during_execution =
        Some(NodeSelector { node_selector_terms: vec![term] });
}

/// Returns the node that a daemon's pod is for.
pub(super) fn node_of(pod: &Pod) -> Option<String> {
    if let Some(node) = pods::node_name(pod) {
        return Some(node.to_owned());
    }
    let affinity = pod.spec.as_ref()?.affinity.as_ref()?.node_affinity.as_ref()?;
    let required = affinity.required_during_scheduling_ignored_during_execution.as_ref()?;
    let fields = required.node_selector_terms.iter().flat_map(|term| term.match_fields.iter().flatten());
    let mut names = fields.filter(|field| field.key == "metadata.name" && field.operator == "In");
    names.next()?.values.as_ref()?.first().cloned()
}
