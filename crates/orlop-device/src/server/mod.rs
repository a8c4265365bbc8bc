//! The server: its addresses, its services, its beginning and its end.

mod accept;
mod authority;
mod build_info;
mod caller;
mod channelz;
mod connection;
mod listen;
mod metrics;
mod monitor;
mod observe;
mod routes;
mod tls;
mod web;

use std::{collections::HashMap, io, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use futures_util::StreamExt;
use orlop_store::{Endpoint, Store};
use tokio::{
    net::TcpListener,
    sync::{Semaphore, mpsc, watch},
    task::JoinSet,
};
use tokio_stream::wrappers::ReceiverStream;
use tonic_health::server::HealthReporter;

pub(crate) use self::caller::Caller;
use self::{
    accept::{Acceptor, CONNECTIONS_MAX},
    channelz::Channelz,
    connection::Connection,
    listen::UnixSocket,
    metrics::Metrics,
    monitor::Monitor,
    observe::Observe,
    routes::Routes,
};
pub use self::{
    caller::{Policy, Token},
    listen::Address,
    tls::TlsFiles,
};
pub use crate::shape::ShapeError;
use crate::{
    encoded::Encoded,
    kinds::{self, Kind},
    resource::Resource,
    service::DeviceService,
    shape::Shape,
    versions::Versions,
};

/// Calls open at a time on one connection.
const STREAMS_MAX: u32 = 100;
/// Bytes of a request's headers.
const HEADERS_BYTES_MAX: u32 = 16 << 10;
/// How long a quiet client may take to give a sign of life.
const KEEP_ALIVE_ANSWER: Duration = Duration::from_secs(20);
/// What a client may send on a connection before the server has read it.
const WINDOW_BYTES: u32 = 256 << 10;

/// Bytes of data in memory past which history is forgotten before its time.
const MEMORY_HISTORY_BYTES: u64 = 2 << 20;

/// How a server is set up.
#[derive(Debug)]
pub struct Config {
    /// The kinds it serves.
    pub kinds: Vec<&'static Kind>,
    /// Where objects are.
    pub storage: Endpoint,
    /// The unix socket.
    pub socket: Option<PathBuf>,
    /// The socket's permission bits.
    pub socket_mode: u32,
    /// The socket's user and group, if not the server's own.
    pub socket_owner: (Option<u32>, Option<u32>),
    /// The TCP address.
    pub tcp: Option<Address>,
    /// TLS for the TCP address.
    pub tls: Option<TlsFiles>,
    /// Who may write.
    pub policy: Policy,
    /// Health, reflection and channelz, without the kinds.
    pub admin: Option<Address>,
    /// `/metrics` and `/version` over HTTP.
    pub metrics: Option<Address>,
    /// How often to look after the storage.
    pub monitor_period: Duration,
    /// How often a watch that asked for bookmarks gets one.
    pub bookmark_period: Duration,
    /// How often a quiet client is asked for a sign of life. One that gives none within twenty seconds, or as
    /// long again if that is less, is dropped.
    pub keep_alive: Duration,
    /// How long calls may take to end once the server stops.
    pub grace: Duration,
    /// How long history stays readable, for watches that resume; in memory not more than a few MiB of it.
    pub retention: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            kinds: kinds::ALL.to_vec(),
            storage: Endpoint::Memory,
            socket: None,
            socket_mode: 0o666,
            socket_owner: (None, None),
            tcp: None,
            tls: None,
            policy: Policy::default(),
            admin: None,
            metrics: None,
            monitor_period: Duration::from_secs(10),
            bookmark_period: Duration::from_secs(60),
            keep_alive: Duration::from_secs(60),
            grace: Duration::from_secs(25),
            retention: Duration::from_secs(300),
        }
    }
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address cannot be opened.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// Which one.
        address: String,
        /// What the system said.
        error: io::Error,
    },
    /// A file for TLS cannot be used.
    #[error("cannot use {path} for TLS: {why}", path = .path.display())]
    Tls {
        /// Which one.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The store cannot be opened.
    #[error("cannot open the storage: {0}")]
    Store(#[from] orlop_store::Error),
    /// A kind's `.proto` is not as the server reads it.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// The `.proto` files contradict each other.
    #[error("cannot describe the services: {0}")]
    Reflection(String),
    /// Two settings do not go together.
    #[error("{0}")]
    Settings(String),
}

/// A server that runs.
#[derive(Debug)]
pub struct Server {
    stop: watch::Sender<bool>,
    /// The gRPC servers, which end when their calls have.
    serving: JoinSet<()>,
    /// The rest, which ends with this.
    _beside: JoinSet<()>,
    store: Store,
    grace: Duration,
    /// The TCP address it listens on, if any.
    pub tcp: Option<SocketAddr>,
    /// The address for health, if any.
    pub admin: Option<SocketAddr>,
    /// The address for metrics, if any.
    pub metrics: Option<SocketAddr>,
}

impl Server {
    /// Starts a server. When this returns, it answers.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        check(&config)?;
        let store = open_store(&config).await?;
        let (stop, stopping) = watch::channel(false);
        let mut services = HashMap::new();
        let policy = Arc::new(config.policy.clone());
        let versions = Versions::of(&config.storage);
        for kind in &config.kinds {
            let resource = Arc::new(Resource {
                kind,
                shape: Shape::of(kind)?,
                store: store.clone(),
                versions,
                bookmark_period: config.bookmark_period,
                stopping: stopping.clone(),
                encoded: Encoded::default(),
            });
            services.insert(kind.service, DeviceService::new(resource, policy.clone()));
        }
        let health = HealthReporter::new();
        let channelz = Channelz::new("orlop device".to_owned());
        let metrics = Arc::new(Metrics::new(store.metrics(), &described(&config.kinds)));
        let monitor = Monitor {
            store: store.clone(),
            kinds: config.kinds.clone(),
            health: health.clone(),
            metrics: metrics.clone(),
            period: config.monitor_period,
        };
        let serves = monitor.look(None).await;

        let (mut serving, mut beside) = (JoinSet::new(), JoinSet::new());
        let observed = |routes| Observe { routes, metrics: metrics.clone() };
        let routes = Routes::new(services, &config.kinds, &health, &channelz)?;
        let (accepted, connections) = mpsc::channel(64);
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let acceptor = Acceptor { channelz: channelz.clone(), places: places.clone(), accepted };
        if let Some(path) = &config.socket {
            let socket = UnixSocket::open(path, config.socket_mode, config.socket_owner)?;
            channelz.listen(Address::Unix(path.clone()));
            beside.spawn(acceptor.clone().unix(socket));
        }
        let mut tcp = None;
        if let Some(address) = &config.tcp {
            let tls = config.tls.as_ref().map(TlsFiles::acceptor).transpose()?;
            let listener = open_tcp(address, &channelz, &mut tcp).await?;
            beside.spawn(acceptor.clone().tcp(listener, tls));
        }
        let keep_alive = config.keep_alive;
        serving.spawn(serve(observed(routes.clone()), connections, keep_alive, stopping.clone()));

        let mut admin = None;
        if let Some(address) = &config.admin {
            let (accepted, connections) = mpsc::channel(64);
            let acceptor = Acceptor { channelz: channelz.clone(), places, accepted };
            beside.spawn(acceptor.tcp(open_tcp(address, &channelz, &mut admin).await?, None));
            serving.spawn(serve(observed(routes.without_kinds()), connections, keep_alive, stopping.clone()));
        }
        let mut web = None;
        if let Some(Address::Tcp { host, port }) = &config.metrics {
            let listener = listen::tcp(host, *port).await?;
            web = listener.local_addr().ok();
            beside.spawn(web::serve(listener, metrics.clone()));
        }
        beside.spawn(monitor.watch(serves, stopping));
        Ok(Self { stop, serving, _beside: beside, store, grace: config.grace, tcp, admin, metrics: web })
    }

    /// Stops: takes no new calls, ends watches, lets other calls end, and closes the store.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        let ended = async { while self.serving.join_next().await.is_some() {} };
        if tokio::time::timeout(self.grace, ended).await.is_err() {
            tracing::warn!(seconds = self.grace.as_secs(), "calls are cut short");
        }
        drop(self.serving);
        drop(self._beside);
        if tokio::time::timeout(Duration::from_secs(5), self.store.close()).await.is_err() {
            // Calls that were cut short still hold it; what was acknowledged is safe all the same.
            tracing::debug!("the store is still in use");
        }
    }
}

