//! HTTP/1.1 connections to one server, plain or over TLS.

use std::{
    fmt, io,
    pin::Pin,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    task::{Context, Poll},
};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderMap, Request, Response, StatusCode, Uri, header};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::{body::Incoming, client::conn::http1::SendRequest};
use orlop_api::go_text;
use orlop_net::{ErasedStream, client};
use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::{bundle_verifier::BundleVerifier, handshake};
use crate::pki::Credential;

/// Maximum idle connections, as in client-go.
const IDLE_MAX: usize = 25;
/// Certificates of a bundle beyond which the rest is ignored.
const BUNDLE_CERTIFICATES_MAX: usize = 10_000;
/// Characters of a server's error message that are passed on.
const MESSAGE_CHARS_MAX: usize = 1024;

type Connection = SendRequest<Full<Bytes>>;

/// Certificates by which a client trusts a server.
#[derive(Clone, Debug)]
pub enum Trust {
    /// CAs of the operating system.
    System,
    /// CAs in PEM.
    Bundle(Vec<u8>),
    /// Any certificate: the server is not verified.
    Anything,
}

/// Scheme of an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// HTTP over TLS.
    Https,
    /// HTTP in clear.
    Http,
}

/// A server to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The scheme.
    pub scheme: Scheme,
    /// Host to connect to: a name or an address.
    pub host: String,
    /// Port to connect to.
    pub port: u16,
    /// Expected name in the server's certificate, and the host of requests.
    pub server_name: String,
}

impl Origin {
    /// Returns the origin of a URL, and the path and query of the URL.
    pub fn of(url: &str) -> Result<(Self, String), String> {
        let uri: Uri = url.parse().map_err(|error| format!("invalid address {url:?}: {error}"))?;
        let (scheme, default_port) = match uri.scheme_str() {
            Some("https") => (Scheme::Https, 443),
            Some("http") => (Scheme::Http, 80),
            _ => return Err(format!("invalid address {url:?}: the scheme must be https or http")),
        };
        let host = uri.host().ok_or_else(|| format!("invalid address {url:?}: no host"))?;
        let host = host.trim_matches(['[', ']']).to_owned();
        let port = uri.port_u16().unwrap_or(default_port);
        let path = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str).to_owned();
        Ok((Self { scheme, server_name: host.clone(), host, port }, path))
    }

    /// Returns the value of the Host header.
    fn authority(&self) -> String {
        authority(&self.server_name, self.port)
    }
}

/// Failure of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The server was not reached, or did not answer. Worded as by Go's client.
    Unreachable(String),
    /// The server reset the connection.
    Reset(String),
    /// The answer is not usable.
    Answered(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Unreachable(why) | Self::Reset(why) | Self::Answered(why)) = self;
        f.write_str(why)
    }
}

/// An answer, whatever its status.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

impl Answer {
    /// Returns the body's JSON. An answer that is not 2xx, a redirect for example, is an error: its message if
    /// it has a Status.
    pub fn json(&self) -> Result<Value, String> {
        self.check()?;
        serde_json::from_slice(&self.body).map_err(|error| error.to_string())
    }

    /// Returns an error unless the answer is 2xx.
    pub fn check(&self) -> Result<(), String> {
        if self.status.is_success() {
            return Ok(());
        }
        let answer: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        let message = answer.get("message").and_then(Value::as_str).filter(|message| !message.is_empty());
        let message = message.map_or_else(|| self.generic_error(), str::to_owned);
        Err(message.chars().take(MESSAGE_CHARS_MAX).collect())
    }

