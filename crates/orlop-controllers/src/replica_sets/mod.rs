//! ReplicaSets and ReplicationControllers: as many pods of a template as wanted.

mod kind;
mod status;
mod victims;

use std::sync::Arc;

use futures_util::future::join_all;
use k8s_openapi::{
    api::{
        apps::v1::ReplicaSet,
        core::v1::{Pod, ReplicationController},
    },
    jiff::Timestamp,
};
use orlop_client::{Api, ResourceExt, api::PostParams};

use self::kind::Replicated;
pub(crate) use self::status::REPLICA_FAILURE;
use crate::{
    runtime::{Action, Change, Context, EventForm, Informer, Key, Manager, WorkQueue},
    status::{is_namespace_terminating, is_not_found, message},
    workload::{
        claim::claim,
        ownership::{controller_of, controller_reference, refers_to},
        pod_control::{PodControl, pod_of_template},
        pods,
        slow_start::slow_start,
        time::until,
    },
};

/// Name of the controller of ReplicaSets.
pub(crate) const NAME: &str = "replicaset-controller";
/// Name of the controller of ReplicationControllers.
pub(crate) const REPLICATION_CONTROLLERS: &str = "replicationcontroller-controller";

/// Objects that are reconciled at a time.
const CONCURRENCY: usize = 5;
/// Pods that are created or deleted in one reconciliation.
const BURST: usize = 500;

/// Registers both controllers.
pub(crate) fn register(manager: &mut Manager, name: &'static str) {
    match name {
        NAME => manager.register(name, run::<ReplicaSet>),
        _ => manager.register(name, run::<ReplicationController>),
    }
}

struct Controller<K: Replicated> {
    sets: Arc<Informer<K>>,
    pods: PodControl,
}

async fn run<K: Replicated>(context: Context) {
    let sets = context.informers.of::<K>();
    let pods = context.informers.of::<Pod>();
    let queue = context.work_queue::<Key>();
    let recorder = context.recorder(K::COMPONENT, EventForm::Counted);
    let controller = Arc::new(Controller {
        sets: sets.clone(),
        pods: PodControl::new(context.client.clone(), pods.clone(), recorder),
    });
    tokio::join!(sets.synced(), pods.synced());
    let of_sets = {
        let queue = queue.clone();
        sets.subscribe(move |change| change.latest().into_iter().for_each(|set| queue.add(Key::of(&**set))))
    };
    let of_pods = {
        let (queue, sets) = (queue.clone(), sets.clone());
        pods.subscribe(move |change| pod_changed(&queue, &sets, change))
    };
    queue
        .run(CONCURRENCY, |key| {
            let controller = controller.clone();
            async move { controller.reconcile(&key).await }
        })
        .await;
    drop((of_sets, of_pods));
}

/// Queues the owners of a pod as it was and as it is, and those that may adopt it.
fn pod_changed<K: Replicated>(queue: &WorkQueue<Key>, sets: &Informer<K>, change: &Change<Pod>) {
    for pod in change.both() {
        let namespace = pod.namespace().unwrap_or_default();
        if let Some(owner) = controller_of(&**pod) {
            if refers_to::<K>(owner) {
                queue.add(Key::new(namespace, owner.name.clone()));
            }
            continue;
        }
        if change.new.is_none() {
            continue;
        }
        for set in sets.in_namespace(&namespace) {
            if set.selector().is_some_and(|selector| selector.selects(&**pod)) {
                queue.add(Key::of(&*set));
            }
        }
    }
}

impl<K: Replicated> Controller<K> {
    async fn reconcile(&self, key: &Key) -> orlop_client::Result<Action> {
        let Some(set) = self.sets.get(key) else { return Ok(Action::Done) };
        let Some(selector) = set.selector().filter(|selector| !selector.selects_all()) else {
            return Ok(Action::Done);
        };
        let owned = |pod: &Pod| controller_of(pod).is_some() || pods::is_active(pod);
        let claimed = claim(&self.pods.client.0, &self.pods.pods, &*set, &selector, None, owned).await?;
        let active: Vec<Arc<Pod>> = claimed.into_iter().filter(|pod| pods::is_active(pod)).collect();
        let managed = match set.meta().deletion_timestamp {
            None => self.manage(&*set, &active).await,
            Some(_) => Ok(()),
        };
        // What was just created or deleted is in the cache.
        let pods = self.pods.pods.controlled_by(&set.uid().unwrap_or_default());
        let next = self.update_status(&set, &pods, managed.as_ref().err()).await?;
        match managed {
            Err(failure) if is_namespace_terminating(&failure.error) => Ok(Action::Done),
            Err(failure) => Err(failure.error),
            Ok(()) => Ok(next),
        }
    }

    /// Creates or deletes pods until there are as many as wanted.
    async fn manage(&self, set: &K, active: &[Arc<Pod>]) -> Result<(), Failure> {
        let wanted = usize::try_from(set.wanted()).unwrap_or(0);
        if active.len() < wanted {
            let template = set.template();
            let pod = pod_of_template(&template, &set.name_any(), controller_reference(set));
            let missing = (wanted - active.len()).min(BURST);
            let create = |_| async { self.pods.create(set, pod.clone()).await.map(drop) };
            let (_, error) = slow_start(missing, create).await;
            return error.map_or(Ok(()), |error| Err(Failure { reason: "FailedCreate", error }));
        }
        let surplus = (active.len() - wanted).min(BURST);
        if surplus == 0 {
            return Ok(());
        }
        let victims = victims::choose(active, &self.siblings(set, active), surplus, Timestamp::now());
        let deleted = join_all(victims.iter().map(|pod| self.pods.delete(set, pod))).await;
        let error = deleted.into_iter().find_map(Result::err);
        error.map_or(Ok(()), |error| Err(Failure { reason: "FailedDelete", error }))
    }

    /// Returns the active pods of all sets with the same controller.
    fn siblings(&self, set: &K, own: &[Arc<Pod>]) -> Vec<Arc<Pod>> {
        let Some(owner) = controller_of(set) else { return own.to_vec() };
        let sets = self.sets.controlled_by(&owner.uid);
        let pods = sets.iter().flat_map(|set| self.pods.pods.controlled_by(&set.uid().unwrap_or_default()));
        pods.filter(|pod| pods::is_active(pod)).collect()
    }

    /// Writes the status if it has changed. Returns when the next pod becomes available.
    async fn update_status(
        &self,
        set: &K,
        pods: &[Arc<Pod>],
        failure: Option<&Failure>,
    ) -> orlop_client::Result<Action> {
        let now = Timestamp::now();
        let failure = failure.map(|failure| (failure.reason, message(&failure.error)));
        let (status, next) = status::calculate(set, pods, failure, now);
        if status != set.status() {
            let mut changed = set.clone();
            changed.set_status(status);
            let sets: Api<K> =
                Api::namespaced(self.pods.client.0.clone(), &set.namespace().unwrap_or_default());
            match sets.replace_status(&set.name_any(), &PostParams::default(), &changed).await {
                Ok(written) => self.sets.wrote(written),
                Err(error) if is_not_found(&error) => return Ok(Action::Done),
                Err(error) => return Err(error),
            }
        }
        Ok(next.map_or(Action::Done, |next| Action::After(until(next, now))))
    }
}

/// A failed create or delete, with the reason of the condition about it.
struct Failure {
    reason: &'static str,
    error: orlop_client::Error,
}
