//! A server with a node, and programs for its pods.

use std::{
    io::{Read, Write},
    net::TcpStream,
    ops::{Deref, DerefMut},
    process::Command,
    time::{Duration, Instant},
};

use crate::support::Server;

/// A server of HTTP that ends well: it answers what it has accepted.
const WEB: &str = r#"
import http.server, os, signal, threading
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = (os.environ.get("VERSION", "1") + " " + os.environ["HOSTNAME"] + "\n").encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *arguments):
        pass
server = http.server.ThreadingHTTPServer((os.environ["POD_IP"], 8080), Handler)
server.daemon_threads = False
# Connections that were forwarded before the endpoint went may still wait to be accepted: those would be reset.
signal.signal(signal.SIGTERM, lambda *_: threading.Timer(1, server.shutdown).start())
server.serve_forever()
server.server_close()
"#;

/// A server with a node. When it is dropped, no process of its containers may be left.
pub(crate) struct Cluster {
    server: Option<Server>,
    /// Variable that every container of this server has, and no other process.
    mark: String,
}

/// Databases below a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    Sqlite,
    PostgreSql,
}

/// Starts a server with a node, on the engine of the test.
pub(crate) fn cluster(options: &[&str]) -> Cluster {
    cluster_on(engine(), options)
}

/// Starts a server with a node on an engine: SQLite in memory, or a database of a shared PostgreSQL.
pub(crate) fn cluster_on(engine: Engine, options: &[&str]) -> Cluster {
    let mut options = [&["--node", "--node-name", "n1"], options].concat();
    let endpoint = (engine == Engine::PostgreSql).then(|| {
        let postgresql = orlop_testbed::Cluster::shared().expect("PostgreSQL");
        postgresql.url(&postgresql.create_database().expect("a database"))
    });
    if let Some(endpoint) = &endpoint {
        options.extend(["--endpoint", endpoint]);
    }
    Cluster::of(Server::start_with(&options))
}

/// Returns the engine of a test. `ORLOP_TEST_ENGINE` (postgresql, sqlite) decides for all tests. Otherwise every other test,
/// by its name, runs on PostgreSQL: both engines are covered in the time of one.
fn engine() -> Engine {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or_default();
    let is_postgresql = match std::env::var("ORLOP_TEST_ENGINE").as_deref() {
        Ok("postgresql") => true,
        Ok("sqlite") => false,
        Ok(other) => panic!("ORLOP_TEST_ENGINE is postgresql or sqlite, not {other:?}"),
        Err(_) => name.bytes().map(u32::from).sum::<u32>().is_multiple_of(2),
    };
    if is_postgresql { Engine::PostgreSql } else { Engine::Sqlite }
}

impl Cluster {
    pub(crate) fn of(server: Server) -> Self {
        server.eventually(&["get", "nodes", "--no-headers"], |output| output.contains("Ready"));
        let address = server.kubectl(&["get", "service", "kubernetes", "-o", "jsonpath={.spec.clusterIP}"]);
        Self { server: Some(server), mark: format!("KUBERNETES_SERVICE_HOST={address}") }
    }

    /// Returns the processes of the containers that run on this server's node.
    pub(crate) fn processes(&self) -> Vec<String> {
        container_processes(&self.mark)
    }

    /// Creates an object of YAML.
    #[track_caller]
    pub(crate) fn create(&self, manifest: &str) {
        // Without a separator kubectl takes a brace for the beginning of JSON.
        self.with_input(&["create", "-f", "-"], &format!("---\n{manifest}"));
    }

    /// Waits until a pod is ready.
    #[track_caller]
    pub(crate) fn ready(&self, pod: &str) {
        self.kubectl(&["wait", "--for=condition=Ready", &format!("pod/{pod}"), "--timeout=60s"]);
    }

    /// Returns a field of a pod.
    #[track_caller]
    pub(crate) fn field(&self, pod: &str, path: &str) -> String {
        self.kubectl(&["get", "pod", pod, "-o", &format!("jsonpath={{{path}}}")])
    }

    /// Waits until a field of a pod has a value.
    #[track_caller]
    pub(crate) fn wait_for(&self, pod: &str, path: &str, value: &str) {
        self.eventually(&["get", "pod", pod, "-o", &format!("jsonpath={{{path}}}")], |found| found == value);
    }

    /// Returns the messages of events with a reason.
    #[track_caller]
    pub(crate) fn events(&self, reason: &str) -> String {
        let selector = format!("--field-selector=reason={reason}");
        self.kubectl(&["get", "events", &selector, "-o", "jsonpath={.items[*].message}"])
    }
}

impl DerefMut for Cluster {
    fn deref_mut(&mut self) -> &mut Server {
        self.server.as_mut().expect("a server until it is dropped")
    }
}

impl Deref for Cluster {
    type Target = Server;

    fn deref(&self) -> &Server {
        self.server.as_ref().expect("a server until it is dropped")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.server.take());
        if std::thread::panicking() {
            return;
        }
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let left = container_processes(&self.mark);
            if left.is_empty() {
                return;
            }
            assert!(Instant::now() < deadline, "processes of containers are left behind: {left:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Returns the command lines of processes with a variable in their environment.
pub(crate) fn container_processes(variable: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("/proc").flatten() {
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        if environment.split(|byte| *byte == 0).any(|known| known == variable.as_bytes()) {
            let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            found.push(String::from_utf8_lossy(&command).replace('\0', " "));
        }
    }
    found
}

/// Returns a folder of images with the web server.
pub(crate) fn web_image() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let image = folder.path().join("web");
    std::fs::create_dir(&image).expect("a folder");
    std::fs::write(image.join("web.py"), WEB).expect("a program");
    let program = image.join("web.py").display().to_string();
    let python =
        Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output().expect("python3");
    let python = String::from_utf8(python.stdout).expect("a path");
    let manifest = format!("entrypoint: [{}, {program}]\n", python.trim());
    std::fs::write(image.join("image.yaml"), manifest).expect("a manifest");
    folder
}

pub(crate) fn pod(name: &str, spec: &str) -> String {
    format!("---\n{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {spec}}}")
}

/// Asks for a page. `None` if no complete answer came.
pub(crate) fn get(address: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.starts_with("HTTP/1.0 200").then(|| body.to_owned())
}
