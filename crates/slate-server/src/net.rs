//! Accepting connections: limit, TLS, graceful end.

use std::{future::Future, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;

use crate::context::SharedContext;

/// Time limit of a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time that connections have to end at shutdown.
pub(crate) const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after `accept` failed, for instance for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A connection with or without TLS.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Stream for T {}

/// Settings of a listener.
#[derive(Clone)]
pub(crate) struct Accept {
    pub(crate) context: SharedContext,
    pub(crate) tls: Option<TlsAcceptor>,
    pub(crate) limit: Arc<Semaphore>,
    pub(crate) stop: watch::Receiver<bool>,
}

/// Accepts connections until told to stop, then waits for those that are open.
pub(crate) async fn serve<F, T>(listener: TcpListener, accept: Accept, handle: F)
where
    F: Fn(Box<dyn Stream>, SharedContext, watch::Receiver<bool>) -> T + Clone + Send + 'static,
    T: Future<Output = ()> + Send + 'static,
{
    let mut connections = JoinSet::new();
    let mut stop = accept.stop.clone();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "accept failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Ok(permit) = Arc::clone(&accept.limit).try_acquire_owned() else {
            // Closed at once: waiting in line would only hide the limit.
            accept.context.metrics.refused.inc();
            continue;
        };
        let (accept, handle) = (accept.clone(), handle.clone());
        connections.spawn(async move {
            let _permit = permit;
            let _guard = ConnectionGuard::new(&accept.context);
            match secure(stream, accept.tls.as_ref()).await {
                Ok(stream) => handle(stream, accept.context, accept.stop).await,
                Err(error) => tracing::debug!(%error, "handshake failed"),
            }
        });
    }
    drop(listener);
    let drained =
        tokio::time::timeout(DRAIN_TIMEOUT, async { while connections.join_next().await.is_some() {} });
    if drained.await.is_err() {
        tracing::warn!("connections were cut off at shutdown");
    }
}

async fn secure(stream: TcpStream, tls: Option<&TlsAcceptor>) -> std::io::Result<Box<dyn Stream>> {
    stream.set_nodelay(true)?;
    match tls {
        None => Ok(Box::new(stream)),
        Some(acceptor) => {
            let secured = tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await;
            Ok(Box::new(secured.map_err(|_| std::io::ErrorKind::TimedOut)??))
        }
    }
}

/// Counts an open connection while it lives.
#[derive(Debug)]
pub(crate) struct ConnectionGuard(SharedContext);

impl ConnectionGuard {
    pub(crate) fn new(context: &SharedContext) -> Self {
        context.metrics.connections.inc();
        Self(Arc::clone(context))
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.0.metrics.connections.dec();
    }
}
