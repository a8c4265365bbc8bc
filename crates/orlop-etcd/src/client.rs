//! A client for copying between endpoints, and for tests.

use std::{path::PathBuf, sync::Arc};

use futures_util::future::BoxFuture;
use orlop_grpc::{ByteStream, Open, Target, connect};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use crate::{
    pb::etcdserverpb::{
        auth_client::AuthClient, cluster_client::ClusterClient, kv_client::KvClient,
        lease_client::LeaseClient, maintenance_client::MaintenanceClient, watch_client::WatchClient,
    },
    pb::{v3electionpb::election_client::ElectionClient, v3lockpb::lock_client::LockClient},
    server::Server,
};

/// Largest response, as in etcd's own clients.
const RESPONSE_BYTES_MAX: usize = i32::MAX as usize;
/// Buffer between a client and a server in the same process.
const PIPE_BYTES: usize = 256 << 10;

/// Failure to connect.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Invalid address.
    #[error("invalid etcd address {0:?}: expected http://host:port, https://host:port or unix:///path")]
    Address(String),
    /// A certificate could not be read.
    #[error("{path}: {source}", path = .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// Connection or TLS handshake failed.
    #[error("cannot connect to {address}: {}", causes(.source))]
    Transport {
        /// The address.
        address: String,
        /// The cause.
        source: tonic::transport::Error,
    },
}

/// Joins the causes of a transport error, whose own message is only "transport error".
fn causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |error| error.source());
    let texts: Vec<_> = causes.map(ToString::to_string).collect();
    if texts.is_empty() { error.to_string() } else { texts.join(": ") }
}

/// TLS settings of a client.
#[derive(Clone, Debug, Default)]
pub struct ClientTls {
    /// PEM of the CA that signed the server's certificate.
    pub ca: Option<PathBuf>,
    /// PEM of the client's own certificate and key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// A client of every service.
#[derive(Clone, Debug)]
pub struct Client {
    /// Key-value service.
    pub kv: KvClient<Channel>,
    /// Watch service.
    pub watch: WatchClient<Channel>,
    /// Lease service.
    pub lease: LeaseClient<Channel>,
    /// Maintenance service.
    pub maintenance: MaintenanceClient<Channel>,
    /// Cluster service.
    pub cluster: ClusterClient<Channel>,
    /// Auth service.
    pub auth: AuthClient<Channel>,
    /// Lock service.
    pub lock: LockClient<Channel>,
    /// Election service.
    pub election: ElectionClient<Channel>,
}

impl Client {
    /// Connects to `http://…`, `https://…` or `unix:///…`.
    pub fn connect<'a>(address: &'a str, tls: &'a ClientTls) -> BoxFuture<'a, Result<Self, ConnectError>> {
        Box::pin(async move {
            let failed = |source| ConnectError::Transport { address: address.to_owned(), source };
            if let Some(path) = address.strip_prefix("unix://") {
                let channel = connect(placeholder_endpoint(), Target::Unix(path.into())).await;
                return Ok(Self::new(channel.map_err(failed)?));
            }
            let full = if address.contains("://") { address.to_owned() } else { format!("http://{address}") };
            let mut endpoint =
                Endpoint::from_shared(full.clone()).map_err(|_| ConnectError::Address(address.to_owned()))?;
            if full.starts_with("https://") {
                endpoint = endpoint.tls_config(tls_config(tls)?).map_err(failed)?;
            }
            let channel = connect(endpoint.tcp_nodelay(true), Target::Address).await;
            Ok(Self::new(channel.map_err(failed)?))
        })
    }

    /// Connects to a server in this process, without a socket.
    pub fn in_process(server: &Server) -> BoxFuture<'_, Result<Self, ConnectError>> {
        Box::pin(async move {
            let server = server.clone();
            let open: Open = Arc::new(move || {
                let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
                tokio::spawn(server.clone().serve_in_process(theirs));
                let ours: Box<dyn ByteStream> = Box::new(ours);
                Box::pin(std::future::ready(Ok(ours)))
            });
            let channel = connect(placeholder_endpoint(), Target::Stream(open))
                .await
                .map_err(|source| ConnectError::Transport { address: "this process".into(), source })?;
            Ok(Self::new(channel))
        })
    }

    fn new(channel: Channel) -> Self {
        Self {
            kv: KvClient::new(channel.clone()).max_decoding_message_size(RESPONSE_BYTES_MAX),
            watch: WatchClient::new(channel.clone()).max_decoding_message_size(RESPONSE_BYTES_MAX),
            lease: LeaseClient::new(channel.clone()),
            maintenance: MaintenanceClient::new(channel.clone())
                .max_decoding_message_size(RESPONSE_BYTES_MAX),
            cluster: ClusterClient::new(channel.clone()),
            auth: AuthClient::new(channel.clone()),
            lock: LockClient::new(channel.clone()),
            election: ElectionClient::new(channel),
        }
    }
}

/// Returns an endpoint whose address the connector ignores.
fn placeholder_endpoint() -> Endpoint {
    Endpoint::from_static("http://localhost")
}

fn tls_config(tls: &ClientTls) -> Result<ClientTlsConfig, ConnectError> {
    let read = |path: &PathBuf| {
        std::fs::read(path).map_err(|source| ConnectError::File { path: path.clone(), source })
    };
    let mut config = ClientTlsConfig::new();
    if let Some(ca) = &tls.ca {
        config = config.ca_certificate(Certificate::from_pem(read(ca)?));
    }
    if let Some((certificate, key)) = &tls.identity {
        config = config.identity(Identity::from_pem(read(certificate)?, read(key)?));
    }
    Ok(config)
}
