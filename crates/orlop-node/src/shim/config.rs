//! Files between the node and a container's monitor.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// Name of the file with a container's [`Config`].
const CONFIG: &str = "config.json";
/// Name of the file with a container's [`Exit`].
const EXIT: &str = "exit.json";

/// A container to run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Config {
    /// Identity of the container, and name of its monitor's socket.
    pub(crate) id: String,
    /// Name in the process list.
    pub(crate) title: String,
    /// Program and arguments.
    pub(crate) argv: Vec<String>,
    /// Environment; nothing of the node's own is inherited.
    pub(crate) env: Vec<(String, String)>,
    /// Working directory; the root if empty.
    pub(crate) cwd: PathBuf,
    /// Log file.
    pub(crate) log: PathBuf,
    /// Bytes of a log file before it is rotated.
    pub(crate) log_bytes_max: u64,
    /// Log files of one run, the current one included.
    pub(crate) log_files_max: usize,
    /// Standard input is kept open for `attach`.
    pub(crate) stdin: bool,
    /// Standard input ends with the first `attach`.
    pub(crate) stdin_once: bool,
    /// Standard streams are a terminal.
    pub(crate) tty: bool,
    /// Ids of the process.
    pub(crate) ids: Ids,
    /// Own mount, pid and host name namespaces; `None` runs the program as an ordinary process.
    pub(crate) namespaces: Option<Namespaces>,
    /// Network namespace of the pod; that of the machine if `None`.
    #[serde(default)]
    pub(crate) network: Option<PathBuf>,
    /// Namespaces of the pod, which the container joins.
    #[serde(default)]
    pub(crate) sandbox: Option<Sandbox>,
    /// Kernel parameters, by file, if this is the sandbox of a pod: it only holds namespaces.
    #[serde(default)]
    pub(crate) holds: Option<Vec<(String, String)>>,
    /// Process of the node, if the container is to end with it.
    pub(crate) node: Option<i32>,
    /// Control groups of the program, which its monitor is not in: it records why the program ended.
    #[serde(default)]
    pub(crate) cgroups: Vec<PathBuf>,
}

/// The sandbox of a pod.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Sandbox {
    /// Its process.
    pub(crate) pid: i32,
    /// Its process namespace is that of all containers.
    pub(crate) shares_processes: bool,
}

/// Ids of a container's processes. Those that are `None` are the node's own.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Ids {
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) groups: Vec<u32>,
    /// The program may not gain privileges, as by a setuid file.
    pub(crate) no_new_privileges: bool,
    /// Bits of the capabilities that are kept; `None` keeps all.
    #[serde(default)]
    pub(crate) capabilities: Option<u64>,
}

/// Namespaces of a container.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Namespaces {
    /// Host name.
    pub(crate) hostname: String,
    /// A user namespace is needed, since the node is not root.
    pub(crate) user: bool,
    /// Directory of the writable layer. The root file system of the machine is below it.
    pub(crate) layer: PathBuf,
    /// Files of the image, between that layer and the machine's root.
    #[serde(default)]
    pub(crate) image: Option<PathBuf>,
    /// All devices of the machine are there, as in a privileged container.
    #[serde(default)]
    pub(crate) all_devices: bool,
    /// The root file system cannot be written to.
    pub(crate) read_only_root: bool,
    /// Volumes and files, in the order of mounting.
    pub(crate) mounts: Vec<Mount>,
}

/// A bind mount.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Mount {
    pub(crate) source: PathBuf,
    pub(crate) target: PathBuf,
    pub(crate) read_only: bool,
}

/// The end of a container, as its monitor saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Exit {
    /// Exit code; 128 + n for a signal n.
    pub(crate) code: i32,
    /// Signal that ended the process; 0 for none.
    pub(crate) signal: i32,
    /// The time.
    pub(crate) at: Timestamp,
    /// The kernel ended it for want of memory.
    #[serde(default)]
    pub(crate) oom_killed: bool,
}

/// First line on a monitor's standard output.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Started {
    /// The program runs since this time.
    At(Timestamp),
    /// The program could not be started.
    Error(String),
}

/// First frame of a connection to a monitor.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Request {
    /// Connects to the streams of the program.
    Attach,
    /// Runs another program beside it.
    Exec(Exec),
}

/// A program to run in a container.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Exec {
    pub(crate) argv: Vec<String>,
    pub(crate) stdin: bool,
    pub(crate) tty: bool,
    /// The program is killed when its client goes, as that of a probe that timed out.
    #[serde(default)]
    pub(crate) ends_with_client: bool,
}

/// Last frame of an `exec` connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Outcome {
    /// The program ended with this code.
    Exited(i32),
    /// It could not be started.
    Error(String),
}

impl Config {
    pub(crate) fn read(folder: &Path) -> io::Result<Self> {
        read(&folder.join(CONFIG))
    }

    pub(crate) fn write(&self, folder: &Path) -> io::Result<()> {
        write(&folder.join(CONFIG), self)
    }

    /// Returns false once the node has withdrawn the configuration.
    pub(crate) fn is_current(folder: &Path) -> bool {
        folder.join(CONFIG).exists()
    }
}

impl Exit {
    /// Returns the end that a monitor recorded, if any.
    pub(crate) fn read(folder: &Path) -> Option<Self> {
        read(&folder.join(EXIT)).ok()
    }

    pub(crate) fn write(&self, folder: &Path) -> io::Result<()> {
        write(&folder.join(EXIT), self)
    }
}

/// Reads a JSON file.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> io::Result<T> {
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}

/// Replaces a private JSON file atomically.
pub(crate) fn write<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let staged = path.with_extension("new");
    let mut options = fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&staged)?;
    io::Write::write_all(&mut file, &serde_json::to_vec(value)?)?;
    fs::rename(staged, path)
}
