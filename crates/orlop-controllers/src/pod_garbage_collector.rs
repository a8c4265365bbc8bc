//! Deletes pods that nobody else will: of nodes that are gone, never bound, or finished and too many.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::core::v1::{Node, Pod};
use orlop_client::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};
use serde_json::json;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::{
    runtime::{Context, Manager},
    status::{is_conflict, is_not_found},
    workload::{node_match, pods, time::now},
};

/// Name of the controller.
pub(crate) const NAME: &str = "pod-garbage-collector-controller";
const PERIOD: Duration = Duration::from_secs(20);
/// Time that a node must be gone.
const QUARANTINE: Duration = Duration::from_secs(40);
/// Finished pods that are kept.
const TERMINATED_MAX: usize = 12_500;
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// Registers the controller.
pub(crate) fn register(manager: &mut Manager) {
    manager.register(NAME, run);
}

async fn run(context: Context) {
    let (all_pods, nodes) = (context.informers.of::<Pod>(), context.informers.of::<Node>());
    tokio::join!(all_pods.synced(), nodes.synced());
    let mut missing: HashMap<String, Instant> = HashMap::new();
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let (pods, nodes) = (all_pods.all(), nodes.all());
        let known: BTreeSet<String> = nodes.iter().map(|node| node.name_any()).collect();
        let absent = pods.iter().filter_map(|pod| pods::node_name(pod)).filter(|name| !known.contains(*name));
        let absent: BTreeSet<String> = absent.map(str::to_owned).collect();
        missing.retain(|name, _| absent.contains(name));
        let mut gone = BTreeSet::new();
        for name in absent {
            let since = *missing.entry(name.clone()).or_insert_with(Instant::now);
            if since.elapsed() >= QUARANTINE && is_gone(&context.client, &name).await {
                gone.insert(name);
            }
        }
        for (pod, reason) in garbage(&pods, &nodes, &gone, TERMINATED_MAX) {
            if let Err(error) = delete(&context.client, &pod, reason).await {
                tracing::debug!(%error, pod = pod.name_any(), "pod could not be deleted; trying again later");
            }
        }
    }
}

async fn is_gone(client: &Client, name: &str) -> bool {
    matches!(Api::<Node>::all(client.clone()).get_opt(name).await, Ok(None))
}

/// Reason that a pod is garbage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    Terminated,
    NodeGone,
    OutOfService,
    NeverScheduled,
}

/// Returns the pods to delete.
fn garbage(
    pods: &[Arc<Pod>],
    nodes: &[Arc<Node>],
    gone: &BTreeSet<String>,
    terminated_max: usize,
) -> Vec<(Arc<Pod>, Reason)> {
    let mut garbage = Vec::new();
    let mut terminated: Vec<&Arc<Pod>> = pods.iter().filter(|pod| pods::is_terminal(pod)).collect();
    // Evicted ones first, then the oldest.
    terminated.sort_by_key(|pod| {
        let reason = pod.status.as_ref().and_then(|status| status.reason.as_deref());
        (reason != Some("Evicted"), pod.metadata.creation_timestamp.as_ref().map(|time| time.0))
    });
    let surplus = terminated.len().saturating_sub(terminated_max);
    garbage.extend(terminated.into_iter().take(surplus).map(|pod| (pod.clone(), Reason::Terminated)));
    let out_of_service = |name: &str| {
        let node = nodes.iter().find(|node| node.metadata.name.as_deref() == Some(name));
        node.is_some_and(|node| {
            !node_match::is_ready(node)
                && node_match::taints(node).iter().any(|taint| taint.key == OUT_OF_SERVICE)
        })
    };
    for pod in pods {
        match pods::node_name(pod) {
            None if pods::is_deleting(pod) => garbage.push((pod.clone(), Reason::NeverScheduled)),
            Some(node) if gone.contains(node) => garbage.push((pod.clone(), Reason::NodeGone)),
            Some(node) if pods::is_deleting(pod) && out_of_service(node) => {
                garbage.push((pod.clone(), Reason::OutOfService));
            }
            _ => {}
        }
    }
    garbage
}

/// Marks a pod as failed that cannot say so itself, and deletes it at once.
async fn delete(client: &Client, pod: &Pod, reason: Reason) -> orlop_client::Result<()> {
    let api: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
    let name = pod.name_any();
    let ignore = |result: orlop_client::Result<()>| match result {
        Err(error) if is_not_found(&error) || is_conflict(&error) => Ok(()),
        other => other,
    };
    if !pods::is_terminal(pod) {
        let mut status = json!({"phase": "Failed"});
        if reason == Reason::NodeGone {
            status["conditions"] = json!([{"type": "DisruptionTarget", "status": "True",
                "reason": "DeletionByPodGC", "message": "PodGC: node no longer exists", "lastTransitionTime": now()}]);
        }
        let patch = Patch::Strategic(json!({"metadata": {"uid": pod.uid()}, "status": status}));
        ignore(api.patch_status(&name, &PatchParams::default(), &patch).await.map(drop))?;
    }
    let preconditions = Preconditions { uid: pod.uid(), resource_version: None };
    let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    ignore(api.delete(&name, &parameters.grace_period(0)).await.map(drop))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn garbage_is_found() {
        let pod = |name: &str, node: Option<&str>, phase: &str, deleting: bool| {
            let deleted: Value = if deleting { json!("2026-01-01T00:00:00Z") } else { Value::Null };
            let pod = json!({"metadata": {"name": name, "deletionTimestamp": deleted},
                "spec": {"nodeName": node, "containers": []}, "status": {"phase": phase}});
            Arc::new(serde_json::from_value::<Pod>(pod).unwrap())
        };
        let node: Node = serde_json::from_value(json!({"metadata": {"name": "broken"},
            "spec": {"taints": [{"key": OUT_OF_SERVICE, "effect": "NoExecute"}]}}))
        .unwrap();
        let pods = [
            pod("fine", Some("a"), "Running", false),
            pod("lost", Some("gone"), "Running", false),
            pod("unbound", None, "Pending", true),
            pod("stuck", Some("broken"), "Running", true),
            pod("done", Some("a"), "Succeeded", false),
        ];
        let gone = BTreeSet::from(["gone".to_owned()]);
        let found = garbage(&pods, &[Arc::new(node)], &gone, 0);
        let found: Vec<(String, Reason)> =
            found.iter().map(|(pod, reason)| (pod.name_any(), *reason)).collect();
        let wanted = [
            ("done", Reason::Terminated),
            ("lost", Reason::NodeGone),
            ("unbound", Reason::NeverScheduled),
            ("stuck", Reason::OutOfService),
        ];
        assert_eq!(found, wanted.map(|(name, reason)| (name.to_owned(), reason)));
    }
}
