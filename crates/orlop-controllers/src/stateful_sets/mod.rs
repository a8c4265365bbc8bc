//! StatefulSets: pods with names and claims of their own, in order.

mod claims;
mod identity;
mod plan;

use std::sync::Arc;

use k8s_openapi::{
    api::{
        apps::v1::{ControllerRevision, StatefulSet},
        core::v1::{PersistentVolumeClaim, Pod},
    },
    jiff::Timestamp,
};
use orlop_client::{
    Api, ResourceExt,
    api::{ObjectMeta, PostParams},
};

use self::plan::{Step, View};
use crate::{
    runtime::{Action, Change, Context, EventForm, Informer, Key, Manager, Recorder, WorkQueue},
    status::{is_already_exists, is_conflict, is_namespace_terminating, is_not_found, message},
    workload::{
        claim::claim,
        hash::{fnv1, safe_text},
        ownership::{controller_of, controller_reference, refers_to},
        pod_control::PodControl,
        pods,
        revisions::{self, Synced},
        selector::Labels,
        time::until,
    },
};

/// Name of the controller.
pub(crate) const NAME: &str = "statefulset-controller";
const CONCURRENCY: usize = 5;
/// Label of the hash of a revision.
const HASH: &str = "controller.kubernetes.io/hash";
/// Longest part of the set's name in a revision's.
const NAME_MAX: usize = 223;

/// Registers the controller.
pub(crate) fn register(manager: &mut Manager) {
    manager.register(NAME, run);
}

struct Controller {
    sets: Arc<Informer<StatefulSet>>,
    revisions: Arc<Informer<ControllerRevision>>,
    claims: Arc<Informer<PersistentVolumeClaim>>,
    pods: PodControl,
    recorder: Arc<Recorder>,
}

