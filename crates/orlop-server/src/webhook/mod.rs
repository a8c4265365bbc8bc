//! Calls to webhooks: JSON over HTTPS, to a URL or to a service of the cluster.

mod service;

pub(crate) use service::endpoint;

use std::time::Duration;

use bytes::Bytes;
use http::{Request, header};
use orlop_auth::webhook::{Failure, Origin, Scheme, Transport, Trust};
use orlop_crd::WebhookTarget;
use serde_json::Value;

use crate::storage::ObjectStore;

/// Maximum bytes of a response.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// A client of one webhook.
#[derive(Debug)]
pub(crate) struct Webhook {
    target: WebhookTarget,
    transport: Transport,
}

impl Webhook {
    /// Returns a client. `ca_bundle` is PEM; empty to trust the system's CAs.
    pub(crate) fn new(target: WebhookTarget, ca_bundle: Vec<u8>) -> Self {
        let trust = if ca_bundle.is_empty() { Trust::System } else { Trust::Bundle(ca_bundle) };
        Self { target, transport: Transport::new(trust, None, ANSWER_BYTES_MAX) }
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
                Failure::Unreachable(why) | Failure::Reset(why) => format!("Post {url:?}: {why}"),
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
        let (origin, path) = self.origin(objects).await.map_err(Failure::Unreachable)?;
        let request = Request::post(format!("{path}?{query}"))
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json, */*")
            .body(Bytes::from(value.to_string()))
            .map_err(|error| Failure::Unreachable(error.to_string()))?;
        self.transport.send(&origin, request).await?.json().map_err(Failure::Answered)
    }

    /// Returns the server to call and the path there.
    async fn origin(&self, objects: &ObjectStore) -> Result<(Origin, String), String> {
        match &self.target {
            WebhookTarget::Url(url) => {
                let (origin, path) = Origin::of(url)?;
                if origin.scheme != Scheme::Https {
                    return Err(format!("invalid address {url:?}: the scheme must be https"));
                }
                Ok((origin, path.split('?').next().unwrap_or_default().to_owned()))
            }
            WebhookTarget::Service { namespace, name, path, port } => {
                let (host, port) = service::resolve(objects, namespace, name, *port).await?;
                let server_name = format!("{name}.{namespace}.svc");
                Ok((Origin { scheme: Scheme::Https, host, port, server_name }, rooted(path)))
            }
        }
    }
}

/// Returns a path with a leading slash.
fn rooted(path: &str) -> String {
    format!("/{}", path.trim_start_matches('/'))
}
