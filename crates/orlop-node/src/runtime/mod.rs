//! Containers as processes of this machine: start, adopt, signal, wait.
//!
//! A container's folder holds its configuration before its monitor starts, and its exit code after it has ended. The
//! monitor listens on a socket named after the container's id for as long as it lives, so a restarted node asks the
//! socket, and needs to trust no pid that it wrote down.

mod container;
mod isolation;
pub(crate) mod memory;
mod records;
mod spawner;

pub(crate) use container::Container;
pub use isolation::Isolation;
pub(crate) use isolation::Support;
pub(crate) use records::{Found, Record};
pub(crate) use spawner::Spawner;

use std::{
    fs, io,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use k8s_openapi::jiff::Timestamp;
use tokio::{io::AsyncReadExt, net::unix::pipe, time::timeout};

use crate::shim::{
    self,
    config::{Config, Started},
};

/// Limit on the start of a program.
const START_TIMEOUT: Duration = Duration::from_secs(40);
/// Bytes of a monitor's report.
const REPORT_BYTES_MAX: u64 = 64 << 10;

/// A program could not be started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// The monitor could not be started.
    #[error("{0}")]
    Monitor(#[from] io::Error),
    /// The program could not be executed.
    #[error("failed to start container: {0}")]
    Program(String),
}

/// Containers of a node.
#[derive(Clone, Debug)]
pub(crate) struct Runtime {
    /// Directory of pods.
    root: PathBuf,
    /// Program that is a monitor when started with [`shim::ARGUMENT`].
    program: PathBuf,
    spawner: Spawner,
}

impl Runtime {
    pub(crate) fn new(root: PathBuf, program: PathBuf, spawner: Spawner) -> Self {
        Self { root, program, spawner }
    }

    /// Returns the directory of a pod.
    pub(crate) fn pod_folder(&self, uid: &str) -> PathBuf {
        self.root.join("pods").join(uid)
    }

    /// Returns the directory of a run of a container.
    pub(crate) fn run_folder(&self, uid: &str, container: &str, run: u32) -> PathBuf {
        self.container_folder(uid, container).join(run.to_string())
    }

    fn container_folder(&self, uid: &str, container: &str) -> PathBuf {
        self.pod_folder(uid).join("containers").join(container)
    }

    /// Returns the uids of pods with a directory.
    pub(crate) fn pods(&self) -> Vec<String> {
        let entries = fs::read_dir(self.root.join("pods"));
        let entries = entries.into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    /// Starts a container in its folder, and returns it with the time of its start.
    pub(crate) async fn start(
        &self,
        folder: &Path,
        config: &Config,
        image_id: &str,
    ) -> Result<(Container, Timestamp), StartError> {
        config.write(folder)?;
        if let Some(parent) = config.log.parent() {
            fs::create_dir_all(parent)?;
        }
        let errors = fs::File::create(folder.join("monitor.log"))?;
        let mut command = Command::new(&self.program);
        command
            .arg0(format!("orlop: {}", config.title))
            .arg(shim::ARGUMENT)
            .arg(folder)
            .env_clear()
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(errors);
        let mut child = self.spawner.spawn(command).await?;
        let container = Container::of_monitor(
            i32::try_from(child.id()).map_err(io::Error::other)?,
            config.id.clone(),
            folder,
        )?;
        let report = child.stdout.take().ok_or_else(|| io::Error::other("no report"))?;
        match timeout(START_TIMEOUT, read_report(report.into())).await {
            Ok(Ok(Started::At(started_at))) => {
                Record { id: config.id.clone(), image_id: image_id.to_owned(), started_at }.write(folder)?;
                Ok((container, started_at))
            }
            Ok(Ok(Started::Error(error))) => Err(StartError::Program(error)),
            Ok(Err(error)) => {
                let said = fs::read_to_string(folder.join("monitor.log")).unwrap_or_default();
                Err(StartError::Program(format!("{error}: {}", said.trim())))
            }
            Err(_) => {
                container.kill();
                Err(StartError::Program("the program was not started in time".to_owned()))
            }
        }
    }

    /// Removes what is left of a pod: its directory and its memory.
    pub(crate) fn remove_pod(&self, uid: &str) -> io::Result<()> {
        memory::remove(uid)?;
        match fs::remove_dir_all(self.pod_folder(uid)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }
}

/// Reads the first line of a monitor's output.
async fn read_report(output: std::os::fd::OwnedFd) -> io::Result<Started> {
    let mut output = pipe::Receiver::from_owned_fd(output)?.take(REPORT_BYTES_MAX);
    let mut line = Vec::new();
    while !line.ends_with(b"\n") {
        if output.read_buf(&mut line).await? == 0 {
            return Err(io::Error::other("the monitor ended"));
        }
    }
    Ok(serde_json::from_slice(&line)?)
}
