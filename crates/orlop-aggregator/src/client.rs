//! Connections to one extension API server: HTTP/2 or HTTP/1.1 over TLS, kept open and shared by requests.
//!
//! A [`Client`] belongs to a [`BackendKey`](crate::BackendKey) and outlives changes of its addresses: connections are
//! pooled by address.

use std::{
    error::Error,
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited, combinators::UnsyncBoxBody};
use hyper::{
    body::Incoming,
    rt::{Read, ReadBufCursor, Write},
};
use hyper_util::{
    client::legacy::{
        self,
        connect::{Connected, Connection},
    },
    rt::{TokioExecutor, TokioIo, TokioTimer},
};
use orlop_api::user::UserInfo;
use orlop_auth::{
    pki::Credential,
    webhook::{Trust, authority, client_tls, dial_tls},
};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::{api_service::BackendKey, identity};

/// Limit on connecting and the TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time that an idle connection is kept.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// Idle connections to one address.
const IDLE_MAX: usize = 16;
/// Interval of HTTP/2 pings on a connection with open requests, and the time that the answer may take. A watch on a
/// connection that broke would otherwise wait for ever.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);

/// Any error.
pub type BoxError = Box<dyn Error + Send + Sync>;
/// Body of a request.
pub type RequestBody = UnsyncBoxBody<Bytes, BoxError>;

/// Failure of a request, worded as by Go's client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unreachable(pub String);

/// A client of one extension API server.
#[derive(Clone, Debug)]
pub struct Client(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    trust: Trust,
    server_name: String,
    identity: Option<Credential>,
    pools: OnceLock<Result<Pools, Unreachable>>,
}

#[derive(Debug)]
struct Pools {
    /// For requests.
    any: legacy::Client<Connector, RequestBody>,
    /// For requests that switch protocols, which HTTP/2 cannot.
    http1: legacy::Client<Connector, RequestBody>,
}

/// A complete response.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

/// A request for a document.
#[derive(Clone, Debug)]
pub struct Fetch<'a> {
    /// Path and query.
    pub path: &'a str,
    /// The user that asks.
    pub user: &'a UserInfo,
    /// Media type; empty for any.
    pub accept: &'a str,
    /// ETag of the known document; empty for none.
    pub etag: &'a str,
    /// Limit on the request as a whole.
    pub timeout: Duration,
    /// Limit on the body.
    pub bytes_max: usize,
}

impl Client {
    /// Returns a client that presents a certificate, if there is one.
    pub fn new(key: &BackendKey, identity: Option<Credential>) -> Self {
        let trust = match (key.insecure_skip_tls_verify, key.ca_bundle.is_empty()) {
            (true, _) => Trust::Anything,
            (false, true) => Trust::System,
            (false, false) => Trust::Bundle(key.ca_bundle.clone()),
        };
        Self(Arc::new(Inner { trust, server_name: key.server_name(), identity, pools: OnceLock::new() }))
    }

    fn pools(&self) -> Result<&Pools, Unreachable> {
        let make = || {
            let tls = client_tls(&self.0.trust, self.0.identity.as_ref()).map_err(Unreachable)?;
            let pool = |protocols: &[&[u8]]| {
                let mut tls = tls.clone();
                tls.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
                let connector = Connector {
                    tls: Arc::new(tls),
                    trust: Arc::new(self.0.trust.clone()),
                    server_name: self.0.server_name.as_str().into(),
                };
                legacy::Client::builder(TokioExecutor::new())
                    .pool_timer(TokioTimer::new())
                    .timer(TokioTimer::new())
                    .pool_idle_timeout(IDLE_TIMEOUT)
                    .pool_max_idle_per_host(IDLE_MAX)
                    .http2_keep_alive_interval(PING_INTERVAL)
                    .http2_keep_alive_timeout(PING_TIMEOUT)
                    .build(connector)
            };
            Ok(Pools { any: pool(&[b"h2", b"http/1.1"]), http1: pool(&[b"http/1.1"]) })
        };
        self.0.pools.get_or_init(make).as_ref().map_err(Clone::clone)
    }

    /// Returns an error if the CAs or the client certificate cannot be used.
    pub fn check(&self) -> Result<(), Unreachable> {
        self.pools().map(drop)
    }

