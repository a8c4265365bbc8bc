//! Jobs and CronJobs.

use k8s_openapi::api::{
    batch::v1::{CronJob, Job, JobCondition},
    core::v1::Pod,
};
use kube::{
    ResourceExt,
    api::{DeleteParams, ListParams},
};
use serde_json::{Value, json};

use crate::{fixture::Cluster, support::eventually};

fn job(name: &str, change: Value) -> Value {
    let mut spec = json!({"template": {"spec": {"restartPolicy": "Never",
        "containers": [{"name": "main", "image": "local/task"}]}}});
    for (key, value) in change.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    json!({"metadata": {"name": name}, "spec": spec})
}

/// A cluster whose pods end with an exit code by their image: `exit-1`.
async fn cluster() -> Cluster {
    Cluster::empty().await.with_node_of("node-1", json!({}), outcome).await
}

#[allow(clippy::unnecessary_wraps, reason = "the type of an outcome")]
fn outcome(pod: &Pod) -> Option<Value> {
    let image = pod.spec.as_ref()?.containers[0].image.clone()?;
    let index: Option<i32> = pod
        .annotations()
        .get("batch.kubernetes.io/job-completion-index")
        .and_then(|index| index.parse().ok());
    let code = match image.as_str() {
        "local/fails" => 1,
        "local/odd-fail" if index.is_some_and(|index| index % 2 == 1) => 1,
        "local/sleeps" => return None,
        _ => 0,
    };
    let now = k8s_openapi::jiff::Timestamp::now().to_string();
    let phase = if code == 0 { "Succeeded" } else { "Failed" };
    Some(
        json!({"phase": phase, "containerStatuses": [{"name": "main", "image": image, "imageID": "", "ready": false,
        "restartCount": 0, "state": {"terminated": {"exitCode": code, "finishedAt": now, "startedAt": now}}}]}),
    )
}

fn condition(job: &Job, type_: &str) -> Option<JobCondition> {
    let conditions = job.status.clone()?.conditions?;
    conditions.into_iter().find(|condition| condition.type_ == type_ && condition.status == "True")
}

async fn tracked(cluster: &Cluster) -> usize {
    let pods = cluster.api::<Pod>().list(&ListParams::default()).await.unwrap().items;
    pods.iter().filter(|pod| !pod.finalizers().is_empty()).count()
}

#[tokio::test]
async fn job_runs_to_its_completions() {
    let cluster = cluster().await;
    cluster.create::<Job>(job("sum", json!({"completions": 5, "parallelism": 2}))).await;
    let sum = cluster.wait::<Job>("sum", |job| condition(job, "Complete").is_some()).await;
    let complete = condition(&sum, "Complete").unwrap();
    assert_eq!(complete.reason.as_deref(), Some("CompletionsReached"));
    assert!(condition(&sum, "SuccessCriteriaMet").is_some());
    let status = sum.status.unwrap();
    assert_eq!((status.succeeded, status.failed, status.active), (Some(5), None, None));
    assert!(status.completion_time.is_some() && status.start_time.is_some());
    assert_eq!((status.ready, status.terminating), (Some(0), Some(0)));
    eventually("pods without finalizers", || async { (tracked(&cluster).await == 0).then_some(()) }).await;
    assert_eq!(cluster.pods("job-name=sum").await.len(), 5);
    assert_eq!(cluster.event("sum", "Completed").await, "Job completed");
}

#[tokio::test]
async fn failing_job_ends_at_its_limit() {
    let cluster = cluster().await;
    let template = json!({"spec": {"restartPolicy": "Never",
        "containers": [{"name": "main", "image": "local/fails"}]}});
    cluster.create::<Job>(job("bad", json!({"backoffLimit": 0, "template": template}))).await;
    let bad = cluster.wait::<Job>("bad", |job| condition(job, "Failed").is_some()).await;
    let failed = condition(&bad, "Failed").unwrap();
    assert_eq!(failed.reason.as_deref(), Some("BackoffLimitExceeded"));
    assert_eq!(failed.message.as_deref(), Some("Job has reached the specified backoff limit"));
    assert_eq!(bad.status.unwrap().failed, Some(1));
    let message = cluster.event("bad", "BackoffLimitExceeded").await;
    assert_eq!(message, "Job has reached the specified backoff limit");
}

