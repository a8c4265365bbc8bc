//! Nodes that do not answer: their conditions, taints and pods.

mod health;
mod taint_eviction;

use std::{collections::HashMap, sync::Arc, time::Duration};

use k8s_openapi::{
    api::{
        coordination::v1::Lease,
        core::v1::{Node, Pod},
    },
    jiff::Timestamp,
};
use orlop_client::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use self::health::Heartbeat;
pub(crate) use self::taint_eviction::{NAME as TAINT_EVICTION, register as register_taint_eviction};
use crate::{
    runtime::{Context, EventForm, Informer, Key, Manager, Recorder},
    status::{is_conflict, is_not_found},
    workload::{node_match, pods},
};

/// Name of the controller.
pub(crate) const NAME: &str = "node-lifecycle-controller";
/// Source of its events.
const COMPONENT: &str = "node-controller";
const PERIOD: Duration = Duration::from_secs(5);
/// Delay before nodes are evaluated again after a conflict.
const CONFLICT_RETRY: Duration = Duration::from_millis(100);
/// Time without a heartbeat after which a node counts as lost.
const GRACE: Duration = Duration::from_secs(50);
/// The same for a node that has never sent one.
const STARTUP_GRACE: Duration = Duration::from_secs(60);
/// Time between two nodes whose pods are evicted.
const EVICTION_PERIOD: Duration = Duration::from_secs(10);
const LEASES: &str = "kube-node-lease";

/// Registers the controller.
pub(crate) fn register(manager: &mut Manager) {
    manager.register(NAME, run);
}

struct Controller {
    client: Client,
    nodes: Arc<Informer<Node>>,
    leases: Arc<Informer<Lease>>,
    pods: Arc<Informer<Pod>>,
    recorder: Arc<Recorder>,
}

async fn run(context: Context) {
    let informers = &context.informers;
    let controller = Controller {
        client: context.client.clone(),
        nodes: informers.of(),
        leases: informers.of(),
        pods: informers.of(),
        recorder: context.recorder(COMPONENT, EventForm::Counted),
    };
    tokio::join!(controller.nodes.synced(), controller.leases.synced(), controller.pods.synced());
    let changed = Arc::new(tokio::sync::Notify::new());
    let of_nodes = changed.clone();
    // A cordon or a condition shows in taints at once, not at the next tick.
    let _subscription = controller.nodes.subscribe(move |change| {
        let is_other =
            change.old.as_ref().zip(change.new.as_ref()).is_none_or(|(old, new)| {
                health::wanted_taints(old, false) != health::wanted_taints(new, false)
            });
        if is_other {
            of_nodes.notify_one();
        }
    });
    let mut known: HashMap<String, Heartbeat> = HashMap::new();
    let mut last_eviction: Option<Instant> = None;
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut had_conflict = false;
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = changed.notified() => {}
            () = sleep(CONFLICT_RETRY), if had_conflict => {}
        }
        had_conflict = controller.monitor_node_health(&mut known, &mut last_eviction).await;
    }
}

