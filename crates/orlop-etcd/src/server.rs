//! The server: all services on a listener.

use futures_util::future::BoxFuture;
use std::{future::Future, sync::Arc, time::Duration};

use hyper_util::{server::graceful::GracefulShutdown, service::TowerToHyperService};
use orlop_net::{
    AcceptOptions, HttpOptions, Listener, ServerTls, accept,
    http::{Scheduling, Windows, serve_connection, serve_stream},
};
use orlop_store::Store;
use tokio::{io::DuplexStream, task::JoinSet};
use tonic::service::Routes;

use crate::{
    auth::AuthService,
    cluster::ClusterService,
    compactor,
    dispatch::Dispatcher,
    election::ElectionService,
    http,
    kv::KvService,
    lease::LeaseService,
    lock::LockService,
    maintenance::MaintenanceService,
    node::{Node, Options},
    pb::{
        etcdserverpb::{
            auth_server::AuthServer, cluster_server::ClusterServer, kv_server::KvServer,
            lease_server::LeaseServer, maintenance_server::MaintenanceServer, watch_server::WatchServer,
        },
        v3electionpb::election_server::ElectionServer,
        v3lockpb::lock_server::LockServer,
    },
    watch::WatchService,
};

/// Bytes that a request may have beyond `max_request_bytes`, as in etcd.
const REQUEST_OVERHEAD_BYTES: usize = 512 << 10;
/// Deadline of open requests on shutdown.
const DRAIN: Duration = Duration::from_secs(5);
/// Deadline of the reply to a keepalive PING.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(20);
const WINDOWS: Windows = Windows { stream: 1 << 20, connection: 4 << 20 };

/// etcd's API on a store. Clones share it.
#[derive(Clone, Debug)]
pub struct Server {
    node: Arc<Node>,
}

impl Server {
    /// Creates a server for a store.
    pub fn new(store: Store, options: Options) -> BoxFuture<'static, orlop_store::Result<Self>> {
        Box::pin(async move { Ok(Self { node: Node::new(store, options).await? }) })
    }

    /// Returns the cluster id.
    pub fn cluster_id(&self) -> u64 {
        self.node.identity.cluster_id
    }

    /// Returns the routes of every service, gRPC and HTTP.
    pub fn routes(&self) -> Routes {
        let node = || self.node.clone();
        let limit = self.node.options.max_request_bytes + REQUEST_OVERHEAD_BYTES;
        let (_, health) = tonic_health::server::health_reporter();
        let mut routes = Routes::builder();
        routes
            .add_service(KvServer::new(KvService { node: node() }).max_decoding_message_size(limit))
            .add_service(WatchServer::new(WatchService { node: node() }).max_decoding_message_size(limit))
            .add_service(LeaseServer::new(LeaseService { node: node() }).max_decoding_message_size(limit))
            .add_service(ClusterServer::new(ClusterService { node: node() }))
            .add_service(MaintenanceServer::new(MaintenanceService { node: node() }))
            .add_service(AuthServer::new(AuthService { node: node() }))
            .add_service(LockServer::new(LockService { node: node() }))
            .add_service(ElectionServer::new(ElectionService { node: node() }))
            .add_service(health);
        routes.routes().into_axum_router().merge(http::routes(node())).into()
    }

    /// Serves until `shutdown` resolves, then drains open requests. Watches are ended.
    pub fn serve<'a>(
        &'a self,
        listener: Listener,
        tls: Option<ServerTls>,
        shutdown: impl Future<Output = ()> + Send + 'a,
    ) -> BoxFuture<'a, ()> {
        self.serve_until(listener, tls, Box::pin(shutdown))
    }

    fn serve_until<'a>(
        &'a self,
        listener: Listener,
        tls: Option<ServerTls>,
        shutdown: BoxFuture<'a, ()>,
    ) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let node = &self.node;
            // Aborted on return.
            let mut background = JoinSet::new();
            let Options { compact_interval, compact_min_retain, .. } = node.options;
            if let Some(interval) = compact_interval {
                background.spawn(compactor::run(node.store.clone(), interval, compact_min_retain));
            }
            let options = AcceptOptions { tls, drain_timeout: DRAIN, ..AcceptOptions::default() };
            let (http, dispatcher) = (Arc::new(self.http_options()), self.dispatcher());
            let shutdown = async {
                shutdown.await;
                node.stop();
            };
            accept(listener, options, shutdown, move |connection, watcher| {
                let (http, dispatcher) = (http.clone(), dispatcher.clone());
                async move { serve_connection(connection.stream, &http, dispatcher, watcher).await }
            })
            .await;
        })
    }

    /// Serves `/health`, `/metrics` and `/version` without gRPC, on an address of their own.
    pub fn serve_http<'a>(
        &'a self,
        listener: Listener,
        shutdown: impl Future<Output = ()> + Send + 'a,
    ) -> BoxFuture<'a, ()> {
        self.serve_http_until(listener, Box::pin(shutdown))
    }

    fn serve_http_until<'a>(&'a self, listener: Listener, shutdown: BoxFuture<'a, ()>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let service = TowerToHyperService::new(http::routes(self.node.clone()));
            let http = Arc::new(HttpOptions::default());
            let options = AcceptOptions { drain_timeout: DRAIN, ..AcceptOptions::default() };
            accept(listener, options, shutdown, move |connection, watcher| {
                let (http, service) = (http.clone(), service.clone());
                async move { serve_connection(connection.stream, &http, service, watcher).await }
            })
            .await;
        })
    }

    /// Serves one byte stream within the process until its end.
    pub(crate) async fn serve_in_process(self, stream: DuplexStream) {
        let graceful = GracefulShutdown::new();
        serve_stream(stream, &self.http_options(), self.dispatcher(), graceful.watcher()).await;
    }

    fn dispatcher(&self) -> Dispatcher {
        Dispatcher { kv: KvService { node: self.node.clone() }, routes: self.routes().prepare() }
    }

    fn http_options(&self) -> HttpOptions {
        let Options { keep_alive, max_streams, .. } = self.node.options;
        HttpOptions {
            scheduling: Scheduling::ConnectionTask,
            streams_max: max_streams,
            keep_alive_interval: keep_alive,
            keep_alive_timeout: KEEP_ALIVE_TIMEOUT.min(keep_alive),
            windows: Some(WINDOWS),
            date_header: false,
            ..HttpOptions::default()
        }
    }
}
