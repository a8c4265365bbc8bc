//! A running container.

use std::{
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions};
use tokio::{io::unix::AsyncFd, net::UnixStream, time::timeout};

use crate::shim::{
    config::{Exec, Exit, Outcome, Request},
    frames::{self, channel},
    processes,
};

/// Time for a monitor to record the end of a program that was killed.
const KILL_GRACE: Duration = Duration::from_secs(5);
/// Bytes of a command's output that are kept.
const OUTPUT_BYTES_MAX: usize = 10 << 10;

/// A container with a live monitor.
#[derive(Clone, Debug)]
pub(crate) struct Container {
    id: String,
    folder: PathBuf,
    pid: i32,
    /// Readable once the monitor has ended.
    monitor: Arc<AsyncFd<OwnedFd>>,
}

/// Result of a command in a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Output {
    pub(crate) code: i32,
    /// Standard output and error together, cut.
    pub(crate) text: String,
}

impl Container {
    /// Returns the container of a monitor.
    pub(super) fn of_monitor(pid: i32, id: String, folder: &Path) -> io::Result<Self> {
        let target = Pid::from_raw(pid).ok_or(io::ErrorKind::NotFound)?;
        let monitor = rustix::process::pidfd_open(target, PidfdFlags::NONBLOCK)?;
        #[expect(deprecated, reason = "unsound for other types: an OwnedFd stays open and the same")]
        let monitor = Arc::new(AsyncFd::new(monitor)?);
        Ok(Self { id, folder: folder.to_owned(), pid, monitor })
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Returns the process of the monitor.
    pub(crate) fn monitor_pid(&self) -> i32 {
        self.pid
    }

    /// Waits for the container's end. `None` if nobody saw it: its monitor was killed.
    pub(crate) async fn exited(&self) -> Option<Exit> {
        let _ = self.monitor.readable().await;
        // Collects a child of this process; an adopted monitor is not one.
        if let Some(pid) = Pid::from_raw(self.pid) {
            let _ = rustix::process::waitpid(Some(pid), WaitOptions::NOHANG);
        }
        Exit::read(&self.folder)
    }

    /// Sends a signal to the program.
    pub(crate) fn signal(&self, signal: Signal) {
        let _ = rustix::process::pidfd_send_signal(self.monitor.get_ref(), signal);
    }

    /// Kills everything in the container. The monitor stays, to record the end.
    pub(crate) fn kill(&self) {
        processes::kill_descendants(self.pid);
    }

    /// Kills everything in the container, and its monitor if that does not end by itself.
    pub(crate) async fn kill_and_wait(&self) -> Option<Exit> {
        self.kill();
        if let Ok(exit) = timeout(KILL_GRACE, self.exited()).await {
            return exit;
        }
        let descendants = processes::descendants(self.pid);
        self.signal(Signal::KILL);
        for pid in descendants {
            let _ = processes::signal(pid, Signal::KILL);
        }
        self.exited().await
    }

    /// Connects to the program's streams.
    pub(crate) async fn attach(&self) -> io::Result<UnixStream> {
        self.request(&Request::Attach).await
    }

    /// Runs a program in the container. Frames go both ways until an outcome.
    pub(crate) async fn exec(&self, exec: Exec) -> io::Result<UnixStream> {
        self.request(&Request::Exec(exec)).await
    }

    /// Runs a command in the container, and returns its end and the beginning of its output. Dropped, it ends the
    /// command.
    pub(crate) async fn run(&self, argv: Vec<String>) -> io::Result<Output> {
        let exec = Exec { argv, stdin: false, tty: false, ends_with_client: true };
        let mut stream = self.exec(exec).await?;
        let mut text = Vec::new();
        while let Some((channel, bytes)) = frames::read(&mut stream).await? {
            match channel {
                channel::STDOUT | channel::STDERR => {
                    let room = OUTPUT_BYTES_MAX - text.len();
                    text.extend(&bytes[..bytes.len().min(room)]);
                }
                channel::OUTCOME => {
                    return match serde_json::from_slice(&bytes)? {
                        Outcome::Exited(code) => {
                            Ok(Output { code, text: String::from_utf8_lossy(&text).into_owned() })
                        }
                        Outcome::Error(error) => Err(io::Error::other(error)),
                    };
                }
                _ => {}
            }
        }
        Err(io::Error::other("the container ended"))
    }

    async fn request(&self, request: &Request) -> io::Result<UnixStream> {
        let mut stream = frames::connect(&self.id).map_err(|error| match error.kind() {
            io::ErrorKind::ConnectionRefused => io::Error::other("the container has ended"),
            _ => error,
        })?;
        frames::write(&mut stream, channel::REQUEST, &serde_json::to_vec(request)?).await?;
        Ok(stream)
    }
}
