//! Servers for tests, and kubectl to talk to them.

#![allow(dead_code, reason = "each test program uses its part")]

pub(crate) mod daemon;
pub(crate) mod kubelet;

use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;

/// Returns the path of kubectl.
pub(crate) fn kubectl() -> PathBuf {
    orlop_testbed::debian::kubectl().expect("kubectl")
}

/// Runs kubectl. Returns whether it succeeded, and its output and errors.
pub(crate) fn run_kubectl(
    kubectl: &Path,
    kubeconfig: &Path,
    arguments: &[&str],
    input: &str,
    environment: &[(&str, &str)],
) -> (bool, String) {
    let mut process = Command::new(kubectl)
        .arg("--kubeconfig")
        .arg(kubeconfig)
        // Each server is new: another's discovery must not be cached.
        .args(["--cache-dir", &format!("{}.cache", kubeconfig.display())])
        .args(arguments)
        .envs(environment.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("kubectl starts");
    process.stdin.take().expect("its input").write_all(input.as_bytes()).expect("the input");
    let output = process.wait_with_output().expect("kubectl ends");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).trim().to_owned())
}

/// `orlop serve --ephemeral`, stopped when dropped.
pub(crate) struct Server {
    process: Child,
    kubeconfig: PathBuf,
    kubectl: PathBuf,
    ready: Value,
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a server with more options.
    pub(crate) fn start_with(options: &[&str]) -> Self {
        // Another program can be used instead, to check that these tests expect what Kubernetes does.
        let program = std::env::var_os("ORLOP_TEST_SERVER").unwrap_or(env!("CARGO_BIN_EXE_orlop").into());
        Self::start_command(Command::new(program), options)
    }

    /// Starts a server by a command that takes the arguments of one.
    pub(crate) fn start_command(mut command: Command, options: &[&str]) -> Self {
        let kubectl = kubectl();
        let mut process = command
            .args(["serve", "--ephemeral"])
            .args(options)
            .stdout(Stdio::piped())
            .spawn()
            .expect("orlop starts");
        let mut line = String::new();
        BufReader::new(process.stdout.take().expect("its output")).read_line(&mut line).expect("a line");
        let ready: Value = serde_json::from_str(&line).expect("one line of JSON");
        let kubeconfig = PathBuf::from(ready["kubeconfig"].as_str().expect("a kubeconfig"));
        Self { process, kubeconfig, kubectl, ready }
    }

    /// Returns the line that it printed when it was ready.
    pub(crate) fn ready(&self) -> &Value {
        &self.ready
    }

    /// Returns the path of the administrator's kubeconfig.
    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Returns its process.
    pub(crate) fn process(&mut self) -> &mut Child {
        &mut self.process
    }

    /// Runs kubectl. Returns whether it succeeded, and its output and errors.
    pub(crate) fn run(&self, arguments: &[&str], input: &str) -> (bool, String) {
        self.run_with(arguments, input, &[])
    }

    /// Runs kubectl with additional environment variables.
    pub(crate) fn run_with(
        &self,
        arguments: &[&str],
        input: &str,
        environment: &[(&str, &str)],
    ) -> (bool, String) {
        run_kubectl(&self.kubectl, &self.kubeconfig, arguments, input, environment)
    }

    /// Runs kubectl, which must succeed. Returns its output.
    #[track_caller]
    pub(crate) fn kubectl(&self, arguments: &[&str]) -> String {
        self.with_input(arguments, "")
    }

    #[track_caller]
    pub(crate) fn with_input(&self, arguments: &[&str], input: &str) -> String {
        let (success, output) = self.run(arguments, input);
        assert!(success, "kubectl {arguments:?}: {output}");
        output
    }

    /// Runs kubectl, which must fail. Returns its errors.
    #[track_caller]
    pub(crate) fn refused(&self, arguments: &[&str], input: &str) -> String {
        let (success, output) = self.run(arguments, input);
        assert!(!success, "kubectl {arguments:?} was not refused: {output}");
        output
    }

    /// Runs kubectl until its output is as wanted.
    #[track_caller]
    pub(crate) fn eventually(&self, arguments: &[&str], wanted: impl Fn(&str) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(120);
        loop {
            let (_, output) = self.run(arguments, "");
            if wanted(&output) {
                return;
            }
            assert!(Instant::now() < deadline, "kubectl {arguments:?} still says: {output}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
