//! A client of the API, for copying between endpoints and for tests.

use std::path::PathBuf;

use hyper_util::rt::TokioIo;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity, Uri};

use crate::{
    pb::etcdserverpb::{
        auth_client::AuthClient, cluster_client::ClusterClient, kv_client::KvClient,
        lease_client::LeaseClient, maintenance_client::MaintenanceClient, watch_client::WatchClient,
    },
    server::Server,
};

/// Answers may be as large as etcd's own clients accept.
const ANSWER_BYTES: usize = i32::MAX as usize;
/// Bytes in flight between a server and a client in the same process.
const PIPE: usize = 256 << 10;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The address is not one.
    #[error("{0:?} is no address of an etcd: write http://host:port, https://host:port or unix:///path")]
    Address(String),
    /// A certificate could not be read.
    #[error("{path}: {source}", path = .path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// What went wrong.
        source: std::io::Error,
    },
    /// Nobody answers, or not in TLS.
    #[error("cannot connect to {address}: {}", causes(.source))]
    Transport {
        /// Where.
        address: String,
        /// What went wrong.
        source: tonic::transport::Error,
    },
}

/// The transport's own message says only that there was one; the reason is further down.
fn causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |error| error.source());
    let texts: Vec<_> = causes.map(ToString::to_string).collect();
    if texts.is_empty() { error.to_string() } else { texts.join(": ") }
}

/// What to show and whom to trust when connecting with TLS.
#[derive(Clone, Debug, Default)]
pub struct ClientTls {
    /// PEM of the CA that signed the server's certificate.
    pub ca: Option<PathBuf>,
    /// PEM of the client's own certificate and key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// Every service of an endpoint.
#[derive(Clone, Debug)]
pub struct Client {
    /// Keys.
    pub kv: KvClient<Channel>,
    /// Changes.
    pub watch: WatchClient<Channel>,
    /// Leases.
    pub lease: LeaseClient<Channel>,
    /// Upkeep.
    pub maintenance: MaintenanceClient<Channel>,
    /// Members.
    pub cluster: ClusterClient<Channel>,
    /// Users.
    pub auth: AuthClient<Channel>,
}

impl Client {
    /// Connects to `http://…`, `https://…` or `unix:///…`.
    pub async fn connect(address: &str, tls: &ClientTls) -> Result<Self, ConnectError> {
        let failed = |source| ConnectError::Transport { address: address.to_owned(), source };
        if let Some(path) = address.strip_prefix("unix://") {
            let path = PathBuf::from(path);
            let connector = tower::service_fn(move |_: Uri| {
                let path = path.clone();
                async move { tokio::net::UnixStream::connect(path).await.map(TokioIo::new) }
            });
            let channel = anywhere().connect_with_connector(connector).await.map_err(failed)?;
            return Ok(Self::new(channel));
        }
        let full = if address.contains("://") { address.to_owned() } else { format!("http://{address}") };
        let mut endpoint =
            Endpoint::from_shared(full.clone()).map_err(|_| ConnectError::Address(address.to_owned()))?;
        if full.starts_with("https://") {
            endpoint = endpoint.tls_config(tls_config(tls)?).map_err(failed)?;
        }
        let channel = endpoint.tcp_nodelay(true).connect().await.map_err(failed)?;
        Ok(Self::new(channel))
    }

    /// Connects to a server in this process, without a socket.
    pub async fn in_process(server: &Server) -> Result<Self, ConnectError> {
        let server = server.clone();
        let connector = tower::service_fn(move |_: Uri| {
            let (ours, theirs) = tokio::io::duplex(PIPE);
            tokio::spawn(server.clone().serve_in_process(theirs));
            async move { Ok::<_, std::io::Error>(TokioIo::new(ours)) }
        });
        let channel = anywhere()
            .connect_with_connector(connector)
            .await
            .map_err(|source| ConnectError::Transport { address: "this process".into(), source })?;
        Ok(Self::new(channel))
    }

    fn new(channel: Channel) -> Self {
        Self {
            kv: KvClient::new(channel.clone()).max_decoding_message_size(ANSWER_BYTES),
            watch: WatchClient::new(channel.clone()).max_decoding_message_size(ANSWER_BYTES),
            lease: LeaseClient::new(channel.clone()),
            maintenance: MaintenanceClient::new(channel.clone()).max_decoding_message_size(ANSWER_BYTES),
            cluster: ClusterClient::new(channel.clone()),
            auth: AuthClient::new(channel),
        }
    }
}

/// Stands for an address where the connector knows better.
fn anywhere() -> Endpoint {
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
