//! Sends a request of the chain on to an extension API server.

use std::{net::IpAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Extensions, HeaderMap, HeaderValue, Method, Response, StatusCode, Uri, header};
use http_body_util::BodyExt;
use hyper::{body::Incoming, upgrade::OnUpgrade};
use orlop_aggregator::proxy::{self, Forwarded, ProxyError, TimedBody};
use orlop_api::user::UserInfo;

use super::catalog::Remote;
use crate::{
    http::{body::Body, response},
    proxy::join,
};

/// Limit on discovery requests, which all clients wait for.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(5);

/// A request as the chain received it.
#[derive(Debug)]
pub(crate) struct Received<'a> {
    pub(crate) method: &'a Method,
    pub(crate) uri: &'a Uri,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) extensions: &'a Extensions,
    /// Address of the client.
    pub(crate) peer: Option<IpAddr>,
    pub(crate) user: &'a UserInfo,
    /// Id of the request in the audit log.
    pub(crate) audit_id: &'a str,
    /// Time for the response as a whole; `None` for a long-running request.
    pub(crate) limit: Option<Duration>,
}

/// Sends a request on. Failures are plain text, as kube-aggregator answers.
pub(crate) async fn forward<B>(remote: &Arc<Remote>, received: Received<'_>, body: B) -> Response<Body>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let path = received.uri.path();
    let is_discovery = path.split('/').filter(|segment| !segment.is_empty()).count() == 3;
    let limit = match received.limit {
        Some(limit) if is_discovery => Some(limit.min(DISCOVERY_TIMEOUT)),
        limit => limit,
    };
    let client = received.extensions.get::<OnUpgrade>().cloned();
    let work = send(remote, received, body.map_err(Into::into).boxed_unsync());
    let answered = match limit.filter(|_| is_discovery) {
        // The chain limits all others.
        None => work.await,
        Some(limit) => tokio::time::timeout(limit, work).await.unwrap_or_else(|_| {
            let message = "error trying to reach service: context deadline exceeded".to_owned();
            Err(ProxyError { status: StatusCode::SERVICE_UNAVAILABLE, message })
        }),
    };
    match (answered, client) {
        (Ok(response), Some(client)) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
            join(response, client)
        }
        (Ok(response), _) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
            let message = "request connection cannot be hijacked".to_owned();
            text(&ProxyError { status: StatusCode::SERVICE_UNAVAILABLE, message })
        }
        (Ok(response), _) => response.map(|body| Body::forward(TimedBody::new(body, limit))),
        (Err(error), _) => text(&error),
    }
}

async fn send(
    remote: &Arc<Remote>,
    received: Received<'_>,
    body: orlop_aggregator::client::RequestBody,
) -> Result<Response<Incoming>, ProxyError> {
    let Remote { service, backend } = &**remote;
    if !service.is_available() {
        return Err(ProxyError::unavailable());
    }
    let address = backend.resolve().await.map_err(|error| {
        tracing::warn!(error, api_service = service.name, "cannot resolve an extension API server");
        ProxyError::unavailable()
    })?;
    let forwarded = Forwarded {
        method: received.method.clone(),
        path: received.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str),
        headers: received.headers,
        peer: received.peer,
        user: received.user,
        audit_id: received.audit_id,
        body,
    };
    proxy::forward(&backend.client(), &address, forwarded).await
}

/// Returns a failure as Go's `http.Error` writes it.
fn text(error: &ProxyError) -> Response<Body> {
    let body = Bytes::from(format!("{}\n", error.message));
    let mut response = response::bytes(error.status.as_u16(), "text/plain; charset=utf-8", body);
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
