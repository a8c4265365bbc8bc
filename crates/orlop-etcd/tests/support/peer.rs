//! A real etcd, stopped on drop.

use std::{
    net::TcpListener,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use orlop_testbed::debian;

/// A running etcd of Debian's, on a loopback port, with its data in a temporary folder.
#[derive(Debug)]
pub(crate) struct Peer {
    process: Child,
    /// The client URL.
    pub(crate) url: String,
    _folder: tempfile::TempDir,
}

impl Peer {
    /// Starts an etcd and waits until it listens.
    pub(crate) fn start(arguments: &[&str]) -> Result<Self, String> {
        let program = debian::etcd()?.join("etcd");
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let (client, peer) = (free_port()?, free_port()?);
        let url = format!("http://127.0.0.1:{client}");
        let peer = format!("http://127.0.0.1:{peer}");
        let process = Command::new(&program)
            .arg("--data-dir")
            .arg(folder.path().join("data"))
            .args(["--listen-client-urls", &url, "--advertise-client-urls", &url])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("default={peer}"), "--log-level", "error"])
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("{}: {error}", program.display()))?;
        let started = Self { process, url, _folder: folder };
        let begun = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", client)).is_err() {
            if begun.elapsed() > Duration::from_secs(20) {
                return Err(format!("{} does not listen on {}", program.display(), started.url));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(started)
    }

    /// Its process.
    #[allow(dead_code, reason = "benchmarks look at its memory, tests do not")]
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns a free port.
pub(crate) fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    listener.local_addr().map(|address| address.port()).map_err(|error| error.to_string())
}
