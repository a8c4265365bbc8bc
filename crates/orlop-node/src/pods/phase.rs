//! The phase of a pod.

use super::{
    containers::{Class, Member, Run},
    restart::{self, Restart},
};

/// Phase of a pod's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Pending,
    Running,
    Succeeded,
    Failed,
}

impl Phase {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }

    pub(crate) fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// Returns the phase of a pod. `is_ending` is true for one that is deleted or has run to its end: nothing restarts.
pub(crate) fn of(members: &[Member], pod_policy: &str, is_ending: bool) -> Phase {
    let restarts = |member: &Member| match &member.state.run {
        Run::Ended(ended) => !is_ending && restart::after(member, ended, pod_policy) != Restart::No,
        _ => false,
    };
    let mains = || members.iter().filter(|member| member.class == Class::Main);
    let mains_began = mains().any(|member| member.state.has_run());
    let mut is_initializing = false;
    if !mains_began {
        for member in members {
            match (member.class, &member.state.run) {
                (Class::Init, Run::Ended(ended)) if ended.exit_code == 0 => {}
                (Class::Init, Run::Ended(_)) if !restarts(member) => return Phase::Failed,
                (Class::Init, _) => is_initializing = true,
                (Class::Sidecar, _) => {
                    is_initializing |= !(member.state.is_running() && member.state.started);
                }
                (Class::Main | Class::Ephemeral, _) => {}
            }
        }
    }
    let waits = mains().any(|member| !member.state.has_run());
    if is_ending && (is_initializing || waits) && !members.iter().any(|member| member.state.is_running()) {
        // Deleted before it ran.
        return Phase::Failed;
    }
    if is_initializing || waits {
        return Phase::Pending;
    }
    if mains().any(|member| member.state.is_running()) {
        return Phase::Running;
    }
    let sidecars_run =
        members.iter().any(|member| member.class == Class::Sidecar && member.state.is_running());
    if mains().any(restarts) || sidecars_run {
        return Phase::Running;
    }
    let succeeded = mains().all(|member| member.state.ended().is_some_and(|ended| ended.exit_code == 0));
    if succeeded { Phase::Succeeded } else { Phase::Failed }
}
