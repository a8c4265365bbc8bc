//! Heartbeats, conditions and taints of a node. Pure.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{Node, NodeCondition, ObjectReference, Taint},
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::Timestamp,
};
use orlop_client::{Resource, ResourceExt};
use tokio::time::{Duration, Instant};

use crate::workload::{node_match, time::seconds};

const PREFIX: &str = "node.kubernetes.io/";
const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// The last sign of life of a node, on this machine's clock: those of others are never compared with it.
#[derive(Debug)]
pub(super) struct Heartbeat {
    seen: Instant,
    status: Option<Timestamp>,
    lease: Option<Timestamp>,
    reference: ObjectReference,
    pub(super) was_ready: bool,
}

impl Heartbeat {
    pub(super) fn new(node: &Node, now: Instant) -> Self {
        let mut reference = node.object_ref(&());
        // Events about nodes carry the name as uid.
        reference.uid.clone_from(&node.metadata.name);
        let was_ready = node_match::is_ready(node);
        Self { seen: now, status: last_heartbeat(node), lease: None, reference, was_ready }
    }

    pub(super) fn observe(&mut self, node: &Node, renewed: Option<Timestamp>, now: Instant) {
        let status = last_heartbeat(node);
        if status != self.status || renewed > self.lease {
            self.seen = now;
        }
        self.status = status;
        self.lease = renewed.or(self.lease);
    }

    pub(super) fn age(&self, now: Instant) -> Duration {
        now.duration_since(self.seen)
    }

    pub(super) fn has_reported(&self) -> bool {
        self.status.is_some() || self.lease.is_some()
    }

    pub(super) fn reference(&self) -> ObjectReference {
        self.reference.clone()
    }
}

fn condition<'a>(node: &'a Node, type_: &str) -> Option<&'a NodeCondition> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == type_)
}

fn last_heartbeat(node: &Node) -> Option<Timestamp> {
    let ready = condition(node, "Ready")?;
    // One that this controller wrote is no heartbeat.
    if ready.status == "Unknown" {
        return None;
    }
    ready.last_heartbeat_time.as_ref().map(|time| time.0)
}

/// Returns a node whose conditions are unknown, unless they are already.
pub(super) fn unknown_conditions(node: &Node, now: Timestamp) -> Option<Node> {
    let mut changed = node.clone();
    let now = Some(Time(seconds(now)));
    let conditions = changed.status.get_or_insert_default().conditions.get_or_insert_default();
    let mut is_changed = false;
    for type_ in ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"] {
        match conditions.iter_mut().find(|condition| condition.type_ == type_) {
            Some(condition) if condition.status == "Unknown" => {}
            Some(condition) => {
                condition.status = "Unknown".to_owned();
                condition.reason = Some("NodeStatusUnknown".to_owned());
                condition.message = Some("Kubelet stopped posting node status.".to_owned());
                condition.last_transition_time.clone_from(&now);
                is_changed = true;
            }
            None => {
                conditions.push(NodeCondition {
                    type_: type_.to_owned(),
                    status: "Unknown".to_owned(),
                    reason: Some("NodeStatusNeverUpdated".to_owned()),
                    message: Some("Kubelet never posted node status.".to_owned()),
                    last_heartbeat_time: node.metadata.creation_timestamp.clone(),
                    last_transition_time: now.clone(),
                });
                is_changed = true;
            }
        }
    }
    is_changed.then_some(changed)
}

/// Returns the older labels that a node lacks: they follow those that have replaced them.
pub(super) fn missing_labels(node: &Node) -> BTreeMap<&'static str, String> {
    const PAIRS: [(&str, &str); 2] =
        [("kubernetes.io/os", "beta.kubernetes.io/os"), ("kubernetes.io/arch", "beta.kubernetes.io/arch")];
    let labels = node.labels();
    let pairs = PAIRS.iter().filter_map(|(label, older)| {
        let value = labels.get(*label)?;
        (labels.get(*older) != Some(value)).then(|| (*older, value.clone()))
    });
    pairs.collect()
}

fn is_managed(taint: &Taint) -> bool {
    const NAMES: [&str; 7] = [
        "not-ready",
        "unreachable",
        "memory-pressure",
        "disk-pressure",
        "pid-pressure",
        "network-unavailable",
        "unschedulable",
    ];
    let name = taint.key.strip_prefix(PREFIX);
    let is_eviction = matches!(taint.key.as_str(), NOT_READY | UNREACHABLE) && taint.effect == "NoExecute";
    name.is_some_and(|name| NAMES.contains(&name)) && (taint.effect == "NoSchedule" || is_eviction)
}

/// Returns whether a node's pods are being evicted.
pub(super) fn has_eviction_taint(node: &Node) -> bool {
    let mut taints = node_match::taints(node).iter();
    taints.any(|taint| is_managed(taint) && taint.effect == "NoExecute")
}

