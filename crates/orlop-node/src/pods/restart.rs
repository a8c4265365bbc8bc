//! The decision to run a container again.

use k8s_openapi::api::core::v1::Container;

use super::containers::{Class, Ended, Member};

/// Consequence of a run's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Restart {
    /// The container stays as it is.
    No,
    /// It runs again.
    Container,
    /// All containers of the pod run again, init containers first.
    Pod,
}

/// Returns the consequence of the end of a container's run. Rules and policy of a container come before the pod's.
pub(crate) fn after(member: &Member, ended: &Ended, pod_policy: &str) -> Restart {
    let always = |restart: bool| if restart { Restart::Container } else { Restart::No };
    match member.class {
        Class::Ephemeral => return Restart::No,
        Class::Sidecar => return Restart::Container,
        Class::Init if ended.exit_code == 0 => return Restart::No,
        Class::Init | Class::Main => {}
    }
    if let Some(restart) = by_rule(&member.spec, ended.exit_code) {
        return restart;
    }
    match member.spec.restart_policy.as_deref().unwrap_or(pod_policy) {
        "Never" => Restart::No,
        "OnFailure" => always(ended.exit_code != 0),
        // Of an init container only failures get here.
        _ => Restart::Container,
    }
}

fn by_rule(container: &Container, exit_code: i32) -> Option<Restart> {
    let rule = container.restart_policy_rules.iter().flatten().find(|rule| {
        rule.exit_codes.as_ref().is_some_and(|codes| {
            let listed = codes.values.iter().flatten().any(|code| *code == exit_code);
            (codes.operator == "In") == listed
        })
    })?;
    match rule.action.as_str() {
        "Restart" => Some(Restart::Container),
        "RestartAllContainers" => Some(Restart::Pod),
        _ => None,
    }
}
