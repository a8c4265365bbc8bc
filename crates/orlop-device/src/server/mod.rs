//! The server: its addresses, its services, its beginning and its end.

mod build_info;
mod caller;
mod channelz;
mod connection;
mod metrics;
mod monitor;
mod observe;
mod routes;
mod web;

use std::{collections::HashMap, io, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

pub use orlop_net::Address;
use orlop_net::{
    AcceptOptions, ConnectionLimit, HttpOptions, Listener, ServerTls, TlsError, TlsOptions,
    UnixSocketOptions,
    http::{Protocols, Windows},
};
use orlop_store::{Endpoint, Store};
use tokio::{sync::watch, task::JoinSet};
use tonic_health::server::HealthReporter;

pub(crate) use self::caller::Caller;
pub use self::caller::{Policy, Token};
use self::{channelz::Channelz, metrics::Metrics, monitor::Monitor, observe::Observe, routes::Routes};
pub use crate::shape::ShapeError;
use crate::{
    encoded::Encoded,
    kinds::{self, Kind},
    resource::Resource,
    service::DeviceService,
    shape::Shape,
    versions::Versions,
};

/// Open connections, of all gRPC addresses together.
const CONNECTIONS_MAX: usize = 1024;
/// Calls open at a time on one connection.
const STREAMS_MAX: u32 = 100;
/// Bytes of a request's headers.
const HEADERS_BYTES_MAX: u32 = 16 << 10;
/// How long a quiet client may take to give a sign of life.
const KEEP_ALIVE_ANSWER: Duration = Duration::from_secs(20);
/// Flow-control window of a stream and of a connection.
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
    pub tls: Option<TlsOptions>,
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
    /// TLS cannot be set up.
    #[error("cannot serve TLS: {0}")]
    Tls(#[from] TlsError),
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
        let http = HttpOptions {
            protocols: Protocols::Http2,
            header_bytes_max: HEADERS_BYTES_MAX,
            streams_max: STREAMS_MAX,
            keep_alive_interval: config.keep_alive,
            keep_alive_timeout: KEEP_ALIVE_ANSWER.min(config.keep_alive),
            windows: Some(Windows { stream: WINDOW_BYTES, connection: WINDOW_BYTES }),
            date_header: false,
            ..HttpOptions::default()
        };
        let accept = AcceptOptions {
            limit: ConnectionLimit::new(CONNECTIONS_MAX),
            drain_timeout: config.grace,
            ..AcceptOptions::default()
        };
        let mut serve = |listener: Listener, tls: Option<ServerTls>, routes: Routes| {
            channelz.listen(listener.local_address());
            let accept = AcceptOptions { tls, ..accept.clone() };
            let shutdown = stopped(stopping.clone());
            serving.spawn(connection::serve(
                listener,
                accept,
                http.clone(),
                observed(routes),
                channelz.clone(),
                shutdown,
            ));
        };
        if let Some(path) = &config.socket {
            serve(bind(&Address::Unix(path.clone()), &config).await?, None, routes.clone());
        }
        let mut tcp = None;
        if let Some(address) = &config.tcp {
            let tls = config.tls.clone().map(ServerTls::new).transpose()?;
            let listener = bind(address, &config).await?;
            tcp = listener.tcp_address();
            serve(listener, tls, routes.clone());
        }
        let mut admin = None;
        if let Some(address) = &config.admin {
            let listener = bind(address, &config).await?;
            admin = listener.tcp_address();
            serve(listener, None, routes.without_kinds());
        }
        let mut web = None;
        if let Some(address) = &config.metrics {
            let listener = bind(address, &config).await?;
            web = listener.tcp_address();
            beside.spawn(web::serve(listener, metrics.clone()));
        }
        beside.spawn(monitor.watch(serves, stopping));
        Ok(Self { stop, serving, _beside: beside, store, tcp, admin, metrics: web })
    }

    /// Stops: takes no new calls, ends watches, lets other calls end, and closes the store.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        // Each ends within the drain timeout.
        while self.serving.join_next().await.is_some() {}
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
    if let (Some(address), None) = (&config.tcp, &config.tls)
        && !address.is_local()
    {
        return wrong("a TCP address that other machines reach needs TLS: give a certificate and a key");
    }
    for (purpose, address) in [("health and channelz", &config.admin), ("metrics", &config.metrics)] {
        if let Some(address) = address
            && !address.is_local()
        {
            tracing::warn!(%address, purpose, "served without authentication to other machines");
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

async fn bind(address: &Address, config: &Config) -> Result<Listener, StartError> {
    let (uid, gid) = config.socket_owner;
    let unix = UnixSocketOptions { mode: config.socket_mode, uid, gid };
    let bound = Listener::bind(address, &unix).await;
    bound.map_err(|error| StartError::Listen { address: address.to_string(), error })
}

async fn stopped(mut stopping: watch::Receiver<bool>) {
    let _ = stopping.wait_for(|stopping| *stopping).await;
}
