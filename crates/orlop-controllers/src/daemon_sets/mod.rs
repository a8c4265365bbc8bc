//! DaemonSets: a pod on every node that suits.

mod placement;
mod plan;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::future::join_all;
use k8s_openapi::{
    api::{
        apps::v1::{ControllerRevision, DaemonSet},
        core::v1::{Node, Pod},
    },
    jiff::Timestamp,
};
use orlop_client::{
    Api, ResourceExt,
    api::{ObjectMeta, PostParams},
};
use tokio::time::Instant;

use self::plan::Plan;
use crate::{
    runtime::{Action, Change, Context, EventForm, Informer, Key, Manager, Recorder, WorkQueue},
    status::{is_namespace_terminating, is_not_found},
    workload::{
        claim::claim,
        hash::template_hash,
        ownership::{controller_of, controller_reference, refers_to},
        pod_control::{PodControl, pod_of_template},
        pods,
        revisions::{self, Synced},
        selector::Labels,
        slow_start::slow_start,
        time::until,
    },
};

/// Name of the controller.
pub(crate) const NAME: &str = "daemonset-controller";
const CONCURRENCY: usize = 2;
/// Pods that are created or deleted in one reconciliation.
const BURST: usize = 250;
/// Label of the revision of a pod.
pub(super) const REVISION: &str = "controller-revision-hash";
const GENERATION_ANNOTATION: &str = "deprecated.daemonset.template.generation";
const GENERATION_LABEL: &str = "pod-template-generation";
/// Longest pause before a pod that fails on a node is replaced.
const FAILED_BACKOFF_MAX: Duration = Duration::from_secs(900);

/// Registers the controller.
pub(crate) fn register(manager: &mut Manager) {
    manager.register(NAME, run);
}

struct Controller {
    sets: Arc<Informer<DaemonSet>>,
    nodes: Arc<Informer<Node>>,
    revisions: Arc<Informer<ControllerRevision>>,
    pods: PodControl,
    recorder: Arc<Recorder>,
    /// Failures by set and node, with the time of the last.
    failures: Mutex<HashMap<(String, String), (u32, Instant)>>,
}

