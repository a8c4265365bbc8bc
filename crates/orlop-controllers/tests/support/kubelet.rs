//! A stand-in for a kubelet: a Node, whose pods run and are ready as soon as they are bound, unless a test wants
//! otherwise, and are gone as soon as they are deleted.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    runtime::{
        WatchStreamExt,
        watcher::{self, watcher},
    },
};
use serde_json::{Value, json};

/// Outcome of running a pod: the patch of its status, or nothing.
pub(crate) type Outcome = Arc<dyn Fn(&Pod) -> Option<Value> + Send + Sync>;

/// Returns the status of a pod that runs and is ready.
pub(crate) fn ready(address: &str) -> Value {
    let now = k8s_openapi::jiff::Timestamp::now().to_string();
    json!({"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "startTime": now,
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": now}]})
}

/// A node that runs every pod.
pub(crate) async fn start(client: &Client, name: &str) -> tokio::task::JoinHandle<()> {
    start_with(client, name, json!({}), Arc::new(|_| None)).await
}

/// A node with more fields, whose pods fare as `outcome` says; `None` is a pod that is ready.
pub(crate) async fn start_with(
    client: &Client,
    name: &str,
    change: Value,
    outcome: Outcome,
) -> tokio::task::JoinHandle<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let mut node = json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}});
    for (key, value) in change.as_object().into_iter().flatten() {
        node[key] = value.clone();
    }
    let node: Node = serde_json::from_value(node).unwrap();
    nodes.create(&PostParams::default(), &node).await.unwrap();
    let resources = json!({"cpu": "8", "memory": "16Gi", "pods": "200"});
    let status = json!({"status": {"capacity": resources, "allocatable": resources,
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]}});
    nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    let (client, name) = (client.clone(), name.to_owned());
    tokio::spawn(async move { run(client, name, outcome).await })
}

async fn beat(client: &Client, node: &str) {
    let now = k8s_openapi::jiff::Timestamp::now().to_string();
    let beat = json!({"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady",
        "lastHeartbeatTime": now}]}});
    let nodes: Api<Node> = Api::all(client.clone());
    let _ = nodes.patch_status(node, &PatchParams::default(), &Patch::Strategic(beat)).await;
}

async fn run(client: Client, node: String, outcome: Outcome) {
    let config = watcher::Config::default().fields(&format!("spec.nodeName={node}"));
    let mut pods =
        watcher(Api::<Pod>::all(client.clone()), config).default_backoff().applied_objects().boxed();
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    let mut beats = tokio::time::interval(std::time::Duration::from_secs(10));
    loop {
        let pod = tokio::select! {
            // Without heartbeats the node lifecycle controller gives the node up.
            _ = beats.tick() => {
                beat(&client, &node).await;
                continue;
            }
            pod = pods.next() => match pod {
                Some(Ok(pod)) => pod,
                _ => return,
            },
        };
        let api: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap());
        let name = pod.name_any();
        if pod.metadata.deletion_timestamp.is_some() {
            let _ = api.delete(&name, &DeleteParams::default().grace_period(0)).await;
            continue;
        }
        let phase = pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
        if phase != "Pending" {
            continue;
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let address = format!("10.9.{}.{}", number / 250 % 250, number % 250 + 1);
        let status = outcome(&pod).unwrap_or_else(|| ready(&address));
        if status.is_null() {
            continue;
        }
        let patch = Patch::Strategic(json!({"status": status}));
        let _ = api.patch_status(&name, &PatchParams::default(), &patch).await;
    }
}
