//! Stops containers: hook, signal, grace, kill.

use std::time::Duration;

use rustix::process::Signal;
use tokio::{
    sync::watch,
    task::AbortHandle,
    time::{Instant, timeout, timeout_at},
};

use super::Worker;
use crate::{
    events::Severity,
    pods::plan,
    probes::{self, Kind, Target},
};

/// Time that a program has at least to end by itself, as a kubelet gives it.
const GRACE_MIN: Duration = Duration::from_secs(2);
/// Deadlines that differ by less are the same.
const SAME: Duration = Duration::from_millis(100);
/// Limit on the end of processes that were killed.
const KILL_TIMEOUT: Duration = Duration::from_secs(60);

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
    /// Set once the containers that end before this one have ended.
    turn: watch::Sender<bool>,
}

impl Worker {
    /// Stops the pod: all preStop hooks run at once, then containers end in their order, all within one grace.
    pub(super) fn stop_for(&mut self, grace: Duration) {
        let deadline = Instant::now() + grace;
        // The grace counts from the first call. A later one only ever hurries.
        let deadline = self.stop_by.map_or(deadline, |known| known.min(deadline));
        self.stop_by = Some(deadline);
        let turn = plan::stop(&self.members);
        for index in 0..self.members.len() {
            self.stop_until(index, deadline, Reason::Stopping, turn.contains(&index));
        }
    }

    /// Stops a container within a grace.
    pub(super) fn stop(&mut self, index: usize, grace: Duration, reason: Reason) {
        self.stop_until(index, Instant::now() + grace, reason, true);
    }

    /// Stops a container until a deadline. One that is being stopped is only ever hurried.
    fn stop_until(&mut self, index: usize, deadline: Instant, reason: Reason, is_turn: bool) {
        let host = self.probe_host();
        let member = &mut self.members[index];
        let Some(live) = &mut self.live[index] else { return };
        let is_first = match &live.stop {
            Some(stopping) => {
                if is_turn {
                    stopping.turn.send_replace(true);
                }
                if stopping.deadline <= deadline + SAME {
                    return;
                }
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
        let (turn, mut turned) = watch::channel(is_turn);
        let task = tokio::spawn(async move {
            let lifecycle = target.spec.lifecycle.as_ref();
            let hook = lifecycle.and_then(|lifecycle| lifecycle.pre_stop.clone()).filter(|_| is_first);
            if let Some(hook) = hook.filter(|_| Instant::now() < deadline)
                && !matches!(timeout_at(deadline, probes::hook(&target, &hook)).await, Ok(Ok(())))
            {
                let message = "PreStopHook failed";
                events.pod(&pod, Some(path), Severity::Warning, "FailedPreStopHook", message);
            }
            let _ = turned.wait_for(|turned| *turned).await;
            // However much the hook and the others have used up, a program can end by itself.
            let deadline = deadline.max(Instant::now() + GRACE_MIN);
            let signal = lifecycle.and_then(|lifecycle| lifecycle.stop_signal.as_deref());
            target.container.signal(signal.and_then(by_name).unwrap_or(Signal::TERM));
            if timeout_at(deadline, target.container.exited()).await.is_ok() {
                return;
            }
            let _ = timeout(KILL_TIMEOUT, target.container.kill_and_wait()).await;
        });
        live.stop = Some(Stopping { task: task.abort_handle(), deadline, turn });
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
