//! Simulators as children of this process.

use std::{
    io::Write as _,
    net::TcpListener,
    process::{Child, Command, Stdio},
    sync::OnceLock,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use serde_json::Value;

/// Ends with its standard input, so that no simulator outlives the tests, however they end.
const GUARD: &str = "import os, sys, threading\n\
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()\n";

/// An account of a running simulator.
#[derive(Debug)]
pub(crate) struct Simulator {
    pub(crate) address: String,
    /// Access key id, which selects an account of ministack.
    pub(crate) key: String,
    // Keeps its standard input open.
    _child: Option<Child>,
}

#[expect(clippy::zombie_processes, reason = "it runs as long as this process does, and ends with it")]
fn start(program: &str, arguments: &[&str], variables: &[(&str, &str)], port: u16, ready: &str) -> Simulator {
    let python = orlop_testbed::python::aws_simulators().expect("Python with the simulators");
    let mut child = Command::new(python)
        .arg("-c")
        .arg(format!("{GUARD}{program}"))
        .args(arguments)
        .envs(variables.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("a simulator");
    if let Some(input) = child.stdin.as_mut() {
        input.flush().expect("a pipe");
    }
    let deadline = Instant::now() + Duration::from_secs(120);
    let request = format!("GET {ready} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    loop {
        assert!(Instant::now() < deadline, "the simulator does not start");
        let answered = std::net::TcpStream::connect(("127.0.0.1", port)).is_ok_and(|mut stream| {
            let mut answer = String::new();
            let sent = stream.write_all(request.as_bytes());
            sent.is_ok()
                && std::io::Read::read_to_string(&mut stream, &mut answer).is_ok()
                && answer.contains(" 200 ")
        });
        if answered {
            let address = format!("http://127.0.0.1:{port}");
            return Simulator { address, key: "test".to_owned(), _child: Some(child) };
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    listener.local_addr().expect("an address").port()
}

/// Returns moto, which all tests share.
pub(crate) fn moto() -> &'static Simulator {
    static MOTO: OnceLock<Simulator> = OnceLock::new();
    MOTO.get_or_init(|| {
        let port = free_port();
        let text = port.to_string();
        let program = "from moto.server import main\nmain(sys.argv[1:])";
        let variables = [("MOTO_ACM_VALIDATION_WAIT", "1"), ("MOTO_IAM_LOAD_MANAGED_POLICIES", "true")];
        start(program, &["-H", "127.0.0.1", "-p", &text], &variables, port, "/moto-api/data.json")
    })
}

fn start_ministack(more: &[(&str, &str)]) -> Simulator {
    let port = free_port();
    let text = port.to_string();
    let mut variables = vec![("BIND_HOST", "127.0.0.1"), ("GATEWAY_PORT", text.as_str())];
    variables.extend(more);
    let program = "from ministack.app import main\nsys.argv = sys.argv[:1]\nmain()";
    start(program, &[], &variables, port, "/_ministack/health")
}

/// Returns an account of ministack, which all tests share. An account is 12 digits and begins empty.
pub(crate) fn ministack(account: &str) -> Simulator {
    static MINISTACK: OnceLock<Simulator> = OnceLock::new();
    MINISTACK.get_or_init(|| start_ministack(&[])).of(account)
}

/// Returns an account of a ministack that checks signatures and evaluates IAM policies, seen by its root user.
pub(crate) fn enforcing(account: &str) -> Simulator {
    static ENFORCING: OnceLock<Simulator> = OnceLock::new();
    ENFORCING.get_or_init(|| start_ministack(&[("AUTH", "true")])).of(account)
}

impl Simulator {
    /// Returns another account of the same simulator.
    fn of(&self, account: &str) -> Self {
        Self { address: self.address.clone(), key: account.to_owned(), _child: None }
    }

    /// Returns a server that answers plain requests.
    pub(crate) fn server(address: String) -> Self {
        Self { address, key: String::new(), _child: None }
    }

    /// Sends a request of a service as anybody: simulators check no signature.
    pub(crate) async fn send(
        &self,
        service: &str,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> (u16, String) {
        let scope = format!("Credential={}/20200101/us-east-1/{service}/aws4_request", self.key);
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.address))
            .header("authorization", format!("AWS4-HMAC-SHA256 {scope}, SignedHeaders=host, Signature=0"))
            .header("x-amz-date", "20200101T000000Z");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(Bytes::from(body.to_owned()))).expect("a request");
        let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
        let answer = client.request(request).await.expect("an answer");
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.expect("a body").to_bytes();
        (status, String::from_utf8_lossy(&body).into_owned())
    }

    /// Calls a service with form parameters.
    pub(crate) async fn query(&self, service: &str, parameters: &str) -> (u16, String) {
        let form = [("content-type", "application/x-www-form-urlencoded")];
        self.send(service, "POST", "/", &form, parameters).await
    }

    /// Calls a service with JSON and a target.
    pub(crate) async fn json(&self, service: &str, target: &str, body: Value) -> (u16, Value) {
        let headers = [("x-amz-target", target), ("content-type", "application/x-amz-json-1.1")];
        let (status, body) = self.send(service, "POST", "/", &headers, &body.to_string()).await;
        (status, serde_json::from_str(&body).unwrap_or_default())
    }

    /// Calls a service with JSON and paths.
    pub(crate) async fn rest(
        &self,
        service: &str,
        method: &str,
        path: &str,
        body: Option<Value>,
    ) -> (u16, Value) {
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let (status, body) =
            self.send(service, method, path, &[("content-type", "application/json")], &body).await;
        (status, serde_json::from_str(&body).unwrap_or_default())
    }
}
