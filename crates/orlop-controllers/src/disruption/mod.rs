//! Status of PodDisruptionBudgets, which eviction honours.

mod budget;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, ReplicaSet, StatefulSet},
        autoscaling::v1::Scale,
        core::v1::{Pod, ReplicationController},
        policy::v1::PodDisruptionBudget,
    },
    apimachinery::pkg::apis::meta::v1::OwnerReference,
    jiff::Timestamp,
};
use orlop_client::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::{
    discovery::Resources,
    runtime::{Action, Change, Context, EventForm, Informer, Key, Manager, Recorder, WorkQueue},
    status::{is_conflict, is_not_found, message},
    workload::{
        ownership::{controller_of, refers_to},
        pods,
        selector::Labels,
        time::{plus_seconds, until},
    },
};

/// Name of the controller.
pub(crate) const NAME: &str = "disruption-controller";
/// Source of its events.
const COMPONENT: &str = "controllermanager";
/// Time after which a pod that was to be disrupted and still lives is one like any other.
const STALE_S: i64 = 120;

/// Registers the controller.
pub(crate) fn register(manager: &mut Manager) {
    manager.register(NAME, run);
}

struct Controller {
    client: Client,
    budgets: Arc<Informer<PodDisruptionBudget>>,
    pods: Arc<Informer<Pod>>,
    sets: Arc<Informer<ReplicaSet>>,
    deployments: Arc<Informer<Deployment>>,
    stateful_sets: Arc<Informer<StatefulSet>>,
    replication_controllers: Arc<Informer<ReplicationController>>,
    recorder: Arc<Recorder>,
}

async fn run(context: Context) {
    let informers = &context.informers;
    let controller = Arc::new(Controller {
        client: context.client.clone(),
        budgets: informers.of(),
        pods: informers.of(),
        sets: informers.of(),
        deployments: informers.of(),
        stateful_sets: informers.of(),
        replication_controllers: informers.of(),
        recorder: context.recorder(COMPONENT, EventForm::Counted),
    });
    let Controller { budgets, pods, sets, deployments, stateful_sets, replication_controllers, .. } =
        &*controller;
    tokio::join!(
        budgets.synced(),
        pods.synced(),
        sets.synced(),
        deployments.synced(),
        stateful_sets.synced(),
        replication_controllers.synced()
    );
    let queue = context.work_queue::<Key>();
    let stale = context.work_queue::<Key>();
    let of_budgets = queue.clone();
    let subscriptions = (
        budgets.subscribe(move |change| {
            change.latest().into_iter().for_each(|budget| of_budgets.add(Key::of(&**budget)));
        }),
        {
            let (queue, stale, controller) = (queue.clone(), stale.clone(), controller.clone());
            pods.subscribe(move |change| controller.pod_changed(&queue, &stale, change))
        },
    );
    tokio::select! {
        () = queue.run(1, |key| {
            let controller = controller.clone();
            async move { controller.reconcile(&key).await }
        }) => {}
        () = stale.run(1, |key| {
            let controller = controller.clone();
            async move { controller.clear_stale(&key).await }
        }) => {}
    }
    drop(subscriptions);
}

impl Controller {
    /// Queues the budgets of a pod.
    fn pod_changed(&self, queue: &WorkQueue<Key>, stale: &WorkQueue<Key>, change: &Change<Pod>) {
        let Some(pod) = change.latest() else { return };
        let namespace = pod.namespace().unwrap_or_default();
        let mut names = Vec::new();
        for budget in self.budgets.in_namespace(&namespace) {
            let selector = budget.spec.as_ref().and_then(|spec| Labels::of(spec.selector.as_ref()));
            let Some(selector) = selector else { continue };
            if change.both().any(|pod| selector.selects(&**pod)) {
                queue.add(Key::of(&*budget));
            }
            if selector.selects(&**pod) {
                names.push(budget.name_any());
            }
        }
        names.sort_unstable();
        if let (true, [first, _, ..]) = (change.new.is_some(), names.as_slice()) {
            // Evictions of it are refused.
            let name = pod.name_any();
            let text = format!(
                "Pod {namespace:?}/{name:?} matches multiple PodDisruptionBudgets.  Chose {first:?} arbitrarily."
            );
            self.recorder.warning(&**pod, "MultiplePodDisruptionBudgets", text);
        }
        let is_target =
            pods::condition(pod, "DisruptionTarget").is_some_and(|condition| condition.status == "True");
        if change.new.is_some() && is_target && !pods::is_deleting(pod) {
            stale.add(Key::of(&**pod));
        }
    }

