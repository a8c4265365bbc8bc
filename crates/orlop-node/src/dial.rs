//! Requests to containers: HTTP, TCP and gRPC health, for probes and hooks.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, Uri, header};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{
    ClientConfig, DigitallySignedStruct, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::TlsConnector;

/// Bytes of a response that are read.
const BODY_BYTES_MAX: usize = 10 << 10;
/// Redirects that are followed.
const REDIRECTS_MAX: usize = 10;

/// A request to a container.
#[derive(Clone, Debug)]
pub(crate) struct HttpGet {
    pub(crate) is_https: bool,
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) user_agent: String,
}

/// Response of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) body: String,
}

/// Sends a request, and follows redirects on the same host.
pub(crate) async fn http_get(request: &HttpGet, limit: Duration) -> Result<Answer, String> {
    let mut path =
        if request.path.starts_with('/') { request.path.clone() } else { format!("/{}", request.path) };
    let deadline = timeout(limit, async {
        for _ in 0..=REDIRECTS_MAX {
            let (answer, location) = send(request, &path).await?;
            match location.filter(|_| (300..400).contains(&answer.code)) {
                Some(next) => match on_same_host(&next, request) {
                    Some(next) => path = next,
                    // A redirect elsewhere is an answer, as for a kubelet.
                    None => return Ok(answer),
                },
                None => return Ok(answer),
            }
        }
        Err("stopped after 10 redirects".to_owned())
    });
    let scheme = if request.is_https { "https" } else { "http" };
    let url = format!("{scheme}://{}:{}{}", request.host, request.port, request.path);
    match deadline.await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(format!("Get {url:?}: {error}")),
        Err(_) => Err(format!(
            "Get {url:?}: context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
        )),
    }
}

fn on_same_host(location: &str, request: &HttpGet) -> Option<String> {
    let uri: Uri = location.parse().ok()?;
    let same = match uri.host() {
        None => true,
        Some(host) => host == request.host && uri.port_u16().unwrap_or(80) == request.port,
    };
    same.then(|| uri.path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string))
}

async fn send(request: &HttpGet, path: &str) -> Result<(Answer, Option<String>), String> {
    let mut builder = Request::get(path)
        .header(header::HOST, format!("{}:{}", request.host, request.port))
        .header(header::USER_AGENT, &request.user_agent)
        .header(header::ACCEPT, "*/*")
        .header(header::CONNECTION, "close");
    if let Some(headers) = builder.headers_mut() {
        for (name, value) in &request.headers {
            if let (Ok(name), Ok(value)) =
                (header::HeaderName::try_from(name.as_str()), header::HeaderValue::try_from(value.as_str()))
            {
                headers.insert(name, value);
            }
        }
    }
    let sent = builder.body(Full::new(Bytes::new())).map_err(|error| error.to_string())?;
    let stream = connect(&request.host, request.port).await?;
    let response = if request.is_https {
        let name = ServerName::try_from(request.host.clone()).map_err(|error| error.to_string())?;
        let tls = TlsConnector::from(unverified_tls()?).connect(name, stream).await;
        exchange(TokioIo::new(tls.map_err(|error| error.to_string())?), sent).await?
    } else {
        exchange(TokioIo::new(stream), sent).await?
    };
    let code = response.status().as_u16();
    let location = response.headers().get(header::LOCATION);
    let location = location.and_then(|value| value.to_str().ok()).map(str::to_owned);
    let mut body = Vec::new();
    let mut incoming = response.into_body();
    while let Some(Ok(frame)) = incoming.frame().await {
        let Ok(data) = frame.into_data() else { continue };
        body.extend(&data[..data.len().min(BODY_BYTES_MAX - body.len())]);
        if body.len() >= BODY_BYTES_MAX {
            break;
        }
    }
    Ok((Answer { code, body: String::from_utf8_lossy(&body).into_owned() }, location))
}

async fn exchange<S>(
    stream: S,
    request: Request<Full<Bytes>>,
) -> Result<http::Response<hyper::body::Incoming>, String>
where
    S: hyper::rt::Read + hyper::rt::Write + Send + Unpin + 'static,
{
    let handshake = hyper::client::conn::http1::handshake(stream).await;
    let (mut sender, connection) = handshake.map_err(|error| error.to_string())?;
    tokio::spawn(connection);
    sender.send_request(request).await.map_err(|error| match error.is_incomplete_message() {
        true => "EOF".to_owned(),
        false => error.to_string(),
    })
}

/// Connects, with errors worded as Go's.
pub(crate) async fn connect(host: &str, port: u16) -> Result<TcpStream, String> {
    TcpStream::connect((host, port)).await.map_err(|error| {
        let reason = match error.kind() {
            std::io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
            _ => error.to_string(),
        };
        format!("dial tcp {host}:{port}: {reason}")
    })
}

/// Asks a gRPC health service. `Err` is the reason why it is not serving.
pub(crate) async fn grpc_health(host: &str, port: u16, service: &str) -> Result<(), String> {
    const SERVING: u8 = 1;
    const STATES: [&str; 4] = ["UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"];
    let stream = connect(host, port)
        .await
        .map_err(|_| format!("timeout: failed to connect service \"{host}:{port}\" within 1s"))?;
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|error| error.to_string())?;
    tokio::spawn(connection);
    let request = Request::post(format!("http://{host}:{port}/grpc.health.v1.Health/Check"))
        .header(header::CONTENT_TYPE, "application/grpc")
        .header(header::USER_AGENT, "kube-probe/1.37")
        .header(header::TE, "trailers")
        .body(Full::new(health_request(service)?))
        .map_err(|error| error.to_string())?;
    let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
    let early = response.headers().get("grpc-status").cloned();
    let collected = response.into_body().collect().await.map_err(|error| error.to_string())?;
    let status = collected.trailers().and_then(|trailers| trailers.get("grpc-status").cloned()).or(early);
    match status.as_ref().and_then(|status| status.to_str().ok()) {
        Some("0") => {}
        Some("12") => {
            return Err(
                "error: this server does not implement the grpc health protocol (grpc.health.v1.Health)"
                    .to_owned(),
            );
        }
        Some("5") => return Err(format!("error: health rpc failed: rpc error: unknown service {service:?}")),
        other => return Err(format!("error: health rpc failed: status {}", other.unwrap_or("missing"))),
    }
    let body = collected.to_bytes();
    // A message is a flag, its length and its bytes; field 1 is the state.
    let state = match body.get(5..) {
        Some([0x08, state, ..]) => *state,
        _ => 0,
    };
    match state {
        SERVING => Ok(()),
        other => {
            let name = STATES.get(usize::from(other)).unwrap_or(&"UNKNOWN");
            Err(format!("service unhealthy (responded with {name:?})"))
        }
    }
}

fn health_request(service: &str) -> Result<Bytes, String> {
    let length = u8::try_from(service.len()).ok().filter(|length| *length < 0x80);
    let length = length.ok_or("the name of the service is too long")?;
    let mut message = Vec::new();
    if length > 0 {
        message.extend([0x0a, length]);
        message.extend(service.as_bytes());
    }
    let size = u32::try_from(message.len()).unwrap_or_default();
    Ok([&[0][..], &size.to_be_bytes(), &message].concat().into())
}

/// TLS that verifies nothing: probes go to containers, whose certificates are for other names.
fn unverified_tls() -> Result<Arc<ClientConfig>, String> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Unverified(provider)))
        .with_no_client_auth();
    Ok(Arc::new(config))
}

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
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
