//! The status of a pod, as a kubelet writes it.

use k8s_openapi::{
    api::core::v1::{
        ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
        ContainerStatus, HostIP, Pod, PodCondition, PodIP, PodStatus, VolumeMountStatus,
    },
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::{Timestamp, ToSpan},
};

use super::{
    containers::{Class, Ended, Member, Run},
    phase::Phase,
};

/// Scheme of container ids.
const SCHEME: &str = "orlop://";

/// A resize that is not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Resize {
    /// The node cannot give the resources now (`Deferred`), or ever (`Infeasible`).
    Pending { reason: &'static str, message: String },
    /// The resources are being given.
    InProgress { error: Option<String> },
}

/// Conditions of a resize, which go when it is done.
pub(crate) const RESIZE_CONDITIONS: [&str; 2] = ["PodResizePending", "PodResizeInProgress"];

/// Facts that the status of a pod is computed from.
#[derive(Debug)]
pub(crate) struct Facts<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) members: &'a [Member],
    pub(crate) phase: Phase,
    pub(crate) reason: Option<&'a str>,
    pub(crate) message: Option<&'a str>,
    pub(crate) start_time: Timestamp,
    pub(crate) host_ip: &'a str,
    /// Set once the pod has an address and its volumes: containers may start.
    pub(crate) pod_ip: Option<&'a str>,
    /// Conditions that the pod has: a status that stays keeps its time.
    pub(crate) known: &'a [PodCondition],
    pub(crate) resize: Option<&'a Resize>,
    pub(crate) now: Timestamp,
}

/// Returns the status of a pod.
pub(crate) fn of(facts: &Facts<'_>) -> PodStatus {
    let statuses = |wanted: fn(Class) -> bool| -> Vec<ContainerStatus> {
        facts
            .members
            .iter()
            .filter(|member| wanted(member.class))
            .map(|member| container(facts, member))
            .collect()
    };
    let init = statuses(|class| matches!(class, Class::Init | Class::Sidecar));
    let mut main = statuses(|class| class == Class::Main);
    main.sort_by(|a, b| a.name.cmp(&b.name));
    let ephemeral = statuses(|class| class == Class::Ephemeral);
    let present = |list: Vec<ContainerStatus>| Some(list).filter(|list| !list.is_empty());
    PodStatus {
        phase: Some(facts.phase.as_str().to_owned()),
        reason: facts.reason.map(str::to_owned),
        message: facts.message.map(str::to_owned),
        conditions: Some(conditions(facts, &init, &main)),
        start_time: Some(Time(whole_seconds(facts.start_time))),
        host_ip: Some(facts.host_ip.to_owned()),
        host_ips: Some(vec![HostIP { ip: facts.host_ip.to_owned() }]),
        pod_ip: facts.pod_ip.map(str::to_owned),
        pod_ips: facts.pod_ip.map(|ip| vec![PodIP { ip: ip.to_owned() }]),
        observed_generation: facts.pod.metadata.generation,
        container_statuses: present(main),
        init_container_statuses: present(init),
        ephemeral_container_statuses: present(ephemeral),
        ..PodStatus::default()
    }
}

/// Drops fractions of a second, as times in Kubernetes' objects have none.
pub(crate) fn whole_seconds(time: Timestamp) -> Timestamp {
    let nanoseconds = i64::from(time.subsec_nanosecond());
    time.checked_sub(nanoseconds.nanoseconds()).unwrap_or(time)
}

/// Returns the id of a container in the API.
pub(crate) fn container_id(id: &str) -> String {
    format!("{SCHEME}{id}")
}

