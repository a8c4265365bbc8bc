//! The worker of one pod: follows the plan, and publishes its status.
//!
//! It is a loop over `sync`, which brings the pod one step nearer to what it should be, and a wait for whatever may change
//! that: a new version of the pod, the end of a container, a probe's verdict, or time.

mod address_in_use;
mod files;
mod identity;
mod limits;
mod ports;
mod publish;
mod resize;
mod restore;
mod sandbox;
mod start;
mod stop;
mod storage;

use std::{net::Ipv4Addr, sync::Arc, time::Duration};

use k8s_openapi::{
    api::core::v1::{Pod, PodStatus},
    jiff::{Timestamp, ToSpan},
};
use tokio::{
    sync::{mpsc, watch},
    task::AbortHandle,
    time::Instant,
};

use crate::{
    context::{Entry, Node, Runs},
    events::Severity,
    pods::{
        admission,
        containers::{Class, Ended, Member, Run, Waiting, members},
        phase::{self, Phase},
        plan, status,
    },
    probes::{self, Kind, Outcome, Report, Target, Verdict},
    proxy,
    runtime::Container,
    shim::config::Exit,
    volumes::Sources,
};

/// Interval at which volumes are brought up to date.
const REFRESH: Duration = Duration::from_secs(30);
/// Delay before a failed step is tried again.
const RETRY: Duration = Duration::from_secs(5);
/// Grace of a pod whose object is gone.
const REMOVED_GRACE: Duration = Duration::from_secs(1);
/// Delay after which a failed pull is shown as waiting.
const PULL_SHOWN: Duration = Duration::from_secs(1);
const EVENTS: usize = 64;

/// The pod that a worker is to run.
#[derive(Clone, Debug)]
pub(crate) struct Desired {
    pub(crate) pod: Arc<Pod>,
    /// The object is gone.
    pub(crate) removed: bool,
    /// The node stops, and with it the pod's processes.
    pub(crate) shutdown: bool,
    /// Number of objects that have stood for a static pod in the API.
    pub(crate) mirror: u64,
}

impl Desired {
    pub(crate) fn new(pod: Arc<Pod>) -> Self {
        Self { pod, removed: false, shutdown: false, mirror: 0 }
    }

    /// Returns true if nothing of the pod is to run any more.
    fn is_ending(&self) -> bool {
        self.removed || self.shutdown || self.pod.metadata.deletion_timestamp.is_some()
    }
}

/// Something that happened to a container.
#[derive(Debug)]
enum Event {
    Exited { index: usize, id: String, exit: Option<Exit> },
    Probed { index: usize, id: String, kind: Kind, report: Report },
}

/// Handles of a running container.
#[derive(Debug)]
struct Live {
    container: Container,
    /// Probes, and the wait for the end.
    tasks: Vec<AbortHandle>,
    stop: Option<stop::Stopping>,
}

impl Drop for Live {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

/// Terminal phase of a pod, with its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TerminalState {
    phase: Phase,
    reason: Option<String>,
    message: Option<String>,
}

/// Runs one pod.
#[derive(Debug)]
pub(crate) struct Worker {
    node: Arc<Node>,
    pod: Arc<Pod>,
    namespace: String,
    name: String,
    uid: String,
    members: Vec<Member>,
    live: Vec<Option<Live>>,
    address: Option<Ipv4Addr>,
    sources: Option<Sources>,
    start_time: Timestamp,
    is_admitted: bool,
    ended: Option<TerminalState>,
    published: Option<PodStatus>,
    /// The API has the final deletion of the object: the watch reports its removal, once it has no finalizers.
    is_deleted: bool,
    mount_reported: bool,
    limits_reported: bool,
    sysctls_reported: bool,
    /// Process that holds namespaces of the pod, if it needs one.
    sandbox: Option<Container>,
    resize: Option<status::Resize>,
    has_network: bool,
    /// Time of the next measurement of local storage.
    storage_at: Instant,
    /// Forwarded host ports; `None` before the first sync.
    host_ports: Option<Vec<proxy::Port>>,
    /// End of the grace of a pod that ends.
    stop_by: Option<Instant>,
    refresh_at: Instant,
    wake_at: Option<Instant>,
    mirror: u64,
    desired: watch::Receiver<Desired>,
    events: mpsc::Receiver<Event>,
    sender: mpsc::Sender<Event>,
}

