//! HTTP to AWS: one pooled client, with limits on time and size.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};

/// Largest answer that is read.
const ANSWER_MAX: usize = 16 * 1024 * 1024;
const CONNECT_TIMEOUT: Duration = Duration::from_millis(3100);

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

/// A pooled HTTP client.
pub(crate) struct Transport {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    timeout: Duration,
}

impl std::fmt::Debug for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transport").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

impl Transport {
    /// Returns a client that trusts the system's certificates. `timeout` limits each request.
    pub(crate) fn new(timeout: Duration) -> Result<Self, rustls::Error> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        connector.set_nodelay(true);
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(config)
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(32).build(connector);
        Ok(Self { client, timeout })
    }

    /// Sends a request and reads the whole answer.
    pub(crate) async fn send(
        &self,
        method: &str,
        address: &str,
        headers: Vec<(String, String)>,
        body: Vec<u8>,
    ) -> Result<Answer, String> {
        let mut request = Request::builder().method(method).uri(address);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(Bytes::from(body))).map_err(|error| error.to_string())?;
        let exchange = async {
            let answer = self.client.request(request).await.map_err(|error| chain(&error))?;
            let (parts, body) = answer.into_parts();
            let body = Limited::new(body, ANSWER_MAX).collect().await.map_err(|error| error.to_string())?;
            Ok(Answer { status: parts.status.as_u16(), headers: parts.headers, body: body.to_bytes() })
        };
        if self.timeout.is_zero() {
            return exchange.await;
        }
        match tokio::time::timeout(self.timeout, exchange).await {
            Ok(done) => done,
            Err(_) => Err(format!("no answer within {} s", self.timeout.as_secs())),
        }
    }
}

/// Returns an error with its chain of sources.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
