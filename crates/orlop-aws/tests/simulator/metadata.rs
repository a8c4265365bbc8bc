//! Endpoints that give credentials to containers and instances.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::{net::TcpListener, task::JoinHandle};

/// Token that a container must send.
pub(crate) const TOKEN: &str = "pod-identity-token";
/// Secrets, which no log, event or status may have.
pub(crate) const SECRET: &str = "hidden-secret-key";

/// A running endpoint. It ends when it is dropped.
pub(crate) struct Metadata {
    pub(crate) address: String,
    requests: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Drop for Metadata {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Metadata {
    /// Starts an endpoint for credentials of an account that expire at a time.
    pub(crate) async fn start(account: &'static str, expiration: &'static str) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let address = format!("http://{}", listener.local_addr().expect("an address"));
        let requests = Arc::new(Mutex::new(Vec::new()));
        let noted = requests.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let noted = noted.clone();
                tokio::spawn(async move {
                    let service = service_fn(move |request| {
                        noted.lock().expect("requests").push(format!(
                            "{} {}",
                            request.method(),
                            request.uri().path()
                        ));
                        let answer = answer(&request, account, expiration);
                        async move { Ok::<_, std::io::Error>(answer) }
                    });
                    drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
                });
            }
        });
        Self { address, requests, task }
    }

    /// Returns how often a path was asked for.
    pub(crate) fn count(&self, request: &str) -> usize {
        self.requests.lock().expect("requests").iter().filter(|known| *known == request).count()
    }
}

fn answer(request: &Request<Incoming>, account: &str, expiration: &str) -> Response<Full<Bytes>> {
    let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
    let credentials = || {
        json!({"AccessKeyId": account, "SecretAccessKey": SECRET, "Token": "session", "Expiration": expiration})
            .to_string()
    };
    let of_session = header("x-aws-ec2-metadata-token") == Some("imds-session");
    let roles = "/latest/meta-data/iam/security-credentials/";
    let body = match (request.method().as_str(), request.uri().path()) {
        ("GET", "/v1/credentials") if header("authorization") == Some(TOKEN) => Some(credentials()),
        ("PUT", "/latest/api/token") if header("x-aws-ec2-metadata-token-ttl-seconds").is_some() => {
            Some("imds-session".to_owned())
        }
        ("GET", path) if of_session && path == roles => Some("node-role".to_owned()),
        ("GET", path) if of_session && path == format!("{roles}node-role") => Some(credentials()),
        _ => None,
    };
    let status = if body.is_some() { 200 } else { 401 };
    let body = Full::new(Bytes::from(body.unwrap_or_default()));
    Response::builder().status(status).body(body).expect("an answer")
}