impl Worker {
    pub(crate) fn new(node: Arc<Node>, desired: watch::Receiver<Desired>) -> Self {
        let pod = desired.borrow().pod.clone();
        let metadata = &pod.metadata;
        let (sender, events) = mpsc::channel(EVENTS);
        let members = members(&pod);
        let known = pod.status.as_ref().and_then(|status| status.start_time.as_ref());
        let start_time = known.map_or_else(Timestamp::now, |time| time.0);
        let live = members.iter().map(|_| None).collect();
        Self {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            members,
            live,
            address: None,
            sources: None,
            start_time,
            is_admitted: false,
            ended: None,
            published: None,
            is_deleted: false,
            mount_reported: false,
            limits_reported: false,
            sysctls_reported: false,
            sandbox: None,
            resize: None,
            has_network: false,
            storage_at: Instant::now(),
            host_ports: None,
            stop_by: None,
            refresh_at: Instant::now() + REFRESH,
            wake_at: None,
            mirror: 0,
            desired,
            events,
            sender,
            node,
            pod,
        }
    }

    /// Runs the pod until its object is gone and nothing of it is left.
    pub(crate) async fn run(mut self) {
        self.restore();
        let mut desired = self.desired.clone();
        loop {
            let wanted = desired.borrow_and_update().clone();
            self.update(&wanted.pod);
            if std::mem::replace(&mut self.mirror, wanted.mirror) != wanted.mirror {
                // A new object in the API, which has no status.
                (self.published, self.is_deleted) = (None, false);
            }
            self.wake_at = None;
            if self.sync(&wanted).await {
                return;
            }
            self.list();
            let wake_at = next_sync(self.wake_at, &mut self.refresh_at, Instant::now());
            tokio::select! {
                changed = desired.changed() => {
                    if changed.is_err() {
                        return;
                    }
                }
                Some(event) = self.events.recv() => self.handle(event),
                () = tokio::time::sleep_until(wake_at) => {}
            }
            while let Ok(event) = self.events.try_recv() {
                self.handle(event);
            }
        }
    }

    /// Takes over a new version of the pod.
    fn update(&mut self, pod: &Arc<Pod>) {
        if Arc::ptr_eq(pod, &self.pod) {
            return;
        }
        let changed = pod.metadata.resource_version != self.pod.metadata.resource_version;
        let shown = |pod: &Pod| (pod.metadata.labels.clone(), pod.metadata.annotations.clone());
        if shown(pod) != shown(&self.pod) {
            // The volumes of the downward API show them.
            self.refresh_at = Instant::now();
        }
        self.pod = pod.clone();
        for fresh in members(pod) {
            match self.members.iter_mut().find(|known| known.spec.name == fresh.spec.name) {
                Some(known) => {
                    if changed
                        && known
                            .state
                            .waiting
                            .as_ref()
                            .is_some_and(|why| why.reason == "CreateContainerConfigError")
                    {
                        known.state.retry_at = None;
                    }
                    known.spec = fresh.spec;
                }
                None => {
                    self.members.push(fresh);
                    self.live.push(None);
                }
            }
        }
    }