/// Settings that would be a surprise are refused.
fn check(config: &Config) -> Result<(), StartError> {
    let wrong = |why: &str| Err(StartError::Settings(why.to_owned()));
    if config.socket.is_none() && config.tcp.is_none() {
        return wrong("there is no address to listen on");
    }
    if let (Some(Address::Tcp { host, .. }), None) = (&config.tcp, &config.tls)
        && !matches!(host.as_str(), "localhost" | "127.0.0.1" | "::1")
    {
        return wrong("a TCP address that others can reach needs TLS: give a certificate and a key");
    }
    for side in [&config.tcp, &config.admin, &config.metrics] {
        if matches!(side, Some(Address::Unix(_))) {
            return wrong("only the API itself listens on a unix socket");
        }
    }
    Ok(())
}

async fn open_store(config: &Config) -> Result<Store, orlop_store::Error> {
    let mut settings = orlop_store::Config::new(config.storage.clone());
    settings.retention = Some(config.retention);
    // A node has hundreds of devices, not millions: small buffers keep the process small.
    settings.ring_bytes = 512 << 10;
    settings.cache_bytes = 1 << 20;
    if config.storage == Endpoint::Memory {
        // Its pages are in memory already.
        settings.cache_bytes = 512 << 10;
        settings.history_bytes = Some(MEMORY_HISTORY_BYTES);
    }
    settings.readers = 2;
    settings.commit_on_caller = false;
    settings.limits.queue = 1024;
    Store::open(settings).await
}

