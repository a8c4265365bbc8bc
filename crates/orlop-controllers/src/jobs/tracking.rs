//! Counting finished pods exactly once: their uids are noted in the status, then their finalizers go, then the
//! counters rise. Pure.

use std::sync::Arc;

use k8s_openapi::{
    api::{
        batch::v1::{Job, JobCondition, JobSpec, JobStatus},
        core::v1::Pod,
    },
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::Timestamp,
};

use super::{
    plan::{BURST, Plan, condition},
    pod_state::{Failure, failure, index, is_failed, is_indexed, is_tracked},
};
use crate::workload::{pods, time::seconds};

/// Notes pods that finished. Returns the pods whose finalizer can go after the status is written, and whether there
/// were too many for one step.
pub(super) fn note_finished(
    job: &Job,
    status: &mut JobStatus,
    spec: &JobSpec,
    pods: &[Arc<Pod>],
    plan: &Plan,
) -> (Vec<Arc<Pod>>, bool) {
    let tracked: Vec<String> =
        pods.iter().filter(|pod| is_tracked(pod)).map(|pod| pods::uid(pod).to_owned()).collect();
    count_freed(status, &tracked);
    let failed_for_good = plan.end.as_ref().is_some_and(|end| end.type_ != "SuccessCriteriaMet");
    let has_ended = plan.end.is_some() || job.metadata.deletion_timestamp.is_some();
    let uncounted = status.uncounted_terminated_pods.get_or_insert_default();
    let mut to_free = Vec::new();
    let mut is_partial = false;
    for pod in pods.iter().filter(|pod| is_tracked(pod)) {
        let is_failed = is_failed(pod, spec);
        let is_succeeded = pods::phase(pod) == "Succeeded";
        let is_delayed = || {
            let last = index(pod, spec).and_then(|index| plan.delayed.get(&index));
            last.is_some_and(|last| pods::uid(last) == pods::uid(pod))
        };
        if !has_ended && !is_succeeded && (!is_failed || is_delayed()) {
            continue;
        }
        to_free.push(pod.clone());
        let uid = pods::uid(pod).to_owned();
        let succeeded = uncounted.succeeded.get_or_insert_default();
        let failed = uncounted.failed.get_or_insert_default();
        if is_succeeded && !failed.contains(&uid) {
            // Of an indexed job its index is what counts.
            if !is_indexed(spec) && !succeeded.contains(&uid) {
                succeeded.push(uid);
            }
        } else if is_failed || failed_for_good {
            let counts = !is_indexed(spec) || index(pod, spec).is_some();
            if counts && !failed.contains(&uid) && failure(job, pod) != Failure::Ignored {
                failed.push(uid);
            }
        }
        if to_free.len() >= BURST {
            is_partial = true;
            break;
        }
    }
    drop_empty(status);
    if is_indexed(spec) {
        let succeeded = plan.succeeded_indexes.clone().unwrap_or_default();
        status.succeeded = Some(succeeded.len()).filter(|count| *count != 0);
        status.completed_indexes = Some(succeeded.to_string()).filter(|text| !text.is_empty());
        status.failed_indexes = plan.failed_indexes.as_ref().map(ToString::to_string);
    }
    (to_free, is_partial)
}

/// Leaves out empty lists, as Kubernetes does.
fn drop_empty(status: &mut JobStatus) {
    let uncounted = status.uncounted_terminated_pods.get_or_insert_default();
    uncounted.succeeded = uncounted.succeeded.take().filter(|uids| !uids.is_empty());
    uncounted.failed = uncounted.failed.take().filter(|uids| !uids.is_empty());
}

/// Raises the counters by pods whose finalizer is gone.
pub(super) fn count_freed(status: &mut JobStatus, still_tracked: &[String]) {
    let uncounted = status.uncounted_terminated_pods.get_or_insert_default();
    let freed = |uids: &mut Option<Vec<String>>| {
        let all = uids.take().unwrap_or_default();
        let (left, freed): (Vec<String>, Vec<String>) =
            all.into_iter().partition(|uid| still_tracked.contains(uid));
        *uids = (!left.is_empty()).then_some(left);
        i32::try_from(freed.len()).unwrap_or(i32::MAX)
    };
    let (succeeded, failed) = (freed(&mut uncounted.succeeded), freed(&mut uncounted.failed));
    let raise = |counter: &mut Option<i32>, by: i32| {
        if by > 0 {
            *counter = Some(counter.unwrap_or(0).saturating_add(by));
        }
    };
    raise(&mut status.succeeded, succeeded);
    raise(&mut status.failed, failed);
}

/// Notes that the job is about to end. Returns the condition by which it will have ended.
pub(super) fn note_end(
    status: &mut JobStatus,
    end: Option<&JobCondition>,
    now: Timestamp,
) -> Option<JobCondition> {
    let interim = end?;
    if condition(Some(status), &interim.type_).is_none() {
        status.conditions.get_or_insert_default().push(interim.clone());
    }
    let type_ = if interim.type_ == "SuccessCriteriaMet" { "Complete" } else { "Failed" };
    let now = Some(Time(seconds(now)));
    Some(JobCondition {
        type_: type_.to_owned(),
        last_probe_time: now.clone(),
        last_transition_time: now,
        ..interim.clone()
    })
}

/// Ends the job, unless pods are still going or to be counted. Returns the condition if it has ended.
pub(super) fn finish(status: &mut JobStatus, end: JobCondition) -> Option<JobCondition> {
    let uncounted = status.uncounted_terminated_pods.clone().unwrap_or_default();
    let left =
        uncounted.succeeded.map_or(0, |uids| uids.len()) + uncounted.failed.map_or(0, |uids| uids.len());
    if left > 0 || status.terminating.unwrap_or(0) > 0 {
        return None;
    }
    if end.type_ == "Complete" {
        status.completion_time.clone_from(&end.last_transition_time);
    }
    status.conditions.get_or_insert_default().push(end.clone());
    status.active = None;
    Some(end)
}

/// Returns the reason of the event about a failed job.
pub(super) fn event_reason(reason: Option<&str>) -> &'static str {
    const KNOWN: [&str; 5] = [
        "BackoffLimitExceeded",
        "DeadlineExceeded",
        "PodFailurePolicy",
        "MaxFailedIndexesExceeded",
        "FailedIndexes",
    ];
    KNOWN.into_iter().find(|known| Some(*known) == reason).unwrap_or("BackoffLimitExceeded")
}
