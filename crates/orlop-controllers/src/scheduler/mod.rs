//! The scheduler: a node for every pod that has none.
//!
//! One pod at a time is placed: filters say which nodes can run it, scores which suits best. The pod is assumed there
//! at once and bound in the background, so that the next one sees it. `filter`, `score` and `preempt` are pure.

mod affinity;
mod binding;
mod cluster;
mod decision;
mod failure;
mod filter;
mod preempt;
mod queue;
mod rejection;
mod score;
mod spread;
mod volumes;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::{
    core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod},
    policy::v1::PodDisruptionBudget,
    storage::v1::StorageClass,
};
use orlop_client::{Client, ResourceExt};
use tokio::{
    sync::{Notify, Semaphore},
    task::JoinSet,
    time::{Instant, timeout_at},
};

use self::{
    cluster::{Cluster, priority},
    decision::Decision,
    queue::Queue,
    volumes::Storage,
};
use crate::{
    runtime::{Change, Context, EventForm, Informer, Key, Manager, Recorder},
    workload::pods,
};

/// Name among the controllers.
pub(crate) const NAME: &str = "kube-scheduler";
/// Name by which pods choose it, and source of its events.
const SCHEDULER: &str = "default-scheduler";
/// Pods that are bound at a time.
const BINDINGS_MAX: usize = 64;

/// Registers the scheduler.
pub(crate) fn register(manager: &mut Manager) {
    manager.register(NAME, run);
}

struct Scheduler {
    client: Client,
    pods: Arc<Informer<Pod>>,
    claims: Arc<Informer<PersistentVolumeClaim>>,
    volumes: Arc<Informer<PersistentVolume>>,
    classes: Arc<Informer<StorageClass>>,
    namespaces: Arc<Informer<Namespace>>,
    budgets: Arc<Informer<PodDisruptionBudget>>,
    recorder: Arc<Recorder>,
    state: Mutex<State>,
    /// The queue has something new.
    changed: Notify,
    /// A claim has changed.
    claim_changed: Notify,
}

#[derive(Default)]
struct State {
    cluster: Cluster,
    queue: Queue,
}

async fn run(context: Context) {
    let informers = &context.informers;
    let nodes = informers.of::<Node>();
    let scheduler = Arc::new(Scheduler {
        client: context.client.clone(),
        pods: informers.of(),
        claims: informers.of(),
        volumes: informers.of(),
        classes: informers.of(),
        namespaces: informers.of(),
        budgets: informers.of(),
        recorder: context.recorder(SCHEDULER, EventForm::Series),
        state: Mutex::default(),
        changed: Notify::new(),
        claim_changed: Notify::new(),
    });
    tokio::join!(
        nodes.synced(),
        scheduler.pods.synced(),
        scheduler.claims.synced(),
        scheduler.volumes.synced(),
        scheduler.classes.synced(),
        scheduler.namespaces.synced(),
        scheduler.budgets.synced(),
    );
    let own = || scheduler.clone();
    let (of_nodes, of_pods) = (own(), own());
    let (of_claims, of_volumes, of_classes) = (own(), own(), own());
    let subscriptions = (
        nodes.subscribe(move |change| of_nodes.node_changed(change)),
        scheduler.pods.subscribe(move |change| of_pods.pod_changed(change)),
        scheduler.claims.subscribe(move |_| {
            of_claims.wake();
            of_claims.claim_changed.notify_waiters();
        }),
        scheduler.volumes.subscribe(move |_| of_volumes.wake()),
        scheduler.classes.subscribe(move |_| of_classes.wake()),
    );
    scheduler.run().await;
    drop(subscriptions);
}

impl Scheduler {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tries pods again that no node could run.
    fn wake(&self) {
        self.lock().queue.wake(Instant::now());
        self.changed.notify_one();
    }

    fn node_changed(&self, change: &Change<Node>) {
        match (&change.old, &change.new) {
            (Some(old), None) => self.lock().cluster.remove_node(&old.name_any()),
            (old, Some(new)) => {
                self.lock().cluster.put_node(new.clone());
                if old.as_ref().is_none_or(|old| is_other_place(old, new)) {
                    self.wake();
                }
            }
            (None, None) => {}
        }
    }