    /// Brings the pod nearer to what it should be. Returns true once nothing of it is left.
    async fn sync(&mut self, wanted: &Desired) -> bool {
        if wanted.removed {
            return self.sync_removed().await;
        }
        if wanted.shutdown {
            self.stop_for(self.node.settings.shutdown_grace);
            if !self.is_running() {
                self.remove_network().await;
            }
            return !self.is_running();
        }
        let deleting = self.pod.metadata.deletion_timestamp.is_some();
        let known = self.pod.status.as_ref().and_then(|status| status.phase.as_deref());
        if self.ended.is_none() {
            // A terminal phase in the API stays, whoever wrote it.
            let kept = match known {
                Some("Failed") => Some(Phase::Failed),
                Some("Succeeded") => Some(Phase::Succeeded),
                _ => None,
            };
            let status = self.pod.status.as_ref();
            self.ended = kept.map(|phase| TerminalState {
                phase,
                reason: status.and_then(|status| status.reason.clone()),
                message: status.and_then(|status| status.message.clone()),
            });
        }
        if self.ended.is_none() && !deleting {
            self.admit();
            self.check_deadline();
            self.check_storage().await;
        }
        if self.ended.is_some() || deleting {
            self.sync_ending(deleting).await
        } else {
            self.sync_running().await;
            false
        }
    }

    async fn sync_running(&mut self) {
        if !self.set_up().await {
            self.publish(false).await;
            return;
        }
        self.restart_changed();
        self.resize();
        let policy = self.restart_policy();
        let steps = plan::next(&self.members, &policy, Timestamp::now());
        if let Some(at) = steps.wake_at {
            self.wake(at);
        }
        if steps.is_finished || steps.restart_all {
            self.stop_for(self.grace());
        }
        if steps.restart_all && !self.is_running() {
            self.restart_all();
            self.wake_in(Duration::ZERO);
            return;
        }
        for (index, delay) in steps.back_off {
            self.wait_for_restart(index, delay);
        }
        for index in steps.start {
            self.start(index).await;
        }
        self.show_failed_pulls();
        if steps.is_finished && !self.is_running() {
            let phase = phase::of(&self.members, &policy, true);
            self.ended = Some(TerminalState { phase, reason: None, message: None });
            self.host_ports = Some(Vec::new());
            self.release_address().await;
        }
        self.publish(false).await;
    }

    async fn sync_ending(&mut self, deleting: bool) -> bool {
        let is_evicted =
            self.ended.as_ref().is_some_and(|ended| ended.reason.as_deref() == Some(storage::EVICTED));
        let grace = match deleting {
            true => self.deletion_grace(),
            false if is_evicted => storage::GRACE,
            false => self.grace(),
        };
        self.stop_for(grace);
        if self.is_running() {
            self.publish(deleting).await;
            return false;
        }
        // Before the API says that the pod is gone: another may be bound to them then.
        self.host_ports = Some(Vec::new());
        let published = self.publish(deleting).await;
        if deleting && published && !self.is_deleted {
            self.is_deleted = self.delete().await;
        }
        false
    }

    async fn sync_removed(&mut self) -> bool {
        self.stop_for(REMOVED_GRACE);
        if self.is_running() {
            return false;
        }
        self.release_address().await;
        self.node.tokens.forget(&self.uid);
        self.node.certificates.forget(&self.uid);
        self.node.directory.remove(&self.namespace, &self.name, &self.uid);
        let logs = self.node.log_folder(&self.namespace, &self.name, &self.uid);
        self.node.remove_files(&self.uid, Some(logs)).await;
        true
    }

    /// Gives the address of the pod back, and removes its network before.
    async fn release_address(&mut self) {
        self.remove_network().await;
        self.node.addresses.release(&self.uid);
    }

    async fn remove_network(&mut self) {
        self.remove_sandbox().await;
        self.has_network = false;
        if let (Some(networks), Some(address)) = (&self.node.networks, self.address) {
            networks.remove(address).await;
        }
    }

    /// Refuses a pod that this node cannot run, before anything of it runs.
    fn admit(&mut self) {
        if self.is_admitted {
            return;
        }
        self.is_admitted = true;
        if self.members.iter().any(|member| member.state.has_run()) {
            return;
        }
        let others = self.other_pods();
        if let Err(refusal) = admission::admit(&self.pod, &others, &self.node.allocatable) {
            let reason = event_reason(&refusal.reason);
            self.node.events.pod(&self.pod, None, Severity::Warning, reason, refusal.message.as_str());
            self.ended = Some(TerminalState {
                phase: Phase::Failed,
                reason: Some(refusal.reason),
                message: Some(format!("Pod was rejected: {}", refusal.message)),
            });
        }
    }

