//! Deletes pods that do not tolerate a NoExecute taint of their node, or only for a time.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use k8s_openapi::api::core::v1::{Node, Pod, Taint, Toleration};
use orlop_client::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};
use serde_json::json;
use tokio::time::Instant;

use crate::{
    runtime::{Action, Context, EventForm, Informer, Key, Manager, Recorder},
    status::{is_conflict, is_not_found},
    workload::{
        node_match::{taints, tolerates},
        pods,
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
    /// Uid of each pod that tolerates a taint for a time, and since when: from the first time that this controller saw it.
    /// Not every taint says when it was added, and a pod may come later.
    scheduled: Mutex<HashMap<Key, (String, Instant)>>,
}

async fn run(context: Context) {
    let controller = Arc::new(Controller {
        client: context.client.clone(),
        nodes: context.informers.of(),
        pods: context.informers.of(),
        recorder: context.recorder(NAME, EventForm::Counted),
        scheduled: Mutex::default(),
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
            let (queue, nodes, controller) = (queue.clone(), nodes.clone(), controller.clone());
            all_pods.subscribe(move |change| {
                let Some(pod) = change.new.as_ref() else {
                    change.old.iter().for_each(|pod| drop(controller.scheduled().remove(&Key::of(&**pod))));
                    return;
                };
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

/// Time for which a pod may stay on its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stay {
    /// Not at all: it does not tolerate a taint.
    Never,
    /// As long as it tolerates the taints.
    For(Duration),
    Forever,
}

/// Returns the time for which a pod may stay: the shortest toleration counts.
fn stay(taints: &[Taint], tolerations: &[Toleration]) -> Stay {
    let mut shortest: Option<i64> = None;
    for taint in no_execute(taints) {
        let tolerating: Vec<&Toleration> =
            tolerations.iter().filter(|known| tolerates(known, &taint)).collect();
        if tolerating.is_empty() {
            return Stay::Never;
        }
        let seconds = tolerating.iter().filter_map(|known| known.toleration_seconds).min();
        shortest = shortest.into_iter().chain(seconds).min();
    }
    let limit = |seconds: i64| Stay::For(Duration::from_secs(seconds.max(0).unsigned_abs()));
    shortest.map_or(Stay::Forever, limit)
}

impl Controller {
    fn scheduled(&self) -> MutexGuard<'_, HashMap<Key, (String, Instant)>> {
        self.scheduled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns since when a pod waits for its eviction.
    fn schedule(&self, key: &Key, pod: &Pod) -> Instant {
        let mut scheduled = self.scheduled();
        let known = scheduled.get(key).filter(|(uid, _)| uid == pods::uid(pod)).map(|(_, since)| *since);
        let since = known.unwrap_or_else(Instant::now);
        scheduled.insert(key.clone(), (pods::uid(pod).to_owned(), since));
        since
    }

    /// Takes back the eviction of a pod, if there was to be one.
    fn cancel(&self, key: &Key, pod: &Pod) {
        let was_scheduled = self.scheduled().remove(key).is_some_and(|(uid, _)| uid == pods::uid(pod));
        if was_scheduled {
            self.recorder.normal(pod, "TaintManagerEviction", format!("Cancelling deletion of Pod {key}"));
        }
    }

    async fn reconcile(&self, key: &Key) -> orlop_client::Result<Action> {
        let Some(pod) = self.pods.get(key).filter(|pod| !pods::is_deleting(pod)) else {
            return Ok(Action::Done);
        };
        let node = pods::node_name(&pod).and_then(|name| self.nodes.get(&Key::new("", name)));
        let Some(node) = node else { return Ok(Action::Done) };
        let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default();
        match stay(taints(&node), tolerations) {
            Stay::Forever => {
                self.cancel(key, &pod);
                return Ok(Action::Done);
            }
            Stay::For(limit) => {
                let left = limit.saturating_sub(self.schedule(key, &pod).elapsed());
                if !left.is_zero() {
                    return Ok(Action::After(left));
                }
            }
            Stay::Never => self.cancel(key, &pod),
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
            _ => {
                self.scheduled().remove(key);
                Ok(Action::Done)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortest_toleration_decides() {
        let taint = |key: &str| -> Taint {
            serde_json::from_value(json!({"key": key, "effect": "NoExecute"})).unwrap()
        };
        let toleration = |key: &str, seconds: Option<i64>| -> Toleration {
            serde_json::from_value(json!({"key": key, "operator": "Exists", "tolerationSeconds": seconds}))
                .unwrap()
        };
        let (k, other) = (taint("k"), taint("other"));
        let one = std::slice::from_ref(&k);
        assert_eq!(stay(one, &[]), Stay::Never);
        assert_eq!(stay(one, &[toleration("k", None)]), Stay::Forever);
        let both = [toleration("k", Some(300)), toleration("k", Some(100))];
        assert_eq!(stay(one, &both), Stay::For(Duration::from_secs(100)));
        assert_eq!(stay(one, &[toleration("k", Some(-1))]), Stay::For(Duration::ZERO));
        assert_eq!(stay(&[k.clone(), other.clone()], &both), Stay::Never);
        let more = [both[0].clone(), toleration("other", None)];
        assert_eq!(stay(&[k, other], &more), Stay::For(Duration::from_secs(300)));
        assert_eq!(stay(&[], &[]), Stay::Forever);
    }
}
