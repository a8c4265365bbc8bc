//! The node's own API: that of a kubelet, over TLS, for the API server.

mod access;
mod channels;
mod logs;
mod metrics;
mod pods;
mod port_forward;
mod remote_command;
mod spdy;
mod spdy_command;
mod spdy_headers;
mod spdy_upgrade;
mod websocket;

use std::{convert::Infallible, io, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use hyper::{body::Incoming, service::service_fn};
use orlop_net::{AcceptOptions, Connection, HttpOptions, accept, http::serve_connection};
use tokio::net::TcpListener;

use crate::context::Node;

/// Time for open streams to end when the node stops.
const DRAIN: Duration = Duration::from_secs(2);

/// Body of a response.
type Body = UnsyncBoxBody<Bytes, io::Error>;

/// Serves the node's API until `stop`.
pub(crate) async fn serve(node: Arc<Node>, listener: TcpListener, stop: impl Future<Output = ()> + Send) {
    let options = AcceptOptions {
        tls: Some(node.settings.tls.clone()),
        drain_timeout: DRAIN,
        ..AcceptOptions::default()
    };
    let access = Arc::new(access::Access::new(node.client.0.clone(), node.settings.name.clone()));
    accept(listener.into(), options, stop, move |connection: Connection, watcher| {
        let (node, access) = (node.clone(), access.clone());
        async move {
            let session = connection.tls.as_ref();
            let peer = session.map(|session| Arc::new(access::Peer::of(&session.client)));
            let service = service_fn(move |request: Request<Incoming>| {
                let (node, access, peer) = (node.clone(), access.clone(), peer.clone());
                async move { Ok::<_, Infallible>(answer(&node, &access, peer.as_deref(), request).await) }
            });
            serve_connection(connection.stream, &HttpOptions::default(), service, watcher).await;
        }
    })
    .await;
}

async fn answer(
    node: &Arc<Node>,
    access: &access::Access,
    peer: Option<&access::Peer>,
    request: Request<Incoming>,
) -> Response<Body> {
    if let Err(refusal) = access.check(peer, &request).await {
        return refusal;
    }
    let path = request.uri().path().to_owned();
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    match segments.as_slice() {
        ["healthz"] => text(StatusCode::OK, "ok"),
        ["pods"] => pods::list(node, false),
        ["runningpods"] => pods::list(node, true),
        ["metrics", "resource"] => metrics::resource(node),
        ["stats", "summary"] => metrics::summary(node),
        ["containerLogs", namespace, pod, container] => {
            logs::answer(node, namespace, pod, container, request.uri().query().unwrap_or_default()).await
        }
        ["exec", namespace, pod, container] | ["exec", namespace, pod, _, container] => {
            remote_command::answer(node, remote_command::Kind::Exec, namespace, pod, container, request).await
        }
        ["attach", namespace, pod, container] | ["attach", namespace, pod, _, container] => {
            remote_command::answer(node, remote_command::Kind::Attach, namespace, pod, container, request)
                .await
        }
        ["portForward", namespace, pod] | ["portForward", namespace, pod, _] => {
            port_forward::answer(node, namespace, pod, request)
        }
        _ => text(StatusCode::NOT_FOUND, "404 page not found\n"),
    }
}

/// Responds with plain text.
fn text(status: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    response(status, "text/plain; charset=utf-8", full(text))
}

fn json(value: &impl serde::Serialize) -> Response<Body> {
    match serde_json::to_vec(value) {
        Ok(bytes) => response(StatusCode::OK, "application/json", full(bytes)),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

fn response(status: StatusCode, media_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}