    /// Sends a request to an address. The response is returned whatever its status; redirects are not followed.
    pub async fn send(
        &self,
        (host, port): &(String, u16),
        mut request: Request<RequestBody>,
        upgrades: bool,
    ) -> Result<Response<Incoming>, Unreachable> {
        let pools = self.pools()?;
        let path = request.uri().path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        let uri = format!("https://{}{path}", authority(host, *port)).parse::<Uri>();
        *request.uri_mut() = uri.map_err(|error| Unreachable(error.to_string()))?;
        let pool = if upgrades { &pools.http1 } else { &pools.any };
        pool.request(request).await.map_err(|error| Unreachable(reason(&error)))
    }

    /// Asks for a path, and returns the status of the response. Has no timeout: the caller sets one.
    pub async fn probe(
        &self,
        address: &(String, u16),
        path: &str,
        user: &UserInfo,
    ) -> Result<StatusCode, Unreachable> {
        Ok(self.send(address, get(path, user)?, false).await?.status())
    }

    /// Fetches a document.
    pub async fn fetch(&self, address: &(String, u16), fetch: &Fetch<'_>) -> Result<Answer, Unreachable> {
        let mut request = get(fetch.path, fetch.user)?;
        let headers = request.headers_mut();
        for (name, value) in [(header::ACCEPT, fetch.accept), (header::IF_NONE_MATCH, fetch.etag)] {
            if let Some(value) = value.parse().ok().filter(|_| !value.is_empty()) {
                headers.insert(name, value);
            }
        }
        let answered = async {
            let (parts, body) = self.send(address, request, false).await?.into_parts();
            let body = Limited::new(body, fetch.bytes_max).collect().await;
            let body = body.map_err(|error| Unreachable(body_reason(&*error, fetch.bytes_max)))?;
            Ok(Answer { status: parts.status, headers: parts.headers, body: body.to_bytes() })
        };
        tokio::time::timeout(fetch.timeout, answered)
            .await
            .unwrap_or_else(|_| Err(Unreachable("context deadline exceeded".to_owned())))
    }
}

/// Returns a request of a user without a body.
fn get(path: &str, user: &UserInfo) -> Result<Request<RequestBody>, Unreachable> {
    let mut request = Request::new(Empty::new().map_err(|never| match never {}).boxed_unsync());
    *request.uri_mut() = path.parse().map_err(|_| Unreachable("invalid path".to_owned()))?;
    let headers = request.headers_mut();
    identity::set_user(headers, user).map_err(|error| Unreachable(error.to_string()))?;
    headers.insert(header::USER_AGENT, header::HeaderValue::from_static("orlop"));
    Ok(request)
}

fn body_reason(error: &(dyn Error + 'static), bytes_max: usize) -> String {
    match error.downcast_ref::<LengthLimitError>() {
        Some(_) => format!("the response is longer than {bytes_max} bytes"),
        None => "unexpected EOF".to_owned(),
    }
}

/// Returns the reason of a failure: that of dialling if the server was not reached.
fn reason(error: &legacy::Error) -> String {
    let mut source: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(cause) = source {
        if let Some(Unreachable(why)) = cause.downcast_ref() {
            return why.clone();
        }
        if cause.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_incomplete_message) {
            return "EOF".to_owned();
        }
        source = cause.source();
    }
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

// --- connections ---

/// Opens connections to the addresses of an extension API server.
#[derive(Clone, Debug)]
struct Connector {
    tls: Arc<tokio_rustls::rustls::ClientConfig>,
    trust: Arc<Trust>,
    server_name: Arc<str>,
}

impl tower::Service<Uri> for Connector {
    type Response = Stream;
    type Error = Unreachable;
    type Future = Pin<Box<dyn Future<Output = Result<Stream, Unreachable>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Unreachable>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let Self { tls, trust, server_name } = self.clone();
        Box::pin(async move {
            let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
            let port = uri.port_u16().unwrap_or(443);
            let dialled = dial_tls(&host, port, &server_name, tls, &trust);
            match tokio::time::timeout(CONNECT_TIMEOUT, dialled).await {
                Ok(Ok(stream)) => Ok(Stream(TokioIo::new(stream))),
                Ok(Err(failure)) => Err(Unreachable(failure.to_string())),
                Err(_) => Err(Unreachable(format!("dial tcp {}: i/o timeout", authority(&host, port)))),
            }
        })
    }
}

/// A TLS connection that tells the pool its protocol.
#[derive(Debug)]
struct Stream(TokioIo<TlsStream<TcpStream>>);

impl Connection for Stream {
    fn connected(&self) -> Connected {
        let (_, session) = self.0.inner().get_ref();
        match session.alpn_protocol() {
            Some(b"h2") => Connected::new().negotiated_h2(),
            _ => Connected::new(),
        }
    }
}

impl Read for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl Write for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buffer)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(cx, buffers)
    }
}