    async fn reconcile(&self, key: &Key) -> orlop_client::Result<Action> {
        let Some(budget) = self.budgets.get(key) else { return Ok(Action::Done) };
        let Some(spec) = &budget.spec else { return Ok(Action::Done) };
        let labels = Labels::of(spec.selector.as_ref());
        let pods = self.pods.in_namespace(&key.namespace);
        let matches = |pod: &&Arc<Pod>| labels.as_ref().is_some_and(|labels| labels.selects(&***pod));
        let pods: Vec<Arc<Pod>> = pods.iter().filter(matches).cloned().collect();
        if pods.is_empty() {
            self.recorder.normal(&*budget, "NoPods", "No matching pods found");
        }
        let now = Timestamp::now();
        for pod in budget::not_deleted(&budget, &pods, now) {
            let text = format!("Pod was expected by PDB {key} to be deleted but it wasn't");
            self.recorder.warning(&**pod, "NotDeleted", text);
        }
        let expected = match budget::counts_pods(spec) {
            true => Ok(i32::try_from(pods.len()).unwrap_or(i32::MAX)),
            false => self.expected_scale(&budget, &pods).await,
        };
        let (status, next) = match expected {
            Ok(expected) => budget::status(&budget, &pods, expected, now),
            Err(text) => {
                let reason = "CalculateExpectedPodCountFailed";
                let message = format!("Failed to calculate the number of expected pods: {text}");
                self.recorder.warning(&*budget, reason, message);
                (budget::failed(&budget, text, now), None)
            }
        };
        if budget.status.as_ref() != Some(&status) {
            let mut changed = PodDisruptionBudget::clone(&budget);
            changed.status = Some(status);
            let api: Api<PodDisruptionBudget> = Api::namespaced(self.client.clone(), &key.namespace);
            match api.replace_status(&key.name, &PostParams::default(), &changed).await {
                Ok(written) => self.budgets.wrote(written),
                Err(error) if is_not_found(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(next.map_or(Action::Done, |next| Action::After(until(next, now))))
    }

    /// Returns the number of pods that the controllers of these pods want together.
    async fn expected_scale(&self, budget: &PodDisruptionBudget, pods: &[Arc<Pod>]) -> Result<i32, String> {
        let mut scales: BTreeMap<String, i32> = BTreeMap::new();
        let mut unmanaged = BTreeSet::new();
        for pod in pods {
            let Some(owner) = controller_of(&**pod) else {
                unmanaged.insert(pod.name_any());
                continue;
            };
            if scales.contains_key(&owner.uid) {
                continue;
            }
            let key = Key::new(pod.namespace().unwrap_or_default(), owner.name.clone());
            if refers_to::<ReplicaSet>(owner) {
                let Some(set) = self.sets.get(&key) else { continue };
                let above = controller_of(&*set).filter(|owner| refers_to::<Deployment>(owner));
                let deployment = above.and_then(|owner| {
                    let key = Key::new(key.namespace.clone(), owner.name.clone());
                    self.deployments
                        .get(&key)
                        .filter(|deployment| deployment.metadata.uid.as_ref() == Some(&owner.uid))
                });
                match deployment {
                    Some(deployment) => {
                        let uid = deployment.uid().unwrap_or_default();
                        scales.insert(uid, deployment.spec.replicas.unwrap_or(1));
                    }
                    None => drop(scales.insert(owner.uid.clone(), set.spec.replicas.unwrap_or(1))),
                }
            } else if refers_to::<StatefulSet>(owner) {
                if let Some(set) = self.stateful_sets.get(&key) {
                    scales.insert(owner.uid.clone(), set.spec.replicas.unwrap_or(1));
                }
            } else if refers_to::<ReplicationController>(owner) {
                if let Some(set) = self.replication_controllers.get(&key) {
                    let replicas = set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
                    scales.insert(owner.uid.clone(), replicas);
                }
            } else if let Some(replicas) = self.scale_of(&key, owner).await? {
                scales.insert(owner.uid.clone(), replicas);
            }
        }
        if !unmanaged.is_empty() {
            let names: Vec<String> = unmanaged.into_iter().collect();
            let text = format!(
                "Pods selected by this PodDisruptionBudget (selector: {:?}) were found to be unmanaged. As a result, the status of the PDB cannot be calculated correctly, which may result in undefined behavior. To account for these pods please set \".spec.minAvailable\" field of the PDB to an integer value.",
                names.join(",")
            );
            self.recorder.warning(budget, "UnmanagedPods", text);
        }
        Ok(scales.values().sum())
    }

    /// Returns the replicas of a controller of another kind, from its `scale` subresource. `None` if it is gone.
    async fn scale_of(&self, key: &Key, owner: &OwnerReference) -> Result<Option<i32>, String> {
        let served = Resources::discover(&self.client).await.map_err(|error| message(&error))?;
        let Some(resource) = served.get(&owner.api_version, &owner.kind) else {
            return Err(format!("no matches for kind {:?} in version {:?}", owner.kind, owner.api_version));
        };
        let objects = resource.objects(&self.client, Some(&key.namespace));
        match objects.get_subresource::<Scale>("scale", &key.name).await {
            Ok(scale) => {
                let is_owner = scale.metadata.uid.as_ref() == Some(&owner.uid);
                let replicas = scale.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(0);
                Ok(is_owner.then_some(replicas))
            }
            Err(error) if is_not_found(&error) => match objects.get_opt(&key.name).await {
                Ok(None) => Ok(None),
                Ok(Some(_)) => {
                    Err(format!("{} does not implement the scale subresource", resource.name_with_group()))
                }
                Err(error) => Err(message(&error)),
            },
            Err(error) => Err(message(&error)),
        }
    }

    /// Takes back the mark of a pod that was to be disrupted and still lives.
    async fn clear_stale(&self, key: &Key) -> orlop_client::Result<Action> {
        let Some(pod) = self.pods.get(key).filter(|pod| !pods::is_deleting(pod)) else {
            return Ok(Action::Done);
        };
        let Some(condition) =
            pods::condition(&pod, "DisruptionTarget").filter(|known| known.status == "True")
        else {
            return Ok(Action::Done);
        };
        let now = Timestamp::now();
        let since = condition.last_transition_time.as_ref().map_or(now, |time| time.0);
        let due = plus_seconds(since, STALE_S);
        if due > now {
            return Ok(Action::After(until(due, now).max(Duration::from_secs(1))));
        }
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
        let condition = json!({"type": "DisruptionTarget", "status": "False", "reason": condition.reason,
            "message": condition.message, "lastTransitionTime": crate::workload::time::now()});
        let patch =
            Patch::Strategic(json!({"metadata": {"uid": pod.uid()}, "status": {"conditions": [condition]}}));
        match api.patch_status(&key.name, &PatchParams::default(), &patch).await {
            Ok(written) => self.pods.wrote(written),
            Err(error) if is_not_found(&error) || is_conflict(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(Action::Done)
    }
}
