//! Stops containers: hook, signal, grace, kill.

use std::time::Duration;

use rustix::process::Signal;
use tokio::{
    task::AbortHandle,
    time::{Instant, timeout, timeout_at},
};

use super::Worker;
use crate::{
    events::Severity,
    pods::plan,
    probes::{self, Kind, Target},
};

/// Time that a program has at least after its preStop hook.
const AFTER_HOOK: Duration = Duration::from_secs(2);

/// Reason of a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// The pod ends.
    Stopping,
    /// A probe failed.
    Unhealthy(Kind),
    /// The image changed.
    Changed,
    /// The postStart hook failed.
    HookFailed,
}

/// A stop that is under way.
#[derive(Debug)]
pub(super) struct Stopping {
    task: AbortHandle,
    deadline: Instant,
}

impl Worker {
    /// Stops the containers whose turn it is.
    pub(super) fn stop_for(&mut self, grace: Duration, with_events: bool) {
        let _ = with_events;
        for index in plan::stop(&self.members) {
            self.stop(index, grace, Reason::Stopping);
        }
    }

    /// Stops a container within a grace. One that is being stopped is only ever hurried.
    pub(super) fn stop(&mut self, index: usize, grace: Duration, reason: Reason) {
        let host = self.probe_host();
        let member = &mut self.members[index];
        let Some(live) = &mut self.live[index] else { return };
        let deadline = Instant::now() + grace;
        let is_first = match &live.stop {
            Some(stopping) if stopping.deadline <= deadline + Duration::from_millis(100) => return,
            Some(stopping) => {
                stopping.task.abort();
                false
            }
            None => true,
        };
        let name = &member.spec.name;
        if is_first {
            let message = match reason {
                Reason::Stopping => format!("Stopping container {name}"),
                Reason::Unhealthy(kind) => {
                    format!("Container {name} failed {} probe, will be restarted", kind.name().to_lowercase())
                }
                Reason::Changed => format!("Container {name} definition changed, will be restarted"),
                Reason::HookFailed => "FailedPostStartHook".to_owned(),
            };
            self.node.events.pod(&self.pod, Some(member.field_path()), Severity::Normal, "Killing", message);
        }
        member.state.stopping = true;
        let target = Target { container: live.container.clone(), spec: member.spec.clone(), host };
        let (events, pod, path) = (self.node.events.clone(), self.pod.clone(), member.field_path());
        let task = tokio::spawn(async move {
            let lifecycle = target.spec.lifecycle.as_ref();
            let hook = lifecycle.and_then(|lifecycle| lifecycle.pre_stop.clone()).filter(|_| is_first);
            let mut deadline = deadline;
            if let Some(hook) = hook.filter(|_| !grace.is_zero()) {
                match timeout_at(deadline, probes::hook(&target, &hook)).await {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) | Err(_) => {
                        events.pod(
                            &pod,
                            Some(path),
                            Severity::Warning,
                            "FailedPreStopHook",
                            "PreStopHook failed",
                        );
                    }
                }
                deadline = deadline.max(Instant::now() + AFTER_HOOK);
            }
            if !grace.is_zero() {
                let signal = lifecycle.and_then(|lifecycle| lifecycle.stop_signal.as_deref());
                target.container.signal(signal.and_then(by_name).unwrap_or(Signal::TERM));
                if timeout_at(deadline, target.container.exited()).await.is_ok() {
                    return;
                }
            }
            let _ = timeout(Duration::from_secs(60), target.container.kill_and_wait()).await;
        });
        live.stop = Some(Stopping { task: task.abort_handle(), deadline });
    }
}

/// Returns a signal by its name in the API.
fn by_name(name: &str) -> Option<Signal> {
    Some(match name {
        "SIGHUP" => Signal::HUP,
        "SIGINT" => Signal::INT,
        "SIGQUIT" => Signal::QUIT,
        "SIGUSR1" => Signal::USR1,
        "SIGUSR2" => Signal::USR2,
        "SIGTERM" => Signal::TERM,
        "SIGKILL" => Signal::KILL,
        _ => return None,
    })
}
