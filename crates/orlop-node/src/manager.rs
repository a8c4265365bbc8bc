//! Workers of all pods on this node.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use orlop_client::{
    Api, watch_kind,
    watcher::{self, Event},
};
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
    time::timeout,
};

use crate::{
    context::Node,
    runtime::Found,
    worker::{Desired, Worker},
};

/// Time beyond the grace for containers to end when the node stops.
const SHUTDOWN_MARGIN: Duration = Duration::from_secs(5);

/// A pod from another source than the API, or its removal.
#[derive(Debug)]
pub(crate) enum StaticChange {
    /// A pod, and the number of objects that have stood for it in the API.
    Apply(Arc<Pod>, u64),
    Remove(String),
}

#[derive(Debug)]
struct Handle {
    desired: watch::Sender<Desired>,
    task: JoinHandle<()>,
}

/// Workers by pod uid.
#[derive(Debug)]
pub(crate) struct Manager {
    node: Arc<Node>,
    workers: HashMap<String, Handle>,
    /// Uids of static pods, which the API does not decide about.
    static_pods: HashSet<String>,
}

impl Manager {
    pub(crate) fn new(node: Arc<Node>) -> Self {
        Self { node, workers: HashMap::new(), static_pods: HashSet::new() }
    }

    /// Follows the pods that are bound to this node until `shutdown`, then stops them.
    pub(crate) async fn run(
        mut self,
        mut changes: mpsc::Receiver<StaticChange>,
        shutdown: impl Future<Output = ()>,
    ) {
        let pods: Api<Pod> = Api::all(self.node.client.0.clone());
        let mine = watcher::Config::default().fields(&format!("spec.nodeName={}", self.node.settings.name));
        let mut events = watch_kind(&pods, mine);
        let mut listed = HashSet::new();
        let mut shutdown = std::pin::pin!(shutdown);
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                event = events.next() => match event {
                    Some(Ok(event)) => self.handle(event, &mut listed),
                    Some(Err(error)) => tracing::warn!(%error, "cannot watch pods"),
                    None => break,
                },
                Some(change) = changes.recv() => match change {
                    StaticChange::Apply(pod, mirror) => {
                        self.static_pods.insert(uid(&pod));
                        self.apply_wanted(Desired { mirror, ..Desired::new(pod) });
                    }
                    StaticChange::Remove(uid) => {
                        self.static_pods.remove(&uid);
                        self.remove(&uid);
                    }
                },
            }
        }
        self.stop().await;
    }

    fn handle(&mut self, event: Event<Pod>, listed: &mut HashSet<String>) {
        match event {
            Event::Init => listed.clear(),
            Event::InitApply(pod) => {
                listed.insert(uid(&pod));
                self.apply(Arc::new(pod));
            }
            Event::InitDone => {
                let gone: Vec<String> = self
                    .workers
                    .keys()
                    .filter(|uid| !listed.contains(*uid) && !self.static_pods.contains(*uid))
                    .cloned()
                    .collect();
                gone.iter().for_each(|uid| self.remove(uid));
                self.remove_orphans();
            }
            Event::Apply(pod) => self.apply(Arc::new(pod)),
            Event::Delete(pod) => self.remove(&uid(&pod)),
        }
    }

    fn apply(&mut self, pod: Arc<Pod>) {
        if !is_mirror(&pod) {
            self.apply_wanted(Desired::new(pod));
        }
    }

    fn apply_wanted(&mut self, wanted: Desired) {
        let uid = uid(&wanted.pod);
        self.workers.retain(|_, handle| !handle.task.is_finished());
        if let Some(handle) = self.workers.get(&uid) {
            handle.desired.send_replace(wanted);
            return;
        }
        let (desired, receiver) = watch::channel(wanted);
        let worker = Worker::new(self.node.clone(), receiver);
        let task = tokio::spawn(worker.run());
        self.workers.insert(uid, Handle { desired, task });
    }

    fn remove(&mut self, uid: &str) {
        if let Some(handle) = self.workers.get(uid) {
            handle.desired.send_modify(|desired| desired.removed = true);
        }
    }

    /// Ends what an earlier process left of pods that are gone.
    fn remove_orphans(&self) {
        for uid in self.node.runtime.pods() {
            if self.workers.contains_key(&uid) {
                continue;
            }
            let node = self.node.clone();
            tokio::spawn(async move {
                for container in node.runtime.containers(&uid) {
                    for run in node.runtime.runs(&uid, &container) {
                        if let Found::Alive(alive) = node.runtime.find(&uid, &container, run) {
                            tracing::info!(uid, container, "ending a container whose pod is gone");
                            alive.kill_and_wait().await;
                        }
                    }
                }
                node.remove_files(&uid, None).await;
            });
        }
    }

    /// Stops every pod's processes.
    async fn stop(self) {
        for handle in self.workers.values() {
            handle.desired.send_modify(|desired| desired.shutdown = true);
        }
        let limit = self.node.settings.shutdown_grace + SHUTDOWN_MARGIN;
        let all = async {
            for (_, handle) in self.workers {
                let _ = handle.task.await;
            }
        };
        if timeout(limit, all).await.is_err() {
            tracing::warn!("containers were still running when the node stopped");
        }
    }
}

fn uid(pod: &Pod) -> String {
    pod.metadata.uid.clone().unwrap_or_default()
}

/// Returns true for the image of a static pod in the API, which does not run by itself.
fn is_mirror(pod: &Pod) -> bool {
    let annotations = pod.metadata.annotations.as_ref();
    annotations.is_some_and(|annotations| annotations.contains_key("kubernetes.io/config.mirror"))
}
