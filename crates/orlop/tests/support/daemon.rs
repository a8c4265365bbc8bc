//! `orlop serve` with a data directory, as a user runs it.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Output, Stdio},
    time::{Duration, Instant},
};

use super::{kubectl, run_kubectl};

/// A running server, killed when dropped.
pub(crate) struct Daemon {
    process: Child,
    // Open for as long as the process runs: printing to a closed pipe would end it.
    _output: BufReader<ChildStdout>,
    /// Output when it was ready.
    pub(crate) screen: String,
    pub(crate) data_dir: PathBuf,
}

/// Returns the command that serves a data directory on a free port, with a umask of 0.
fn command(data_dir: &Path, options: &[&str]) -> Command {
    let listen: &[&str] = if options.contains(&"--listen") { &[] } else { &["--listen", "127.0.0.1:0"] };
    let mut command = Command::new("sh");
    command
        .args(["-c", "umask 0; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_orlop"), "serve"])
        .args(listen)
        .arg("--data-dir")
        .arg(data_dir)
        .args(options)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

impl Daemon {
    #[track_caller]
    pub(crate) fn start(data_dir: &Path, options: &[&str]) -> Self {
        Self::try_start(data_dir, options).expect("it starts")
    }

    /// Starts a server. `None` if it exits instead.
    pub(crate) fn try_start(data_dir: &Path, options: &[&str]) -> Option<Self> {
        let mut process = command(data_dir, options).stderr(Stdio::inherit()).spawn().expect("orlop starts");
        let mut output = BufReader::new(process.stdout.take().expect("its output"));
        let mut screen = String::new();
        while !screen.contains("get namespaces\n") {
            if output.read_line(&mut screen).expect("a line") == 0 {
                process.wait().expect("it ends");
                return None;
            }
        }
        Some(Self { process, _output: output, screen, data_dir: data_dir.to_owned() })
    }

    /// Runs a server that must refuse to start. Returns what it says.
    #[track_caller]
    pub(crate) fn refused(data_dir: &Path, options: &[&str]) -> String {
        let output: Output = command(data_dir, options).output().expect("orlop runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "it was not refused: {said}");
        said
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Stops it with SIGTERM; it must exit with success.
    #[track_caller]
    pub(crate) fn stop(mut self) {
        Command::new("kill").arg(self.process.id().to_string()).status().expect("kill");
        assert!(self.process.wait().expect("it ends").success());
    }

    /// Kills it.
    pub(crate) fn kill(mut self) {
        self.process.kill().expect("killed");
        self.process.wait().expect("it ends");
    }

    /// Returns its address.
    pub(crate) fn url(&self) -> &str {
        self.screen.split_whitespace().find(|word| word.starts_with("https://")).expect("its address")
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.data_dir.join("kubeconfig")
    }

    /// Runs kubectl with a kubeconfig that is not necessarily this server's, at this server's address.
    pub(crate) fn kubectl_with(&self, kubeconfig: &Path, arguments: &[&str]) -> (bool, String) {
        self.run_kubectl(kubeconfig, arguments, "")
    }

    pub(crate) fn run_kubectl(&self, kubeconfig: &Path, arguments: &[&str], input: &str) -> (bool, String) {
        let options = [&["--server", self.url()], arguments].concat();
        run_kubectl(&kubectl(), kubeconfig, &options, input, &[])
    }

    #[track_caller]
    pub(crate) fn kubectl(&self, arguments: &[&str]) -> String {
        self.with_input(arguments, "")
    }

    #[track_caller]
    pub(crate) fn with_input(&self, arguments: &[&str], input: &str) -> String {
        let (success, output) = self.run_kubectl(&self.kubeconfig(), arguments, input);
        assert!(success, "kubectl {arguments:?}: {output}");
        output
    }
}

impl Daemon {
    /// Runs kubectl until it says what is wanted. Returns the time that took.
    #[track_caller]
    pub(crate) fn eventually(&self, arguments: &[&str], wanted: impl Fn(&str) -> bool) -> Duration {
        let began = Instant::now();
        loop {
            let (_, said) = self.kubectl_with(&self.kubeconfig(), arguments);
            if wanted(&said) {
                return began.elapsed();
            }
            assert!(began.elapsed() < Duration::from_secs(120), "kubectl {arguments:?} still says: {said}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Daemon {
    /// Takes a step of the rotation of a key, while the server runs. Returns what `orlop rotate` says.
    #[track_caller]
    pub(crate) fn rotate(&self, key: &str) -> String {
        let output = Command::new(env!("CARGO_BIN_EXE_orlop"))
            .args(["rotate", key, "--data-dir"])
            .arg(&self.data_dir)
            .output()
            .expect("orlop runs");
        let said = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
        String::from_utf8_lossy(&said).into_owned()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
