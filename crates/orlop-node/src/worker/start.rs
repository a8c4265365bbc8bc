//! Starts containers: image, environment, mounts, process, hook.

use std::{
    fs, io,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    time::Duration,
};

use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

use super::{Event, Live, PULL_SHOWN, REFRESH, RETRY, Worker, files, identity, stop};
use crate::{
    capabilities, cgroups,
    downward::Place,
    environment::{self, ConfigError, Variables},
    events::Severity,
    expansion::expand,
    images::{Image, ImageError},
    pods::containers::{Class, Ended, Run, Waiting},
    probes::{self, Kind, Target},
    runtime::{Container, StartError},
    services,
    shim::config::{Config, Mount, Namespaces},
    volumes::{
        Volumes,
        mounts::{self, VolumeMount},
    },
};

/// Size and number of a container's log files.
const LOG_BYTES_MAX: u64 = 10 << 20;
const LOG_FILES_MAX: usize = 5;
/// Variable with the directory below which volumes are, where containers have no mounts of their own.
const ROOT_VARIABLE: &str = "ORLOP_ROOT";
/// Exit code of a container whose program could not be executed.
const START_ERROR: i32 = 128;

impl Worker {
    /// Gives the pod its address and volumes. Returns false if it has to wait.
    pub(super) async fn set_up(&mut self) -> bool {
        if self.address.is_none() && !self.is_host_network() {
            self.address = self.node.addresses.allocate(&self.uid, None);
            if self.address.is_none() {
                let message = format!(
                    "Failed to create pod sandbox: no address is free in {}",
                    self.node.settings.pod_range
                );
                self.node.events.pod(&self.pod, None, Severity::Warning, "FailedCreatePodSandBox", message);
                self.wake_in(RETRY);
                return false;
            }
        }
        if !self.create_network().await || !self.create_sandbox().await {
            return false;
        }
        self.forward_host_ports().await;
        let is_due = Instant::now() >= self.refresh_at;
        if self.sources.is_some() && !(is_due && Volumes::may_change(&self.pod)) {
            if is_due {
                self.refresh_at = Instant::now() + REFRESH;
            }
            return true;
        }
        self.refresh_at = Instant::now() + REFRESH;
        let place = self.place();
        let folder = self.node.pod_file(&self.uid, "volumes");
        let volumes = Volumes {
            client: &self.node.client.0,
            pod: &self.pod,
            place: &place,
            folder: &folder,
            tokens: &self.node.tokens,
            certificates: &self.node.certificates,
            images: &self.node.settings.images,
        };
        let prepared = match fs::create_dir_all(&folder) {
            Ok(()) => volumes.set_up().await.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        match prepared {
            Ok(sources) => {
                self.sources = Some(sources);
                true
            }
            Err(message) => {
                self.node.events.pod(&self.pod, None, Severity::Warning, "FailedMount", message);
                self.wake_in(RETRY);
                // What was set up before stays as it is.
                self.sources.is_some()
            }
        }
    }

    fn place(&self) -> Place {
        Place {
            node: self.node.settings.name.clone(),
            host_ip: self.node.settings.address.to_string(),
            pod_ip: self.pod_ip().unwrap_or_default(),
            allocatable: self.node.allocatable.clone(),
        }
    }

    /// Creates the network of the pod, if it is to have one. Returns false if it has to wait.
    async fn create_network(&mut self) -> bool {
        let (Some(networks), Some(address)) = (&self.node.networks, self.address) else { return true };
        if self.is_host_network() || self.has_network {
            return true;
        }
        let created = networks.create(address, self.network_sysctls()).await;
        if let Err(error) = &created {
            let message =
                format!("Failed to create pod sandbox: cannot create the network of the pod: {error}");
            self.node.events.pod(&self.pod, None, Severity::Warning, "FailedCreatePodSandBox", message);
            self.wake_in(RETRY);
        }
        self.has_network = created.is_ok();
        self.has_network
    }

    /// Returns the network namespace of the pod.
    fn network(&self) -> Option<PathBuf> {
        let address = self.address.filter(|_| !self.is_host_network())?;
        self.node.networks.as_ref().map(|networks| networks.path(address))
    }

    /// Starts a container, or records why it cannot be started.
    pub(super) async fn start(&mut self, index: usize) {
        let Some(image) = self.find_image(index) else { return };
        let member = &self.members[index];
        let run = match &member.state.run {
            Run::Ended(_) => member.state.restart_count + 1,
            // A run that is not on this disk any more counts too.
            _ => member.state.restart_count,
        };
        let prepared = self.prepare(index, run, &image).await;
        let (folder, config) = match prepared {
            Ok(prepared) => prepared,
            Err((reason, message)) => return self.fail(index, reason, message),
        };
        if self.members[index].spec.lifecycle.as_ref().is_some_and(|hooks| hooks.post_start.is_some()) {
            // The pod is shown as it is before a hook that may take long.
            self.publish(false).await;
        }
        let path = Some(self.members[index].field_path());
        self.node.events.pod(&self.pod, path.clone(), Severity::Normal, "Created", "Container created");
        let Some(started) = self.start_in_turn(&folder, &config, &image).await else { return };
        let now = Timestamp::now();
        let member = &mut self.members[index];
        if let Run::Ended(ended) = std::mem::take(&mut member.state.run) {
            member.state.last = Some(ended);
            member.state.back_off.attempted(now);
        }
        member.state.restart_count = run;
        member.state.image_id.clone_from(&image.id);
        member.state.resources.clone_from(&member.spec.resources);
        (member.state.waiting, member.state.retry_at) = (None, None);
        match started {
            Ok((container, since)) => {
                member.state.run = Run::Running { id: container.id().to_owned(), since };
                self.node.events.pod(&self.pod, path, Severity::Normal, "Started", "Container started");
                self.live[index] = Some(Live { container, tasks: Vec::new(), stop: None });
                self.follow(index);
                self.remove_old_runs(index, run);
                self.run_post_start(index).await;
            }
            Err(error) => {
                cgroups::remove(&config.cgroups);
                let message = error.to_string();
                self.node.events.pod(
                    &self.pod,
                    path,
                    Severity::Warning,
                    "Failed",
                    format!("Error: {message}"),
                );
                member.state.waiting =
                    Some(Waiting { reason: "RunContainerError", message: message.clone() });
                member.state.run = Run::Ended(Ended {
                    id: config.id,
                    exit_code: START_ERROR,
                    signal: 0,
                    reason: "StartError".to_owned(),
                    message,
                    started_at: None,
                    finished_at: now,
                });
                self.wake_in(Duration::ZERO);
            }
        }
    }

    /// Starts the processes of a container when it is its turn. `None` if the pod ends before.
    async fn start_in_turn(
        &self,
        folder: &Path,
        config: &Config,
        image: &Image,
    ) -> Option<Result<(Container, Timestamp), StartError>> {
        let mut desired = self.desired.clone();
        let _turn = tokio::select! {
            turn = self.node.starts.acquire() => turn,
            _ = desired.wait_for(super::Desired::is_ending) => return None,
        };
        Some(self.node.runtime.start(folder, config, &image.id).await)
    }

    /// Waits for the end of a running container, and starts its probes.
    pub(super) fn follow(&mut self, index: usize) {
        let Some(live) = &mut self.live[index] else { return };
        let (container, sender) = (live.container.clone(), self.sender.clone());
        let task = tokio::spawn(async move {
            let exit = container.exited().await;
            let _ = sender.send(Event::Exited { index, id: container.id().to_owned(), exit }).await;
        });
        live.tasks.push(task.abort_handle());
        let state = &mut self.members[index].state;
        (state.started, state.ready) = (false, false);
        if self.members[index].spec.startup_probe.is_some() {
            self.probe(index, Kind::Startup);
        } else {
            self.started(index);
        }
    }

    /// Returns the image of a container; `None` if the container has to wait for it.
    fn find_image(&mut self, index: usize) -> Option<Image> {
        let member = &mut self.members[index];
        let name = member.spec.image.clone().unwrap_or_default();
        let path = Some(member.field_path());
        let events = &self.node.events;
        let error = match self.node.settings.images.find(&name) {
            Ok(image) => {
                let message = format!("Container image {name:?} already present on machine");
                events.pod(&self.pod, path, Severity::Normal, "Pulled", message);
                return Some(image);
            }
            Err(error) => error,
        };
        let now = Timestamp::now();
        let never = member.spec.image_pull_policy.as_deref() == Some("Never");
        let (reason, message) = match &error {
            ImageError::InvalidName(_) => {
                let message = format!("Failed to apply default image tag {name:?}: {error}");
                events.pod(&self.pod, path, Severity::Warning, "InspectFailed", message.as_str());
                ("InvalidImageName", message)
            }
            ImageError::Unknown { .. } if never => {
                let message = format!("Container image {name:?} is not present with pull policy of Never");
                events.pod(&self.pod, path.clone(), Severity::Warning, "ErrImageNeverPull", message.as_str());
                events.pod(&self.pod, path, Severity::Warning, "Failed", "Error: ErrImageNeverPull");
                ("ErrImageNeverPull", message)
            }
            ImageError::Unknown { .. } | ImageError::Manifest { .. } => {
                events.pod(
                    &self.pod,
                    path.clone(),
                    Severity::Normal,
                    "Pulling",
                    format!("Pulling image {name:?}"),
                );
                let failed = format!("Failed to pull image {name:?}: {error}");
                events.pod(&self.pod, path.clone(), Severity::Warning, "Failed", failed);
                events.pod(&self.pod, path, Severity::Warning, "Failed", "Error: ErrImagePull");
                ("ErrImagePull", error.to_string())
            }
        };
        member.state.pull.attempted(now);
        member.state.retry_at = member.state.pull.until(now).map(|(at, _)| at);
        let retry_at = member.state.retry_at;
        member.state.waiting = Some(Waiting { reason, message });
        if let Some(at) = retry_at {
            self.wake(at);
        }
        self.wake_in(PULL_SHOWN);
        None
    }

    /// Shows pulls that failed a while ago as waiting for their back-off.
    pub(super) fn show_failed_pulls(&mut self) {
        let now = Timestamp::now();
        for index in 0..self.members.len() {
            let member = &mut self.members[index];
            let Some(waiting) = member.state.waiting.as_ref().filter(|why| why.reason == "ErrImagePull")
            else {
                continue;
            };
            let since = member.state.pull.updated().map_or(0, |at| now.duration_since(at).as_millis());
            if since < 900 {
                self.wake_in(PULL_SHOWN);
                continue;
            }
            let image = member.spec.image.clone().unwrap_or_default();
            let message = format!("Back-off pulling image {image:?}: ErrImagePull: {}", waiting.message);
            let path = Some(member.field_path());
            let event = format!("Back-off pulling image {image:?}");
            self.node.events.pod(&self.pod, path.clone(), Severity::Normal, "BackOff", event);
            self.node.events.pod(&self.pod, path, Severity::Warning, "Failed", "Error: ImagePullBackOff");
            member.state.waiting = Some(Waiting { reason: "ImagePullBackOff", message });
        }
    }

    /// Records that a container cannot be created now.
    fn fail(&mut self, index: usize, reason: &'static str, message: String) {
        let member = &mut self.members[index];
        let path = Some(member.field_path());
        self.node.events.pod(&self.pod, path, Severity::Warning, "Failed", format!("Error: {message}"));
        member.state.retry_at = Timestamp::now().checked_add(RETRY).ok();
        member.state.waiting = Some(Waiting { reason, message });
        self.wake_in(RETRY);
    }

    /// Returns the folder and configuration of a run.
    async fn prepare(
        &mut self,
        index: usize,
        run: u32,
        image: &Image,
    ) -> Result<(PathBuf, Config), (&'static str, String)> {
        const CONFIG_ERROR: &str = "CreateContainerConfigError";
        const CREATE_ERROR: &str = "CreateContainerError";
        let config_error = |error: ConfigError| (CONFIG_ERROR, error.0);
        let create_error = |error: io::Error| (CREATE_ERROR, error.to_string());
        let spec = self.members[index].spec.clone();
        let place = self.place();
        let hostname = identity::hostname(&self.pod, &self.node.settings.cluster_domain);
        let services =
            services::linked(&self.node.services, self.node.api_server.as_ref(), &self.namespace).await;
        let client = &self.node.client.0;
        let mut variables = environment::build(client, &self.pod, &spec, image, &services, &place, &hostname)
            .await
            .map_err(config_error)?;
        let ids = identity::ids(&self.pod, &spec, image, self.node.support).map_err(config_error)?;
        let no_sources = Default::default();
        let sources = self.sources.as_ref().unwrap_or(&no_sources);
        let volumes = mounts::of(&spec, sources, &variables).map_err(config_error)?;
        let folder = self.node.runtime.run_folder(&self.uid, &spec.name, run);
        // Left behind by a start that failed.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).map_err(create_error)?;
        let message_file = folder.join(files::TERMINATION_LOG);
        fs::write(&message_file, "").map_err(create_error)?;
        fs::set_permissions(&message_file, fs::Permissions::from_mode(0o666)).map_err(create_error)?;
        let message_path = spec.termination_message_path.clone().filter(|path| !path.is_empty());
        let message_path = PathBuf::from(message_path.unwrap_or_else(|| "/dev/termination-log".to_owned()));
        let mut all = volumes;
        all.push(VolumeMount {
            volume: String::new(),
            source: message_file,
            target: message_path,
            read_only: false,
        });
        let read_only_root =
            spec.security_context.as_ref().and_then(|context| context.read_only_root_filesystem)
                == Some(true);
        if image.root.is_some() && !self.node.support.namespaces {
            let message = "the files of an image need namespaces, which this node does not have";
            return Err((CREATE_ERROR, message.to_owned()));
        }
        if command(&spec, image, &variables).is_empty() {
            return Err((CREATE_ERROR, "no command specified".to_owned()));
        }
        let id = new_id();
        let cgroups = self.cgroups(&spec, &id).map_err(create_error)?;
        let privileged = capabilities::is_privileged(&spec);
        let namespaces = if self.node.support.namespaces {
            let mut all = all;
            self.add_system_files(&mut all, &place).map_err(create_error)?;
            self.add_own_groups(&mut all, &cgroups);
            Some(Namespaces {
                hostname: hostname.clone(),
                user: self.node.support.user,
                layer: folder.join("layer"),
                image: image.root.clone(),
                all_devices: privileged && !self.node.support.user,
                read_only_root,
                mounts: all
                    .into_iter()
                    .map(|mount| Mount {
                        source: mount.source,
                        target: mount.target,
                        read_only: mount.read_only,
                    })
                    .collect(),
            })
        } else {
            self.emulate_mounts(&folder.join("root"), &all, &mut variables).map_err(create_error)?;
            None
        };
        if privileged && !rustix::process::geteuid().is_root() {
            self.report_privileged(&spec.name);
        }
        let argv = command(&spec, image, &variables);
        let cwd = spec.working_dir.clone().filter(|path| !path.is_empty()).map(PathBuf::from);
        let config = Config {
            id,
            title: format!("{}/{}/{}", self.namespace, self.name, spec.name),
            argv,
            env: variables.into_vec(),
            cwd: cwd.unwrap_or_else(|| image.workdir.clone()),
            log: self.log_path(index, run),
            log_bytes_max: LOG_BYTES_MAX,
            log_files_max: LOG_FILES_MAX,
            stdin: spec.stdin == Some(true),
            stdin_once: spec.stdin_once == Some(true),
            tty: spec.tty == Some(true),
            ids,
            namespaces,
            network: self.network(),
            sandbox: self.sandbox().map_err(create_error)?,
            holds: None,
            node: self.node_process(),
            cgroups,
        };
        Ok((folder, config))
    }

    /// Returns the process that containers end with.
    pub(super) fn node_process(&self) -> Option<i32> {
        self.node.settings.is_ephemeral.then(|| rustix::process::getpid().as_raw_nonzero().get())
    }

    /// Tells that a privileged container has no more rights than the node.
    fn report_privileged(&self, name: &str) {
        let message = format!(
            "Container {name} is privileged, and this node is not root: it has the node's own rights and devices"
        );
        self.node.events.pod(&self.pod, None, Severity::Warning, "PrivilegedNotHonoured", message);
    }

    /// Adds the hosts file and resolv.conf of the pod, unless volumes are mounted there.
    fn add_system_files(&self, all: &mut Vec<VolumeMount>, place: &Place) -> io::Result<()> {
        let hosts = self.node.pod_file(&self.uid, "hosts");
        files::write_hosts(&hosts, &self.pod, &place.pod_ip, &self.node.settings.cluster_domain)?;
        let mut add = |source: PathBuf, target: &str| {
            if !all.iter().any(|mount| mount.target == Path::new(target)) {
                let target = PathBuf::from(target);
                all.push(VolumeMount { volume: String::new(), source, target, read_only: false });
            }
        };
        add(hosts, "/etc/hosts");
        let resolv_conf = self.node.pod_file(&self.uid, "resolv.conf");
        if files::write_resolv_conf(&resolv_conf, &self.pod, &self.node)? {
            add(resolv_conf, "/etc/resolv.conf");
        }
        Ok(())
    }

    /// Shows a container its own control groups, where programs look for their limits.
    fn add_own_groups(&self, all: &mut Vec<VolumeMount>, groups: &[PathBuf]) {
        let Some(Ok(known)) = self.node.cgroups.get() else { return };
        for (source, target) in groups.iter().zip(known.seen_at()) {
            if Path::new(target).exists() {
                let (source, target) = (source.clone(), PathBuf::from(target));
                all.push(VolumeMount { volume: String::new(), source, target, read_only: true });
            }
        }
    }

    /// Links volumes below a directory that a variable names: without namespaces nothing can be mounted.
    fn emulate_mounts(
        &mut self,
        root: &Path,
        all: &[VolumeMount],
        variables: &mut Variables,
    ) -> io::Result<()> {
        fs::create_dir_all(root)?;
        variables.set(ROOT_VARIABLE, root.display().to_string());
        for mount in all {
            let link = root.join(mount.target.strip_prefix("/").unwrap_or(&mount.target));
            if let Some(parent) = link.parent() {
                fs::create_dir_all(parent)?;
            }
            let _ = symlink(&mount.source, link);
        }
        let has_volumes = all.iter().any(|mount| !mount.volume.is_empty());
        if has_volumes && !self.mount_reported {
            self.mount_reported = true;
            let message = format!(
                "Containers have no mounts of their own on this node: volumes are linked below the directory in ${ROOT_VARIABLE}"
            );
            self.node.events.pod(&self.pod, None, Severity::Warning, "MountPathEmulated", message);
        }
        Ok(())
    }

    /// Runs the postStart hook. Its failure ends the container.
    async fn run_post_start(&mut self, index: usize) {
        let spec = self.members[index].spec.clone();
        let hook = spec.lifecycle.as_ref().and_then(|lifecycle| lifecycle.post_start.clone());
        let (Some(hook), Some(live)) = (hook, &self.live[index]) else { return };
        let target = Target { container: live.container.clone(), spec, host: self.probe_host() };
        let ended = live.container.clone();
        let mut desired = self.desired.clone();
        let outcome = tokio::select! {
            outcome = probes::hook(&target, &hook) => outcome,
            _ = ended.exited() => Err("the container ended".to_owned()),
            // The pod ends: its hook is not waited for.
            _ = desired.wait_for(super::Desired::is_ending) => return,
        };
        if outcome.is_err() {
            let path = Some(self.members[index].field_path());
            self.node.events.pod(
                &self.pod,
                path,
                Severity::Warning,
                "FailedPostStartHook",
                "PostStartHook failed",
            );
            self.stop(index, self.grace(), stop::Reason::HookFailed);
        }
    }

    /// Removes runs and logs before the previous run.
    fn remove_old_runs(&self, index: usize, run: u32) {
        let name = &self.members[index].spec.name;
        for old in self.node.runtime.runs(&self.uid, name) {
            if old + 1 < run {
                self.node.runtime.remove_run(&self.uid, name, old);
                let log = self.log_path(index, old);
                for rotated in crate::shim::log_writer::rotated(&log).unwrap_or_default() {
                    let _ = fs::remove_file(rotated);
                }
                let _ = fs::remove_file(log);
            } else if old < run {
                // The writable layer of an ended run is of no use.
                let _ = fs::remove_dir_all(self.node.runtime.run_folder(&self.uid, name, old).join("layer"));
            }
        }
        debug_assert!(self.members[index].class != Class::Ephemeral || run == 0);
    }
}

/// Returns the program and arguments of a container.
fn command(
    spec: &k8s_openapi::api::core::v1::Container,
    image: &Image,
    variables: &Variables,
) -> Vec<String> {
    let expanded = |list: &[String]| -> Vec<String> {
        list.iter().map(|text| expand(text, |name| variables.get(name))).collect()
    };
    let command = spec.command.as_deref().unwrap_or_default();
    let args = spec.args.as_deref().unwrap_or_default();
    match (command.is_empty(), args.is_empty()) {
        (false, _) => [expanded(command), expanded(args)].concat(),
        (true, false) => [image.entrypoint.clone(), expanded(args)].concat(),
        (true, true) => [image.entrypoint.clone(), image.cmd.clone()].concat(),
    }
}

pub(super) fn new_id() -> String {
    format!("{:032x}{:032x}", rand::random::<u128>(), rand::random::<u128>())
}