    /// Returns the error of an answer without a Status, in the words of client-go.
    fn generic_error(&self) -> String {
        let code = self.status.as_u16();
        let media_type = self.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let is_text = media_type.is_some_and(|media_type| media_type.starts_with("text/"));
        let said = match is_text {
            true => String::from_utf8_lossy(&self.body).trim().chars().take(MESSAGE_CHARS_MAX).collect(),
            false => "unknown".to_owned(),
        };
        let message = match code {
            400 => "the server rejected our request for an unknown reason",
            401 => "the server has asked for the client to provide credentials",
            403 | 415 => &said,
            404 => "the server could not find the requested resource",
            405 => "the server does not allow this method on the requested resource",
            406 if said == "unknown" => {
                "the server was unable to respond with a content type that the client supports"
            }
            406 => &said,
            409 => "the server reported a conflict",
            422 => "the server rejected our request due to an error in our request",
            429 => "the server has received too many requests and has asked us to try again later",
            503 => "the server is currently unable to handle the request",
            504 => {
                "the server was unable to return a response in the time allotted, but may still be processing the request"
            }
            500.. => {
                return format!(
                    "an error on the server ({}) has prevented the request from succeeding",
                    go_text::quote(&said)
                );
            }
            _ => {
                return format!(
                    "the server responded with the status code {code} but did not return more information"
                );
            }
        };
        message.to_owned()
    }
}

/// Connections to a server, of which a few are kept. Has no timeouts: the caller sets one around a request.
pub struct Transport {
    trust: Trust,
    identity: Option<Credential>,
    answer_bytes_max: usize,
    tls: OnceLock<Arc<ClientConfig>>,
    /// Connections that wait for a request, and the servers they lead to.
    idle: Mutex<Vec<(Origin, Connection)>>,
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transport").field("trust", &self.trust).finish_non_exhaustive()
    }
}

impl Transport {
    /// Returns a transport. `identity` is its client certificate.
    pub fn new(trust: Trust, identity: Option<Credential>, answer_bytes_max: usize) -> Self {
        Self { trust, identity, answer_bytes_max, tls: OnceLock::new(), idle: Mutex::default() }
    }

    /// Checks that the trusted CAs and the client certificate can be used.
    pub fn check(&self) -> Result<(), String> {
        self.tls().map(drop)
    }

