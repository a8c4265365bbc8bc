//! The next step of a job. Pure.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::{
    api::{
        batch::v1::{Job, JobCondition, JobSpec, JobStatus},
        core::v1::Pod,
    },
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::Timestamp,
};

use super::{
    backoff::{self, Record},
    indexes::Indexes,
    pod_state::{
        FAILURE_COUNT, Failure, IGNORED_FAILURE_COUNT, count, failure, finished_at, index, is_failed,
        is_indexed, is_tracked, replaces_failed_only, restarts,
    },
};
use crate::workload::{
    pods,
    time::{plus_seconds, seconds, until},
};

/// Pods that are created or deleted, and uids that are noted, in one step.
pub(super) const BURST: usize = 500;

/// A pod to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NewPod {
    /// Its completion index, of an indexed job.
    pub(super) index: Option<i32>,
    /// Failures of its index so far, and those that do not count.
    pub(super) failures: Option<(i32, i32)>,
}

/// The next step of a job.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) delete: Vec<Arc<Pod>>,
    pub(super) create: Vec<NewPod>,
    /// The condition by which the job ends, once its pods are gone and counted.
    pub(super) end: Option<JobCondition>,
    pub(super) record: Record,
    pub(super) requeue: Option<Duration>,
    pub(super) failed_indexes: Option<Indexes>,
    pub(super) succeeded_indexes: Option<Indexes>,
    /// Pods of failed attempts whose index has no other pod: they carry the count of failures.
    pub(super) delayed: BTreeMap<i32, Arc<Pod>>,
    pub(super) succeeded: i32,
}

pub(super) fn condition<'a>(status: Option<&'a JobStatus>, type_: &str) -> Option<&'a JobCondition> {
    let conditions = status?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == type_)
}

pub(super) fn is_true(status: Option<&JobStatus>, type_: &str) -> bool {
    condition(status, type_).is_some_and(|condition| condition.status == "True")
}

pub(super) fn new_condition(type_: &str, reason: &str, message: String, now: Timestamp) -> JobCondition {
    let now = Some(Time(seconds(now)));
    JobCondition {
        type_: type_.to_owned(),
        status: "True".to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message),
        last_probe_time: now.clone(),
        last_transition_time: now,
    }
}

/// Returns the next step of a job that has not finished. `started` is when it began, unless it is suspended.
pub(super) fn plan(
    job: &Job,
    spec: &JobSpec,
    pods: &[Arc<Pod>],
    record: Record,
    started: Option<Timestamp>,
    now: Timestamp,
) -> Plan {
    let status = job.status.as_ref();
    let uncounted = status.and_then(|status| status.uncounted_terminated_pods.as_ref());
    let noted_failed = uncounted.and_then(|uncounted| uncounted.failed.as_deref()).unwrap_or_default();
    let noted_succeeded = uncounted.and_then(|uncounted| uncounted.succeeded.as_deref()).unwrap_or_default();
    let is_noted = |pod: &Pod, uids: &[String]| uids.iter().any(|uid| uid == pods::uid(pod));
    let active: Vec<&Arc<Pod>> = pods.iter().filter(|pod| pods::is_active(pod)).collect();
    let new_succeeded: Vec<&Arc<Pod>> = pods
        .iter()
        .filter(|pod| is_tracked(pod) && pods::phase(pod) == "Succeeded" && !is_noted(pod, noted_succeeded))
        .collect();
    let new_failed: Vec<&Arc<Pod>> = pods
        .iter()
        .filter(|pod| is_tracked(pod) && is_failed(pod, spec) && !is_noted(pod, noted_failed))
        .filter(|pod| !is_indexed(spec) || index(pod, spec).is_some())
        .collect();
    let counting = new_failed.iter().filter(|pod| failure(job, pod) != Failure::Ignored).count();
    let size = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
    let failed = status.and_then(|status| status.failed).unwrap_or(0) + size(counting + noted_failed.len());
    let mut plan = Plan {
        record: record.with(&new_succeeded, &new_failed),
        succeeded: status.and_then(|status| status.succeeded).unwrap_or(0)
            + size(new_succeeded.len() + noted_succeeded.len()),
        ..Plan::default()
    };
    if is_indexed(spec) {
        plan.count_indexes(job, spec, pods);
    }
    plan.end = ending(job, spec, pods, &plan, failed, started, now);
    if plan.end.is_some() {
        plan.delete = active.into_iter().cloned().collect();
        return plan;
    }
    if let (Some(deadline), Some(started)) = (spec.active_deadline_seconds, started) {
        plan.requeue = Some(until(plus_seconds(started, deadline), now));
    }
    if job.metadata.deletion_timestamp.is_none() {
        plan.manage(job, spec, pods, &active, now);
    }
    let remaining = active.len() - plan.delete.len().min(active.len()) + plan.create.len();
    let is_complete = match spec.completions {
        None => plan.succeeded > 0,
        Some(completions) => plan.succeeded >= completions,
    };
    if is_complete && remaining == 0 && plan.delete.is_empty() {
        let text = "Reached expected number of succeeded pods".to_owned();
        plan.end = Some(new_condition("SuccessCriteriaMet", "CompletionsReached", text, now));
    }
    plan
}

