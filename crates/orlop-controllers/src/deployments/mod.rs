//! Deployments: ReplicaSets that follow a template.

mod arithmetic;
mod proportion;
mod revisions;
mod rollback;
mod rollout;
mod sets;
mod status;
mod strategy;

use std::sync::Arc;

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, ReplicaSet},
        core::v1::Pod,
    },
    jiff::Timestamp,
};
use orlop_client::{Api, Client, ResourceExt, api::PostParams};

use crate::{
    runtime::{Action, Change, Context, EventForm, Informer, Key, Manager, Recorder, WorkQueue},
    status::is_not_found,
    workload::{
        claim::claim,
        ownership::{controller_of, refers_to},
        selector::Labels,
    },
};

/// Name of the controller.
pub(crate) const NAME: &str = "deployment-controller";

/// Deployments that are reconciled at a time.
const CONCURRENCY: usize = 5;

/// Registers the controller.
pub(crate) fn register(manager: &mut Manager) {
    manager.register(NAME, run);
}

struct Controller {
    client: Client,
    deployments: Arc<Informer<Deployment>>,
    sets: Arc<Informer<ReplicaSet>>,
    pods: Arc<Informer<Pod>>,
    recorder: Arc<Recorder>,
}

async fn run(context: Context) {
    let deployments = context.informers.of::<Deployment>();
    let sets = context.informers.of::<ReplicaSet>();
    let pods = context.informers.of::<Pod>();
    let queue = context.work_queue::<Key>();
    let controller = Arc::new(Controller {
        client: context.client.clone(),
        deployments: deployments.clone(),
        sets: sets.clone(),
        pods: pods.clone(),
        recorder: context.recorder(NAME, EventForm::Counted),
    });
    tokio::join!(deployments.synced(), sets.synced(), pods.synced());
    let of_deployments = {
        let queue = queue.clone();
        deployments.subscribe(move |change| {
            change.latest().into_iter().for_each(|deployment| queue.add(Key::of(&**deployment)));
        })
    };
    let of_sets = {
        let (queue, deployments) = (queue.clone(), deployments.clone());
        sets.subscribe(move |change| set_changed(&queue, &deployments, change))
    };
    let of_pods = {
        let (queue, controller) = (queue.clone(), controller.clone());
        pods.subscribe(move |change| controller.pod_changed(&queue, change))
    };
    queue
        .run(CONCURRENCY, |key| {
            let controller = controller.clone();
            async move { controller.reconcile(&key).await }
        })
        .await;
    drop((of_deployments, of_sets, of_pods));
}

/// Queues the owners of a ReplicaSet, and those that may adopt it.
fn set_changed(queue: &WorkQueue<Key>, deployments: &Informer<Deployment>, change: &Change<ReplicaSet>) {
    for set in change.both() {
        let namespace = set.namespace().unwrap_or_default();
        if let Some(owner) = controller_of(&**set) {
            if refers_to::<Deployment>(owner) {
                queue.add(Key::new(namespace, owner.name.clone()));
            }
            continue;
        }
        if change.new.is_none() {
            continue;
        }
        for deployment in deployments.in_namespace(&namespace) {
            let selector = Labels::of(Some(&deployment.spec.selector));
            if selector.is_some_and(|selector| !selector.selects_all() && selector.selects(&**set)) {
                queue.add(Key::of(&*deployment));
            }
        }
    }
}

impl Controller {
    /// Queues the Deployment of a pod that is gone, if it waits for old pods to go.
    fn pod_changed(&self, queue: &WorkQueue<Key>, change: &Change<Pod>) {
        let Some(old) = &change.old else { return };
        if change.new.as_ref().is_some_and(|pod| !crate::workload::pods::is_terminal(pod)) {
            return;
        }
        let namespace = old.namespace().unwrap_or_default();
        let Some(owner) = controller_of(&**old).filter(|owner| refers_to::<ReplicaSet>(owner)) else {
            return;
        };
        let set = self.sets.get(&Key::new(namespace.clone(), owner.name.clone()));
        let Some(set) = set else { return };
        let Some(owner) = controller_of(&*set).filter(|owner| refers_to::<Deployment>(owner)) else { return };
        let key = Key::new(namespace, owner.name.clone());
        if self.deployments.get(&key).is_some_and(|deployment| strategy::is_recreate(&deployment)) {
            queue.add(key);
        }
    }

    async fn reconcile(&self, key: &Key) -> orlop_client::Result<Action> {
        let Some(cached) = self.deployments.get(key) else { return Ok(Action::Done) };
        let mut deployment = Deployment::clone(&cached);
        let selector = Labels::of(Some(&cached.spec.selector)).filter(|selector| !selector.selects_all());
        let Some(selector) = selector else {
            let text = "This deployment is selecting all pods. A non-empty selector is required.";
            self.recorder.warning(&*cached, "SelectingAll", text);
            deployment.status.get_or_insert_default().observed_generation = cached.metadata.generation;
            return self.write_status(&cached, deployment).await.map(|()| Action::Done);
        };
        let owned = claim(&self.client, &self.sets, &*cached, &selector, None, |_| true).await?;
        let now = Timestamp::now();
        if cached.metadata.deletion_timestamp.is_some() {
            let (new, old) = sets::split(&deployment, owned);
            status::update(&mut deployment, &sets::all(&old, new.as_ref()), new.as_deref(), now);
            return self.write_status(&cached, deployment).await.map(|()| Action::Done);
        }
        status::note_pause(&mut deployment, now);
        let is_paused = cached.spec.paused == Some(true);
        let rollout = rollout::Rollout { controller: self, cached: &cached, now };
        if !is_paused && let Some(revision) = rollback::requested(&deployment) {
            return rollout.roll_back(deployment, owned, revision).await;
        }
        if is_paused || sets::is_scaling(&deployment, &owned) {
            return rollout.scale_only(deployment, owned).await;
        }
        if strategy::is_recreate(&deployment) {
            rollout.recreate(deployment, owned).await
        } else {
            rollout.rolling_update(deployment, owned).await
        }
    }

    /// Writes the status, and annotations with it, if anything has changed.
    async fn write_status(&self, cached: &Deployment, changed: Deployment) -> orlop_client::Result<()> {
        if changed.status == cached.status && changed.metadata.annotations == cached.metadata.annotations {
            return Ok(());
        }
        let name = cached.name_any();
        match self.api(cached).replace_status(&name, &PostParams::default(), &changed).await {
            Ok(written) => {
                self.deployments.wrote(written);
                Ok(())
            }
            Err(error) if is_not_found(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn api(&self, deployment: &Deployment) -> Api<Deployment> {
        Api::namespaced(self.client.clone(), &deployment.namespace().unwrap_or_default())
    }

    fn sets_api(&self, deployment: &Deployment) -> Api<ReplicaSet> {
        Api::namespaced(self.client.clone(), &deployment.namespace().unwrap_or_default())
    }
}
