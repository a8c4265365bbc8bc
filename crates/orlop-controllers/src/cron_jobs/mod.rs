//! CronJobs: Jobs at times.

mod plan;
mod schedule;

use std::{sync::Arc, time::Duration};

use k8s_openapi::{
    api::batch::v1::{CronJob, Job},
    jiff::{Timestamp, tz::TimeZone},
};
use orlop_client::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, PostParams, Preconditions},
};

use self::{
    plan::{Due, Started},
    schedule::Schedule,
};
use crate::{
    runtime::{Action, Context, EventForm, Informer, Key, Manager, Recorder},
    status::{is_already_exists, is_namespace_terminating, is_not_found, message},
    workload::{
        ownership::{controller_of, is_controlled_by, refers_to},
        time::until,
    },
};

/// Name of the controller.
pub(crate) const NAME: &str = "cronjob-controller";
const CONCURRENCY: usize = 5;
/// Time after a scheduled one at which the controller wakes, so that it is past for certain.
const DELTA: Duration = Duration::from_millis(100);

/// Registers the controller.
pub(crate) fn register(manager: &mut Manager) {
    manager.register(NAME, run);
}

struct Controller {
    client: Client,
    cron_jobs: Arc<Informer<CronJob>>,
    jobs: Arc<Informer<Job>>,
    recorder: Arc<Recorder>,
}

async fn run(context: Context) {
    let cron_jobs = context.informers.of::<CronJob>();
    let jobs = context.informers.of::<Job>();
    let queue = context.work_queue::<Key>();
    let controller = Arc::new(Controller {
        client: context.client.clone(),
        cron_jobs: cron_jobs.clone(),
        jobs: jobs.clone(),
        recorder: context.recorder(NAME, EventForm::Counted),
    });
    tokio::join!(cron_jobs.synced(), jobs.synced());
    let (of_cron_jobs, of_jobs) = (queue.clone(), queue.clone());
    let subscriptions = (
        cron_jobs.subscribe(move |change| {
            change.latest().into_iter().for_each(|cron_job| of_cron_jobs.add(Key::of(&**cron_job)));
        }),
        jobs.subscribe(move |change| {
            for job in change.both() {
                if let Some(owner) = controller_of(&**job).filter(|owner| refers_to::<CronJob>(owner)) {
                    of_jobs.add(Key::new(job.namespace().unwrap_or_default(), owner.name.clone()));
                }
            }
        }),
    );
    queue
        .run(CONCURRENCY, |key| {
            let controller = controller.clone();
            async move { controller.reconcile(&key).await }
        })
        .await;
    drop(subscriptions);
}

impl Controller {
    async fn reconcile(&self, key: &Key) -> orlop_client::Result<Action> {
        let Some(cached) = self.cron_jobs.get(key) else { return Ok(Action::Done) };
        let uid = cached.uid().unwrap_or_default();
        let jobs = self.jobs.controlled_by(&uid);
        let mut cron_job = CronJob::clone(&cached);
        for (warning, reason, text) in plan::update_active(&mut cron_job, &jobs) {
            match warning {
                true => self.recorder.warning(&*cached, reason, text),
                false => self.recorder.normal(&*cached, reason, text),
            }
        }
        let next = match cached.metadata.deletion_timestamp {
            None => self.start(&cached, &mut cron_job, &jobs).await,
            Some(_) => Ok(Action::Done),
        };
        self.write_status(&cached, cron_job).await?;
        if cached.metadata.deletion_timestamp.is_none() {
            self.clean_up(&cached, &jobs).await?;
        }
        next
    }

