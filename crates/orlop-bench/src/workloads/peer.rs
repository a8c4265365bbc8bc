//! A real kube-controller-manager and kube-scheduler, in place of the controllers of the server that is measured.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::Context;

use crate::load;

/// Name of the peer in reports.
pub(super) const NAME: &str = "kube-controller-manager and kube-scheduler";
/// Controllers of the server that go on beside the peer: it has neither the keys nor the certificate for them.
pub(super) const CONTROLLERS: &str =
    "--controllers=root-ca-certificate-publisher-controller,serviceaccount-token-controller";
/// Limits of requests far above those that the programs have by default (20 and 50 a second), which would be all that is
/// measured.
const LIMITS: [&str; 2] = ["--kube-api-qps=5000", "--kube-api-burst=10000"];

/// The programs of the peer.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    pub(crate) controller_manager: PathBuf,
    pub(crate) scheduler: PathBuf,
}

/// Running programs of the peer. They end with the value.
#[derive(Debug, Default)]
pub(super) struct Running(Vec<Child>);

impl Programs {
    /// Starts the programs against a server.
    pub(super) fn start(&self, kubeconfig: &Path) -> anyhow::Result<Running> {
        let mut running = Running::default();
        let controllers =
            "--controllers=*,-root-ca-certificate-publisher-controller,-serviceaccount-token-controller";
        for (program, more) in [(&self.controller_manager, Some(controllers)), (&self.scheduler, None)] {
            let child = Command::new(program)
                .arg("--kubeconfig")
                .arg(kubeconfig)
                .args(["--leader-elect=false", "--secure-port=0"])
                .args(LIMITS)
                .args(more)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .with_context(|| format!("cannot start {}", program.display()))?;
            running.0.push(child);
        }
        Ok(running)
    }
}

impl Running {
    /// Returns the processor time used so far, in seconds.
    pub(super) fn cpu_seconds(&self) -> f64 {
        self.0.iter().map(|child| load::processor_seconds(child.id())).sum()
    }

    /// Returns the memory that they hold.
    pub(super) fn resident_mib(&self) -> f64 {
        self.0.iter().map(|child| load::status_mib(&child.id().to_string(), "VmRSS")).sum()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