    fn pod_changed(&self, change: &Change<Pod>) {
        let Some(pod) = change.latest() else { return };
        let mut state = self.lock();
        if let (Some(old), Some(new)) = (&change.old, &change.new)
            && old.metadata.uid != new.metadata.uid
        {
            state.cluster.remove_pod(pods::uid(old));
        }
        let has_freed = match change.new {
            Some(_) => state.cluster.put_pod(pod),
            None => state.cluster.remove_pod(pods::uid(pod)),
        };
        let key = Key::of(&**pod);
        if change.new.is_some() && is_waiting(pod) {
            // Only what a decision depends on: a condition that this scheduler wrote is no reason to try again.
            let is_new = change.old.as_ref().is_none_or(|old| {
                old.metadata.uid != pod.metadata.uid
                    || old.spec != pod.spec
                    || old.metadata.labels != pod.metadata.labels
            });
            if is_new {
                state.queue.add(key, priority(pod));
            }
        } else {
            state.queue.remove(&key);
        }
        let now_bound = change.new.as_ref().is_some_and(|pod| pods::node_name(pod).is_some());
        let was_bound = change.old.as_ref().is_some_and(|pod| pods::node_name(pod).is_some());
        // A pod that came can be what another wants to be near.
        if has_freed || now_bound && !was_bound {
            state.queue.wake(Instant::now());
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Schedules pods, for ever.
    async fn run(self: Arc<Self>) {
        let mut bindings = JoinSet::new();
        let permits = Arc::new(Semaphore::new(BINDINGS_MAX));
        loop {
            while bindings.try_join_next().is_some() {}
            let (next, due) = {
                let mut state = self.lock();
                (state.queue.pop(Instant::now()), state.queue.due())
            };
            let Some(key) = next else {
                match due {
                    Some(due) => drop(timeout_at(due, self.changed.notified()).await),
                    None => self.changed.notified().await,
                }
                continue;
            };
            let Some(pod) = self.pods.get(&key).filter(|pod| is_waiting(pod)) else {
                self.lock().queue.remove(&key);
                continue;
            };
            match self.decide(&pod) {
                Decision::Bind { node, volumes } => {
                    let Ok(permit) = permits.clone().acquire_owned().await else { return };
                    let scheduler = self.clone();
                    bindings.spawn(async move {
                        scheduler.bind(key, pod, node, volumes).await;
                        drop(permit);
                    });
                }
                Decision::Unschedulable(failure) => self.report(&key, &pod, *failure).await,
            }
        }
    }

    /// Decides on a pod. One that can be bound is assumed on its node.
    fn decide(&self, pod: &Arc<Pod>) -> Decision {
        let mut state = self.lock();
        let namespaces = affinity::namespaces(&self.namespaces.all());
        let decision = decision::decide(pod, &state.cluster, self, &namespaces, || self.budgets.all());
        if let Decision::Bind { node, .. } = &decision {
            state.cluster.assume(pod.clone(), node);
        }
        decision
    }
}

impl Storage for Scheduler {
    fn claim(&self, key: &Key) -> Option<Arc<PersistentVolumeClaim>> {
        self.claims.get(key)
    }

    fn volume(&self, name: &str) -> Option<Arc<PersistentVolume>> {
        self.volumes.get(&Key::new("", name))
    }

    fn volumes(&self) -> Vec<Arc<PersistentVolume>> {
        self.volumes.all()
    }

    fn class(&self, name: &str) -> Option<Arc<StorageClass>> {
        self.classes.get(&Key::new("", name))
    }
}

/// Returns whether a pod waits for this scheduler.
fn is_waiting(pod: &Pod) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let is_ours = spec.scheduler_name.as_deref().is_none_or(|name| name == SCHEDULER);
    let is_gated = spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty());
    is_ours && !is_gated && pods::is_active(pod) && pods::node_name(pod).is_none()
}

/// Returns whether a node has changed in what decides on pods: not by a heartbeat.
fn is_other_place(old: &Node, new: &Node) -> bool {
    let allocatable = |node: &Node| node.status.as_ref().and_then(|status| status.allocatable.clone());
    old.metadata.labels != new.metadata.labels || old.spec != new.spec || allocatable(old) != allocatable(new)
}
