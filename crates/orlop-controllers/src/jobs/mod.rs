//! Jobs: pods that run to completion, each counted exactly once.

mod backoff;
mod indexes;
mod new_pod;
mod plan;
mod pod_state;
mod tracking;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use futures_util::future::join_all;
use k8s_openapi::{
    api::{
        batch::v1::{Job, JobSpec, JobStatus},
        core::v1::Pod,
    },
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::Timestamp,
};
use orlop_client::{Api, ResourceExt, api::PostParams};

use self::{
    backoff::Record,
    plan::{Plan, is_true, plan},
    pod_state::{TRACKING, is_tracked},
};
use crate::{
    runtime::{Action, Change, Context, EventForm, Informer, Key, Manager, Recorder, WorkQueue},
    status::{is_conflict, is_namespace_terminating, is_not_found},
    workload::{
        claim::{claim, patch},
        ownership::{controller_of, refers_to},
        pod_control::PodControl,
        pods,
        selector::Labels,
        slow_start::slow_start,
        time::seconds,
    },
};

/// Name of the controller.
pub(crate) const NAME: &str = "job-controller";
/// Value of `managedBy` that means this controller.
const MANAGED_BY: &str = "kubernetes.io/job-controller";
const CONCURRENCY: usize = 5;

/// Registers the controller.
pub(crate) fn register(manager: &mut Manager) {
    manager.register(NAME, run);
}

/// Returns the condition by which a job has finished.
pub(crate) fn finished(job: &Job) -> Option<&k8s_openapi::api::batch::v1::JobCondition> {
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    let is_final = |type_: &str| matches!(type_, "Complete" | "Failed");
    conditions.iter().find(|condition| is_final(&condition.type_) && condition.status == "True")
}

struct Controller {
    jobs: Arc<Informer<Job>>,
    pods: PodControl,
    recorder: Arc<Recorder>,
    /// Failures since the last success, of jobs that have not finished.
    records: Mutex<HashMap<Key, Record>>,
}

async fn run(context: Context) {
    let jobs = context.informers.of::<Job>();
    let pods = context.informers.of::<Pod>();
    let queue = context.work_queue::<Key>();
    let recorder = context.recorder(NAME, EventForm::Counted);
    let controller = Arc::new(Controller {
        jobs: jobs.clone(),
        pods: PodControl::new(context.client.clone(), pods.clone(), recorder.clone()),
        recorder,
        records: Mutex::default(),
    });
    tokio::join!(jobs.synced(), pods.synced());
    let of_jobs = {
        let queue = queue.clone();
        jobs.subscribe(move |change| change.latest().into_iter().for_each(|job| queue.add(Key::of(&**job))))
    };
    let of_pods = {
        let (queue, jobs) = (queue.clone(), jobs.clone());
        pods.subscribe(move |change| pod_changed(&queue, &jobs, change))
    };
    queue
        .run(CONCURRENCY, |key| {
            let controller = controller.clone();
            async move { controller.reconcile(&key).await }
        })
        .await;
    drop((of_jobs, of_pods));
}

fn pod_changed(queue: &WorkQueue<Key>, jobs: &Informer<Job>, change: &Change<Pod>) {
    for pod in change.both() {
        let namespace = pod.namespace().unwrap_or_default();
        if let Some(owner) = controller_of(&**pod) {
            if refers_to::<Job>(owner) {
                queue.add(Key::new(namespace, owner.name.clone()));
            }
            continue;
        }
        if change.new.is_none() {
            continue;
        }
        for job in jobs.in_namespace(&namespace) {
            let selector = job.spec.as_ref().and_then(|spec| Labels::of(spec.selector.as_ref()));
            if selector.is_some_and(|selector| !selector.selects_all() && selector.selects(&**pod)) {
                queue.add(Key::of(&*job));
            }
        }
    }
}

impl Controller {
    fn record(&self, key: &Key) -> Record {
        let records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        records.get(key).copied().unwrap_or_default()
    }

    fn set_record(&self, key: &Key, record: Option<Record>) {
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        match record {
            Some(record) => drop(records.insert(key.clone(), record)),
            None => drop(records.remove(key)),
        }
    }

