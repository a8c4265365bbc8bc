//! Why a node cannot run a pod.

/// Reasons that a node was rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rejection {
    pub(super) reasons: Vec<String>,
    /// It could help if other pods went away.
    pub(super) preemption_may_help: bool,
}

impl Rejection {
    pub(super) fn final_reason(reason: &str) -> Self {
        Self { reasons: vec![reason.to_owned()], preemption_may_help: false }
    }

    pub(super) fn passing(reason: &str) -> Self {
        Self { reasons: vec![reason.to_owned()], preemption_may_help: true }
    }
}
