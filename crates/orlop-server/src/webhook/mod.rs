//! Calls to webhooks: JSON over HTTPS, to a URL or to a service of the cluster.

mod service;

pub(crate) use service::endpoint;

use std::time::Duration;

use bytes::Bytes;
use http::{Request, header};
use orlop_api::go_text;
use orlop_auth::webhook::{Answer, Failure, Origin, Scheme, Transport, Trust};
use orlop_crd::WebhookTarget;
use serde_json::Value;

use crate::storage::ObjectStore;

/// Maximum bytes of a response to a conversion, which may be of many objects.
pub(crate) const CONVERSION_BYTES_MAX: usize = 64 << 20;

/// A client of one webhook.
#[derive(Debug)]
pub(crate) struct Webhook {
    target: WebhookTarget,
    transport: Transport,
}

impl Webhook {
    /// Returns a client. `ca_bundle` is PEM; empty to trust the system's CAs.
    pub(crate) fn new(target: WebhookTarget, ca_bundle: Vec<u8>, answer_bytes_max: usize) -> Self {
        let trust = if ca_bundle.is_empty() { Trust::System } else { Trust::Bundle(ca_bundle) };
        Self { target, transport: Transport::new(trust, None, answer_bytes_max) }
    }

    /// Posts a value, and returns the response's. Errors are worded as by Go's client.
    pub(crate) async fn post(
        &self,
        objects: &ObjectStore,
        value: &Value,
        timeout: Duration,
    ) -> Result<Value, String> {
        self.send(objects, Bytes::from(value.to_string()), timeout).await?.json()
    }

    /// Posts JSON, and returns the answer whatever its status. Errors are worded as by Go's client.
    pub(crate) async fn send(
        &self,
        objects: &ObjectStore,
        body: Bytes,
        timeout: Duration,
    ) -> Result<Answer, String> {
        // The webhook is told in whole seconds, rounded up.
        let seconds = timeout.as_secs() + u64::from(timeout.subsec_nanos() > 0);
        let query = format!("timeout={seconds}s");
        let url = || go_text::quote(&self.url(&query));
        let called = tokio::time::timeout(timeout, self.call(objects, body, &query)).await;
        match called {
            Ok(answered) => answered.map_err(|why| match why {
                Failure::Unreachable(why) | Failure::Reset(why) => format!("Post {}: {why}", url()),
                Failure::Answered(why) => why,
            }),
            Err(_) => Err(format!("Post {}: context deadline exceeded", url())),
        }
    }

    fn url(&self, query: &str) -> String {
        match &self.target {
            WebhookTarget::Url(url) => {
                let (scheme, rest) = url.split_once("://").unwrap_or(("https", url));
                let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
                format!("{scheme}://{authority}{}?{query}", clean(path))
            }
            WebhookTarget::Service { namespace, name, path, port } => {
                format!("https://{name}.{namespace}.svc:{port}{}?{query}", clean(path))
            }
        }
    }

    async fn call(&self, objects: &ObjectStore, body: Bytes, query: &str) -> Result<Answer, Failure> {
        let (origin, path) = self.origin(objects).await.map_err(Failure::Unreachable)?;
        let request = Request::post(format!("{path}?{query}"))
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json, */*")
            .body(body)
            .map_err(|error| Failure::Unreachable(error.to_string()))?;
        self.transport.send(&origin, request).await
    }

    /// Returns the server to call and the path there.
    async fn origin(&self, objects: &ObjectStore) -> Result<(Origin, String), String> {
        match &self.target {
            WebhookTarget::Url(url) => {
                let (origin, path) = Origin::of(url)?;
                if origin.scheme != Scheme::Https {
                    return Err(format!("invalid address {url:?}: the scheme must be https"));
                }
                Ok((origin, clean(path.split('?').next().unwrap_or_default())))
            }
            WebhookTarget::Service { namespace, name, path, port } => {
                let (host, port) = service::resolve(objects, namespace, name, *port).await?;
                let server_name = format!("{name}.{namespace}.svc");
                Ok((Origin { scheme: Scheme::Https, host, port, server_name }, clean(path)))
            }
        }
    }
}

/// Returns a path as client-go joins it: rooted, without empty and relative segments. envtest's URLs have two slashes,
/// which Go's servers redirect.
fn clean(path: &str) -> String {
    let mut segments = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(segments.pop()),
            segment => segments.push(segment),
        }
    }
    format!("/{}", segments.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_cleaned_as_by_client_go() {
        for (path, expected) in [
            ("", "/"),
            ("/", "/"),
            ("//failing", "/failing"),
            ("a/b/", "/a/b"),
            ("/a/./../b", "/b"),
            ("/..", "/"),
        ] {
            assert_eq!(clean(path), expected, "{path}");
        }
    }

    #[test]
    fn url_in_errors_is_the_one_that_is_called() {
        let url = |url: &str| {
            let target = WebhookTarget::Url(url.to_owned());
            Webhook::new(target, Vec::new(), CONVERSION_BYTES_MAX).url("timeout=1s")
        };
        assert_eq!(url("https://127.0.0.1:1//failing"), "https://127.0.0.1:1/failing?timeout=1s");
        assert_eq!(url("https://example.org"), "https://example.org/?timeout=1s");
    }
}
