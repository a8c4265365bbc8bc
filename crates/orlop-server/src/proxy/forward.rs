//! Sends a request on, and joins both connections if they are upgraded.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{body::Incoming, upgrade::OnUpgrade};
use hyper_util::rt::TokioIo;
use orlop_api::status::Status;
use orlop_net::{ErasedStream, client};
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::TlsConnector;

use super::links::{Links, Rewritten};
use crate::http::body::Body;

/// Limit on connecting and on a TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Headers of one connection, which a proxy does not forward.
const HOP_BY_HOP: &[header::HeaderName] = &[
    header::CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];
/// Headers with credentials for this server.
const CREDENTIALS: &[header::HeaderName] = &[header::AUTHORIZATION, header::COOKIE];
/// Headers by which a page would decide who may read answers of this server.
const CROSS_ORIGIN: &[header::HeaderName] = &[
    header::ACCESS_CONTROL_ALLOW_CREDENTIALS,
    header::ACCESS_CONTROL_ALLOW_HEADERS,
    header::ACCESS_CONTROL_ALLOW_METHODS,
    header::ACCESS_CONTROL_ALLOW_ORIGIN,
];

/// A server to send requests on to.
#[derive(Clone, Debug)]
pub(crate) struct Backend {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// TLS; `None` for plain HTTP.
    pub(crate) tls: Option<Arc<ClientConfig>>,
}

impl Backend {
    /// Returns its host and port.
    pub(crate) fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

/// A request to send on.
#[derive(Debug)]
pub(crate) struct Forwarded {
    pub(crate) method: http::Method,
    /// Path and query at the backend.
    pub(crate) path: String,
    /// Headers of the client. Hop-by-hop ones and credentials are left out.
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// The client's side of an upgrade.
    pub(crate) upgrade: Option<OnUpgrade>,
}

/// Sends a request on. The response is that of the backend, whatever its status. Its links are rewritten if they are to lead
/// through a proxy.
pub(crate) async fn forward(
    backend: &Backend,
    forwarded: Forwarded,
    links: Option<Links>,
) -> Result<Response<Body>, Status> {
    let upgrade = forwarded.upgrade.clone().filter(|_| forwarded.headers.contains_key(header::UPGRADE));
    let response = send(backend, forwarded, upgrade.is_some()).await?;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let Some(client) = upgrade else {
            return Err(Status::internal("the backend switched protocols without being asked to"));
        };
        return Ok(join(response, client));
    }
    let (mut parts, body) = response.into_parts();
    remove(&mut parts.headers, HOP_BY_HOP);
    parts.headers.remove(header::CONTENT_LENGTH);
    if links.is_some() {
        remove(&mut parts.headers, CROSS_ORIGIN);
    }
    let body = match links.and_then(|links| links.rewrite_headers(&mut parts.headers)) {
        Some(rewriter) => Body::forward(Rewritten::new(body, rewriter)),
        None => Body::forward(body),
    };
    Ok(Response::from_parts(parts, body))
}

/// Sends a request, and returns the response with its connection.
pub(super) async fn send(
    backend: &Backend,
    forwarded: Forwarded,
    upgrades: bool,
) -> Result<Response<Incoming>, Status> {
    let dialling =
        |error: &dyn std::fmt::Display| Status::internal(&format!("error dialing backend: {error}"));
    let mut request = Request::new(Full::new(forwarded.body));
    *request.method_mut() = forwarded.method;
    *request.uri_mut() = forwarded.path.parse().map_err(|_| Status::bad_request("invalid path"))?;
    let wanted = forwarded.headers.get(header::UPGRADE).cloned();
    let mut headers = forwarded.headers;
    remove(&mut headers, HOP_BY_HOP);
    remove(&mut headers, CREDENTIALS);
    headers.remove(header::CONTENT_LENGTH);
    headers.remove(header::HOST);
    if let Some(wanted) = wanted.filter(|_| upgrades) {
        headers.insert(header::CONNECTION, header::HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, wanted);
    }
    headers.insert(
        header::HOST,
        header::HeaderValue::try_from(backend.authority()).map_err(|error| dialling(&error))?,
    );
    *request.headers_mut() = headers;

    let address = (backend.host.as_str(), backend.port);
    let stream = match timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            let why = match error.kind() {
                std::io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
                _ => error.to_string(),
            };
            return Err(dialling(&format!("dial tcp {}:{}: {why}", backend.host, backend.port)));
        }
        Err(_) => return Err(dialling(&format!("dial tcp {}:{}: i/o timeout", backend.host, backend.port))),
    };
    let _ = stream.set_nodelay(true);
    match &backend.tls {
        None => exchange(Box::new(stream), request).await,
        Some(tls) => {
            let name = ServerName::try_from(backend.host.clone()).map_err(|error| dialling(&error))?;
            let connecting = TlsConnector::from(tls.clone()).connect(name, stream);
            let stream =
                timeout(CONNECT_TIMEOUT, connecting).await.map_err(|_| dialling(&"TLS handshake timeout"))?;
            exchange(Box::new(stream.map_err(|error| dialling(&error))?), request).await
        }
    }
}

async fn exchange(stream: ErasedStream, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Status> {
    let failed =
        |error: hyper::Error| Status::service_unavailable(format!("error trying to reach service: {error}"));
    let mut sender = client::handshake(stream).await.map_err(failed)?;
    sender.send_request(request).await.map_err(failed)
}

/// Joins the client's connection with the backend's.
pub(crate) fn join(response: Response<Incoming>, client: OnUpgrade) -> Response<Body> {
    let mut answer = Response::new(Body::empty());
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *answer.headers_mut() = response.headers().clone();
    tokio::spawn(async move {
        let (Ok(backend), Ok(client)) = tokio::join!(hyper::upgrade::on(response), client) else { return };
        let (mut backend, mut client) = (TokioIo::new(backend), TokioIo::new(client));
        let _ = tokio::io::copy_bidirectional(&mut backend, &mut client).await;
    });
    answer
}

fn remove(headers: &mut HeaderMap, names: &[header::HeaderName]) {
    for name in names {
        headers.remove(name);
    }
}