    /// Returns the pods of this node beside this one that have not ended.
    fn other_pods(&self) -> Vec<Arc<Pod>> {
        let mut others = self.node.directory.pods_beside(&self.uid);
        others.retain(|pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            !matches!(phase, Some("Succeeded" | "Failed"))
        });
        others
    }

    /// Fails a pod that has been active for too long.
    fn check_deadline(&mut self) {
        let seconds = self.pod.spec.as_ref().and_then(|spec| spec.active_deadline_seconds);
        let Some(deadline) = seconds.and_then(|seconds| self.start_time.checked_add(seconds.seconds()).ok())
        else {
            return;
        };
        if Timestamp::now() < deadline {
            self.wake(deadline);
            return;
        }
        let message = "Pod was active on the node longer than the specified deadline";
        self.node.events.pod(&self.pod, None, Severity::Normal, "DeadlineExceeded", message);
        self.ended = Some(TerminalState {
            phase: Phase::Failed,
            reason: Some("DeadlineExceeded".to_owned()),
            message: Some(message.to_owned()),
        });
    }

    /// Stops containers whose image has changed.
    fn restart_changed(&mut self) {
        for index in 0..self.members.len() {
            let member = &self.members[index];
            let Some(live) = &self.live[index] else { continue };
            if live.stop.is_some() {
                continue;
            }
            let image = member.spec.image.as_deref().unwrap_or_default();
            let id = self.node.settings.images.find(image).map(|image| image.id);
            if id.is_ok_and(|id| id != member.state.image_id) {
                self.stop(index, self.grace(), stop::Reason::Changed);
            }
        }
    }

    /// Forgets all runs, so that init containers begin again.
    fn restart_all(&mut self) {
        self.stop_by = None;
        for member in &mut self.members {
            let state = &mut member.state;
            if let Run::Ended(ended) = std::mem::take(&mut state.run) {
                state.last = Some(ended);
                state.restart_count += 1;
            }
            state.waiting = None;
            if member.class == Class::Main {
                // With a past run, init containers would be taken for done.
                state.last = None;
            }
        }
    }

    fn wait_for_restart(&mut self, index: usize, delay: u64) {
        let member = &mut self.members[index];
        let pod = format!("{}_{}({})", self.name, self.namespace, self.uid);
        let container = &member.spec.name;
        let delay = orlop_duration::format_duration(Duration::from_secs(delay));
        let message = format!("back-off {delay} restarting failed container={container} pod={pod}");
        let waiting = Waiting { reason: "CrashLoopBackOff", message };
        if member.state.waiting.as_ref() != Some(&waiting) {
            let text = format!("Back-off restarting failed container {container} in pod {pod}");
            let path = Some(member.field_path());
            self.node.events.pod(&self.pod, path, Severity::Warning, "BackOff", text);
            member.state.waiting = Some(waiting);
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Exited { index, id, exit } => self.exited(index, &id, exit),
            Event::Probed { index, id, kind, report } => {
                let is_current = self.live[index].as_ref().is_some_and(|live| live.container.id() == id);
                if is_current {
                    self.probed(index, kind, report);
                }
            }
        }
    }

    /// Records the end of a container.
    fn exited(&mut self, index: usize, id: &str, exit: Option<Exit>) {
        let member = &self.members[index];
        let Run::Running { id: current, since } = &member.state.run else { return };
        if current != id {
            return;
        }
        let is_failed = !member.state.stopping && exit.as_ref().is_some_and(|exit| exit.code != 0);
        let ended = self.ended_run(index, id, Some(*since), exit);
        self.live[index] = None;
        if is_failed {
            self.report_address_in_use(index);
        }
        let state = &mut self.members[index].state;
        (state.ready, state.started, state.stopping) = (false, false, false);
        state.run = Run::Ended(ended);
    }

    /// Returns the end of a run with its reason and message.
    fn ended_run(&self, index: usize, id: &str, since: Option<Timestamp>, exit: Option<Exit>) -> Ended {
        let member = &self.members[index];
        let Some(exit) = exit else {
            return Ended {
                id: id.to_owned(),
                exit_code: 137,
                signal: 9,
                reason: "ContainerStatusUnknown".to_owned(),
                message: "The container could not be located when the pod was terminated".to_owned(),
                started_at: since,
                finished_at: Timestamp::now(),
            };
        };
        let reason = match exit.code {
            _ if exit.oom_killed => "OOMKilled",
            0 => "Completed",
            _ => "Error",
        };
        Ended {
            id: id.to_owned(),
            exit_code: exit.code,
            signal: exit.signal,
            reason: reason.to_owned(),
            message: files::termination_message(
                &self.node,
                &member.spec,
                &self.node.runtime.run_folder(&self.uid, &member.spec.name, member.state.restart_count),
                &self.log_path(index, member.state.restart_count),
                exit.code,
            ),
            started_at: since,
            finished_at: exit.at,
        }
    }

    fn probed(&mut self, index: usize, kind: Kind, report: Report) {
        let member = &mut self.members[index];
        match report {
            Report::Failed(outcome) => {
                let is_refused = outcome.is_refused_connection();
                let (reason, text) = match outcome {
                    Outcome::Failure(text) => ("Unhealthy", format!("{} probe failed: {text}", kind.name())),
                    Outcome::Error(text) => (
                        "Unhealthy",
                        format!("{} probe errored and resulted in failure state: {text}", kind.name()),
                    ),
                    Outcome::Success => return,
                };
                let path = Some(member.field_path());
                self.node.events.pod(&self.pod, path, Severity::Warning, reason, text);
                if is_refused {
                    // Some programs go on without the address that they could not have.
                    self.report_address_in_use(index);
                }
            }
            Report::Verdict(verdict) => match (kind, verdict) {
                (Kind::Readiness, verdict) => member.state.ready = verdict == Verdict::Healthy,
                (Kind::Startup, Verdict::Healthy) => self.started(index),
                (Kind::Liveness, Verdict::Healthy) => {}
                // Of a container that is being stopped only readiness counts.
                (Kind::Startup | Kind::Liveness, Verdict::Unhealthy) if member.state.stopping => {}
                (Kind::Startup | Kind::Liveness, Verdict::Unhealthy) => {
                    let own = kind.of(&member.spec).and_then(|probe| probe.termination_grace_period_seconds);
                    let own = own.and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs);
                    let grace = own.unwrap_or_else(|| self.grace());
                    self.stop(index, grace, stop::Reason::Unhealthy(kind));
                }
            },
        }
    }

    /// A container has started: its other probes begin.
    fn started(&mut self, index: usize) {
        let Member { spec, state, .. } = &mut self.members[index];
        if state.started {
            return;
        }
        (state.started, state.ready) = (true, spec.readiness_probe.is_none());
        for kind in [Kind::Readiness, Kind::Liveness] {
            self.probe(index, kind);
        }
    }

    /// Starts a probe of a running container.
    fn probe(&mut self, index: usize, kind: Kind) {
        let spec = self.members[index].spec.clone();
        let host = self.probe_host();
        let Some(live) = &mut self.live[index] else { return };
        if kind.of(&spec).is_none() {
            return;
        }
        let (container, sender, id) =
            (live.container.clone(), self.sender.clone(), live.container.id().to_owned());
        let target = Target { container, spec, host };
        let task = tokio::spawn(async move {
            let report = move |report| {
                let (sender, id) = (sender.clone(), id.clone());
                async move { drop(sender.send(Event::Probed { index, id, kind, report }).await) }
            };
            probes::run(target, kind, report).await;
        });
        live.tasks.push(task.abort_handle());
    }

    // === Facts ===

    fn is_running(&self) -> bool {
        self.live.iter().any(Option::is_some)
    }

    fn restart_policy(&self) -> String {
        let policy = self.pod.spec.as_ref().and_then(|spec| spec.restart_policy.clone());
        policy.unwrap_or_else(|| "Always".to_owned())
    }

    fn grace(&self) -> Duration {
        let seconds = self.pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
        Duration::from_secs(seconds.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or(30))
    }

    fn deletion_grace(&self) -> Duration {
        let seconds = self.pod.metadata.deletion_grace_period_seconds;
        let seconds = seconds.and_then(|seconds| u64::try_from(seconds).ok());
        seconds.map_or_else(|| self.grace(), Duration::from_secs)
    }

    fn is_host_network(&self) -> bool {
        self.pod.spec.as_ref().and_then(|spec| spec.host_network) == Some(true)
    }

    /// Returns the address that containers are probed at.
    fn probe_host(&self) -> String {
        self.pod_ip().unwrap_or_else(|| "127.0.0.1".to_owned())
    }

    /// Returns the address of the pod: that of the node for one on the host's network.
    fn pod_ip(&self) -> Option<String> {
        if self.is_host_network() {
            return Some(self.node.settings.address.to_string());
        }
        self.address.map(|address| address.to_string())
    }

    fn log_path(&self, index: usize, run: u32) -> std::path::PathBuf {
        self.node.log_path(&self.namespace, &self.name, &self.uid, &self.members[index].spec.name, run)
    }

    fn wake(&mut self, at: Timestamp) {
        let delay = Duration::try_from(at.duration_since(Timestamp::now())).unwrap_or_default();
        // Times have been cut to what a clock shows: a little later is safely after.
        self.wake_in(delay + Duration::from_millis(1));
    }

    fn wake_in(&mut self, delay: Duration) {
        let at = Instant::now() + delay;
        self.wake_at = Some(self.wake_at.map_or(at, |known| known.min(at)));
    }

    /// Publishes the containers that run to the node's own API.
    fn list(&self) {
        let containers = self.members.iter().zip(&self.live).map(|(member, live)| {
            let runs = Runs {
                current: member.state.has_run().then_some(member.state.restart_count),
                live: live.as_ref().map(|live| live.container.clone()),
            };
            (member.spec.name.clone(), runs)
        });
        let entry = Entry {
            pod: self.pod.clone(),
            uid: self.uid.clone(),
            address: self.address,
            containers: containers.collect(),
        };
        self.node.directory.set(&self.namespace, &self.name, entry);
    }
}