    async fn reconcile(&self, key: &Key) -> orlop_client::Result<Action> {
        let cached = self.jobs.get(key);
        self.free_orphans(key, cached.as_deref()).await?;
        let Some(cached) = cached.filter(|job| finished(job).is_none()) else {
            self.set_record(key, None);
            return Ok(Action::Done);
        };
        let Some(spec) = cached.spec.clone() else { return Ok(Action::Done) };
        if spec.managed_by.as_deref().is_some_and(|manager| manager != MANAGED_BY) {
            return Ok(Action::Done);
        }
        if spec.completion_mode.as_deref().is_some_and(|mode| !matches!(mode, "Indexed" | "NonIndexed")) {
            let text = "Skipped Job sync because completion mode is unknown";
            self.recorder.warning(&*cached, "UnknownCompletionMode", text);
            return Ok(Action::Done);
        }
        let Some(selector) = Labels::of(spec.selector.as_ref()).filter(|selector| !selector.selects_all())
        else {
            return Ok(Action::Done);
        };
        let client = &self.pods.client.0;
        let pods = claim(client, &self.pods.pods, &*cached, &selector, Some(TRACKING), |_| true).await?;
        self.step(key, &cached, &spec, &pods).await
    }

    async fn step(
        &self,
        key: &Key,
        cached: &Job,
        spec: &JobSpec,
        pods: &[Arc<Pod>],
    ) -> orlop_client::Result<Action> {
        let now = Timestamp::now();
        let is_suspended = spec.suspend == Some(true);
        let mut job = cached.clone();
        let status = job.status.get_or_insert_default();
        if status.start_time.is_none() && !is_suspended {
            status.start_time = Some(Time(seconds(now)));
        }
        let started = status.start_time.as_ref().map(|time| time.0);
        let mut plan = plan(&job, spec, pods, self.record(key), started, now);
        let active = pods.iter().filter(|pod| pods::is_active(pod)).count();
        let deleted = join_all(plan.delete.iter().map(|pod| self.pods.delete(cached, pod))).await;
        let removed = deleted.iter().filter(|deleted| deleted.is_ok()).count();
        let mut failure = deleted.into_iter().find_map(Result::err);
        if failure.is_some() {
            // Not all of its pods are on their way out: it ends another time.
            plan.end = None;
        }
        let mut created = 0;
        if failure.is_none() && !plan.create.is_empty() {
            let create = |position: usize| {
                let pod = new_pod::build(cached, spec, &plan.create[position]);
                async move { self.pods.create(cached, pod).await.map(drop) }
            };
            (created, failure) = slow_start(plan.create.len(), create).await;
        }
        let status = job.status.get_or_insert_default();
        let size = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
        let ready =
            |pods: &[Arc<Pod>]| pods.iter().filter(|pod| pods::is_active(pod) && pods::is_ready(pod)).count();
        let terminating = pods.iter().filter(|pod| pods::is_terminating(pod)).count();
        status.active = Some(size(active - removed + created)).filter(|count| *count != 0);
        status.ready = Some(size(ready(pods) - ready(&plan.delete)));
        status.terminating = Some(size(terminating + removed));
        if plan.end.is_none() && cached.metadata.deletion_timestamp.is_none() {
            self.note_suspension(cached, status, is_suspended, now);
        }
        self.track(key, cached, job, spec, pods, &plan, now).await?;
        match failure {
            Some(error) if is_namespace_terminating(&error) => Ok(Action::Done),
            Some(error) => Err(error),
            None => Ok(plan.requeue.map_or(Action::Done, Action::After)),
        }
    }

    /// Keeps the condition Suspended, and restarts the clock of a job that is resumed.
    fn note_suspension(&self, job: &Job, status: &mut JobStatus, is_suspended: bool, now: Timestamp) {
        let was_suspended = is_true(Some(status), "Suspended");
        if is_suspended == was_suspended {
            return;
        }
        let (state, reason, message) = match is_suspended {
            true => ("True", "JobSuspended", "Job suspended"),
            false => ("False", "JobResumed", "Job resumed"),
        };
        let mut condition = plan::new_condition("Suspended", reason, message.to_owned(), now);
        condition.status = state.to_owned();
        let conditions = status.conditions.get_or_insert_default();
        conditions.retain(|known| known.type_ != "Suspended");
        conditions.push(condition);
        status.start_time = (!is_suspended).then(|| Time(seconds(now)));
        self.recorder.normal(job, if is_suspended { "Suspended" } else { "Resumed" }, message);
    }