/// The compiled `.proto` files of everything that is served.
fn described(kinds: &[&'static Kind]) -> Vec<&'static [u8]> {
    let mut sets: Vec<&[u8]> = kinds.iter().map(|kind| kind.descriptors).collect();
    sets.extend([
        tonic_health::pb::FILE_DESCRIPTOR_SET,
        channelz::proto::FILE_DESCRIPTOR_SET,
        tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET,
        tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET,
    ]);
    sets
}

async fn open_tcp(
    address: &Address,
    channelz: &Channelz,
    bound: &mut Option<SocketAddr>,
) -> Result<TcpListener, StartError> {
    let Address::Tcp { host, port } = address else {
        return Err(StartError::Settings("not a TCP address".to_owned()));
    };
    let listener = listen::tcp(host, *port).await?;
    *bound = listener.local_addr().ok();
    if let Some(bound) = bound {
        channelz.listen(Address::Tcp { host: bound.ip().to_string(), port: bound.port() });
    }
    Ok(listener)
}

async fn serve(
    service: Observe,
    connections: mpsc::Receiver<Connection>,
    keep_alive: Duration,
    stopping: watch::Receiver<bool>,
) {
    let incoming = ReceiverStream::new(connections).map(Ok::<_, io::Error>);
    let mut stopping = stopping;
    let stopped = async move {
        let _ = stopping.wait_for(|stopping| *stopping).await;
    };
    let served = tonic::transport::Server::builder()
        .max_concurrent_streams(STREAMS_MAX)
        .http2_max_header_list_size(HEADERS_BYTES_MAX)
        .http2_keepalive_interval(Some(keep_alive))
        .http2_keepalive_timeout(Some(KEEP_ALIVE_ANSWER.min(keep_alive)))
        .initial_connection_window_size(WINDOW_BYTES)
        .initial_stream_window_size(WINDOW_BYTES)
        .serve_with_incoming_shutdown(service, incoming, stopped)
        .await;
    if let Err(error) = served {
        tracing::error!(%error, "the server ended");
    }
}
