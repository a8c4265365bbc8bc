//! `orlop-aws run` as a process of its own, which can be killed.

use std::{
    fs::File,
    path::Path,
    process::{Child, Command, Stdio},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use kube::client::Body;
use serde_json::json;
use tempfile::TempDir;
use tokio::{net::TcpListener, task::JoinHandle};

/// The way of processes to a server in this one: plain HTTP on loopback, and a kubeconfig that names it.
pub(crate) struct Gateway {
    folder: TempDir,
    task: JoinHandle<()>,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn pass(client: kube::Client, request: Request<Incoming>) -> std::io::Result<Response<Body>> {
    let (parts, body) = request.into_parts();
    let body: Bytes = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
    client.send(Request::from_parts(parts, Body::from(body))).await.map_err(std::io::Error::other)
}

impl Gateway {
    /// Starts to serve a client's server.
    pub(crate) async fn start(client: &kube::Client) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let server = format!("http://{}", listener.local_addr().expect("an address"));
        let folder = tempfile::tempdir().expect("a folder");
        let config = json!({"apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": server}}], "users": [{"name": "test", "user": {}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}]});
        std::fs::write(folder.path().join("kubeconfig"), config.to_string()).expect("a kubeconfig");
        let client = client.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let client = client.clone();
                tokio::spawn(async move {
                    let service = service_fn(move |request| pass(client.clone(), request));
                    drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
                });
            }
        });
        Self { folder, task }
    }

    /// Returns what processes have logged so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder().join("log")).unwrap_or_default()
    }

    fn folder(&self) -> &Path {
        self.folder.path()
    }
}

/// A running `orlop-aws run`. Killed when dropped.
pub(crate) struct Process(Child);

impl Process {
    /// Starts the program for some kinds and an account, whose key is 12 digits.
    pub(crate) fn start(gateway: &Gateway, endpoint: &str, account: &str, more: &[&str]) -> Self {
        let log =
            File::options().create(true).append(true).open(gateway.folder().join("log")).expect("a log");
        let child = Command::new(env!("CARGO_BIN_EXE_orlop-aws"))
            .args(["run", "--aws-region", "us-east-1", "--aws-endpoint-url", endpoint])
            .args(["--allow-unsafe-aws-endpoint-urls", "--no-leader-election", "--call-rate-scale", "0"])
            .args(["--wait-scale", "0.02", "--healthz-addr", ""])
            .args(more)
            .env("KUBECONFIG", gateway.folder().join("kubeconfig"))
            .env("AWS_ACCESS_KEY_ID", account)
            .env("AWS_SECRET_ACCESS_KEY", "test")
            .env("AWS_EC2_METADATA_DISABLED", "true")
            .env("RUST_LOG", "debug")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("orlop-aws");
        Self(child)
    }

    /// Kills the process with SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.0.kill().expect("a signal");
        self.0.wait().expect("its end");
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.0.try_wait().expect("its state").is_none()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
