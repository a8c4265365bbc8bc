//! Deletes pods that do not tolerate a NoExecute taint of their node, or only for a time.

use std::{sync::Arc, time::Duration};

use k8s_openapi::{
    api::core::v1::{Node, Pod, Taint, Toleration},
    jiff::Timestamp,
};
use orlop_client::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};
use serde_json::json;

use crate::{
    runtime::{Action, Context, EventForm, Informer, Key, Manager, Recorder},
    status::{is_conflict, is_not_found},
    workload::{
        node_match::{taints, tolerates},
        pods,
        time::{plus_seconds, until},
    },
};

/// Name of the controller.
pub(crate) const NAME: &str = "taint-eviction-controller";
const CONCURRENCY: usize = 8;

/// Registers the controller.
pub(crate) fn register(manager: &mut Manager) {
    manager.register(NAME, run);
}

struct Controller {
    client: Client,
    nodes: Arc<Informer<Node>>,
    pods: Arc<Informer<Pod>>,
    recorder: Arc<Recorder>,
}

async fn run(context: Context) {
    let controller = Arc::new(Controller {
        client: context.client.clone(),
        nodes: context.informers.of(),
        pods: context.informers.of(),
        recorder: context.recorder(NAME, EventForm::Counted),
    });
    let Controller { nodes, pods: all_pods, .. } = &*controller;
    tokio::join!(nodes.synced(), all_pods.synced());
    let queue = context.work_queue::<Key>();
    let subscriptions = (
        {
            let (queue, pods) = (queue.clone(), all_pods.clone());
            nodes.subscribe(move |change| {
                let taints_of = |node: &Option<Arc<Node>>| {
                    node.as_ref().map(|node| no_execute(taints(node))).unwrap_or_default()
                };
                if taints_of(&change.old) == taints_of(&change.new) {
                    return;
                }
                let Some(node) = change.latest().map(|node| node.name_any()) else { return };
                let own = pods.all().into_iter().filter(|pod| pods::node_name(pod) == Some(node.as_str()));
                own.for_each(|pod| queue.add(Key::of(&*pod)));
            })
        },
        {
            let (queue, nodes) = (queue.clone(), nodes.clone());
            all_pods.subscribe(move |change| {
                let Some(pod) = change.new.as_ref() else { return };
                let node = pods::node_name(pod).and_then(|name| nodes.get(&Key::new("", name)));
                if node.is_some_and(|node| !no_execute(taints(&node)).is_empty()) {
                    queue.add(Key::of(&**pod));
                }
            })
        },
    );
    queue
        .run(CONCURRENCY, |key| {
            let controller = controller.clone();
            async move { controller.reconcile(&key).await }
        })
        .await;
    drop(subscriptions);
}

fn no_execute(taints: &[Taint]) -> Vec<Taint> {
    taints.iter().filter(|taint| taint.effect == "NoExecute").cloned().collect()
}

/// Returns the time at which a pod must go, if it must.
fn eviction(taints: &[Taint], tolerations: &[Toleration], now: Timestamp) -> Option<Timestamp> {
    let mut due: Option<Timestamp> = None;
    for taint in no_execute(taints) {
        let tolerating: Vec<&Toleration> =
            tolerations.iter().filter(|known| tolerates(known, &taint)).collect();
        if tolerating.is_empty() {
            return Some(now);
        }
        let since = taint.time_added.as_ref().map_or(now, |time| time.0);
        let seconds = tolerating.iter().filter_map(|known| known.toleration_seconds).min();
        if let Some(seconds) = seconds {
            let at = plus_seconds(since, seconds.max(0));
            due = Some(due.map_or(at, |due| due.min(at)));
        }
    }
    due
}

impl Controller {
    async fn reconcile(&self, key: &Key) -> orlop_client::Result<Action> {
        let Some(pod) = self.pods.get(key).filter(|pod| !pods::is_deleting(pod)) else {
            return Ok(Action::Done);
        };
        let node = pods::node_name(&pod).and_then(|name| self.nodes.get(&Key::new("", name)));
        let Some(node) = node else { return Ok(Action::Done) };
        let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default();
        let now = Timestamp::now();
        let Some(due) = eviction(taints(&node), tolerations, now) else { return Ok(Action::Done) };
        if due > now {
            return Ok(Action::After(until(due, now).max(Duration::from_millis(1))));
        }
        self.recorder.normal(&*pod, "TaintManagerEviction", format!("Marking for deletion Pod {key}"));
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
        let condition = json!({"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager",
            "message": "Taint manager: deleting due to NoExecute taint",
            "lastTransitionTime": crate::workload::time::now()});
        let patch =
            Patch::Strategic(json!({"metadata": {"uid": pod.uid()}, "status": {"conditions": [condition]}}));
        let patched = api.patch_status(&key.name, &PatchParams::default(), &patch).await.map(drop);
        let preconditions = Preconditions { uid: pod.uid(), resource_version: None };
        let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        let deleted = match patched {
            Ok(()) => api.delete(&key.name, &parameters).await.map(drop),
            failed => failed,
        };
        match deleted {
            Err(error) if !is_not_found(&error) && !is_conflict(&error) => Err(error),
            _ => Ok(Action::Done),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smallest_toleration_decides() {
        let now = Timestamp::from_second(1000).unwrap();
        let taint: Taint = serde_json::from_value(json!({"key": "k", "effect": "NoExecute",
            "timeAdded": "1970-01-01T00:16:00Z"}))
        .unwrap();
        let toleration = |seconds: Option<i64>| -> Toleration {
            serde_json::from_value(json!({"key": "k", "operator": "Exists", "tolerationSeconds": seconds}))
                .unwrap()
        };
        let due = |tolerations: &[Toleration]| eviction(std::slice::from_ref(&taint), tolerations, now);
        assert_eq!(due(&[]), Some(now));
        assert_eq!(due(&[toleration(None)]), None);
        let both = [toleration(Some(300)), toleration(Some(100))];
        assert_eq!(due(&both), Some(Timestamp::from_second(1060).unwrap()));
        assert_eq!(eviction(&[], &[], now), None);
    }
}