#[tokio::test]
async fn indexed_job_counts_indexes_on_their_own() {
    let cluster = cluster().await;
    let template = json!({"spec": {"restartPolicy": "Never",
        "containers": [{"name": "main", "image": "local/odd-fail"}]}});
    let change = json!({"completions": 4, "parallelism": 4, "completionMode": "Indexed", "backoffLimitPerIndex": 0,
        "template": template});
    cluster.create::<Job>(job("part", change)).await;
    let part = cluster.wait::<Job>("part", |job| condition(job, "Failed").is_some()).await;
    assert_eq!(condition(&part, "Failed").unwrap().reason.as_deref(), Some("FailedIndexes"));
    let status = part.status.unwrap();
    assert_eq!(
        (status.completed_indexes.as_deref(), status.failed_indexes.as_deref()),
        (Some("0,2"), Some("1,3"))
    );
    assert_eq!((status.succeeded, status.failed), (Some(2), Some(2)));
    let pods = cluster.pods("job-name=part").await;
    let first = pods.iter().find(|pod| pod.name_any().starts_with("part-0-")).expect("the pod of index 0");
    let spec = first.spec.as_ref().unwrap();
    assert_eq!(spec.hostname.as_deref(), Some("part-0"));
    assert!(spec.containers[0].env.iter().flatten().any(|variable| variable.name == "JOB_COMPLETION_INDEX"));
}

#[tokio::test]
async fn suspended_job_has_no_pods_until_it_is_resumed() {
    let cluster = cluster().await;
    let template = json!({"spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "main", "image": "local/sleeps"}]}});
    cluster.create::<Job>(job("nap", json!({"suspend": true, "template": template}))).await;
    let nap = cluster.wait::<Job>("nap", |job| condition(job, "Suspended").is_some()).await;
    assert_eq!(nap.status.unwrap().start_time, None);
    cluster.patch::<Job>("nap", json!({"spec": {"suspend": false}})).await;
    let active = |job: &Job| job.status.as_ref().and_then(|status| status.ready) == Some(1);
    cluster.wait::<Job>("nap", active).await;
    cluster.patch::<Job>("nap", json!({"spec": {"suspend": true}})).await;
    cluster.wait_for_pods("job-name=nap", <[Pod]>::is_empty).await;
    cluster.wait::<Job>("nap", |job| condition(job, "Suspended").is_some()).await;
    cluster.api::<Job>().delete("nap", &DeleteParams::background()).await.unwrap();
    eventually("no job", || async {
        cluster.api::<Job>().get_opt("nap").await.unwrap().is_none().then_some(())
    })
    .await;
}

#[tokio::test]
async fn finished_job_is_deleted_after_its_time_with_its_pods() {
    let cluster = cluster().await;
    cluster.create::<Job>(job("brief", json!({"ttlSecondsAfterFinished": 0}))).await;
    eventually("no job", || async {
        let gone = cluster.api::<Job>().get_opt("brief").await.unwrap().is_none();
        (gone && cluster.pods("job-name=brief").await.is_empty()).then_some(())
    })
    .await;
}

fn cron_job(name: &str, schedule: &str) -> Value {
    let template = job("", json!({}))["spec"].clone();
    let spec =
        json!({"schedule": schedule, "successfulJobsHistoryLimit": 1, "jobTemplate": {"spec": template}});
    json!({"metadata": {"name": name}, "spec": spec})
}

#[tokio::test]
async fn cron_job_that_never_starts_is_reported() {
    let cluster = cluster().await;
    cluster.create::<CronJob>(cron_job("never", "59 23 31 2 *")).await;
    assert_eq!(
        cluster.event("never", "InvalidSchedule").await,
        "invalid schedule: 59 23 31 2 * : time difference between two schedules is less than 1 second"
    );
}

#[tokio::test]
async fn cron_job_starts_jobs() {
    let cluster = cluster().await;
    cluster.create::<CronJob>(cron_job("tick", "@every 1s")).await;
    let tick = cluster
        .wait::<CronJob>("tick", |tick| {
            tick.status.as_ref().is_some_and(|status| status.last_successful_time.is_some())
        })
        .await;
    assert!(tick.status.unwrap().last_schedule_time.is_some());
    assert!(cluster.event("tick", "SuccessfulCreate").await.starts_with("Created job tick-"));
    assert!(cluster.event("tick", "SawCompletedJob").await.ends_with(", condition: Complete"));
    let jobs = cluster.api::<Job>().list(&ListParams::default()).await.unwrap().items;
    assert_eq!(jobs[0].owner_references()[0].kind, "CronJob");
    cluster.patch::<CronJob>("tick", json!({"spec": {"suspend": true}})).await;
}