async fn run(context: Context) {
    let informers = &context.informers;
    let (sets, pods, nodes) = (informers.of::<DaemonSet>(), informers.of::<Pod>(), informers.of::<Node>());
    let recorder = context.recorder(NAME, EventForm::Counted);
    let controller = Arc::new(Controller {
        sets: sets.clone(),
        nodes: nodes.clone(),
        revisions: informers.of(),
        pods: PodControl::new(context.client.clone(), pods.clone(), recorder.clone()),
        recorder,
        failures: Mutex::default(),
    });
    tokio::join!(sets.synced(), pods.synced(), nodes.synced(), controller.revisions.synced());
    let queue = context.work_queue::<Key>();
    let subscriptions = (
        {
            let queue = queue.clone();
            sets.subscribe(move |change| {
                change.latest().into_iter().for_each(|set| queue.add(Key::of(&**set)));
            })
        },
        {
            let (queue, sets) = (queue.clone(), sets.clone());
            pods.subscribe(move |change| pod_changed(&queue, &sets, change))
        },
        {
            let (queue, sets) = (queue.clone(), sets.clone());
            nodes.subscribe(move |change| {
                if placement::is_other_place(change.old.as_deref(), change.new.as_deref()) {
                    sets.all().iter().for_each(|set| queue.add(Key::of(&**set)));
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

fn pod_changed(queue: &WorkQueue<Key>, sets: &Informer<DaemonSet>, change: &Change<Pod>) {
    for pod in change.both() {
        let namespace = pod.namespace().unwrap_or_default();
        if let Some(owner) = controller_of(&**pod) {
            if refers_to::<DaemonSet>(owner) {
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
    async fn reconcile(&self, key: &Key) -> orlop_client::Result<Action> {
        let Some(set) = self.sets.get(key) else { return Ok(Action::Done) };
        let Some(labels) = Labels::of(Some(&set.spec.selector)).filter(|labels| !labels.selects_all()) else {
            let text = "This daemon set is selecting all pods. A non-empty selector is required.";
            self.recorder.warning(&*set, "SelectingAll", text);
            return Ok(Action::Done);
        };
        if set.metadata.deletion_timestamp.is_some() {
            return Ok(Action::Done);
        }
        let client = &self.pods.client.0;
        let mut history = self.revisions.controlled_by(&set.uid().unwrap_or_default());
        revisions::sort(&mut history);
        let collisions = set.status.as_ref().and_then(|status| status.collision_count);
        let wanted = new_revision(&set, collisions);
        let synced = revisions::sync(client, &self.revisions, &key.namespace, &history, wanted).await;
        let current = match synced {
            Ok(Synced::Revision(current)) => current,
            Ok(Synced::Collision) => {
                let mut changed = DaemonSet::clone(&set);
                let status = changed.status.get_or_insert_default();
                status.collision_count = Some(collisions.unwrap_or(0).saturating_add(1));
                self.write_status(&set, changed).await?;
                return Ok(Action::Requeue);
            }
            Err(error) if is_namespace_terminating(&error) => return Ok(Action::Done),
            Err(error) => return Err(error),
        };
        let hash = current.labels().get(REVISION).cloned().unwrap_or_default();
        let owned = claim(client, &self.pods.pods, &*set, &labels, None, |_| true).await?;
        let nodes = self.nodes.all();
        let now = Timestamp::now();
        let plan = plan::plan(&set, &nodes, &owned, &hash, now);
        let (result, retry) = self.act(&set, &plan, &hash).await;
        let owned = self.pods.pods.controlled_by(&set.uid().unwrap_or_default());
        let (status, next) = plan::status(&set, &nodes, &owned, &hash, now);
        let mut changed = DaemonSet::clone(&set);
        changed.status = Some(status);
        self.write_status(&set, changed).await?;
        let is_live = |revision: &ControllerRevision| {
            let own = revision.labels().get(REVISION);
            own == Some(&hash) || owned.iter().any(|pod| pod.labels().get(REVISION) == own)
        };
        let limit = set.spec.revision_history_limit.unwrap_or(10);
        revisions::truncate(client, &self.revisions, &key.namespace, &history, limit, is_live).await?;
        match result {
            Err(error) if is_namespace_terminating(&error) => Ok(Action::Done),
            Err(error) => Err(error),
            Ok(()) => {
                let next = next.map_or(Action::Done, |next| Action::After(until(next, now)));
                Ok(next.sooner(retry.map_or(Action::Done, Action::After)))
            }
        }
    }

    /// Creates and deletes pods. Also returns when a pod that failed may be replaced.
    async fn act(
        &self,
        set: &DaemonSet,
        plan: &Plan,
        hash: &str,
    ) -> (orlop_client::Result<()>, Option<Duration>) {
        let mut retry: Option<Duration> = None;
        let mut delete: Vec<Arc<Pod>> = plan.delete.clone();
        for (pod, node) in &plan.finished {
            let name = format!("{}/{} on node {node}", pod.namespace().unwrap_or_default(), pod.name_any());
            if pods::phase(pod) == "Succeeded" {
                let text = format!("Found succeeded daemon pod {name}, will try to delete it");
                self.recorder.normal(set, "SucceededDaemonPod", text);
                delete.push(pod.clone());
            } else if let Some(pause) = self.pause(set, node) {
                retry = Some(retry.map_or(pause, |retry| retry.min(pause)));
            } else {
                let text = format!("Found failed daemon pod {name}, will try to kill it");
                self.recorder.warning(set, "FailedDaemonPod", text);
                delete.push(pod.clone());
            }
        }
        delete.truncate(BURST);
        let nodes = &plan.create[..plan.create.len().min(BURST)];
        let template = placement::template(set);
        let create = |position: usize| {
            let mut pod = pod_of_template(&template, &set.name_any(), controller_reference(set));
            placement::pin(&mut pod, &nodes[position]);
            let labels = pod.metadata.labels.get_or_insert_default();
            labels.insert(REVISION.to_owned(), hash.to_owned());
            if let Some(generation) = set.annotations().get(GENERATION_ANNOTATION) {
                labels.insert(GENERATION_LABEL.to_owned(), generation.clone());
            }
            async move { self.pods.create(set, pod).await.map(drop) }
        };
        let (_, error) = slow_start(nodes.len(), create).await;
        let deleted = join_all(delete.iter().map(|pod| self.pods.delete(set, pod))).await;
        let error = error.or_else(|| deleted.into_iter().find_map(Result::err));
        (error.map_or(Ok(()), Err), retry)
    }

    /// Returns how long a pod that failed on a node must stay, and notes its replacement otherwise.
    fn pause(&self, set: &DaemonSet, node: &str) -> Option<Duration> {
        let key = (format!("{:?}/{:?}", set.uid(), set.metadata.generation), node.to_owned());
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if failures.len() > 10_000 {
            failures.retain(|_, (_, last)| now.duration_since(*last) < FAILED_BACKOFF_MAX);
        }
        let (count, last) = failures.get(&key).copied().unwrap_or((0, now));
        let pause = match count {
            0 => Duration::ZERO,
            count => Duration::from_secs(1).saturating_mul(1 << (count - 1).min(16)).min(FAILED_BACKOFF_MAX),
        };
        let elapsed = now.duration_since(last);
        if elapsed < pause {
            return Some(pause - elapsed);
        }
        // Long without a failure: it begins anew.
        let count = if elapsed > FAILED_BACKOFF_MAX * 2 { 0 } else { count };
        failures.insert(key, (count + 1, now));
        None
    }

    async fn write_status(&self, old: &DaemonSet, new: DaemonSet) -> orlop_client::Result<()> {
        if old.status == new.status {
            return Ok(());
        }
        let client = self.pods.client.0.clone();
        let api: Api<DaemonSet> = Api::namespaced(client, &new.namespace().unwrap_or_default());
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
fn new_revision(set: &DaemonSet, collisions: Option<i32>) -> ControllerRevision {
    let hash = template_hash(&set.spec.template, collisions);
    let mut labels: BTreeMap<String, String> =
        set.spec.template.metadata.clone().unwrap_or_default().labels.unwrap_or_default();
    labels.insert(REVISION.to_owned(), hash.clone());
    ControllerRevision {
        metadata: ObjectMeta {
            name: Some(format!("{}-{hash}", set.name_any())),
            labels: Some(labels),
            annotations: set.metadata.annotations.clone(),
            owner_references: Some(vec![controller_reference(set)]),
            ..ObjectMeta::default()
        },
        data: revisions::raw(revisions::data_of(&set.spec.template)),
        revision: None,
    }
}