fn container(facts: &Facts<'_>, member: &Member) -> ContainerStatus {
    let Member { spec, class, state } = member;
    let waiting = |reason: &str, message: Option<String>| ContainerState {
        waiting: Some(ContainerStateWaiting { reason: Some(reason.to_owned()), message }),
        ..ContainerState::default()
    };
    let has_init = facts.members.iter().any(|member| matches!(member.class, Class::Init | Class::Sidecar));
    let (current, last) = match (&state.run, &state.waiting) {
        (Run::Running { since, .. }, _) => (running(*since), state.last.as_ref().map(terminated)),
        (Run::Ended(ended), Some(why)) => {
            (waiting(why.reason, Some(why.message.clone())), Some(terminated(ended)))
        }
        (Run::Ended(ended), None) => (terminated(ended), state.last.as_ref().map(terminated)),
        (Run::None, Some(why)) => {
            let message = Some(why.message.clone()).filter(|message| !message.is_empty());
            (waiting(why.reason, message), state.last.as_ref().map(terminated))
        }
        (Run::None, None) => {
            let waits_for_init = has_init && matches!(class, Class::Main | Class::Init | Class::Sidecar);
            let reason = if waits_for_init { "PodInitializing" } else { "ContainerCreating" };
            (waiting(reason, None), state.last.as_ref().map(terminated))
        }
    };
    let id = match (&state.run, &state.last) {
        (Run::Running { id, .. }, _) | (Run::Ended(Ended { id, .. }), _) => Some(container_id(id)),
        (Run::None, Some(last)) => Some(container_id(&last.id)),
        (Run::None, None) => None,
    };
    let succeeded = state.ended().is_some_and(|ended| ended.exit_code == 0);
    let mounts = spec.volume_mounts.iter().flatten().map(|mount| VolumeMountStatus {
        name: mount.name.clone(),
        mount_path: mount.mount_path.clone(),
        read_only: mount.read_only,
        recursive_read_only: mount.read_only.filter(|read_only| *read_only).map(|_| "Disabled".to_owned()),
        ..VolumeMountStatus::default()
    });
    let mounts: Vec<_> = mounts.collect();
    ContainerStatus {
        name: spec.name.clone(),
        image: spec.image.clone().unwrap_or_default(),
        image_id: state.image_id.clone(),
        container_id: id,
        ready: if *class == Class::Init { succeeded } else { state.is_running() && state.ready },
        started: Some(state.is_running() && state.started),
        restart_count: i32::try_from(state.restart_count).unwrap_or(i32::MAX),
        state: Some(current),
        last_state: Some(last.unwrap_or_default()),
        resources: state.resources.clone().filter(|_| state.has_run()),
        allocated_resources: state
            .resources
            .as_ref()
            .filter(|_| state.has_run())
            .and_then(|given| given.requests.clone()),
        volume_mounts: Some(mounts).filter(|mounts| !mounts.is_empty()),
        ..ContainerStatus::default()
    }
}

fn running(since: Timestamp) -> ContainerState {
    let running = ContainerStateRunning { started_at: Some(Time(whole_seconds(since))) };
    ContainerState { running: Some(running), ..ContainerState::default() }
}

fn terminated(ended: &Ended) -> ContainerState {
    let present = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let terminated = ContainerStateTerminated {
        container_id: Some(container_id(&ended.id)),
        exit_code: ended.exit_code,
        // As kubelets leave it: the exit code implies the signal.
        signal: None,
        reason: present(&ended.reason),
        message: present(&ended.message),
        started_at: ended.started_at.map(|time| Time(whole_seconds(time))),
        finished_at: Some(Time(whole_seconds(ended.finished_at))),
    };
    ContainerState { terminated: Some(terminated), ..ContainerState::default() }
}

// === Conditions ===

/// A condition's status, reason and message.
type Verdict = (bool, Option<&'static str>, Option<String>);

fn conditions(facts: &Facts<'_>, init: &[ContainerStatus], main: &[ContainerStatus]) -> Vec<PodCondition> {
    let containers_ready = containers_ready(facts, init, main);
    let ready = ready(facts, &containers_ready);
    let sandbox: Verdict = match facts.pod_ip {
        Some(_) if !facts.phase.is_terminal() => (true, None, None),
        _ => (false, None, None),
    };
    let resize = facts.resize.filter(|_| !facts.phase.is_terminal()).map(|resize| match resize {
        Resize::Pending { reason, message } => {
            (RESIZE_CONDITIONS[0], (true, Some(*reason), Some(message.clone())))
        }
        Resize::InProgress { error } => {
            (RESIZE_CONDITIONS[1], (true, error.as_ref().map(|_| "Error"), error.clone()))
        }
    });
    let base = [
        ("PodReadyToStartContainers", sandbox),
        ("Initialized", initialized(facts, init)),
        ("Ready", ready),
        ("ContainersReady", containers_ready),
        ("PodScheduled", (true, None, None)),
    ];
    base.into_iter().chain(resize).map(|(kind, verdict)| condition(facts, kind, verdict)).collect()
}

fn condition(facts: &Facts<'_>, kind: &str, (status, reason, message): Verdict) -> PodCondition {
    let status = if status { "True" } else { "False" };
    let same = facts.known.iter().find(|known| known.type_ == kind && known.status == status);
    let since = same.and_then(|known| known.last_transition_time.clone());
    PodCondition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: reason.map(str::to_owned),
        message,
        last_probe_time: None,
        last_transition_time: Some(since.unwrap_or(Time(whole_seconds(facts.now)))),
        observed_generation: facts.pod.metadata.generation,
    }
}

fn initialized(facts: &Facts<'_>, init: &[ContainerStatus]) -> Verdict {
    if facts.phase == Phase::Succeeded {
        return (true, Some("PodCompleted"), None);
    }
    let mains_began =
        facts.members.iter().any(|member| member.class == Class::Main && member.state.has_run());
    if mains_began {
        return (true, None, None);
    }
    let incomplete: Vec<&str> = facts
        .members
        .iter()
        .zip(init)
        .filter(|(member, status)| match member.class {
            Class::Sidecar => status.started != Some(true),
            _ => !status.ready,
        })
        .map(|(_, status)| status.name.as_str())
        .collect();
    match incomplete.as_slice() {
        [] => (true, None, None),
        names => {
            let message = format!("containers with incomplete status: [{}]", names.join(" "));
            (false, Some("ContainersNotInitialized"), Some(message))
        }
    }
}

