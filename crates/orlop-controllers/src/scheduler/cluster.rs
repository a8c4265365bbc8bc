//! The scheduler's view of the cluster: nodes, and the pods that are or will be on them. Pure.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use k8s_openapi::{
    api::core::v1::{Node, Pod, PodSpec},
    jiff::Timestamp,
};
use orlop_client::ResourceExt;

use crate::workload::{
    pods,
    resources::{self, Resources},
};

/// A pod on a node.
#[derive(Clone, Debug)]
pub(super) struct PodInfo {
    pub(super) pod: Arc<Pod>,
    pub(super) requests: Resources,
    pub(super) scoring: Resources,
    pub(super) ports: Vec<HostPort>,
}

/// A port of the node that a container takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HostPort {
    pub(super) address: String,
    pub(super) protocol: String,
    pub(super) port: i32,
}

impl HostPort {
    /// Returns whether two containers cannot both have theirs.
    pub(super) fn conflicts(&self, other: &Self) -> bool {
        const ANY: &str = "0.0.0.0";
        self.port == other.port
            && self.protocol == other.protocol
            && (self.address == other.address || self.address == ANY || other.address == ANY)
    }
}

impl PodInfo {
    pub(super) fn new(pod: Arc<Pod>) -> Self {
        let empty = PodSpec::default();
        let spec = pod.spec.as_ref().unwrap_or(&empty);
        let requests = resources::of_pod(spec);
        let scoring = resources::of_pod_for_scoring(spec);
        let ports = host_ports(spec);
        Self { requests, scoring, ports, pod }
    }

    pub(super) fn priority(&self) -> i32 {
        priority(&self.pod)
    }

    /// Returns since when it runs.
    pub(super) fn started(&self) -> Option<Timestamp> {
        self.pod.status.as_ref().and_then(|status| status.start_time.as_ref()).map(|time| time.0)
    }

    /// Returns its required terms of anti-affinity to other pods.
    pub(super) fn has_anti_affinity(&self) -> bool {
        let affinity = self.pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref());
        let anti = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref());
        anti.and_then(|anti| anti.required_during_scheduling_ignored_during_execution.as_ref())
            .is_some_and(|terms| !terms.is_empty())
    }
}

pub(super) fn priority(pod: &Pod) -> i32 {
    pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0)
}

fn host_ports(spec: &PodSpec) -> Vec<HostPort> {
    let sidecars = spec.init_containers.iter().flatten();
    let sidecars = sidecars.filter(|container| container.restart_policy.as_deref() == Some("Always"));
    let ports = spec.containers.iter().chain(sidecars).flat_map(|container| container.ports.iter().flatten());
    ports
        .filter_map(|port| {
            let number = port.host_port.filter(|number| *number > 0)?;
            let address = port.host_ip.clone().filter(|address| !address.is_empty() && address != "::");
            Some(HostPort {
                address: address.unwrap_or_else(|| "0.0.0.0".to_owned()),
                protocol: port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()),
                port: number,
            })
        })
        .collect()
}

/// A node and the pods on it.
#[derive(Clone, Debug)]
pub(super) struct NodeInfo {
    pub(super) node: Arc<Node>,
    pub(super) allocatable: Resources,
    pub(super) pods: BTreeMap<String, Arc<PodInfo>>,
    pub(super) requested: Resources,
    pub(super) scoring: Resources,
}

impl NodeInfo {
    fn new(node: Arc<Node>) -> Self {
        let allocatable = Resources::of(node.status.as_ref().and_then(|status| status.allocatable.as_ref()));
        let empty = Resources::default;
        Self { node, allocatable, pods: BTreeMap::new(), requested: empty(), scoring: empty() }
    }

    pub(super) fn name(&self) -> String {
        self.node.name_any()
    }

    pub(super) fn add(&mut self, pod: Arc<PodInfo>) {
        self.remove(pods::uid(&pod.pod));
        self.requested.add(&pod.requests);
        self.scoring.add(&pod.scoring);
        self.pods.insert(pods::uid(&pod.pod).to_owned(), pod);
    }

    pub(super) fn remove(&mut self, uid: &str) -> Option<Arc<PodInfo>> {
        let pod = self.pods.remove(uid)?;
        self.requested.subtract(&pod.requests);
        self.scoring.subtract(&pod.scoring);
        Some(pod)
    }

    /// Returns the value of a label, by which nodes form topology domains.
    pub(super) fn domain(&self, key: &str) -> Option<&str> {
        self.node.labels().get(key).map(String::as_str)
    }
}

/// Nodes and the pods on them.
#[derive(Debug, Default)]
pub(super) struct Cluster {
    pub(super) nodes: BTreeMap<String, NodeInfo>,
    /// Node of each pod that has one.
    placed: HashMap<String, String>,
    /// Pods that are being bound: the watch does not show their node yet.
    assumed: HashMap<String, String>,
    /// Pods on nodes that are not known.
    homeless: HashMap<String, Arc<PodInfo>>,
    /// Pods that wait for victims of preemption to go, by the node that is kept for them.
    nominated: BTreeMap<String, (String, Arc<PodInfo>)>,
}

impl Cluster {
    /// Adds or replaces a node.
    pub(super) fn put_node(&mut self, node: Arc<Node>) {
        let name = node.name_any();
        let mut info = NodeInfo::new(node);
        if let Some(known) = self.nodes.remove(&name) {
            info.pods = known.pods;
            info.requested = known.requested;
            info.scoring = known.scoring;
        } else {
            let placed = &self.placed;
            let own = self.homeless.iter().filter(|(uid, _)| placed.get(*uid) == Some(&name));
            let own: Vec<Arc<PodInfo>> = own.map(|(_, pod)| pod.clone()).collect();
            for pod in own {
                self.homeless.remove(pods::uid(&pod.pod));
                info.add(pod);
            }
        }
        self.nodes.insert(name, info);
    }

