//! Running orlop and etcdctl.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use orlop_testbed::debian;

/// The program under test.
pub(crate) const ORLOP: &str = env!("CARGO_BIN_EXE_orlop");

/// A running `orlop etcd`, killed when dropped.
pub(crate) struct Orlop {
    child: Child,
    pub(crate) url: String,
}

impl Orlop {
    /// Starts a server, on a free port unless given one, and waits until it prints its address.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(ORLOP);
        command.arg("etcd");
        if !arguments.contains(&"--listen-address") {
            command.args(["--listen-address", "127.0.0.1:0"]);
        }
        let mut child = command.args(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = lines.next().expect("orlop starts").unwrap();
        let url = first.split_whitespace().nth(3).expect("an address on the first line").to_owned();
        // Drain the pipe, so that the server never blocks on it.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, url }
    }

    /// Starts a server on a SQLite file.
    pub(crate) fn on(file: &Path) -> Self {
        Self::start(&["--endpoint", &format!("sqlite://{}", file.display())])
    }

    /// Kills it with SIGKILL.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Stops it with SIGTERM. Returns whether it exited with success within ten seconds.
    pub(crate) fn stop(mut self) -> bool {
        assert!(Command::new("kill").arg(self.child.id().to_string()).status().unwrap().success());
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(10) {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.success();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    }

    pub(crate) fn ctl(&self) -> Ctl {
        Ctl::new(&self.url)
    }
}

impl Drop for Orlop {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// etcdctl for one endpoint.
#[derive(Clone)]
pub(crate) struct Ctl {
    program: PathBuf,
    flags: Vec<String>,
}

impl Ctl {
    pub(crate) fn new(url: &str) -> Self {
        let program = debian::etcd().unwrap().join("etcdctl");
        Self { program, flags: vec![format!("--endpoints={url}")] }
    }

    pub(crate) fn with(mut self, flag: String) -> Self {
        self.flags.push(flag);
        self
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command.arg("20").arg(&self.program).args(&self.flags).args(arguments);
        command
    }

    /// Runs it. Returns its output.
    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        text(&self.command(arguments).output().unwrap(), arguments)
    }

    /// Runs it with standard input. Returns its output.
    pub(crate) fn ok_with(&self, arguments: &[&str], input: &str) -> String {
        use std::io::Write;
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        text(&child.wait_with_output().unwrap(), arguments)
    }

    /// Runs it, expecting a failure. Returns its errors.
    pub(crate) fn fails(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().unwrap();
        assert!(!output.status.success(), "{arguments:?} succeeded");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// Runs it until it has printed `count` lines. Returns them.
    pub(crate) fn lines(&self, arguments: &[&str], count: usize) -> Vec<String> {
        let mut running = Background::start(self, arguments);
        (0..count).map(|_| running.line()).collect()
    }

    pub(crate) fn json(&self, arguments: &[&str]) -> serde_json::Value {
        serde_json::from_str(&self.ok(&[arguments, &["-w", "json"]].concat())).unwrap()
    }
}

fn text(output: &Output, arguments: &[&str]) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {error}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// A program that prints lines, killed when dropped.
pub(crate) struct Background {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Background {
    pub(crate) fn start(ctl: &Ctl, arguments: &[&str]) -> Self {
        let mut child = ctl.command(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    pub(crate) fn line(&mut self) -> String {
        self.lines.next().expect("another line").unwrap()
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // `timeout` forwards SIGTERM to its program, but not SIGKILL.
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let _ = self.child.wait();
    }
}
