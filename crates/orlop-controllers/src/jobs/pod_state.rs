//! States of a job's pods. Pure.

use k8s_openapi::{
    api::{
        batch::v1::{Job, JobSpec, PodFailurePolicy, PodFailurePolicyRule},
        core::v1::{ContainerStatus, Pod},
    },
    jiff::Timestamp,
};
use orlop_client::ResourceExt;

use crate::workload::{pods, time::plus_seconds};

/// Finalizer that keeps a pod until it is counted.
pub(super) const TRACKING: &str = "batch.kubernetes.io/job-tracking";
/// Annotation and label of a pod's completion index.
pub(super) const COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// Annotation of the failures of an index before this pod.
pub(super) const FAILURE_COUNT: &str = "batch.kubernetes.io/job-index-failure-count";
/// Annotation of the failures that do not count.
pub(super) const IGNORED_FAILURE_COUNT: &str = "batch.kubernetes.io/job-index-ignored-failure-count";

pub(super) fn is_indexed(spec: &JobSpec) -> bool {
    spec.completion_mode.as_deref() == Some("Indexed")
}

/// Returns whether only failed pods are replaced, not those that are being deleted.
pub(super) fn replaces_failed_only(spec: &JobSpec) -> bool {
    spec.pod_replacement_policy.as_deref() == Some("Failed")
}

/// Returns whether a pod is still to be counted.
pub(super) fn is_tracked(pod: &Pod) -> bool {
    pod.finalizers().iter().any(|finalizer| finalizer == TRACKING)
}

/// Returns whether a pod counts as failed.
pub(super) fn is_failed(pod: &Pod, spec: &JobSpec) -> bool {
    match pods::phase(pod) {
        "Failed" => true,
        _ if replaces_failed_only(spec) => false,
        // A pod that is deleted may never get to a phase.
        phase => pods::is_deleting(pod) && phase != "Succeeded",
    }
}

/// Returns a pod's completion index, if it is one that the job has.
pub(super) fn index(pod: &Pod, spec: &JobSpec) -> Option<i32> {
    let index = pod.annotations().get(COMPLETION_INDEX)?.parse().ok()?;
    (0..spec.completions.unwrap_or(0)).contains(&index).then_some(index)
}

pub(super) fn count(pod: &Pod, annotation: &str) -> i32 {
    pod.annotations().get(annotation).and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Returns the time at which a pod finished.
pub(super) fn finished_at(pod: &Pod) -> Timestamp {
    let status = pod.status.as_ref();
    let sidecars: Vec<&str> = pod
        .spec
        .iter()
        .flat_map(|spec| spec.init_containers.iter().flatten())
        .filter(|container| container.restart_policy.as_deref() == Some("Always"))
        .map(|container| container.name.as_str())
        .collect();
    let mains = status.and_then(|status| status.container_statuses.as_ref()).into_iter().flatten();
    let inits = status.and_then(|status| status.init_container_statuses.as_ref()).into_iter().flatten();
    let inits = inits.filter(|status| sidecars.contains(&status.name.as_str()));
    let ends: Option<Vec<Timestamp>> = mains.chain(inits).map(end_of).collect();
    if let Some(latest) = ends.and_then(|ends| ends.into_iter().max()) {
        return latest;
    }
    let unready = pods::condition(pod, "Ready").filter(|condition| condition.status == "False");
    if let Some(since) = unready.and_then(|condition| condition.last_transition_time.as_ref()) {
        return since.0;
    }
    if let Some(deleted) = &pod.metadata.deletion_timestamp {
        return plus_seconds(deleted.0, -pod.metadata.deletion_grace_period_seconds.unwrap_or(0));
    }
    pod.metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |created| created.0)
}

fn end_of(status: &ContainerStatus) -> Option<Timestamp> {
    Some(status.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref()?.0)
}

/// Returns the restarts of all containers of pods that run or will.
pub(super) fn restarts<'a>(pods: impl Iterator<Item = &'a Pod>) -> i32 {
    pods.filter(|pod| matches!(pods::phase(pod), "Running" | "Pending"))
        .flat_map(|pod| {
            let status = pod.status.iter();
            status.flat_map(|status| {
                let mains = status.container_statuses.iter().flatten();
                mains.chain(status.init_container_statuses.iter().flatten())
            })
        })
        .map(|status| status.restart_count)
        .sum()
}

/// Meaning of a pod's failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// It counts against the limits.
    Counts,
    /// It does not.
    Ignored,
    /// Its index has failed.
    FailsIndex,
    /// The job has failed, for this reason.
    FailsJob(String),
}

/// Returns the meaning of a pod's failure.
pub(super) fn failure(job: &Job, pod: &Pod) -> Failure {
    let policy = job.spec.as_ref().and_then(|spec| spec.pod_failure_policy.as_ref());
    let Some(PodFailurePolicy { rules }) = policy else { return Failure::Counts };
    for (position, rule) in rules.iter().enumerate() {
        let Some(text) = matches(rule, pod) else { continue };
        return match rule.action.as_str() {
            "Ignore" => Failure::Ignored,
            "FailIndex" => Failure::FailsIndex,
            "FailJob" => Failure::FailsJob(format!("{text} matching FailJob rule at index {position}")),
            _ => Failure::Counts,
        };
    }
    Failure::Counts
}

/// Returns the text about what matched.
fn matches(rule: &PodFailurePolicyRule, pod: &Pod) -> Option<String> {
    let name = format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any());
    if let Some(codes) = &rule.on_exit_codes {
        let status = pod.status.as_ref()?;
        let mains = status.container_statuses.iter().flatten();
        let mut all = mains.chain(status.init_container_statuses.iter().flatten());
        return all.find_map(|container| {
            let code = container.state.as_ref()?.terminated.as_ref()?.exit_code;
            let is_named = codes.container_name.as_ref().is_none_or(|name| *name == container.name);
            let is_listed = codes.values.contains(&code);
            let is_match = match codes.operator.as_str() {
                "In" => is_listed,
                "NotIn" => !is_listed,
                _ => false,
            };
            (code != 0 && is_named && is_match)
                .then(|| format!("Container {} for pod {name} failed with exit code {code}", container.name))
        });
    }
    rule.on_pod_conditions.iter().flatten().find_map(|pattern| {
        let status = pattern.status.as_deref().unwrap_or("True");
        pods::condition(pod, &pattern.type_)
            .filter(|condition| condition.status == status)
            .map(|_| format!("Pod {name} has condition {}", pattern.type_))
    })
}
