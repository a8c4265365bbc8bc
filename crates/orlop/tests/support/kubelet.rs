//! A stand-in for kubelets: pods that are bound run and are ready at once, and go as soon as they are deleted.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use orlop_client::{
    Api, Client, Config, Kubeconfig, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::{Value, json};

use super::Server;

/// Nodes of a server, until dropped.
pub(crate) struct Kubelets {
    _runtime: tokio::runtime::Runtime,
}

impl Kubelets {
    /// Adds nodes to a server. Containers of the image `local/task` end at once, all others run on.
    pub(crate) fn start(server: &Server, nodes: &[&str]) -> Self {
        let kubeconfig = server.ready()["kubeconfig"].as_str().expect("a kubeconfig").to_owned();
        let nodes: Vec<String> = nodes.iter().map(|name| (*name).to_owned()).collect();
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        runtime.spawn(async move {
            let kubeconfig = Kubeconfig::read_from(Path::new(&kubeconfig)).expect("a kubeconfig");
            let config = Config::of(&kubeconfig).expect("a configuration");
            run(Client::connect(config).await.expect("a client"), &nodes).await;
        });
        Self { _runtime: runtime }
    }
}

fn resource(kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", kind))
}

async fn run(client: Client, names: &[String]) {
    let nodes: Api<DynamicObject> = Api::all_with(client.clone(), &resource("Node"));
    for name in names {
        let labels = json!({"kubernetes.io/hostname": name});
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}});
        let node = serde_json::from_value(node).expect("a node");
        nodes.create(&PostParams::default(), &node).await.expect("created");
        let resources = json!({"cpu": "8", "memory": "16Gi", "pods": "110"});
        let status = json!({"status": {"capacity": resources, "allocatable": resources,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]}});
        nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.expect("patched");
    }
    let pods: Api<DynamicObject> = Api::all_with(client.clone(), &resource("Pod"));
    let mut next = 0_usize;
    let (mut beaten, mut beats): (Option<Instant>, u32) = (None, 0);
    loop {
        // Without heartbeats the node lifecycle controller gives nodes up.
        if beaten.is_none_or(|beaten| beaten.elapsed() > Duration::from_secs(10)) {
            beaten = Some(Instant::now());
            beats += 1;
            // A heartbeat is a change of the time, whatever it is.
            let time = format!("2026-01-01T{:02}:{:02}:00Z", beats / 60 % 24, beats % 60);
            for name in names {
                let beat = json!({"status": {"conditions": [{"type": "Ready", "status": "True",
                    "reason": "KubeletReady", "lastHeartbeatTime": time}]}});
                let _ = nodes.patch_status(name, &PatchParams::default(), &Patch::Strategic(beat)).await;
            }
        }
        for pod in pods.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default() {
            if pod.data.pointer("/spec/nodeName").is_none() {
                continue;
            }
            let namespace = pod.namespace().unwrap_or_default();
            let own: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &resource("Pod"));
            if pod.metadata.deletion_timestamp.is_some() {
                let _ = own.delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await;
            } else if pod.data.pointer("/status/phase") == Some(&json!("Pending")) {
                next += 1;
                let patch = Patch::Strategic(json!({"status": status(&pod, next)}));
                let _ = own.patch_status(&pod.name_any(), &PatchParams::default(), &patch).await;
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn status(pod: &DynamicObject, number: usize) -> Value {
    let address = format!("10.8.{}.{}", number / 250 % 250, number % 250 + 1);
    let is_task = pod.data.pointer("/spec/containers/0/image") == Some(&json!("local/task"));
    let (phase, ready) = if is_task { ("Succeeded", "False") } else { ("Running", "True") };
    json!({"phase": phase, "podIP": address, "podIPs": [{"ip": address}],
        "conditions": [{"type": "Ready", "status": ready}]})
}
