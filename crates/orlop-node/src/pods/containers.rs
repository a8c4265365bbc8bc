//! Containers of a pod and the states of their runs.

use k8s_openapi::{
    api::core::v1::{Container, Pod, PodSpec, ResourceRequirements},
    jiff::Timestamp,
};

use super::back_off::BackOff;

/// Class of a container, which decides when it starts and what its end means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Runs to its end before the next begins.
    Init,
    /// An init container that stays: the next begins once it has started.
    Sidecar,
    /// A main container.
    Main,
    /// Added to a running pod for debugging. Never restarted, never counted.
    Ephemeral,
}

/// A container of a pod, its class and the state of its runs.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) spec: Container,
    pub(crate) class: Class,
    pub(crate) state: State,
}

impl Member {
    /// Returns the path of the container in its pod, for events.
    pub(crate) fn field_path(&self) -> String {
        let list = match self.class {
            Class::Init | Class::Sidecar => "initContainers",
            Class::Main => "containers",
            Class::Ephemeral => "ephemeralContainers",
        };
        format!("spec.{list}{{{}}}", self.spec.name)
    }
}

/// State of a container's runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    /// Number of the current run.
    pub(crate) restart_count: u32,
    pub(crate) run: Run,
    /// End of the run before the current one.
    pub(crate) last: Option<Ended>,
    /// Reason why no run begins, such as an image that is not there.
    pub(crate) waiting: Option<Waiting>,
    /// Delay of the next restart.
    pub(crate) back_off: BackOff,
    /// Delay of the next pull of the image.
    pub(crate) pull: BackOff,
    /// Time before which a start that failed is not tried again.
    pub(crate) retry_at: Option<Timestamp>,
    /// The startup probe has succeeded, or there is none.
    pub(crate) started: bool,
    /// The readiness probe has succeeded, or there is none.
    pub(crate) ready: bool,
    /// A stop of the current run is under way.
    pub(crate) stopping: bool,
    pub(crate) image_id: String,
    /// Resources that the current run was given.
    pub(crate) resources: Option<ResourceRequirements>,
}

impl State {
    /// Returns true if a run has begun, now or earlier.
    pub(crate) fn has_run(&self) -> bool {
        !matches!(self.run, Run::None) || self.last.is_some()
    }

    pub(crate) fn is_running(&self) -> bool {
        matches!(self.run, Run::Running { .. })
    }

    /// Returns the end of the current run.
    pub(crate) fn ended(&self) -> Option<&Ended> {
        match &self.run {
            Run::Ended(ended) => Some(ended),
            Run::None | Run::Running { .. } => None,
        }
    }
}

/// The current run of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Run {
    /// No run has begun.
    #[default]
    None,
    /// The program runs.
    Running {
        /// The container's id.
        id: String,
        /// Start of the program.
        since: Timestamp,
    },
    /// The program has ended.
    Ended(Ended),
}

/// The end of a run.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Ended {
    pub(crate) id: String,
    pub(crate) exit_code: i32,
    pub(crate) signal: i32,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) finished_at: Timestamp,
}

/// Reason why a container waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

/// Returns the containers of a pod: init, main, ephemeral, each in its order.
pub(crate) fn members(pod: &Pod) -> Vec<Member> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let init = spec.init_containers.iter().flatten().map(|container| {
        let class = if is_sidecar(container) { Class::Sidecar } else { Class::Init };
        (container.clone(), class)
    });
    let main = spec.containers.iter().map(|container| (container.clone(), Class::Main));
    let ephemeral = ephemeral(spec).into_iter().map(|container| (container, Class::Ephemeral));
    init.chain(main)
        .chain(ephemeral)
        .map(|(spec, class)| Member { spec, class, state: State::default() })
        .collect()
}

fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// Returns ephemeral containers as containers: their fields are the same.
fn ephemeral(spec: &PodSpec) -> Vec<Container> {
    let containers = spec.ephemeral_containers.iter().flatten();
    containers
        .filter_map(|container| serde_json::from_value(serde_json::to_value(container).ok()?).ok())
        .collect()
}
