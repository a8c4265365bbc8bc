//! The release build, as a user would try it: kubectl against `orlop serve` on SQLite and on PostgreSQL.
//!
//! Tests run on debug builds, which are slower: a hang of the release build once lived there unseen.

use std::{
    fmt::Write as _,
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use orlop_testbed::Cluster;

use crate::steps::{cargo, root};

/// Far longer than anything here takes.
const DEADLINE: Duration = Duration::from_secs(60);
const OBJECTS: usize = 200;

const DEFINITION: &str = "\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: lamps.smoke.example.com}
spec:
  group: smoke.example.com
  scope: Namespaced
  names: {plural: lamps, singular: lamp, kind: Lamp}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties: {watts: {type: integer, maximum: 100}}
";
const LAMP: &str = "\
apiVersion: smoke.example.com/v1
kind: Lamp
metadata: {name: desk}
spec: {watts: 40}
";
const BRIGHT_LAMP: &str = "\
apiVersion: smoke.example.com/v1
kind: Lamp
metadata: {name: sun}
spec: {watts: 400}
";

/// Builds the release profile as the README's first command does.
pub(crate) fn build() -> Result<(), String> {
    cargo(&["build", "--release", "--quiet"])
}

/// Runs the release build on both engines.
pub(crate) fn run() -> Result<(), String> {
    let kubectl = orlop_testbed::debian::kubectl()?;
    println!("    SQLite");
    let folder = std::env::temp_dir().join(format!("orlop-smoke-{}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let file = format!("sqlite://{}", folder.join("orlop.db").display());
    let outcome = try_server(&kubectl, &file);
    let _ = std::fs::remove_dir_all(&folder);
    outcome?;
    println!("    PostgreSQL");
    let cluster = Cluster::start()?;
    try_server(&kubectl, &cluster.url(&cluster.create_database()?))
}

fn try_server(kubectl: &Path, endpoint: &str) -> Result<(), String> {
    let server = Server::start(kubectl, endpoint, &[])?;
    server.kubectl(&["create", "namespace", "smoke"], "")?;
    // The service account is a controller's work.
    server
        .until(&["-n", "smoke", "get", "serviceaccount", "default"], |output| output.contains("default"))?;
    server.kubectl(&["-n", "smoke", "apply", "-f", "-"], &config_maps())?;
    let names = server.kubectl(&["-n", "smoke", "get", "configmaps", "-l", "set=smoke", "-o", "name"], "")?;
    if names.lines().count() != OBJECTS {
        return Err(format!("{} of {OBJECTS} ConfigMaps are listed", names.lines().count()));
    }
    server.kubectl(&["apply", "-f", "-"], DEFINITION)?;
    server.kubectl(&["-n", "smoke", "apply", "-f", "-"], LAMP)?;
    match server.kubectl(&["-n", "smoke", "apply", "-f", "-"], BRIGHT_LAMP) {
        Err(refusal) if refusal.contains("should be less than or equal to 100") => {}
        other => return Err(format!("a lamp that its schema forbids: {other:?}")),
    }
    let explained = server.kubectl(&["explain", "pod.spec.containers.image"], "")?;
    if !explained.contains("Container image name") {
        return Err(format!("kubectl explain has no descriptions: {explained}"));
    }
    server.kubectl(&["delete", "namespace", "smoke", "--timeout=50s"], "")?;
    server.kubectl(&["get", "--raw", "/readyz"], "").map(drop)
}

fn config_maps() -> String {
    (0..OBJECTS).fold(String::new(), |mut text, index| {
        let _ = writeln!(
            text,
            "---\n{{apiVersion: v1, kind: ConfigMap, metadata: {{name: c{index}, labels: {{set: smoke}}}}}}"
        );
        text
    })
}

/// A running release build, stopped when dropped.
pub(crate) struct Server {
    process: Child,
    kubectl: PathBuf,
    kubeconfig: String,
}

impl Server {
    pub(crate) fn start(kubectl: &Path, endpoint: &str, options: &[&str]) -> Result<Self, String> {
        let program = release_program("orlop");
        let mut process = Command::new(&program)
            .args(["serve", "--ephemeral", "--endpoint", endpoint])
            .args(options)
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{}: {error}", program.display()))?;
        let output = process.stdout.take();
        let mut server = Self { process, kubectl: kubectl.to_owned(), kubeconfig: String::new() };
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || {
            let mut line = String::new();
            if let Some(output) = output {
                let _ = BufReader::new(output).read_line(&mut line);
            }
            let _ = sender.send(line);
        });
        let line = receiver.recv_timeout(DEADLINE).map_err(|_| "the server is not ready".to_owned())?;
        // {"server": "https://127.0.0.1:PORT", "kubeconfig": "PATH"}
        let path = line.split_once("\"kubeconfig\"").and_then(|(_, rest)| rest.split('"').nth(1));
        server.kubeconfig = path.ok_or_else(|| format!("the server said {line:?}"))?.to_owned();
        Ok(server)
    }

    /// Returns the folder of its keys and tokens.
    pub(crate) fn folder(&self) -> &Path {
        Path::new(&self.kubeconfig).parent().unwrap_or(Path::new("."))
    }

    /// Runs kubectl; returns what it printed.
    pub(crate) fn kubectl(&self, arguments: &[&str], input: &str) -> Result<String, String> {
        let mut command = Command::new("timeout");
        let seconds = DEADLINE.as_secs().to_string();
        command.arg(seconds).arg(&self.kubectl).args(["--kubeconfig", &self.kubeconfig]);
        command.args(["--cache-dir", &format!("{}.cache", self.kubeconfig)]).args(arguments);
        let (success, output) = run_with_input(&mut command, input)?;
        if success { Ok(output) } else { Err(format!("kubectl {}: {output}", arguments.join(" "))) }
    }

    /// Runs kubectl until it prints what is wanted.
    fn until(&self, arguments: &[&str], wanted: impl Fn(&str) -> bool) -> Result<(), String> {
        let deadline = Instant::now() + DEADLINE;
        loop {
            match self.kubectl(arguments, "") {
                Ok(output) if wanted(&output) => return Ok(()),
                last if Instant::now() > deadline => return Err(format!("still {last:?}")),
                _ => thread::sleep(Duration::from_millis(50)),
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn run_with_input(command: &mut Command, input: &str) -> Result<(bool, String), String> {
    let failed = |error: std::io::Error| format!("kubectl could not be run: {error}");
    let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = pipes.spawn().map_err(failed)?;
    if let Some(mut pipe) = process.stdin.take() {
        pipe.write_all(input.as_bytes()).map_err(failed)?;
    }
    let output = process.wait_with_output().map_err(failed)?;
    let text = [output.stdout, output.stderr].concat();
    Ok((output.status.success(), String::from_utf8_lossy(&text).trim().to_owned()))
}

/// Returns where cargo puts a program of the release profile.
pub(crate) fn release_program(name: &str) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    target.join("release").join(name)
}
