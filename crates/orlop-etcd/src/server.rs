//! The services put together and served.

use std::{future::Future, io, pin::pin, sync::Arc, time::Duration};

use futures_util::{Stream, StreamExt, stream};
use hyper_util::server::graceful::GracefulShutdown;
use orlop_store::Store;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    task::JoinSet,
};
use tokio_stream::wrappers::{TcpListenerStream, UnixListenerStream};
use tonic::service::Routes;

use crate::{
    auth::AuthService,
    call::Calls,
    cluster::ClusterService,
    compactor, connection, http,
    kv::KvService,
    lease::LeaseService,
    listen::Listener,
    maintenance::MaintenanceService,
    node::{Node, Options},
    pb::etcdserverpb::{
        auth_server::AuthServer, cluster_server::ClusterServer, kv_server::KvServer,
        lease_server::LeaseServer, maintenance_server::MaintenanceServer, watch_server::WatchServer,
    },
    tls::ServerTls,
    watch::WatchService,
};

/// Room for what surrounds the bytes of a request, as etcd gives it.
const OVERHEAD: usize = 512 << 10;
/// TLS handshakes under way at a time.
const HANDSHAKES: usize = 256;
/// How long to wait when the system has no more files to give.
const PAUSE: Duration = Duration::from_millis(50);
/// How long open requests may take once the server is to stop.
const GRACE: Duration = Duration::from_secs(5);

/// etcd's API on a store, ready to be served. Clones serve the same.
#[derive(Clone, Debug)]
pub struct Server {
    node: Arc<Node>,
}

impl Server {
    /// Prepares to serve a store.
    pub async fn new(store: Store, options: Options) -> orlop_store::Result<Self> {
        Ok(Self { node: Node::new(store, options).await? })
    }

    /// The id of the data served, which clients remember.
    pub fn cluster_id(&self) -> u64 {
        self.node.identity.cluster_id
    }

    /// Every service, over gRPC and HTTP.
    pub fn routes(&self) -> Routes {
        let node = || self.node.clone();
        let limit = self.node.options.max_request_bytes + OVERHEAD;
        let (_, health) = tonic_health::server::health_reporter();
        let mut routes = Routes::builder();
        routes
            .add_service(KvServer::new(KvService { node: node() }).max_decoding_message_size(limit))
            .add_service(WatchServer::new(WatchService { node: node() }).max_decoding_message_size(limit))
            .add_service(LeaseServer::new(LeaseService { node: node() }).max_decoding_message_size(limit))
            .add_service(ClusterServer::new(ClusterService { node: node() }))
            .add_service(MaintenanceServer::new(MaintenanceService { node: node() }))
            .add_service(AuthServer::new(AuthService { node: node() }))
            .add_service(health);
        routes.routes().into_axum_router().merge(http::routes(node())).into()
    }

    /// Serves until `shutdown` is over, then lets requests under way finish; watches are ended.
    pub async fn serve(
        &self,
        listener: Listener,
        tls: Option<ServerTls>,
        shutdown: impl Future<Output = ()> + Send,
    ) {
        match (listener, tls) {
            (Listener::Tcp(listener), None) => self.serve_on(without_delay(listener), shutdown).await,
            (Listener::Tcp(listener), Some(tls)) => {
                self.serve_on(handshakes(without_delay(listener), tls), shutdown).await;
            }
            (Listener::Unix(listener, _file), None) => {
                self.serve_on(UnixListenerStream::new(listener), shutdown).await;
            }
            (Listener::Unix(listener, _file), Some(tls)) => {
                self.serve_on(handshakes(UnixListenerStream::new(listener), tls), shutdown).await;
            }
        }
    }

    /// Serves only what is not gRPC, on an address of its own.
    pub async fn serve_http(
        &self,
        listener: Listener,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<()> {
        let routes = http::routes(self.node.clone());
        match listener {
            Listener::Tcp(listener) => axum::serve(listener, routes).with_graceful_shutdown(shutdown).await,
            Listener::Unix(listener, _file) => {
                axum::serve(listener, routes).with_graceful_shutdown(shutdown).await
            }
        }
    }

    pub(crate) async fn serve_on<S>(
        &self,
        connections: impl Stream<Item = io::Result<S>> + Send,
        shutdown: impl Future<Output = ()> + Send,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let node = &self.node;
        // Ends with this, and with it whatever a peer keeps open for too long.
        let mut tasks = JoinSet::new();
        let Options { compact_interval, compact_min_retain, .. } = node.options;
        if let Some(interval) = compact_interval {
            tasks.spawn(compactor::run(node.store.clone(), interval, compact_min_retain));
        }
        let calls = Calls { kv: KvService { node: node.clone() }, routes: self.routes().prepare() };
        let graceful = GracefulShutdown::new();
        {
            let (mut connections, mut shutdown) = (pin!(connections), pin!(shutdown));
            loop {
                let accepted = tokio::select! {
                    () = &mut shutdown => break,
                    accepted = connections.next() => accepted,
                };
                match accepted {
                    None => break,
                    Some(Ok(stream)) => {
                        tasks.spawn(connection::serve(stream, calls.clone(), graceful.watcher()));
                    }
                    Some(Err(error)) => {
                        tracing::debug!(%error, "cannot accept a connection");
                        tokio::time::sleep(PAUSE).await;
                    }
                }
                while tasks.try_join_next().is_some() {}
            }
        }
        node.stop();
        if tokio::time::timeout(GRACE, graceful.shutdown()).await.is_err() {
            tracing::warn!("calls are cut short");
        }
    }
}

/// Answers are small and awaited: they must not wait to be sent together.
fn without_delay(
    listener: tokio::net::TcpListener,
) -> impl Stream<Item = io::Result<tokio::net::TcpStream>> + Send {
    TcpListenerStream::new(listener).inspect(|accepted| {
        if let Ok(socket) = accepted {
            let _ = socket.set_nodelay(true);
        }
    })
}

/// Shakes hands with many clients at a time. One that fails is dropped, the others never notice.
fn handshakes<S>(
    connections: impl Stream<Item = io::Result<S>> + Send,
    tls: ServerTls,
) -> impl Stream<Item = io::Result<tokio_rustls::server::TlsStream<S>>> + Send
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    connections
        .map(move |socket| {
            let tls = tls.clone();
            async move {
                match tls.accept(socket?).await {
                    Ok(stream) => Ok(Some(stream)),
                    Err(error) => {
                        tracing::debug!(%error, "TLS handshake failed");
                        Ok(None)
                    }
                }
            }
        })
        .buffer_unordered(HANDSHAKES)
        .flat_map(|accepted| stream::iter(accepted.transpose()))
}
