//! Reaching a server: over a unix socket, or over TCP with TLS and a token.

use std::{path::PathBuf, time::Duration};

use hyper_util::rt::TokioIo;
use tonic::{
    Request, Status,
    metadata::{Ascii, MetadataValue},
    service::{Interceptor, interceptor::InterceptedService},
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity, Uri},
};
use tower::service_fn;

/// How long to wait for a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// A quiet connection is asked for a sign of life this often, so that a dead server ends a watch.
const KEEP_ALIVE: Duration = Duration::from_secs(60);
/// How long that sign of life may take.
const KEEP_ALIVE_ANSWER: Duration = Duration::from_secs(20);

/// What calls go through.
pub type Connection = InterceptedService<Channel, Token>;

/// An address that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The address is none of the forms known.
    #[error("address {0:?} is none of unix:///path, http://host:port, https://host:port")]
    Address(String),
    /// The token cannot travel in a header.
    #[error("the token contains characters that a header cannot carry")]
    Token,
    /// The TLS settings contradict each other.
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] tonic::transport::Error),
}

/// Says where the server is and who is calling.
#[derive(Clone, Debug)]
pub struct Connect {
    address: String,
    token: Option<String>,
    ca: Option<Vec<u8>>,
    identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl Connect {
    /// A server at `unix:///path`, `http://host:port` or `https://host:port`.
    pub fn to(address: impl Into<String>) -> Self {
        Self { address: address.into(), token: None, ca: None, identity: None }
    }

    /// Sends a bearer token with each call.
    #[must_use]
    pub fn token(self, token: impl Into<String>) -> Self {
        Self { token: Some(token.into()), ..self }
    }

    /// Trusts servers whose certificate this PEM vouches for.
    #[must_use]
    pub fn ca(self, pem: impl Into<Vec<u8>>) -> Self {
        Self { ca: Some(pem.into()), ..self }
    }

    /// Shows this certificate (PEM) to a server that asks for one.
    #[must_use]
    pub fn identity(self, certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        Self { identity: Some((certificate.into(), key.into())), ..self }
    }

    /// A connection that is made with the first call and made again when it is lost.
    pub fn open(self) -> Result<Connection, ConnectError> {
        let token = match &self.token {
            Some(token) => {
                let value: MetadataValue<Ascii> =
                    format!("Bearer {token}").parse().map_err(|_| ConnectError::Token)?;
                Some(value)
            }
            None => None,
        };
        Ok(InterceptedService::new(self.channel()?, Token(token)))
    }

    fn channel(self) -> Result<Channel, ConnectError> {
        if let Some(path) = self.address.strip_prefix("unix://") {
            let path = PathBuf::from(path);
            // The name is only for the :authority header; the connector decides where to go.
            let endpoint = settings(Endpoint::from_static("http://localhost"));
            return Ok(
                endpoint.connect_with_connector_lazy(service_fn(move |_: Uri| {
                    let path = path.clone();
                    async move {
                        Ok::<_, std::io::Error>(TokioIo::new(tokio::net::UnixStream::connect(path).await?))
                    }
                })),
            );
        }
        let uri = Uri::try_from(&self.address)
            .ok()
            .filter(|uri| matches!(uri.scheme_str(), Some("http" | "https")))
            .ok_or_else(|| ConnectError::Address(self.address.clone()))?;
        let secure = uri.scheme_str() == Some("https");
        let mut endpoint = settings(Endpoint::from(uri));
        if secure {
            let mut tls = ClientTlsConfig::new();
            if let Some(ca) = self.ca {
                tls = tls.ca_certificate(Certificate::from_pem(ca));
            }
            if let Some((certificate, key)) = self.identity {
                tls = tls.identity(Identity::from_pem(certificate, key));
            }
            endpoint = endpoint.tls_config(tls)?;
        }
        Ok(endpoint.connect_lazy())
    }
}

fn settings(endpoint: Endpoint) -> Endpoint {
    endpoint
        .connect_timeout(CONNECT)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE_ANSWER)
}

/// Puts the bearer token on each call.
#[derive(Clone, Debug)]
pub struct Token(Option<MetadataValue<Ascii>>);

impl Interceptor for Token {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(token) = &self.0 {
            request.metadata_mut().insert("authorization", token.clone());
        }
        Ok(request)
    }
}