/// Returns the condition by which the job ends early.
fn ending(
    job: &Job,
    spec: &JobSpec,
    pods: &[Arc<Pod>],
    plan: &Plan,
    failed: i32,
    started: Option<Timestamp>,
    now: Timestamp,
) -> Option<JobCondition> {
    let status = job.status.as_ref();
    if let Some(met) = condition(status, "SuccessCriteriaMet").filter(|met| met.status == "True") {
        return Some(met.clone());
    }
    if let Some(target) = condition(status, "FailureTarget").filter(|target| target.status == "True") {
        return Some(target.clone());
    }
    let failure_target =
        |reason: &str, text: &str| new_condition("FailureTarget", reason, text.to_owned(), now);
    let failing = pods.iter().filter(|pod| is_failed(pod, spec)).find_map(|pod| match failure(job, pod) {
        Failure::FailsJob(text) => Some(text),
        _ => None,
    });
    if let Some(text) = failing {
        return Some(failure_target("PodFailurePolicy", &text));
    }
    let limit = spec.backoff_limit.unwrap_or(6);
    let restart_policy = spec.template.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref());
    let restarts = match restart_policy {
        Some("OnFailure") => restarts(pods.iter().map(|pod| &**pod)),
        _ => 0,
    };
    if failed > limit || restarts > 0 && restarts >= limit {
        return Some(failure_target("BackoffLimitExceeded", "Job has reached the specified backoff limit"));
    }
    let is_suspended = spec.suspend == Some(true);
    if let (Some(deadline), Some(started), false) = (spec.active_deadline_seconds, started, is_suspended)
        && plus_seconds(started, deadline) <= now
    {
        return Some(failure_target("DeadlineExceeded", "Job was active longer than specified deadline"));
    }
    let succeeded = plan.succeeded_indexes.as_ref()?;
    if let Some(failed) = &plan.failed_indexes {
        if spec.max_failed_indexes.is_some_and(|most| failed.len() > most) {
            let text = "Job has exceeded the specified maximal number of failed indexes";
            return Some(failure_target("MaxFailedIndexesExceeded", text));
        }
        if !failed.is_empty() && failed.len() + succeeded.len() >= spec.completions.unwrap_or(0) {
            return Some(failure_target("FailedIndexes", "Job has failed indexes"));
        }
    }
    let rules = spec.success_policy.iter().flat_map(|policy| &policy.rules);
    let met = rules.enumerate().filter(|_| !succeeded.is_empty()).find(|(_, rule)| {
        match (&rule.succeeded_indexes, rule.succeeded_count) {
            (Some(wanted), wanted_count) => {
                let wanted = Indexes::parse(wanted, spec.completions.unwrap_or(0));
                !wanted.is_empty() && wanted.common(succeeded) >= wanted_count.unwrap_or(wanted.len())
            }
            (None, Some(wanted)) => succeeded.len() >= wanted,
            (None, None) => false,
        }
    });
    let (position, _) = met?;
    Some(new_condition(
        "SuccessCriteriaMet",
        "SuccessPolicy",
        format!("Matched rules at index {position}"),
        now,
    ))
}

