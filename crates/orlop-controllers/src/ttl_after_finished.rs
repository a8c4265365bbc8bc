//! Deletes Jobs a time after they have finished.

use std::sync::Arc;

use k8s_openapi::{api::batch::v1::Job, jiff::Timestamp};
use orlop_client::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Preconditions},
};

use crate::{
    jobs::finished,
    runtime::{Action, Context, Informer, Key, Manager},
    status::{is_conflict, is_not_found},
    workload::time::{plus_seconds, until},
};

/// Name of the controller.
pub(crate) const NAME: &str = "ttl-after-finished-controller";
const CONCURRENCY: usize = 5;

/// Registers the controller.
pub(crate) fn register(manager: &mut Manager) {
    manager.register(NAME, run);
}

async fn run(context: Context) {
    let jobs = context.informers.of::<Job>();
    jobs.synced().await;
    let queue = context.work_queue::<Key>();
    let of_jobs = queue.clone();
    let subscription = jobs.subscribe(move |change| {
        if let Some(job) = change.new.as_ref().filter(|job| expiry(job).is_some()) {
            of_jobs.add(Key::of(&**job));
        }
    });
    queue
        .run(CONCURRENCY, |key| {
            let (client, jobs) = (context.client.clone(), jobs.clone());
            async move { reconcile(client, &jobs, &key).await }
        })
        .await;
    drop(subscription);
}

/// Returns the time at which a job expires.
fn expiry(job: &Job) -> Option<Timestamp> {
    let ttl = job.spec.as_ref()?.ttl_seconds_after_finished?;
    let finished = finished(job)?.last_transition_time.as_ref()?;
    job.metadata.deletion_timestamp.is_none().then(|| plus_seconds(finished.0, ttl.into()))
}

async fn reconcile(client: Client, jobs: &Arc<Informer<Job>>, key: &Key) -> orlop_client::Result<Action> {
    let Some(due) = jobs.get(key).and_then(|job| expiry(&job)) else { return Ok(Action::Done) };
    let now = Timestamp::now();
    if due > now {
        return Ok(Action::After(until(due, now)));
    }
    // The live object has the last word: its time may have been changed.
    let api: Api<Job> = Api::namespaced(client, &key.namespace);
    let Some(job) = api.get_opt(&key.name).await? else { return Ok(Action::Done) };
    match expiry(&job) {
        None => return Ok(Action::Done),
        Some(due) if due > now => return Ok(Action::After(until(due, now))),
        Some(_) => {}
    }
    let preconditions = Preconditions { uid: job.uid(), resource_version: None };
    let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::foreground() };
    match api.delete(&key.name, &parameters).await {
        Err(error) if !is_not_found(&error) && !is_conflict(&error) => Err(error),
        _ => Ok(Action::Done),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn time_counts_from_the_end() {
        let job = |ttl: Option<i32>, type_: &str| -> Job {
            serde_json::from_value(json!({"spec": {"template": {}, "ttlSecondsAfterFinished": ttl},
                "status": {"conditions": [
                    {"type": type_, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}))
            .unwrap()
        };
        assert_eq!(expiry(&job(Some(90), "Complete")), Some("2026-01-01T00:01:30Z".parse().unwrap()));
        assert_eq!(expiry(&job(None, "Complete")), None);
        assert_eq!(expiry(&job(Some(0), "Suspended")), None);
    }
}