    /// Removes a node. Its pods are remembered should it return.
    pub(super) fn remove_node(&mut self, name: &str) {
        if let Some(info) = self.nodes.remove(name) {
            self.homeless.extend(info.pods);
        }
    }

    /// Takes a pod into account as the watch shows it. Returns whether it holds resources no more.
    pub(super) fn put_pod(&mut self, pod: &Arc<Pod>) -> bool {
        let uid = pods::uid(pod);
        if pods::is_terminal(pod) {
            return self.remove_pod(uid);
        }
        match pods::node_name(pod) {
            Some(node) => {
                self.assumed.remove(uid);
                self.nominated.remove(uid);
                self.place(Arc::new(PodInfo::new(pod.clone())), node.to_owned());
            }
            // One that is being bound: the watch lags.
            None if self.assumed.contains_key(uid) => {}
            None => {
                self.displace(uid);
                let nominated = pod.status.as_ref().and_then(|status| status.nominated_node_name.clone());
                match nominated.filter(|node| !node.is_empty()) {
                    Some(node) => self.nominate(pod.clone(), node),
                    None => drop(self.nominated.remove(uid)),
                }
            }
        }
        false
    }

    /// Removes a pod. Returns whether it held resources.
    pub(super) fn remove_pod(&mut self, uid: &str) -> bool {
        self.assumed.remove(uid);
        self.nominated.remove(uid);
        self.displace(uid)
    }

    /// Places a pod on a node before it is bound there.
    pub(super) fn assume(&mut self, pod: Arc<Pod>, node: &str) {
        let uid = pods::uid(&pod).to_owned();
        self.assumed.insert(uid.clone(), node.to_owned());
        self.nominated.remove(&uid);
        self.place(Arc::new(PodInfo::new(pod)), node.to_owned());
    }

    /// Takes back a pod that could not be bound.
    pub(super) fn forget(&mut self, uid: &str) {
        if self.assumed.remove(uid).is_some() {
            self.displace(uid);
        }
    }

    /// Keeps a node for a pod until the victims on it have gone.
    pub(super) fn nominate(&mut self, pod: Arc<Pod>, node: String) {
        let info = Arc::new(PodInfo::new(pod.clone()));
        self.nominated.insert(pods::uid(&pod).to_owned(), (node, info));
    }

    /// Returns the node as it is for a pod: with the pods of higher or equal priority that it is kept for.
    pub(super) fn node_for<'a>(&self, pod: &PodInfo, info: &'a NodeInfo) -> std::borrow::Cow<'a, NodeInfo> {
        let name = info.name();
        let own = pods::uid(&pod.pod);
        let kept = self.nominated.iter().filter(|(uid, (node, other))| {
            *node == name && *uid != own && other.priority() >= pod.priority()
        });
        let kept: Vec<_> = kept.map(|(_, (_, other))| other.clone()).collect();
        if kept.is_empty() {
            return std::borrow::Cow::Borrowed(info);
        }
        let mut info = info.clone();
        kept.into_iter().for_each(|other| info.add(other));
        std::borrow::Cow::Owned(info)
    }

    fn place(&mut self, pod: Arc<PodInfo>, node: String) {
        let uid = pods::uid(&pod.pod).to_owned();
        self.displace(&uid);
        match self.nodes.get_mut(&node) {
            Some(info) => info.add(pod),
            None => drop(self.homeless.insert(uid.clone(), pod)),
        }
        self.placed.insert(uid, node);
    }

    fn displace(&mut self, uid: &str) -> bool {
        let Some(node) = self.placed.remove(uid) else { return false };
        self.homeless.remove(uid);
        if let Some(info) = self.nodes.get_mut(&node) {
            info.remove(uid);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(name: &str) -> Arc<Node> {
        Arc::new(serde_json::from_value(json!({"metadata": {"name": name}})).unwrap())
    }

    fn pod(uid: &str, node: Option<&str>, phase: &str) -> Arc<Pod> {
        let pod = json!({"metadata": {"name": uid, "uid": uid}, "status": {"phase": phase},
            "spec": {"nodeName": node, "containers": [{"name": "a", "resources": {"requests": {"cpu": "1"}}}]}});
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    fn requested(cluster: &Cluster) -> i64 {
        cluster.nodes["a"].requested.get("cpu")
    }

    #[test]
    fn resources_follow_pods() {
        let mut cluster = Cluster::default();
        cluster.put_pod(&pod("early", Some("a"), "Running"));
        cluster.put_node(node("a"));
        assert_eq!(requested(&cluster), 1000, "its pod was there before the node");
        cluster.assume(pod("new", None, "Pending"), "a");
        cluster.put_pod(&pod("new", None, "Pending"));
        assert_eq!(requested(&cluster), 2000, "a lagging watch does not undo the assumption");
        cluster.put_pod(&pod("new", Some("a"), "Pending"));
        assert_eq!(requested(&cluster), 2000);
        assert!(cluster.put_pod(&pod("new", Some("a"), "Succeeded")));
        assert_eq!(requested(&cluster), 1000);
        cluster.assume(pod("failing", None, "Pending"), "a");
        cluster.forget("failing");
        assert_eq!(requested(&cluster), 1000);
        cluster.put_node(node("a"));
        cluster.remove_node("a");
        cluster.put_node(node("a"));
        assert_eq!(requested(&cluster), 1000);
        assert!(cluster.remove_pod("early"));
        assert_eq!(requested(&cluster), 0);
    }
}