impl Plan {
    /// Counts the indexes that succeeded and failed.
    fn count_indexes(&mut self, job: &Job, spec: &JobSpec, pods: &[Arc<Pod>]) {
        let completions = spec.completions.unwrap_or(0);
        let status = job.status.as_ref();
        let text = status.and_then(|status| status.completed_indexes.as_deref()).unwrap_or_default();
        let mut succeeded = Indexes::parse(text, completions);
        for pod in pods.iter().filter(|pod| is_tracked(pod) && pods::phase(pod) == "Succeeded") {
            index(pod, spec).into_iter().for_each(|index| succeeded.insert(index));
        }
        self.succeeded = succeeded.len();
        if let Some(limit) = spec.backoff_limit_per_index {
            let text = status.and_then(|status| status.failed_indexes.as_deref()).unwrap_or_default();
            let mut failed = Indexes::parse(text, completions);
            for pod in pods.iter().filter(|pod| is_tracked(pod) && is_failed(pod, spec)) {
                let is_final = match failure(job, pod) {
                    Failure::FailsIndex => true,
                    Failure::Ignored => false,
                    Failure::Counts | Failure::FailsJob(_) => count(pod, FAILURE_COUNT) >= limit,
                };
                if is_final {
                    index(pod, spec).into_iter().for_each(|index| failed.insert(index));
                }
            }
            let is_active = |index: i32| {
                let mut active = pods.iter().filter(|pod| pods::is_active(pod));
                active.any(|pod| super::pod_state::index(pod, spec) == Some(index))
            };
            let attempts = |pod: &Pod| count(pod, FAILURE_COUNT) + count(pod, IGNORED_FAILURE_COUNT);
            for pod in pods.iter().filter(|pod| is_tracked(pod) && is_failed(pod, spec)) {
                let Some(index) = index(pod, spec) else { continue };
                if succeeded.contains(index) || failed.contains(index) || is_active(index) {
                    continue;
                }
                let is_later = self.delayed.get(&index).is_none_or(|known| {
                    attempts(known) <= attempts(pod) && finished_at(known) <= finished_at(pod)
                });
                if is_later {
                    self.delayed.insert(index, pod.clone());
                }
            }
            self.failed_indexes = Some(failed);
        }
        self.succeeded_indexes = Some(succeeded);
    }

    /// Decides which pods to delete, or else to create.
    fn manage(&mut self, job: &Job, spec: &JobSpec, pods: &[Arc<Pod>], active: &[&Arc<Pod>], now: Timestamp) {
        if spec.suspend == Some(true) {
            self.delete = active.iter().map(|pod| Arc::clone(pod)).collect();
            return;
        }
        let parallelism = spec.parallelism.unwrap_or(1).max(0);
        let size = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
        let wanted = match spec.completions {
            None if self.succeeded > 0 => size(active.len()),
            None => parallelism,
            Some(completions) => (completions - self.succeeded).clamp(0, parallelism),
        };
        let surplus = usize::try_from(size(active.len()) - wanted).unwrap_or(0);
        self.delete = for_removal(spec, active, surplus);
        self.delete.truncate(BURST);
        if !self.delete.is_empty() {
            return;
        }
        let terminating = match replaces_failed_only(spec) {
            true => size(pods.iter().filter(|pod| pods::is_terminating(pod)).count()),
            false => 0,
        };
        let missing = usize::try_from(wanted - terminating - size(active.len())).unwrap_or(0).min(BURST);
        if missing == 0 {
            return;
        }
        if spec.backoff_limit_per_index.is_none() {
            let pause = self.record.remaining(now);
            if !pause.is_zero() {
                self.wait(pause);
                return;
            }
        }
        if !is_indexed(spec) {
            self.create = vec![NewPod { index: None, failures: None }; missing];
            return;
        }
        for index in self.pending_indexes(spec, pods, active, missing) {
            let failures = match (spec.backoff_limit_per_index, self.delayed.get(&index)) {
                (None, _) => None,
                (Some(_), None) => Some((0, 0)),
                (Some(_), Some(last)) => {
                    let (failed, ignored) = (count(last, FAILURE_COUNT), count(last, IGNORED_FAILURE_COUNT));
                    let attempts = u32::try_from(failed + ignored + 1).unwrap_or(1);
                    let pause = backoff::remaining(attempts, finished_at(last), now);
                    if !pause.is_zero() {
                        self.wait(pause);
                        continue;
                    }
                    match failure(job, last) {
                        Failure::Ignored => Some((failed, ignored + 1)),
                        _ => Some((failed + 1, ignored)),
                    }
                }
            };
            self.create.push(NewPod { index: Some(index), failures });
        }
    }