async fn run(context: Context) {
    let informers = &context.informers;
    let (sets, pods) = (informers.of::<StatefulSet>(), informers.of::<Pod>());
    let recorder = context.recorder(NAME, EventForm::Counted);
    let controller = Arc::new(Controller {
        sets: sets.clone(),
        revisions: informers.of(),
        claims: informers.of(),
        pods: PodControl::new(context.client.clone(), pods.clone(), recorder.clone()),
        recorder,
    });
    tokio::join!(sets.synced(), pods.synced(), controller.revisions.synced(), controller.claims.synced());
    let queue = context.work_queue::<Key>();
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

fn pod_changed(queue: &WorkQueue<Key>, sets: &Informer<StatefulSet>, change: &Change<Pod>) {
    for pod in change.both() {
        let namespace = pod.namespace().unwrap_or_default();
        if let Some(owner) = controller_of(&**pod) {
            if refers_to::<StatefulSet>(owner) {
                queue.add(Key::new(namespace, owner.name.clone()));
            }
            continue;
        }
        if change.new.is_none() {
            continue;
        }
        for set in sets.in_namespace(&namespace) {
            if Labels::of(Some(&set.spec.selector)).is_some_and(|labels| labels.selects(&**pod)) {
                queue.add(Key::of(&*set));
            }
        }
    }
}

impl Controller {
    fn client(&self) -> &orlop_client::Client {
        &self.pods.client.0
    }

    async fn reconcile(&self, key: &Key) -> orlop_client::Result<Action> {
        let Some(set) = self.sets.get(key) else { return Ok(Action::Done) };
        let Some(labels) = Labels::of(Some(&set.spec.selector)).filter(|labels| !labels.selects_all()) else {
            return Ok(Action::Done);
        };
        let is_member = |pod: &Pod| identity::ordinal(&set, pod).is_some();
        let members = claim(self.client(), &self.pods.pods, &*set, &labels, None, is_member).await?;
        let mut revisions = self.revisions.controlled_by(&set.uid().unwrap_or_default());
        revisions::sort(&mut revisions);
        let synced =
            revisions::sync(self.client(), &self.revisions, &key.namespace, &revisions, new_revision(&set))
                .await;
        let update = match synced {
            Ok(Synced::Revision(update)) => update,
            Ok(Synced::Collision) => {
                let mut changed = StatefulSet::clone(&set);
                let status = changed.status.get_or_insert_default();
                status.collision_count = Some(status.collision_count.unwrap_or(0).saturating_add(1));
                self.write_status(&set, changed).await?;
                return Ok(Action::Requeue);
            }
            Err(error) if is_namespace_terminating(&error) => return Ok(Action::Done),
            Err(error) => return Err(error),
        };
        let named = set.status.as_ref().and_then(|status| status.current_revision.as_deref());
        let current = revisions.iter().find(|revision| Some(revision.name_any().as_str()) == named);
        let current = current.cloned().unwrap_or_else(|| update.clone());
        let now = Timestamp::now();
        let result = match set.metadata.deletion_timestamp {
            None => self.act(&set, &members, &current, &update, now).await,
            Some(_) => Ok(Action::Done),
        };
        let members: Vec<Arc<Pod>> = self
            .pods
            .pods
            .controlled_by(&set.uid().unwrap_or_default())
            .into_iter()
            .filter(|pod| is_member(pod) && labels.selects(&**pod))
            .collect();
        let mut changed = StatefulSet::clone(&set);
        let (status, next) = plan::status(&set, &members, &current, &update, now);
        changed.status = Some(status);
        self.write_status(&set, changed).await?;
        let live = |revision: &ControllerRevision| {
            let name = revision.name_any();
            name == current.name_any()
                || name == update.name_any()
                || members.iter().any(|pod| identity::revision(pod) == Some(name.as_str()))
        };
        let limit = set.spec.revision_history_limit.unwrap_or(10);
        revisions::truncate(self.client(), &self.revisions, &key.namespace, &revisions, limit, live).await?;
        match result {
            Err(error) if is_namespace_terminating(&error) => Ok(Action::Done),
            Err(error) => Err(error),
            Ok(action) => {
                Ok(action.sooner(next.map_or(Action::Done, |next| Action::After(until(next, now)))))
            }
        }
    }

    /// Takes the next steps. A pod whose claim is about to be deleted waits for that.
    async fn act(
        &self,
        set: &StatefulSet,
        members: &[Arc<Pod>],
        current: &ControllerRevision,
        update: &ControllerRevision,
        now: Timestamp,
    ) -> orlop_client::Result<Action> {
        let view = View::new(set, members, current, update, now);
        for pod in members {
            self.update_claim_owners(set, pod).await?;
        }
        let mut action = Action::Done;
        for step in view.steps() {
            match step {
                Step::Create { ordinal, .. } if self.has_stale_claim(set, ordinal) => {
                    action = Action::Requeue;
                }
                Step::Create { ordinal, is_current } => {
                    let revision = if is_current { current } else { update };
                    self.create(set, revision, ordinal).await?;
                }
                Step::CreateClaims(ordinal) => {
                    self.create_claims(set, ordinal, &identity::name(set, ordinal)).await?;
                }
                Step::Delete(pod) => self.delete(set, &pod).await?,
                Step::Repair(pod) => self.repair(set, &pod).await?,
            }
        }
        Ok(action)
    }

    async fn create(
        &self,
        set: &StatefulSet,
        revision: &ControllerRevision,
        ordinal: i32,
    ) -> orlop_client::Result<()> {
        let name = identity::name(set, ordinal);
        self.create_claims(set, ordinal, &name).await?;
        let template = revisions::template_of(revision).unwrap_or_else(|| set.spec.template.clone());
        let pod = identity::pod(set, &template, ordinal, &revision.name_any());
        let api: Api<Pod> = Api::namespaced(self.client().clone(), &set.namespace().unwrap_or_default());
        match api.create(&PostParams::default(), &pod).await {
            Ok(pod) => {
                self.pods.pods.wrote(pod);
                let text = format!("create Pod {name} in StatefulSet {} successful", set.name_any());
                self.recorder.normal(set, "SuccessfulCreate", text);
                Ok(())
            }
            // The watch is behind, or somebody else's pod has the name: it is requeued.
            Err(error) if is_already_exists(&error) => Err(error),
            Err(error) => {
                if !is_namespace_terminating(&error) {
                    let text = format!(
                        "create Pod {name} in StatefulSet {} failed error: {}",
                        set.name_any(),
                        message(&error)
                    );
                    self.recorder.warning(set, "FailedCreate", text);
                }
                Err(error)
            }
        }
    }

    async fn delete(&self, set: &StatefulSet, pod: &Pod) -> orlop_client::Result<()> {
        let (name, of) = (pod.name_any(), set.name_any());
        match self.pods.remove(pod).await {
            Ok(()) => {
                let text = format!("delete Pod {name} in StatefulSet {of} successful");
                self.recorder.normal(set, "SuccessfulDelete", text);
                Ok(())
            }
            Err(error) if is_not_found(&error) => Ok(()),
            Err(error) => {
                let text = format!("delete Pod {name} in StatefulSet {of} failed error: {}", message(&error));
                self.recorder.warning(set, "FailedDelete", text);
                Err(error)
            }
        }
    }

    /// Gives a pod that was adopted the labels of its identity.
    async fn repair(&self, set: &StatefulSet, pod: &Pod) -> orlop_client::Result<()> {
        let mut changed = pod.clone();
        identity::label(set, &mut changed);
        let api: Api<Pod> = Api::namespaced(self.client().clone(), &set.namespace().unwrap_or_default());
        let (name, of) = (pod.name_any(), set.name_any());
        match api.replace(&name, &PostParams::default(), &changed).await {
            Ok(written) => {
                self.pods.pods.wrote(written);
                let text = format!("update Pod {name} in StatefulSet {of} successful");
                self.recorder.normal(set, "SuccessfulUpdate", text);
                Ok(())
            }
            Err(error) => {
                if !is_conflict(&error) {
                    let text =
                        format!("update Pod {name} in StatefulSet {of} failed error: {}", message(&error));
                    self.recorder.warning(set, "FailedUpdate", text);
                }
                Err(error)
            }
        }
    }

    async fn write_status(&self, old: &StatefulSet, new: StatefulSet) -> orlop_client::Result<()> {
        if old.status == new.status {
            return Ok(());
        }
        let api: Api<StatefulSet> =
            Api::namespaced(self.client().clone(), &new.namespace().unwrap_or_default());
        match api.replace_status(&new.name_any(), &PostParams::default(), &new).await {
            Ok(written) => {
                self.sets.wrote(written);
                Ok(())
            }
            Err(error) if is_not_found(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Returns the revision of the current template.
fn new_revision(set: &StatefulSet) -> ControllerRevision {
    let data = revisions::data_of(&set.spec.template);
    let collisions = set.status.as_ref().and_then(|status| status.collision_count);
    let suffix = collisions.map(|count| count.to_string()).unwrap_or_default();
    let hash = safe_text(fnv1(data.to_string().into_bytes().into_iter().chain(suffix.into_bytes())));
    let prefix: String = set.name_any().chars().take(NAME_MAX).collect();
    let mut labels = set.spec.template.metadata.clone().unwrap_or_default().labels.unwrap_or_default();
    labels.insert(HASH.to_owned(), hash.clone());
    ControllerRevision {
        metadata: ObjectMeta {
            name: Some(format!("{prefix}-{hash}")),
            labels: Some(labels),
            annotations: set.metadata.annotations.clone(),
            owner_references: Some(vec![controller_reference(set)]),
            ..ObjectMeta::default()
        },
        data: revisions::raw(data),
        revision: None,
    }
}

/// Returns whether a pod runs, is ready, and has been for long enough.
fn is_healthy(pod: &Pod) -> bool {
    pods::phase(pod) == "Running" && pods::is_ready(pod) && !pods::is_deleting(pod)
}