impl Controller {
    /// Evaluates the health of every node once. Returns whether a write met a conflict: a heartbeat is one, and changes nothing that
    /// would wake this controller.
    async fn monitor_node_health(
        &self,
        known: &mut HashMap<String, Heartbeat>,
        last_eviction: &mut Option<Instant>,
    ) -> bool {
        let mut had_conflict = false;
        let nodes = self.nodes.all();
        let names: Vec<String> = nodes.iter().map(|node| node.name_any()).collect();
        known.retain(|name, heartbeat| {
            let exists = names.contains(name);
            if !exists {
                let text = format!("Node {name} event: Removing Node {name} from Controller");
                self.recorder.record(heartbeat.reference(), false, "RemovingNode", "", text);
            }
            exists
        });
        // Where no node is ready the fault is more likely here than there: nobody is evicted.
        let can_evict = nodes.iter().any(|node| node_match::is_ready(node));
        for node in nodes {
            let name = node.name_any();
            let lease = self.leases.get(&Key::new(LEASES, name.clone()));
            let renewed = lease.as_ref().and_then(|lease| lease.spec.as_ref()?.renew_time.clone());
            let is_new = !known.contains_key(&name);
            let heartbeat =
                known.entry(name.clone()).or_insert_with(|| Heartbeat::new(&node, Instant::now()));
            heartbeat.observe(&node, renewed.map(|time| time.0), Instant::now());
            if is_new {
                let text = format!("Node {name} event: Registered Node {name} in Controller");
                self.recorder.normal(&*node, "RegisteredNode", text);
            }
            let grace = if heartbeat.has_reported() { GRACE } else { STARTUP_GRACE };
            let is_lost = heartbeat.age(Instant::now()) > grace;
            let was_ready = heartbeat.was_ready;
            let node = match is_lost.then(|| health::unknown_conditions(&node, Timestamp::now())).flatten() {
                None => node,
                Some(changed) => match self.write_conditions(&changed).await {
                    Some(written) => Arc::new(written),
                    None => continue,
                },
            };
            let is_ready = node_match::is_ready(&node);
            if was_ready && !is_ready {
                let text = format!("Node {name} status is now: NodeNotReady");
                self.recorder.normal(&*node, "NodeNotReady", text);
            }
            if !is_ready {
                self.mark_pods(&name).await;
            }
            if let Some(heartbeat) = known.get_mut(&name) {
                heartbeat.was_ready = is_ready;
            }
            let is_evicting = health::has_eviction_taint(&node);
            let may_begin = last_eviction.is_none_or(|last| last.elapsed() >= EVICTION_PERIOD);
            let evicts = can_evict && !is_ready && (is_evicting || may_begin);
            if evicts && !is_evicting {
                *last_eviction = Some(Instant::now());
            }
            had_conflict |= self.write_taints(&node, evicts).await;
            self.write_labels(&node).await;
        }
        had_conflict
    }

    async fn write_labels(&self, node: &Node) {
        let labels = health::missing_labels(node);
        if labels.is_empty() {
            return;
        }
        let api: Api<Node> = Api::all(self.client.clone());
        let patch = Patch::Strategic(json!({"metadata": {"uid": node.uid(), "labels": labels}}));
        match api.patch(&node.name_any(), &PatchParams::default(), &patch).await {
            Ok(written) => self.nodes.wrote(written),
            Err(error) if is_not_found(&error) || is_conflict(&error) => {}
            Err(error) => {
                tracing::debug!(%error, node = node.name_any(), "labels could not be written; trying again");
            }
        }
    }

    async fn write_conditions(&self, node: &Node) -> Option<Node> {
        let api: Api<Node> = Api::all(self.client.clone());
        match api.replace_status(&node.name_any(), &PostParams::default(), node).await {
            Ok(written) => {
                self.nodes.wrote(written.clone());
                Some(written)
            }
            Err(error) => {
                tracing::debug!(%error, node = node.name_any(), "conditions could not be written; trying again");
                None
            }
        }
    }

    /// Returns whether the write met a conflict.
    async fn write_taints(&self, node: &Node, evicts: bool) -> bool {
        let Some(taints) = health::taints(node, evicts) else { return false };
        let api: Api<Node> = Api::all(self.client.clone());
        let patch = json!({"metadata": {"resourceVersion": node.metadata.resource_version},
            "spec": {"taints": taints}});
        match api.patch(&node.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(written) => self.nodes.wrote(written),
            Err(error) if is_conflict(&error) => return true,
            Err(error) if is_not_found(&error) => {}
            Err(error) => {
                tracing::debug!(%error, node = node.name_any(), "taints could not be written; trying again");
            }
        }
        false
    }

    /// Marks the pods of a node as not ready: nobody else can.
    async fn mark_pods(&self, node: &str) {
        for pod in self.pods.all().iter().filter(|pod| pods::node_name(pod) == Some(node)) {
            if !pods::is_ready(pod) || pods::is_terminal(pod) {
                continue;
            }
            let api: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default());
            let condition = json!({"type": "Ready", "status": "False",
                "lastTransitionTime": crate::workload::time::now()});
            let patch = Patch::Strategic(
                json!({"metadata": {"uid": pod.uid()}, "status": {"conditions": [condition]}}),
            );
            match api.patch_status(&pod.name_any(), &PatchParams::default(), &patch).await {
                Ok(written) => {
                    self.recorder.warning(&written, "NodeNotReady", "Node is not ready");
                    self.pods.wrote(written);
                }
                Err(error) if is_conflict(&error) || is_not_found(&error) => {}
                Err(error) => tracing::debug!(%error, "pod could not be marked as not ready; trying again"),
            }
        }
    }
}