    fn wait(&mut self, pause: Duration) {
        self.requeue = Some(self.requeue.map_or(pause, |requeue| requeue.min(pause)));
    }

    /// Returns the lowest indexes that have no pod and are not done.
    fn pending_indexes(
        &self,
        spec: &JobSpec,
        pods: &[Arc<Pod>],
        active: &[&Arc<Pod>],
        missing: usize,
    ) -> Vec<i32> {
        let mut taken = self.succeeded_indexes.clone().unwrap_or_default();
        active.iter().filter_map(|pod| index(pod, spec)).for_each(|index| taken.insert(index));
        if replaces_failed_only(spec) {
            let terminating = pods.iter().filter(|pod| pods::is_terminating(pod));
            terminating.filter_map(|pod| index(pod, spec)).for_each(|index| taken.insert(index));
        }
        let failed = self.failed_indexes.clone().unwrap_or_default();
        let all = 0..spec.completions.unwrap_or(0);
        all.filter(|index| !taken.contains(*index) && !failed.contains(*index)).take(missing).collect()
    }
}

/// Returns pods to delete: of equal or impossible indexes first, then those that are not ready, then younger ones.
fn for_removal(spec: &JobSpec, active: &[&Arc<Pod>], at_least: usize) -> Vec<Arc<Pod>> {
    let mut ranked: Vec<&Arc<Pod>> = active.to_vec();
    // The last are the first to go.
    ranked.sort_by_key(|pod| {
        let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (!pods::is_ready(pod), pods::phase(pod) != "Running", pods::node_name(pod).is_none(), created)
    });
    let (mut removed, mut left) = (Vec::new(), Vec::new());
    let mut seen = Indexes::default();
    for pod in ranked {
        let is_surplus = is_indexed(spec)
            && match index(pod, spec) {
                None => true,
                Some(index) if seen.contains(index) => true,
                Some(index) => {
                    seen.insert(index);
                    false
                }
            };
        if is_surplus { removed.push(pod.clone()) } else { left.push(pod.clone()) }
    }
    while removed.len() < at_least
        && let Some(pod) = left.pop()
    {
        removed.push(pod);
    }
    removed
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{
        super::pod_state::{COMPLETION_INDEX, TRACKING},
        *,
    };

    fn job(spec: Value, status: Value) -> Job {
        let mut whole = json!({"parallelism": 2, "completions": 3, "backoffLimit": 6, "template": {}});
        for (key, value) in spec.as_object().into_iter().flatten() {
            whole[key] = value.clone();
        }
        serde_json::from_value(json!({"metadata": {"name": "j"}, "spec": whole, "status": status})).unwrap()
    }

    fn pod(uid: &str, phase: &str, change: Value) -> Arc<Pod> {
        let mut pod = json!({"metadata": {"name": uid, "namespace": "n", "uid": uid, "finalizers": [TRACKING],
            "creationTimestamp": "2026-01-01T00:00:00Z"}, "status": {"phase": phase}});
        for (key, value) in change.as_object().into_iter().flatten() {
            pod[key] = value.clone();
        }
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    fn indexed(uid: &str, phase: &str, index: i32, failures: i32) -> Arc<Pod> {
        let metadata = json!({"name": uid, "namespace": "n", "uid": uid, "finalizers": [TRACKING],
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": {COMPLETION_INDEX: index.to_string(), FAILURE_COUNT: failures.to_string()}});
        pod(uid, phase, json!({"metadata": metadata}))
    }

    fn planned(job: &Job, pods: &[Arc<Pod>]) -> Plan {
        let now: Timestamp = "2026-01-02T00:00:00Z".parse().unwrap();
        plan(job, job.spec.as_ref().unwrap(), pods, Record::default(), Some(now), now)
    }

    fn reason(plan: &Plan) -> Option<&str> {
        plan.end.as_ref()?.reason.as_deref()
    }

    #[test]
    fn pods_are_created_up_to_parallelism_and_what_is_left() {
        assert_eq!(planned(&job(json!({}), json!({})), &[]).create.len(), 2);
        let done = [pod("a", "Succeeded", json!({})), pod("b", "Succeeded", json!({}))];
        assert_eq!(planned(&job(json!({}), json!({})), &done).create.len(), 1);
        let running = [pod("a", "Running", json!({})), pod("b", "Running", json!({}))];
        let fewer = planned(&job(json!({"parallelism": 1}), json!({})), &running);
        assert_eq!((fewer.create.len(), fewer.delete.len()), (0, 1));
        let suspended = planned(&job(json!({"suspend": true}), json!({})), &running);
        assert_eq!((suspended.create.len(), suspended.delete.len()), (0, 2));
    }

    #[test]
    fn completions_end_the_job() {
        let pods = ["a", "b", "c"].map(|uid| pod(uid, "Succeeded", json!({})));
        let plan = planned(&job(json!({}), json!({})), &pods);
        assert_eq!(reason(&plan), Some("CompletionsReached"));
        let queue = job(json!({"completions": null}), json!({}));
        let busy = [pod("a", "Succeeded", json!({})), pod("b", "Running", json!({}))];
        assert_eq!(reason(&planned(&queue, &busy)), None, "a worker still runs");
        assert_eq!(reason(&planned(&queue, &busy[..1])), Some("CompletionsReached"));
    }

    #[test]
    fn failures_end_the_job_in_order() {
        let failed = [pod("a", "Failed", json!({})), pod("b", "Running", json!({}))];
        let plan = planned(&job(json!({"backoffLimit": 0}), json!({})), &failed);
        assert_eq!((reason(&plan), plan.delete.len()), (Some("BackoffLimitExceeded"), 1));
        let policy = json!({"backoffLimit": 0, "podFailurePolicy": {"rules": [
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]}});
        let exits = |code: i32| {
            json!({"status": {"phase": "Failed", "containerStatuses": [{"name": "main", "image": "", "imageID": "",
                "ready": false, "restartCount": 0, "state": {"terminated": {"exitCode": code}}}]}})
        };
        let plan = planned(&job(policy.clone(), json!({})), &[pod("a", "", exits(42))]);
        assert_eq!(
            plan.end.unwrap().message.unwrap(),
            "Container main for pod n/a failed with exit code 42 matching FailJob rule at index 1"
        );
        let disrupted = json!({"status": {"phase": "Failed",
            "conditions": [{"type": "DisruptionTarget", "status": "True"}]}});
        assert_eq!(reason(&planned(&job(policy, json!({})), &[pod("a", "", disrupted)])), None);
        let deadline = job(json!({"activeDeadlineSeconds": 0}), json!({}));
        assert_eq!(reason(&planned(&deadline, &[])), Some("DeadlineExceeded"));
    }

    #[test]
    fn indexes_are_retried_on_their_own() {
        let spec = json!({"completionMode": "Indexed", "completions": 4, "parallelism": 4,
            "backoffLimitPerIndex": 1, "backoffLimit": i32::MAX});
        let pods = [
            indexed("a", "Succeeded", 0, 0),
            indexed("b", "Failed", 1, 0),
            indexed("c", "Failed", 2, 1),
            indexed("d", "Running", 3, 0),
        ];
        let plan = planned(&job(spec.clone(), json!({})), &pods);
        assert_eq!(plan.create, [NewPod { index: Some(1), failures: Some((1, 0)) }]);
        assert_eq!(plan.failed_indexes.as_ref().unwrap().to_string(), "2");
        assert_eq!(plan.succeeded_indexes.as_ref().unwrap().to_string(), "0");
        assert_eq!(plan.delayed.keys().copied().collect::<Vec<_>>(), [1]);
        let all =
            [&pods[..1], &[indexed("e", "Failed", 1, 1), pods[2].clone(), indexed("f", "Succeeded", 3, 0)]]
                .concat();
        assert_eq!(reason(&planned(&job(spec, json!({})), &all)), Some("FailedIndexes"));
    }

    #[test]
    fn success_policy_ends_the_job_early() {
        let spec = json!({"completionMode": "Indexed", "completions": 5, "parallelism": 5,
            "successPolicy": {"rules": [{"succeededIndexes": "0-1", "succeededCount": 1}]}});
        let pods = [indexed("a", "Succeeded", 1, 0), indexed("b", "Running", 2, 0)];
        let plan = planned(&job(spec, json!({})), &pods);
        assert_eq!((reason(&plan), plan.delete.len()), (Some("SuccessPolicy"), 1));
    }
}