    /// Starts a job if one is due. Returns when the next one is.
    async fn start(
        &self,
        cached: &CronJob,
        cron_job: &mut CronJob,
        jobs: &[Arc<Job>],
    ) -> orlop_client::Result<Action> {
        let spec = &cached.spec;
        if spec.suspend == Some(true) {
            return Ok(Action::Done);
        }
        let zone = match spec.time_zone.as_deref() {
            None => TimeZone::system(),
            Some(name) => match TimeZone::get(name) {
                Ok(zone) => zone,
                Err(_) => {
                    let text = format!("invalid timeZone: {name:?}: unknown time zone {name}");
                    self.recorder.warning(cached, "UnknownTimeZone", text);
                    return Ok(Action::Done);
                }
            },
        };
        if spec.schedule.contains("TZ") {
            let text = format!(
                "CRON_TZ or TZ used in schedule {:?} is not officially supported, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details",
                spec.schedule
            );
            self.recorder.warning(cached, "UnsupportedSchedule", text);
        }
        let schedule = spec
            .schedule
            .rsplit_once("TZ=")
            .map_or(spec.schedule.as_str(), |(_, rest)| rest.split_once(' ').map_or("", |(_, rest)| rest));
        let Some(schedule) = Schedule::parse(schedule) else {
            let text = format!("unparseable schedule: {:?}", spec.schedule);
            self.recorder.warning(cached, "UnparseableSchedule", text);
            return Ok(Action::Done);
        };
        let now = Timestamp::now();
        let Some(next) = schedule.next(now, &zone) else {
            // The 31st of February: Go's library returns the same time for ever.
            let text = format!(
                "invalid schedule: {} : time difference between two schedules is less than 1 second",
                spec.schedule
            );
            self.recorder.warning(cached, "InvalidSchedule", text);
            return Ok(Action::Done);
        };
        let next = Action::After(until(next, now) + DELTA);
        let (due, missed_too_many) = plan::due(cron_job, &schedule, &zone, now);
        if missed_too_many {
            let text = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
            self.recorder.warning(cached, "TooManyMissedTimes", text);
        }
        let time = match due {
            Due::Nothing => return Ok(next),
            Due::TooLate(time) => {
                let text = format!("Missed scheduled time to start a job: {}", plan::rfc1123(time));
                self.recorder.warning(cached, "MissSchedule", text);
                return Ok(next);
            }
            Due::Forbidden => {
                let text =
                    "Not starting job because prior execution is running and concurrency policy is Forbid";
                self.recorder.normal(cached, "JobAlreadyActive", text);
                return Ok(next);
            }
            Due::At(time) => time,
        };
        if spec.concurrency_policy.as_deref() == Some("Replace") {
            let active =
                cron_job.status.as_ref().and_then(|status| status.active.clone()).unwrap_or_default();
            for reference in active {
                let job = jobs.iter().find(|job| job.metadata.uid == reference.uid);
                if let Some(job) = job {
                    self.delete(cached, job).await?;
                }
            }
            cron_job.status.get_or_insert_default().active = None;
        }
        let job = plan::new_job(cached, time, &zone);
        let api: Api<Job> = Api::namespaced(self.client.clone(), &cached.namespace().unwrap_or_default());
        let name = job.name_any();
        let started = match api.create(&PostParams::default(), &job).await {
            Ok(created) => {
                self.jobs.wrote(created.clone());
                self.recorder.normal(cached, "SuccessfulCreate", format!("Created job {name}"));
                Started::New(created.object_ref(&()))
            }
            Err(error) if is_already_exists(&error) => match api.get_opt(&name).await? {
                Some(own) if is_controlled_by(&own, &cached.uid().unwrap_or_default()) => {
                    Started::Before(own.object_ref(&()))
                }
                _ => return Err(error),
            },
            Err(error) if is_namespace_terminating(&error) => return Ok(Action::Done),
            Err(error) => {
                let text = format!("Error creating job: {}", message(&error));
                self.recorder.warning(cached, "FailedCreate", text);
                return Err(error);
            }
        };
        plan::note_start(cron_job, started, time);
        Ok(next)
    }

    async fn write_status(&self, old: &CronJob, new: CronJob) -> orlop_client::Result<()> {
        if old.status == new.status {
            return Ok(());
        }
        let api: Api<CronJob> = Api::namespaced(self.client.clone(), &new.namespace().unwrap_or_default());
        match api.replace_status(&new.name_any(), &PostParams::default(), &new).await {
            Ok(written) => {
                self.cron_jobs.wrote(written);
                Ok(())
            }
            Err(error) if is_not_found(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Deletes finished jobs beyond the limits of the history.
    async fn clean_up(&self, cron_job: &CronJob, jobs: &[Arc<Job>]) -> orlop_client::Result<()> {
        for job in plan::surplus(cron_job, jobs) {
            self.delete(cron_job, &job).await?;
        }
        Ok(())
    }

    async fn delete(&self, cron_job: &CronJob, job: &Job) -> orlop_client::Result<()> {
        let api: Api<Job> = Api::namespaced(self.client.clone(), &job.namespace().unwrap_or_default());
        let preconditions = Preconditions { uid: job.uid(), resource_version: None };
        let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
        match api.delete(&job.name_any(), &parameters).await {
            Err(error) if !is_not_found(&error) => {
                self.recorder.warning(cron_job, "FailedDelete", format!("Deleted job: {}", message(&error)));
                return Err(error);
            }
            _ => {
                self.jobs.deleted(job);
                self.recorder.normal(cron_job, "SuccessfulDelete", format!("Deleted job {}", job.name_any()));
            }
        }
        Ok(())
    }
}
