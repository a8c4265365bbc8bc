//! The sandbox of a pod: a process that only holds namespaces, for pods whose containers share processes or that set kernel
//! parameters. Other pods have none: what their containers share needs no process.

use std::{fs, io};

use futures_util::FutureExt;

use super::{RETRY, Worker, start};
use crate::{
    events::Severity,
    pods::sysctls::{self, Sysctl},
    runtime::{Container, Found, StartError},
    shim::{
        config::{Config, Namespaces, Sandbox},
        processes,
    },
};

/// Name of its folder, which no container can have.
const NAME: &str = "_sandbox";
const LOG_BYTES_MAX: u64 = 1 << 20;

impl Worker {
    /// Starts the sandbox of the pod, if it needs one. Returns false if it has to wait.
    pub(super) async fn create_sandbox(&mut self) -> bool {
        self.report_sysctls();
        if !self.needs_sandbox()
            || self.sandbox.as_ref().is_some_and(|known| known.exited().now_or_never().is_none())
        {
            return true;
        }
        match self.find_or_start_sandbox().await {
            Ok(sandbox) => {
                self.sandbox = Some(sandbox);
                true
            }
            Err(error) => {
                let message = format!("Failed to create pod sandbox: {error}");
                self.node.events.pod(&self.pod, None, Severity::Warning, "FailedCreatePodSandBox", message);
                self.wake_in(RETRY);
                false
            }
        }
    }

    /// Ends the sandbox, and with it every process in its namespaces.
    pub(super) async fn remove_sandbox(&mut self) {
        let Some(run) = self.node.runtime.runs(&self.uid, NAME).last().copied() else { return };
        let sandbox = match (self.sandbox.take(), self.node.runtime.find(&self.uid, NAME, run)) {
            (Some(sandbox), _) | (None, Found::Alive(sandbox)) => sandbox,
            _ => return,
        };
        sandbox.kill_and_wait().await;
    }

    /// Returns the namespaces that containers join.
    pub(super) fn sandbox(&self) -> io::Result<Option<Sandbox>> {
        let Some(sandbox) = &self.sandbox else { return Ok(None) };
        let pid = processes::descendants(sandbox.monitor_pid()).first().copied();
        let pid = pid.ok_or_else(|| io::Error::other("the sandbox of the pod has ended"))?;
        Ok(Some(Sandbox { pid, shares_processes: self.shares_processes() }))
    }

    /// Returns the kernel parameters of the pod's network, by file.
    pub(super) fn network_sysctls(&self) -> Vec<(String, String)> {
        by_file(sysctls::of(&self.pod).into_iter().filter(Sysctl::is_of_network))
    }

    fn needs_sandbox(&self) -> bool {
        let has_own = sysctls::of(&self.pod).iter().any(|sysctl| !sysctl.is_of_network());
        self.node.support.namespaces && (self.shares_processes() || has_own)
    }

    fn shares_processes(&self) -> bool {
        self.pod.spec.as_ref().and_then(|spec| spec.share_process_namespace) == Some(true)
    }

    async fn find_or_start_sandbox(&self) -> Result<Container, StartError> {
        let runtime = &self.node.runtime;
        let last = runtime.runs(&self.uid, NAME).last().copied();
        if let Some(run) = last
            && let Found::Alive(sandbox) = runtime.find(&self.uid, NAME, run)
        {
            return Ok(sandbox);
        }
        let folder = runtime.run_folder(&self.uid, NAME, last.map_or(0, |last| last + 1));
        fs::create_dir_all(&folder)?;
        let config = Config {
            id: start::new_id(),
            title: format!("{}/{}", self.namespace, self.name),
            log: folder.join("log"),
            log_bytes_max: LOG_BYTES_MAX,
            log_files_max: 1,
            namespaces: Some(Namespaces { user: self.node.support.user, ..Namespaces::default() }),
            holds: Some(by_file(sysctls::of(&self.pod).into_iter().filter(|sysctl| !sysctl.is_of_network()))),
            node: self.node_process(),
            ..Config::default()
        };
        Ok(runtime.start(&folder, &config, "").await?.0)
    }

    /// Tells of kernel parameters that are left as they are on the machine.
    fn report_sysctls(&mut self) {
        if std::mem::replace(&mut self.sysctls_reported, true) {
            return;
        }
        let is_kept = |sysctl: &Sysctl| match sysctl.is_of_network() {
            true => self.node.networks.is_some(),
            false => self.node.support.namespaces,
        };
        let left: Vec<String> = sysctls::of(&self.pod)
            .into_iter()
            .filter(|sysctl| !is_kept(sysctl))
            .map(|sysctl| sysctl.name)
            .collect();
        if !left.is_empty() {
            let message = format!(
                "Pods have no namespaces of their own for these kernel parameters on this node, which have the values of the machine: {}",
                left.join(", ")
            );
            self.node.events.pod(&self.pod, None, Severity::Warning, "SysctlsNotHonoured", message);
        }
    }
}

fn by_file(all: impl Iterator<Item = Sysctl>) -> Vec<(String, String)> {
    all.map(|sysctl| (sysctl.path(), sysctl.value)).collect()
}
