//! Resizes running containers when the resources of their pod change (`pods/resize`).

use std::io;

use super::{RETRY, Worker, limits, stop};
use crate::{
    cgroups,
    events::Severity,
    pods::{
        admission, is_static,
        resize::{Change, change, summary},
        status::Resize,
    },
};

impl Worker {
    /// Brings running containers to the resources of the pod, if the node has them.
    pub(super) fn resize(&mut self) {
        let changes: Vec<Change> = self.members.iter().map(change).collect();
        if changes.iter().all(|change| *change == Change::None) {
            self.finish_resize();
            return;
        }
        if let Some((reason, message)) = self.refuse_resize() {
            let pending = Resize::Pending { reason, message: message.clone() };
            if self.resize.as_ref() != Some(&pending) {
                let text = summary(&self.members, self.pod.metadata.generation, Some(&message));
                let event = if reason == "Infeasible" { "ResizeInfeasible" } else { "ResizeDeferred" };
                self.resize_event(Severity::Warning, event, &format!("Pod resize {reason}"), &text);
                self.resize = Some(pending);
            }
            // Other pods may end, and no watch reports it.
            self.wake_in(RETRY);
            return;
        }
        if !matches!(self.resize, Some(Resize::InProgress { .. })) {
            let text = summary(&self.members, self.pod.metadata.generation, None);
            self.resize_event(Severity::Normal, "ResizeStarted", "Pod resize started", &text);
            self.resize = Some(Resize::InProgress { error: None });
        }
        let mut failed = None;
        for (index, change) in changes.into_iter().enumerate() {
            match change {
                Change::None => {}
                // The next start gives it what it is to have.
                Change::Restart => self.stop(index, self.grace(), stop::Reason::Changed),
                Change::InPlace => match self.resize_container(index) {
                    Ok(()) => {
                        let member = &mut self.members[index];
                        member.state.resources.clone_from(&member.spec.resources);
                    }
                    Err(error) => failed = Some(error.to_string()),
                },
            }
        }
        if let Some(error) = failed {
            let failed = Resize::InProgress { error: Some(error.clone()) };
            if self.resize.as_ref() != Some(&failed) {
                let text = summary(&self.members, self.pod.metadata.generation, Some(&error));
                self.resize_event(Severity::Warning, "ResizeError", "Pod resize error", &text);
                self.resize = Some(failed);
            }
            self.wake_in(RETRY);
        } else if self.members.iter().all(|member| change(member) == Change::None) {
            self.finish_resize();
        }
    }

    fn finish_resize(&mut self) {
        let is_pending_start = self.members.iter().any(|member| member.state.stopping);
        if is_pending_start {
            return;
        }
        if let Some(Resize::InProgress { .. }) = self.resize.take() {
            let text = summary(&self.members, self.pod.metadata.generation, None);
            self.resize_event(Severity::Normal, "ResizeCompleted", "Pod resize completed", &text);
        }
    }

    fn resize_event(&self, severity: Severity, reason: &'static str, prefix: &str, text: &str) {
        self.node.events.pod(&self.pod, None, severity, reason, format!("{prefix}: {text}"));
    }

    /// Returns the reason and message of a resize that the node cannot give now, or ever.
    fn refuse_resize(&self) -> Option<(&'static str, String)> {
        if is_static(&self.pod) {
            return Some(("Infeasible", "In-place resize of static-pods is not supported".to_owned()));
        }
        let allocatable = &self.node.allocatable;
        if let Err(refusal) = admission::check_resources(&self.pod, &[], allocatable) {
            return Some(("Infeasible", refusal.message));
        }
        let others = self.other_pods();
        let refusal = admission::check_resources(&self.pod, &others, allocatable).err()?;
        Some(("Deferred", refusal.message))
    }

    /// Writes the limits of a running container.
    fn resize_container(&self, index: usize) -> io::Result<()> {
        let (member, live) = (&self.members[index], &self.live[index]);
        let (Some(live), Some(Ok(groups))) = (live, self.node.cgroups.get()) else {
            // Nothing is enforced here, as an event said at the start.
            return Ok(());
        };
        let limits = limits::limits(&member.spec);
        let own = groups.of_container(live.container.id());
        if own.iter().any(|group| !group.exists()) {
            return Err(io::Error::other("the container was started without control groups"));
        }
        if let (Some(limit), Some(used)) = (limits.memory_bytes, cgroups::memory_used(&own))
            && limit < used
        {
            return Err(io::Error::other(format!(
                "attempting to set container {:?} memory limit ({limit}) below current usage ({used})",
                member.spec.name
            )));
        }
        groups.limit(&own, limits)
    }
}
