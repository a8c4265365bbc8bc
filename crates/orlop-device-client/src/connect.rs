//! Connections to a server: unix socket, or TCP with TLS and a token.

use std::time::Duration;

use orlop_grpc::{Target, connect_lazy};
use tonic::{
    Request, Status,
    metadata::{Ascii, MetadataValue},
    service::{Interceptor, interceptor::InterceptedService},
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity, Uri},
};

/// Deadline of connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval of HTTP/2 PINGs on an idle connection, so that a watch of a dead server ends.
const KEEP_ALIVE: Duration = Duration::from_secs(60);
/// Deadline of the reply to a PING.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// A connection with credentials.
pub type Connection = InterceptedService<Channel, Token>;

/// Invalid connection settings.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Invalid address.
    #[error("invalid address {0:?}: expected unix:///path, http://host:port or https://host:port")]
    Address(String),
    /// The token is not a valid header value.
    #[error("the token is not a valid header value")]
    Token,
    /// Invalid TLS settings.
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] tonic::transport::Error),
}

/// Settings of a connection.
#[derive(Clone, Debug)]
pub struct Connect {
    address: String,
    token: Option<String>,
    ca: Option<Vec<u8>>,
    identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl Connect {
    /// Sets the address: `unix:///path`, `http://host:port` or `https://host:port`.
    pub fn to(address: impl Into<String>) -> Self {
        Self { address: address.into(), token: None, ca: None, identity: None }
    }

    /// Sends a bearer token with each call.
    #[must_use]
    pub fn token(self, token: impl Into<String>) -> Self {
        Self { token: Some(token.into()), ..self }
    }

    /// Trusts servers with a certificate of this CA (PEM).
    #[must_use]
    pub fn ca(self, pem: impl Into<Vec<u8>>) -> Self {
        Self { ca: Some(pem.into()), ..self }
    }

    /// Presents this client certificate (PEM).
    #[must_use]
    pub fn identity(self, certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        Self { identity: Some((certificate.into(), key.into())), ..self }
    }

    /// Returns a connection, which connects with the first call and reconnects when it is lost.
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
            // Only for the :authority header.
            let endpoint = settings(Endpoint::from_static("http://localhost"));
            return Ok(connect_lazy(&endpoint, Target::Unix(path.into())));
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
        Ok(connect_lazy(&endpoint, Target::Address))
    }
}

fn settings(endpoint: Endpoint) -> Endpoint {
    endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
}

/// Adds the bearer token to each call.
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
