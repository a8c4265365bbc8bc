//! Calls to webhooks: JSON over HTTPS, to a URL or to a service of the cluster.

mod handshake;
mod service;

use std::{
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use orlop_crd::WebhookTarget;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::storage::ObjectStore;

/// Maximum bytes of a response.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Maximum idle connections.
const IDLE_MAX: usize = 4;

type Connection = SendRequest<Full<Bytes>>;

/// A client of one webhook.
#[derive(Debug)]
pub(crate) struct Webhook {
    target: WebhookTarget,
    /// PEM; empty to trust the system's CAs.
    ca_bundle: Vec<u8>,
    tls: OnceLock<Arc<ClientConfig>>,
    idle: Mutex<Vec<Connection>>,
}

/// Address of a call.
struct Address {
    /// Host to connect to.
    host: String,
    port: u16,
    /// Expected name in the certificate.
    server: String,
    path: String,
}

impl Webhook {
    pub(crate) fn new(target: WebhookTarget, ca_bundle: Vec<u8>) -> Self {
        Self { target, ca_bundle, tls: OnceLock::new(), idle: Mutex::default() }
    }

    /// Posts a value, and returns the response's. Errors are worded as by Go's client.
    pub(crate) async fn post(
        &self,
        objects: &ObjectStore,
        value: &Value,
        timeout: Duration,
    ) -> Result<Value, String> {
        let query = format!("timeout={}s", timeout.as_secs());
        let url = self.url(&query);
        let called = tokio::time::timeout(timeout, self.call(objects, value, &query)).await;
        match called {
            Ok(answered) => answered.map_err(|why| match why {
                Failure::Unreachable(why) => format!("Post {url:?}: {why}"),
                Failure::Answered(why) => why,
            }),
            Err(_) => Err(format!("Post {url:?}: context deadline exceeded")),
        }
    }

    fn url(&self, query: &str) -> String {
        match &self.target {
            WebhookTarget::Url(url) => format!("{url}?{query}"),
            WebhookTarget::Service { namespace, name, path, port } => {
                format!("https://{name}.{namespace}.svc:{port}{}?{query}", rooted(path))
            }
        }
    }

    async fn call(&self, objects: &ObjectStore, value: &Value, query: &str) -> Result<Value, Failure> {
        let address = self.address(objects).await.map_err(Failure::Unreachable)?;
        let body = Bytes::from(value.to_string());
        let request = || {
            Request::post(format!("{}?{query}", address.path))
                .header(header::HOST, format!("{}:{}", address.server, address.port))
                .header(header::CONTENT_TYPE, "application/json")
                .header(header::ACCEPT, "application/json, */*")
                .header(header::USER_AGENT, "orlop")
                .body(Full::new(body.clone()))
                .map_err(|error| Failure::Unreachable(error.to_string()))
        };
        // The webhook may have closed an idle connection; then a new one is opened.
        if let Some(mut connection) = self.idle_connection()
            && connection.ready().await.is_ok()
            && let Ok(response) = connection.send_request(request()?).await
        {
            return self.read(connection, response).await;
        }
        let mut connection = self.connect(&address).await.map_err(Failure::Unreachable)?;
        let response = connection.send_request(request()?).await;
        let response = response.map_err(|error| Failure::Unreachable(error.to_string()))?;
        self.read(connection, response).await
    }

    async fn read(
        &self,
        connection: Connection,
        response: http::Response<hyper::body::Incoming>,
    ) -> Result<Value, Failure> {
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| Failure::Answered(error.to_string()))?.to_bytes();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MAX {
            idle.push(connection);
        }
        drop(idle);
        if !status.is_success() {
            // A webhook may answer with a Status; other content is for its own log.
            let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
            let message = answer.get("message").and_then(Value::as_str).map(str::to_owned);
            let unknown = || {
                let code = status.as_u16();
                format!(
                    "the server responded with the status code {code} but did not return more information"
                )
            };
            return Err(Failure::Answered(message.unwrap_or_else(unknown)));
        }
        serde_json::from_slice(&body).map_err(|error| Failure::Answered(error.to_string()))
    }

    fn idle_connection(&self) -> Option<Connection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        std::iter::from_fn(|| idle.pop()).find(|connection| !connection.is_closed())
    }

    async fn address(&self, objects: &ObjectStore) -> Result<Address, String> {
        match &self.target {
            WebhookTarget::Url(url) => {
                let uri: Uri = url.parse().map_err(|error| format!("invalid address {url:?}: {error}"))?;
                let host = uri.host().ok_or_else(|| format!("invalid address {url:?}: no host"))?;
                let host = host.trim_matches(['[', ']']).to_owned();
                Ok(Address {
                    server: host.clone(),
                    host,
                    port: uri.port_u16().unwrap_or(443),
                    path: uri.path().to_owned(),
                })
            }
            WebhookTarget::Service { namespace, name, path, port } => {
                let (host, port) = service::resolve(objects, namespace, name, *port).await?;
                Ok(Address { host, port, server: format!("{name}.{namespace}.svc"), path: rooted(path) })
            }
        }
    }

    async fn connect(&self, address: &Address) -> Result<Connection, String> {
        let Address { host, port, server, .. } = address;
        let dialled = TcpStream::connect((host.as_str(), *port)).await;
        let stream = dialled.map_err(|error| format!("dial tcp {host}:{port}: {}", reason(&error)))?;
        let _ = stream.set_nodelay(true);
        let name = ServerName::try_from(server.clone()).map_err(|error| error.to_string())?;
        let tls = TlsConnector::from(self.tls()?).connect(name, stream).await;
        let tls = tls.map_err(|error| handshake::reason(&error, &self.ca_bundle))?;
        let (sender, connection) =
            http1::handshake(TokioIo::new(tls)).await.map_err(|error| error.to_string())?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to a webhook ended");
            }
        });
        Ok(sender)
    }

    fn tls(&self) -> Result<Arc<ClientConfig>, String> {
        if let Some(tls) = self.tls.get() {
            return Ok(tls.clone());
        }
        let mut roots = RootCertStore::empty();
        if self.ca_bundle.is_empty() {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        } else {
            for certificate in CertificateDer::pem_slice_iter(&self.ca_bundle) {
                let certificate = certificate.map_err(|error| format!("invalid caBundle: {error}"))?;
                roots.add(certificate).map_err(|error| format!("invalid caBundle: {error}"))?;
            }
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(self.tls.get_or_init(|| Arc::new(config)).clone())
    }
}

/// Failure of a call.
enum Failure {
    /// The webhook was not reached.
    Unreachable(String),
    /// The response is not usable.
    Answered(String),
}

/// Returns a path with a leading slash.
fn rooted(path: &str) -> String {
    format!("/{}", path.trim_start_matches('/'))
}

/// Returns the reason why a connection failed, as Go words it.
fn reason(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
        _ => error.to_string(),
    }
}
