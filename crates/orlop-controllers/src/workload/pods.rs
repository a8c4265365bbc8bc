//! Predicates of pods.

use k8s_openapi::{
    api::core::v1::{Pod, PodCondition},
    jiff::Timestamp,
};

use super::time::plus_seconds;

/// Returns a pod's phase, empty if it has none.
pub(crate) fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// Returns whether every container has stopped for good.
pub(crate) fn is_terminal(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// Returns whether a pod is being deleted.
pub(crate) fn is_deleting(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// Returns whether a pod counts as a replica: neither terminal nor being deleted.
pub(crate) fn is_active(pod: &Pod) -> bool {
    !is_terminal(pod) && !is_deleting(pod)
}

/// Returns whether a pod is being deleted and still has containers.
pub(crate) fn is_terminating(pod: &Pod) -> bool {
    !is_terminal(pod) && is_deleting(pod)
}

/// Returns a condition of a pod.
pub(crate) fn condition<'a>(pod: &'a Pod, type_: &str) -> Option<&'a PodCondition> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// Returns whether a pod's condition Ready is true.
pub(crate) fn is_ready(pod: &Pod) -> bool {
    condition(pod, "Ready").is_some_and(|condition| condition.status == "True")
}

/// Returns the time since which a ready pod is ready.
pub(crate) fn ready_since(pod: &Pod) -> Option<Timestamp> {
    condition(pod, "Ready")?.last_transition_time.as_ref().map(|time| time.0)
}

/// Availability of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Availability {
    /// It is ready for long enough.
    Available,
    /// It is ready, and will be available at this time unless it changes.
    At(Timestamp),
    /// It is not ready.
    Unavailable,
}

/// Returns a pod's availability.
pub(crate) fn availability(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> Availability {
    if !is_ready(pod) {
        return Availability::Unavailable;
    }
    if min_ready_seconds <= 0 {
        return Availability::Available;
    }
    match ready_since(pod) {
        None => Availability::Unavailable,
        Some(since) => match plus_seconds(since, min_ready_seconds.into()) {
            at if at <= now => Availability::Available,
            at => Availability::At(at),
        },
    }
}

/// Returns the node that a pod is bound to.
pub(crate) fn node_name(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

/// Returns a pod's uid.
pub(crate) fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}