/// Returns the reason of the event about a pod that was not admitted.
fn event_reason(reason: &str) -> &'static str {
    const REASONS: &[&str] = &[
        "PodFeatureUnsupported",
        "PodOSNotSupported",
        "SysctlForbidden",
        "NodePorts",
        "OutOfpods",
        "OutOfcpu",
        "OutOfmemory",
        "OutOfephemeral-storage",
    ];
    REASONS.iter().copied().find(|known| *known == reason).unwrap_or("UnexpectedAdmissionError")
}

/// Returns the time of the next sync without a change. A refresh that was due and did not happen, since the pod has ended, is
/// due an interval later.
fn next_sync(wake_at: Option<Instant>, refresh_at: &mut Instant, now: Instant) -> Instant {
    if *refresh_at <= now {
        *refresh_at = now + REFRESH;
    }
    wake_at.map_or(*refresh_at, |wake_at| wake_at.min(*refresh_at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ended_pod_is_not_synced_without_pause() {
        let start = Instant::now();
        let mut refresh_at = start + REFRESH;
        assert_eq!(next_sync(None, &mut refresh_at, start), start + REFRESH);
        let now = start + REFRESH + RETRY;
        assert_eq!(next_sync(None, &mut refresh_at, now), now + REFRESH);
        assert_eq!(next_sync(Some(now + RETRY), &mut refresh_at, now), now + RETRY);
    }
}