    /// Sends a request whose URI is a path and query. The answer is returned whatever its code.
    pub fn send<'a>(
        &'a self,
        origin: &'a Origin,
        request: Request<Bytes>,
    ) -> BoxFuture<'a, Result<Answer, Failure>> {
        Box::pin(async move {
            let (mut parts, body) = request.into_parts();
            address(&mut parts.headers, origin)?;
            let request = || Request::from_parts(parts.clone(), Full::new(body.clone()));
            // The server may have closed an idle connection; then a new one is opened.
            if let Some(mut connection) = self.idle_connection(origin)
                && connection.ready().await.is_ok()
                && let Ok(response) = connection.send_request(request()).await
            {
                return self.read(origin, connection, response).await;
            }
            let mut connection = self.connect(origin).await?;
            let response = connection.send_request(request()).await;
            self.read(origin, connection, response.map_err(|error| broken(&error))?).await
        })
    }

    /// Sends a request whose URI is a path and query. The answer's body is read as it arrives, and the connection kept
    /// once it has ended.
    pub fn open<'a>(
        self: &'a Arc<Self>,
        origin: &'a Origin,
        mut request: Request<Bytes>,
    ) -> BoxFuture<'a, Result<Response<AnswerBody>, Failure>> {
        Box::pin(async move {
            address(request.headers_mut(), origin)?;
            let mut request = request.map(Full::new);
            // The server may have closed an idle connection; a request that it did not receive is sent on a new one.
            while let Some(mut connection) = self.idle_connection(origin) {
                if connection.ready().await.is_err() {
                    continue;
                }
                match connection.try_send_request(request).await {
                    Ok(response) => return Ok(self.opened(origin, connection, response)),
                    Err(mut failed) => match failed.take_message() {
                        Some(unsent) => request = unsent,
                        None => return Err(broken(failed.error())),
                    },
                }
            }
            let mut connection = self.connect(origin).await?;
            let response = connection.send_request(request).await.map_err(|error| broken(&error))?;
            Ok(self.opened(origin, connection, response))
        })
    }

    fn opened(
        self: &Arc<Self>,
        origin: &Origin,
        connection: Connection,
        response: Response<Incoming>,
    ) -> Response<AnswerBody> {
        let kept = Some((self.clone(), origin.clone(), connection));
        response.map(|body| AnswerBody { body, kept })
    }

    /// Returns a connection to the pool.
    fn release(&self, origin: Origin, connection: Connection) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() == IDLE_MAX {
            idle.swap_remove(0);
        }
        idle.push((origin, connection));
    }

    async fn read(
        &self,
        origin: &Origin,
        connection: Connection,
        response: Response<Incoming>,
    ) -> Result<Answer, Failure> {
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, self.answer_bytes_max).collect().await;
        let body = body.map_err(|error| Failure::Answered(self.unread(&*error)))?.to_bytes();
        self.release(origin.clone(), connection);
        Ok(Answer { status: parts.status, headers: parts.headers, body })
    }

    /// Returns the reason why a body could not be read, in the words of client-go.
    fn unread(&self, error: &(dyn std::error::Error + Send + Sync + 'static)) -> String {
        if error.is::<LengthLimitError>() {
            return format!("the response is larger than {} bytes", self.answer_bytes_max);
        }
        "unexpected error when reading response body. Please retry. Original error: unexpected EOF".to_owned()
    }

    fn idle_connection(&self, origin: &Origin) -> Option<Connection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|(_, connection)| !connection.is_closed());
        let index = idle.iter().rposition(|(server, _)| server == origin)?;
        Some(idle.swap_remove(index).1)
    }

    async fn connect(&self, origin: &Origin) -> Result<Connection, Failure> {
        let Origin { scheme, host, port, server_name } = origin;
        if *scheme == Scheme::Http {
            return handshake_http(Box::new(dial(host, *port).await?)).await;
        }
        let tls = self.tls().map_err(Failure::Unreachable)?;
        let stream = dial_tls(host, *port, server_name, tls, &self.trust).await?;
        handshake_http(Box::new(stream)).await
    }

    fn tls(&self) -> Result<Arc<ClientConfig>, String> {
        if let Some(tls) = self.tls.get() {
            return Ok(tls.clone());
        }
        let config = client_tls(&self.trust, self.identity.as_ref())?;
        Ok(self.tls.get_or_init(|| Arc::new(config)).clone())
    }
}

/// Body of an answer that is read as it arrives. Its connection is kept for the next request once it has ended.
#[derive(Debug)]
pub struct AnswerBody {
    body: Incoming,
    kept: Option<(Arc<Transport>, Origin, Connection)>,
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(None) = polled
            && let Some((transport, origin, connection)) = self.kept.take()
        {
            transport.release(origin, connection);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        // The end has to be polled for, so that the connection is kept.
        self.kept.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Sets the headers of a request to a server.
fn address(headers: &mut HeaderMap, origin: &Origin) -> Result<(), Failure> {
    let host = origin.authority().parse();
    headers.insert(header::HOST, host.map_err(|_| Failure::Unreachable("invalid host".to_owned()))?);
    headers.entry(header::USER_AGENT).or_insert(header::HeaderValue::from_static("orlop"));
    if let Some(traceparent) = orlop_trace::current().and_then(|span| span.traceparent().parse().ok()) {
        headers.insert("traceparent", traceparent);
    }
    Ok(())
}

/// Returns the TLS of a client: the CAs it trusts, and its certificate.
pub fn client_tls(trust: &Trust, identity: Option<&Credential>) -> Result<ClientConfig, String> {
    let (mut roots, mut bundle) = (RootCertStore::empty(), Vec::new());
    match trust {
        Trust::System => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        Trust::Bundle(pem) => {
            // Like Go, takes what it can use and leaves the rest.
            for certificate in CertificateDer::pem_slice_iter(pem).flatten().take(BUNDLE_CERTIFICATES_MAX) {
                let _ = roots.add(certificate.clone());
                bundle.push(certificate);
            }
            if bundle.is_empty() {
                return Err(
                    "unable to load root certificates: no valid certificate authority data seen".to_owned()
                );
            }
        }
        Trust::Anything => {}
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let builder = match trust {
        Trust::Anything => {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(Unverified(provider)))
        }
        Trust::Bundle(_) => {
            let verifier = BundleVerifier::new(roots, bundle, provider)?;
            builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
        }
        Trust::System => builder.with_root_certificates(roots),
    };
    match identity {
        None => Ok(builder.with_no_client_auth()),
        Some(identity) => {
            let chain = CertificateDer::pem_slice_iter(identity.certificate.as_bytes());
            let chain: Vec<_> = chain
                .collect::<Result<_, _>>()
                .map_err(|error| format!("invalid client certificate: {error}"))?;
            let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes())
                .map_err(|error| format!("invalid client key: {error}"))?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|error| format!("invalid client certificate: {error}"))
        }
    }
}