/// Returns the keys and effects of the taints that a node should have.
pub(super) fn wanted_taints(node: &Node, evicts: bool) -> Vec<(String, &'static str)> {
    let is = |type_: &str, status: &str| {
        condition(node, type_).is_some_and(|condition| condition.status == status)
    };
    let mut wanted = Vec::new();
    let rules = [
        ("not-ready", is("Ready", "False")),
        ("unreachable", is("Ready", "Unknown")),
        ("memory-pressure", is("MemoryPressure", "True")),
        ("disk-pressure", is("DiskPressure", "True")),
        ("pid-pressure", is("PIDPressure", "True")),
        ("network-unavailable", is("NetworkUnavailable", "True")),
        ("unschedulable", node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true)),
    ];
    for (name, holds) in rules {
        if holds {
            wanted.push((format!("{PREFIX}{name}"), "NoSchedule"));
        }
    }
    if evicts && is("Ready", "False") {
        wanted.push((NOT_READY.to_owned(), "NoExecute"));
    }
    if evicts && is("Ready", "Unknown") {
        wanted.push((UNREACHABLE.to_owned(), "NoExecute"));
    }
    wanted
}

/// Returns the taints that a node should have, if they differ.
pub(super) fn taints(node: &Node, evicts: bool) -> Option<Vec<Taint>> {
    let wanted = wanted_taints(node, evicts);
    let old = node_match::taints(node);
    let is_wanted =
        |taint: &Taint| wanted.iter().any(|(key, effect)| *key == taint.key && *effect == taint.effect);
    let mut taints: Vec<Taint> =
        old.iter().filter(|taint| !is_managed(taint) || is_wanted(taint)).cloned().collect();
    for (key, effect) in &wanted {
        if !taints.iter().any(|taint| taint.key == *key && taint.effect == *effect) {
            taints.push(Taint {
                key: key.clone(),
                effect: (*effect).to_owned(),
                time_added: (*effect == "NoExecute").then(crate::workload::time::now),
                value: None,
            });
        }
    }
    (taints != old).then_some(taints)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(ready: &str, taints: Value) -> Node {
        serde_json::from_value(json!({"metadata": {"name": "n"}, "spec": {"taints": taints},
            "status": {"conditions": [{"type": "Ready", "status": ready}]}}))
        .unwrap()
    }

    fn keys(taints: Option<Vec<Taint>>) -> Vec<(String, String)> {
        let taints = taints.unwrap_or_default();
        taints.into_iter().map(|taint| (taint.key.replace(PREFIX, ""), taint.effect)).collect()
    }

    fn pair(key: &str, effect: &str) -> (String, String) {
        (key.to_owned(), effect.to_owned())
    }

    #[test]
    fn taints_follow_conditions_and_leave_others_alone() {
        let own = json!([{"key": "mine", "effect": "NoSchedule"}]);
        assert_eq!(taints(&node("True", own.clone()), true), None);
        let not_ready = taints(&node("False", own), true);
        let wanted =
            [pair("mine", "NoSchedule"), pair("not-ready", "NoSchedule"), pair("not-ready", "NoExecute")];
        assert_eq!(keys(not_ready), wanted);
        assert_eq!(keys(taints(&node("Unknown", json!([])), false)), [pair("unreachable", "NoSchedule")]);
        let back =
            json!([{"key": NOT_READY, "effect": "NoExecute"}, {"key": NOT_READY, "effect": "NoSchedule"}]);
        assert_eq!(taints(&node("True", back), true), Some(Vec::new()));
    }

    #[test]
    fn lost_node_has_unknown_conditions() {
        let lost = unknown_conditions(&node("True", json!([])), Timestamp::UNIX_EPOCH).unwrap();
        let ready = condition(&lost, "Ready").unwrap();
        assert_eq!((ready.status.as_str(), ready.reason.as_deref()), ("Unknown", Some("NodeStatusUnknown")));
        let pressure = condition(&lost, "DiskPressure").unwrap();
        assert_eq!(pressure.message.as_deref(), Some("Kubelet never posted node status."));
        assert_eq!(unknown_conditions(&lost, Timestamp::UNIX_EPOCH), None);
    }

    #[test]
    fn heartbeats_are_changes_of_status_or_lease() {
        let (start, later) = (Instant::now(), Instant::now() + Duration::from_secs(60));
        let node = node("True", json!([]));
        let mut heartbeat = Heartbeat::new(&node, start);
        heartbeat.observe(&node, None, later);
        assert_eq!(heartbeat.age(later), later - start);
        heartbeat.observe(&node, Some(Timestamp::UNIX_EPOCH), later);
        assert_eq!(heartbeat.age(later), Duration::ZERO);
    }
}