fn containers_ready(facts: &Facts<'_>, init: &[ContainerStatus], main: &[ContainerStatus]) -> Verdict {
    match facts.phase {
        Phase::Succeeded => return (false, Some("PodCompleted"), None),
        Phase::Failed => return (false, Some("PodFailed"), None),
        Phase::Pending | Phase::Running => {}
    }
    let sidecars = facts.members.iter().zip(init).filter(|(member, _)| member.class == Class::Sidecar);
    let statuses = sidecars.map(|(_, status)| status).chain(main);
    let unready: Vec<&str> =
        statuses.filter(|status| !status.ready).map(|status| status.name.as_str()).collect();
    match unready.as_slice() {
        [] => (true, None, None),
        names => {
            let message = format!("containers with unready status: [{}]", names.join(" "));
            (false, Some("ContainersNotReady"), Some(message))
        }
    }
}

fn ready(facts: &Facts<'_>, containers_ready: &Verdict) -> Verdict {
    if !containers_ready.0 {
        return containers_ready.clone();
    }
    let gates = facts.pod.spec.iter().flat_map(|spec| spec.readiness_gates.iter().flatten());
    let problems: Vec<String> = gates
        .filter_map(|gate| match facts.known.iter().find(|known| known.type_ == gate.condition_type) {
            None => Some(format!(
                "corresponding condition of pod readiness gate {:?} does not exist.",
                gate.condition_type
            )),
            Some(known) if known.status != "True" => Some(format!(
                "the status of pod readiness gate {:?} is not \"True\", but {}",
                gate.condition_type, known.status
            )),
            Some(_) => None,
        })
        .collect();
    if problems.is_empty() {
        (true, None, None)
    } else {
        (false, Some("ReadinessGatesNotReady"), Some(problems.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::pods::{
        containers::{Waiting, members},
        phase,
    };

    fn pod(spec: serde_json::Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p", "generation": 1}, "spec": spec})).unwrap()
    }

    fn status(pod: &Pod, members: &[Member]) -> serde_json::Value {
        let facts = Facts {
            pod,
            members,
            phase: phase::of(members, "Always", false),
            reason: None,
            message: None,
            start_time: Timestamp::UNIX_EPOCH,
            host_ip: "127.0.0.1",
            pod_ip: Some("127.64.0.2"),
            known: &[],
            resize: None,
            now: Timestamp::UNIX_EPOCH,
        };
        serde_json::to_value(of(&facts)).unwrap()
    }

    fn condition_of<'a>(status: &'a serde_json::Value, kind: &str) -> &'a serde_json::Value {
        status["conditions"].as_array().unwrap().iter().find(|known| known["type"] == kind).unwrap()
    }

    #[test]
    fn pod_is_pending_until_its_init_containers_are_done() {
        let pod =
            pod(json!({"initContainers": [{"name": "i"}], "containers": [{"name": "b"}, {"name": "a"}]}));
        let mut all = members(&pod);
        all[0].state.run = Run::Running { id: "x".into(), since: Timestamp::UNIX_EPOCH };
        let shown = status(&pod, &all);
        assert_eq!(shown["phase"], "Pending");
        assert_eq!(shown["containerStatuses"][0]["name"], "a");
        assert_eq!(shown["containerStatuses"][0]["state"]["waiting"]["reason"], "PodInitializing");
        let initialized = condition_of(&shown, "Initialized");
        assert_eq!(initialized["message"], "containers with incomplete status: [i]");
        assert_eq!(condition_of(&shown, "Ready")["message"], "containers with unready status: [a b]");
    }

    #[test]
    fn crash_loop_shows_the_last_end_beside_the_wait() {
        let pod = pod(json!({"containers": [{"name": "a"}]}));
        let mut all = members(&pod);
        all[0].state.run = Run::Ended(Ended {
            id: "x".into(),
            exit_code: 3,
            signal: 0,
            reason: "Error".into(),
            message: String::new(),
            started_at: None,
            finished_at: Timestamp::UNIX_EPOCH,
        });
        all[0].state.waiting = Some(Waiting { reason: "CrashLoopBackOff", message: "back-off 10s".into() });
        let shown = status(&pod, &all);
        assert_eq!(shown["phase"], "Running");
        let container = &shown["containerStatuses"][0];
        assert_eq!(container["state"]["waiting"]["reason"], "CrashLoopBackOff");
        assert_eq!(container["lastState"]["terminated"]["exitCode"], 3);
        assert_eq!(container["containerID"], "orlop://x");
    }
}
