//! The server: listeners, services, start-up and shutdown.

mod build_info;
mod channelz;
mod config;
mod connection;
mod metrics;
mod monitor;
mod observe;
mod routes;
mod web;

use futures_util::future::BoxFuture;
use std::{collections::HashMap, net::SocketAddr, sync::Arc, time::Duration};

pub use orlop_net::Address;
use orlop_net::{
    AcceptOptions, ConnectionLimit, HttpOptions, Listener, ServerTls, UnixSocketOptions,
    http::{Protocols, Windows},
};
use orlop_store::{Endpoint, Store};
use tokio::{sync::watch, task::JoinSet};
use tonic_health::server::HealthReporter;

pub use self::config::{Config, StartError};
use self::{channelz::Channelz, metrics::Metrics, monitor::Monitor, observe::Observe, routes::Routes};
pub use crate::{
    authorization::{Token, WritePolicy},
    shape::ShapeError,
};
use crate::{
    encoded::EncodedCache, kinds::Kind, resource::Resource, service::DeviceService, shape::Shape,
    versions::Versions,
};

/// Open connections, of all gRPC addresses together.
const CONNECTIONS_MAX: usize = 1024;
/// Concurrent streams of one connection.
const STREAMS_MAX: u32 = 100;
/// Bytes of a request's headers.
const HEADERS_BYTES_MAX: u32 = 16 << 10;
/// Deadline of the reply to a keepalive PING.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(20);
/// Flow-control window of a stream and of a connection.
const WINDOW_BYTES: u32 = 256 << 10;
/// Bytes of history in memory past which it is compacted before its retention ends.
const MEMORY_HISTORY_BYTES: u64 = 2 << 20;

/// A running server.
#[derive(Debug)]
pub struct Server {
    stop: watch::Sender<bool>,
    /// Accept loops, which end after the drain.
    serving: JoinSet<()>,
    /// Background tasks, aborted on drop.
    _background: JoinSet<()>,
    store: Store,
    /// The TCP address it listens on, if any.
    pub tcp: Option<SocketAddr>,
    /// The address for health, if any.
    pub admin: Option<SocketAddr>,
    /// The address for metrics, if any.
    pub metrics: Option<SocketAddr>,
}

impl Server {
    /// Starts a server, which is ready when this returns.
    pub fn start(config: Config) -> BoxFuture<'static, Result<Self, StartError>> {
        Box::pin(async move {
            config.validate()?;
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
                    encoded: EncodedCache::default(),
                });
                services.insert(kind.service, DeviceService::new(resource, policy.clone()));
            }
            let health = HealthReporter::new();
            let channelz = Channelz::new("orlop device".to_owned());
            let metrics = Arc::new(Metrics::new(store.metrics(), &descriptors(&config.kinds)));
            let monitor = Monitor {
                store: store.clone(),
                kinds: config.kinds.clone(),
                health: health.clone(),
                metrics: metrics.clone(),
                period: config.monitor_period,
            };
            let serves = monitor.probe(None).await;

            let (mut serving, mut background) = (JoinSet::new(), JoinSet::new());
            let observed = |routes| Observe { routes, metrics: metrics.clone() };
            let routes = Routes::new(services, &config.kinds, &health, &channelz)?;
            let http = HttpOptions {
                protocols: Protocols::Http2,
                header_bytes_max: HEADERS_BYTES_MAX,
                streams_max: STREAMS_MAX,
                keep_alive_interval: config.keep_alive,
                keep_alive_timeout: KEEP_ALIVE_TIMEOUT.min(config.keep_alive),
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
                background.spawn(web::serve(listener, metrics.clone()));
            }
            background.spawn(monitor.run(serves, stopping));
            Ok(Self { stop, serving, _background: background, store, tcp, admin, metrics: web })
        })
    }

    /// Stops: closes the listeners, ends watches, drains other calls, and closes the store.
    pub fn stop(mut self) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            self.stop.send_replace(true);
            // Each ends within the drain timeout.
            while self.serving.join_next().await.is_some() {}
            drop(self._background);
            if tokio::time::timeout(Duration::from_secs(5), self.store.close()).await.is_err() {
                // Calls past the drain timeout still hold it. Acknowledged writes are durable all the same.
                tracing::debug!("the store is still in use after shutdown");
            }
        })
    }
}

async fn open_store(config: &Config) -> Result<Store, orlop_store::Error> {
    let mut settings = orlop_store::Config::new(config.storage.clone());
    settings.retention = Some(config.retention);
    // A node has hundreds of devices: small buffers keep the process small.
    settings.ring_bytes = 512 << 10;
    settings.cache_bytes = 1 << 20;
    if config.storage == Endpoint::Memory {
        // The database itself is in memory.
        settings.cache_bytes = 512 << 10;
        settings.history_bytes = Some(MEMORY_HISTORY_BYTES);
    }
    settings.readers = 2;
    settings.commit_on_caller = false;
    settings.limits.queue = 1024;
    Store::open(settings).await
}

/// Returns the file descriptors of all services.
fn descriptors(kinds: &[&'static Kind]) -> Vec<&'static [u8]> {
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