/// Connects to a host and port over TCP. Errors are worded as by Go's client.
async fn dial(host: &str, port: u16) -> Result<TcpStream, Failure> {
    let dialled = TcpStream::connect((host, port)).await;
    let stream = dialled.map_err(|error| {
        Failure::Unreachable(format!("dial tcp {}: {}", authority(host, port), dial_reason(&error)))
    })?;
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

/// Connects to a host and port over TLS. Errors are worded as by Go's client.
pub async fn dial_tls(
    host: &str,
    port: u16,
    server_name: &str,
    tls: Arc<ClientConfig>,
    trust: &Trust,
) -> Result<TlsStream<TcpStream>, Failure> {
    let stream = dial(host, port).await?;
    let name = ServerName::try_from(server_name.to_owned())
        .map_err(|error| Failure::Unreachable(error.to_string()))?;
    let connected = TlsConnector::from(tls).connect(name, stream).await;
    let bundle = match trust {
        Trust::Bundle(pem) => pem.as_slice(),
        Trust::System | Trust::Anything => &[],
    };
    connected.map_err(|error| match error.kind() {
        io::ErrorKind::ConnectionReset => Failure::Reset(error.to_string()),
        _ => Failure::Unreachable(handshake::reason(&error, bundle)),
    })
}

/// Returns `host:port`, with brackets around an IPv6 address.
pub fn authority(host: &str, port: u16) -> String {
    match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

async fn handshake_http(stream: ErasedStream) -> Result<Connection, Failure> {
    client::handshake(stream).await.map_err(|error| broken(&error))
}

/// Returns the failure of a connection that broke during a request.
fn broken(error: &hyper::Error) -> Failure {
    let cause = std::error::Error::source(error).and_then(|source| source.downcast_ref::<io::Error>());
    match cause.map(io::Error::kind) {
        Some(io::ErrorKind::ConnectionReset) => Failure::Reset(error.to_string()),
        Some(io::ErrorKind::UnexpectedEof) => Failure::Unreachable("EOF".to_owned()),
        _ if error.is_incomplete_message() => Failure::Unreachable("EOF".to_owned()),
        _ => Failure::Unreachable(error.to_string()),
    }
}

/// Returns the reason why a connection failed, as Go words it.
fn dial_reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
        _ => error.to_string(),
    }
}

/// Accepts any certificate of a server that holds its key.
#[derive(Debug)]
struct Unverified(Arc<CryptoProvider>);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origin_is_parsed_from_urls() {
        let (origin, path) = Origin::of("https://[::1]:8443/authenticate?x=1").unwrap();
        assert_eq!((origin.host.as_str(), origin.port, path.as_str()), ("::1", 8443, "/authenticate?x=1"));
        assert_eq!(origin.authority(), "[::1]:8443");
        let (origin, path) = Origin::of("http://example.org").unwrap();
        assert_eq!((origin.scheme, origin.port, path.as_str()), (Scheme::Http, 80, "/"));
        for bad in ["ftp://example.org", "example.org", "", "https://", "https://\u{e9}"] {
            assert!(Origin::of(bad).is_err(), "{bad}");
        }
    }
}
