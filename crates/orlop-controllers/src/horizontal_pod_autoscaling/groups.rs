//! Groups of a target's pods, as in Kubernetes' replica calculator: a pod that has just started uses more or less than it
//! will, so its usage does not count yet.

use k8s_openapi::{
    api::core::v1::Pod,
    jiff::{SignedDuration, Timestamp},
};
use serde_json::Value;

use crate::workload::pods;

/// Time after its start in which the cpu usage of a pod counts once it has been ready for a whole window.
const CPU_INITIALIZATION_PERIOD: SignedDuration = SignedDuration::from_mins(5);
/// Time after its start in which a pod became unready that has never been ready.
const INITIAL_READINESS_DELAY: SignedDuration = SignedDuration::from_secs(30);

/// Group of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    /// Its usage counts.
    Ready,
    /// It is not ready, or has not been for long enough.
    Unready,
    /// It has no metrics.
    Missing,
}

/// Time and window of a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    at: Timestamp,
    window: SignedDuration,
}

impl Sample {
    /// Returns the sample of a PodMetrics; `None` if it has no valid one.
    pub(super) fn of(metrics: &Value) -> Option<Self> {
        let window = orlop_duration::parse(metrics["window"].as_str()?).ok()?;
        let at = metrics["timestamp"].as_str()?.parse().ok()?;
        Some(Self { at, window: SignedDuration::from_nanos(window) })
    }
}

impl Group {
    /// Returns the group of a pod for metrics that have no sample: custom ones.
    pub(super) fn of(pod: &Pod, has_metrics: bool) -> Self {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        match has_metrics {
            _ if phase == Some("Pending") => Self::Unready,
            false => Self::Missing,
            true => Self::Ready,
        }
    }

    /// Returns the group of a pod for a resource.
    pub(super) fn of_resource(pod: &Pod, resource: &str, sample: Option<Sample>, now: Timestamp) -> Self {
        match (Self::of(pod, sample.is_some()), sample) {
            (Self::Ready, Some(sample)) if resource == "cpu" && !is_initialized(pod, sample, now) => {
                Self::Unready
            }
            (group, _) => group,
        }
    }
}

/// Returns true if the cpu usage of a pod is that of its work, and not of its start.
fn is_initialized(pod: &Pod, sample: Sample, now: Timestamp) -> bool {
    let started = pod.status.as_ref().and_then(|status| status.start_time.as_ref());
    let (Some(ready), Some(started)) = (pods::condition(pod, "Ready"), started) else { return false };
    let changed = ready.last_transition_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    let is_ready = ready.status != "False";
    if now.duration_since(started.0) < CPU_INITIALIZATION_PERIOD {
        is_ready && sample.at.duration_since(changed) >= sample.window
    } else {
        is_ready || changed.duration_since(started.0) >= INITIAL_READINESS_DELAY
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(phase: &str, started: &str, ready: &str, changed: &str) -> Pod {
        let status = json!({"phase": phase, "startTime": started, "conditions": [
            {"type": "Ready", "status": ready, "lastTransitionTime": changed}]});
        serde_json::from_value(json!({"metadata": {"name": "p"}, "status": status})).unwrap()
    }

    #[test]
    fn cpu_of_a_starting_pod_counts_after_a_window_of_being_ready() {
        let now: Timestamp = "2026-01-01T00:10:00Z".parse().unwrap();
        let sample = Sample::of(&json!({"timestamp": "2026-01-01T00:09:50Z", "window": "30s"}));
        let group = |pod: &Pod, resource| Group::of_resource(pod, resource, sample, now);
        let fresh = pod("Running", "2026-01-01T00:09:00Z", "True", "2026-01-01T00:09:21Z");
        assert_eq!(group(&fresh, "cpu"), Group::Unready, "29 s of the window");
        assert_eq!(group(&fresh, "memory"), Group::Ready);
        let measured = pod("Running", "2026-01-01T00:09:00Z", "True", "2026-01-01T00:09:20Z");
        assert_eq!(group(&measured, "cpu"), Group::Ready);
        let failing = pod("Running", "2026-01-01T00:09:00Z", "False", "2026-01-01T00:09:00Z");
        assert_eq!(group(&failing, "cpu"), Group::Unready);
    }

    #[test]
    fn cpu_of_a_pod_that_was_never_ready_does_not_count() {
        let now: Timestamp = "2026-01-01T00:10:00Z".parse().unwrap();
        let sample = Sample::of(&json!({"timestamp": "2026-01-01T00:09:50Z", "window": "30s"}));
        let old = |changed| pod("Running", "2026-01-01T00:01:00Z", "False", changed);
        let group = |pod: &Pod| Group::of_resource(pod, "cpu", sample, now);
        assert_eq!(group(&old("2026-01-01T00:01:29Z")), Group::Unready);
        assert_eq!(group(&old("2026-01-01T00:01:30Z")), Group::Ready, "it was ready in between");
    }

    #[test]
    fn pending_pods_are_unready_and_others_without_metrics_missing() {
        let now: Timestamp = "2026-01-01T00:10:00Z".parse().unwrap();
        let time = "2026-01-01T00:01:00Z";
        assert_eq!(
            Group::of_resource(&pod("Pending", time, "False", time), "cpu", None, now),
            Group::Unready
        );
        assert_eq!(Group::of_resource(&pod("Running", time, "True", time), "cpu", None, now), Group::Missing);
        assert_eq!(Sample::of(&json!({"timestamp": "yesterday", "window": "30s"})), None);
    }
}
