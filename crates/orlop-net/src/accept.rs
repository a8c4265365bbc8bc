//! The accept loop: connection limit, TLS handshakes, graceful shutdown.

use std::{future::Future, io, pin::Pin, sync::Arc, time::Duration};

use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::{JoinError, JoinSet},
    time::timeout,
};

use crate::{
    busy,
    erased::Served,
    listener::Listener,
    stream::{PeerAddress, Socket, Stream},
    tls::{ServerTls, TlsSession},
};

/// Pause after a failed accept. The usual cause is a lack of file descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);
/// Default bound on open connections.
const CONNECTIONS_MAX: usize = 65_536;

/// A bound on open connections, shared by the listeners that hold clones of it.
#[derive(Clone, Debug)]
pub struct ConnectionLimit(Arc<Semaphore>);

impl ConnectionLimit {
    /// Allows this many connections at a time. Further clients wait in the kernel's accept queue.
    pub fn new(connections_max: usize) -> Self {
        Self(Arc::new(Semaphore::new(connections_max.min(Semaphore::MAX_PERMITS))))
    }
}

/// Settings of an accept loop.
#[derive(Clone, Debug)]
pub struct AcceptOptions {
    /// TLS, or `None` for plain connections.
    pub tls: Option<ServerTls>,
    /// Bound on open connections.
    pub limit: ConnectionLimit,
    /// Deadline of a TLS handshake.
    pub handshake_timeout: Duration,
    /// Interval of TCP keepalive probes on an idle connection.
    pub tcp_keepalive: Duration,
    /// Deadline of open requests on shutdown. Connections still open then are closed.
    pub drain_timeout: Duration,
}

impl Default for AcceptOptions {
    fn default() -> Self {
        Self {
            tls: None,
            limit: ConnectionLimit::new(CONNECTIONS_MAX),
            handshake_timeout: Duration::from_secs(10),
            tcp_keepalive: Duration::from_secs(30),
            drain_timeout: Duration::from_secs(30),
        }
    }
}

/// An accepted connection, after its TLS handshake.
#[derive(Debug)]
pub struct Connection {
    /// The byte stream.
    pub stream: Stream,
    /// Both ends.
    pub peer: PeerAddress,
    /// The TLS session, if any.
    pub tls: Option<TlsSession>,
}

/// Accepts connections until `shutdown` resolves, then waits for open ones to finish.
///
/// Each connection runs `handler` on a task of its own. The handler passes its [`Watcher`] to the connection that it
/// serves, so that shutdown reaches it.
pub async fn accept<H, F>(
    listener: Listener,
    options: AcceptOptions,
    shutdown: impl Future<Output = ()> + Send,
    handler: H,
) where
    H: Fn(Connection, Watcher) -> F + Send + Sync + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let handler: Handler =
        Arc::new(move |connection, watcher| -> Served { Box::pin(handler(connection, watcher)) });
    accept_all(listener, options, Box::pin(shutdown), handler).await;
}

type Handler = Arc<dyn Fn(Connection, Watcher) -> Served + Send + Sync>;

/// The accept loop. It is not generic: handshakes are compiled once, for all fronts.
fn accept_all<'a>(
    listener: Listener,
    options: AcceptOptions,
    shutdown: Pin<Box<dyn Future<Output = ()> + Send + 'a>>,
    handler: Handler,
) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
    Box::pin(accept_until(listener, options, shutdown, handler))
}

async fn accept_until(
    listener: Listener,
    options: AcceptOptions,
    mut shutdown: Pin<Box<dyn Future<Output = ()> + Send + '_>>,
    handler: Handler,
) {
    let graceful = GracefulShutdown::new();
    // Dropped on return, which closes whatever outlives the drain timeout.
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = &mut shutdown => break,
            accepted = accept_one(&listener, &options) => accepted,
            Some(ended) = connections.join_next() => {
                log_panic(ended);
                continue;
            }
        };
        match accepted {
            Ok((socket, peer, permit)) => {
                let (options, handler, watcher) = (options.clone(), handler.clone(), graceful.watcher());
                connections.spawn(async move {
                    if let Some(connection) = handshake(socket, peer, &options).await {
                        busy::drive(handler(connection, watcher)).await;
                    }
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
    drop(listener);
    if timeout(options.drain_timeout, graceful.shutdown()).await.is_err() {
        let seconds = options.drain_timeout.as_secs();
        tracing::warn!(seconds, "closing connections that did not finish within the drain timeout");
    }
}

async fn accept_one(
    listener: &Listener,
    options: &AcceptOptions,
) -> io::Result<(Socket, PeerAddress, OwnedSemaphorePermit)> {
    let permit = options.limit.0.clone().acquire_owned().await.map_err(io::Error::other)?;
    let (socket, peer) = listener.accept(options.tcp_keepalive).await?;
    Ok((socket, peer, permit))
}

/// Performs the TLS handshake, if there is one. `None` if the client fails it.
async fn handshake(socket: Socket, peer: PeerAddress, options: &AcceptOptions) -> Option<Connection> {
    let Some(tls) = &options.tls else {
        return Some(Connection { stream: socket.into(), peer, tls: None });
    };
    match timeout(options.handshake_timeout, tls.accept(socket)).await {
        Ok(Ok((stream, session))) => Some(Connection { stream: stream.into(), peer, tls: Some(session) }),
        Ok(Err(error)) => {
            tracing::debug!(?peer, %error, "TLS handshake failed");
            None
        }
        Err(_) => {
            tracing::debug!(?peer, "TLS handshake timed out");
            None
        }
    }
}

fn log_panic(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!(%error, "a connection's task panicked");
    }
}