    /// Counts pods that finished, lets them go, and ends the job when that is done.
    #[allow(clippy::too_many_arguments, reason = "the state of one reconciliation")]
    async fn track(
        &self,
        key: &Key,
        cached: &Job,
        mut job: Job,
        spec: &JobSpec,
        pods: &[Arc<Pod>],
        plan: &Plan,
        now: Timestamp,
    ) -> orlop_client::Result<()> {
        let status = job.status.get_or_insert_default();
        let (to_free, is_partial) = tracking::note_finished(cached, status, spec, pods, plan);
        let end = tracking::note_end(status, plan.end.as_ref(), now);
        let mut current = self.write_status(cached, job).await?;
        let freed = join_all(to_free.iter().map(|pod| self.free(pod))).await;
        let error = freed.into_iter().find_map(Result::err);
        self.set_record(key, Some(plan.record));
        let still_tracked: Vec<String> = self
            .pods
            .pods
            .controlled_by(&cached.uid().unwrap_or_default())
            .iter()
            .filter(|pod| is_tracked(pod))
            .map(|pod| pods::uid(pod).to_owned())
            .collect();
        let before = current.clone();
        let status = current.status.get_or_insert_default();
        tracking::count_freed(status, &still_tracked);
        let has_ended = match end {
            Some(end) if error.is_none() && !is_partial => tracking::finish(status, end),
            _ => None,
        };
        self.write_status(&before, current).await?;
        if let Some(condition) = has_ended {
            match condition.type_.as_str() {
                "Complete" => {
                    if let Some(completions) = spec.completions
                        && plan.succeeded > completions
                    {
                        let text = "Too many succeeded pods running after completion count reached";
                        self.recorder.warning(cached, "TooManySucceededPods", text);
                    }
                    self.recorder.normal(cached, "Completed", "Job completed");
                }
                _ => {
                    let message = condition.message.unwrap_or_default();
                    self.recorder.warning(
                        cached,
                        tracking::event_reason(condition.reason.as_deref()),
                        message,
                    );
                }
            }
            self.set_record(key, None);
        }
        error.map_or(Ok(()), Err)
    }

    /// Writes a status if it differs. Returns the job as it is then.
    async fn write_status(&self, old: &Job, new: Job) -> orlop_client::Result<Job> {
        if old.status == new.status {
            return Ok(new);
        }
        let api: Api<Job> = Api::namespaced(self.pods.client.0.clone(), &new.namespace().unwrap_or_default());
        let written = api.replace_status(&new.name_any(), &PostParams::default(), &new).await?;
        self.jobs.wrote(written.clone());
        Ok(written)
    }

    /// Removes the finalizer from a pod that is counted.
    async fn free(&self, pod: &Pod) -> orlop_client::Result<()> {
        let api: Api<Pod> = Api::namespaced(self.pods.client.0.clone(), &pod.namespace().unwrap_or_default());
        let change = serde_json::json!({"metadata": {"uid": pod.uid(),
            "$deleteFromPrimitiveList/finalizers": [TRACKING]}});
        match patch(&api, &pod.name_any(), change).await {
            Ok(freed) => {
                // The last finalizer of a pod in deletion: it is gone with it.
                match pods::is_deleting(&freed) && freed.finalizers().is_empty() && pods::is_terminal(&freed)
                {
                    true => self.pods.pods.deleted(pod),
                    false => self.pods.pods.wrote(freed),
                }
                Ok(())
            }
            Err(error) if is_not_found(&error) || is_conflict(&error) => {
                self.pods.pods.deleted(pod);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Lets pods go that nobody will count: of a job that is gone or has finished.
    async fn free_orphans(&self, key: &Key, job: Option<&Job>) -> orlop_client::Result<()> {
        let is_over = job.is_none_or(|job| finished(job).is_some());
        let uid = job.and_then(ResourceExt::uid);
        for pod in self.pods.pods.in_namespace(&key.namespace).iter().filter(|pod| is_tracked(pod)) {
            let Some(owner) = controller_of(&**pod).filter(|owner| refers_to::<Job>(owner)) else { continue };
            let is_other = uid.as_ref() != Some(&owner.uid);
            if owner.name == key.name && (is_over || is_other) {
                self.free(pod).await?;
            }
        }
        Ok(())
    }
}
