//! Accepting connections, on `orlop-net`: TLS that follows its files, a limit, a graceful end.

use std::{future::Future, sync::Arc, time::Duration};

use orlop_net::{AcceptOptions, ConnectionLimit, Listener, ServerTls, Stream};
use tokio::sync::{Semaphore, watch};

use crate::context::SharedContext;

/// Time that connections have to end at shutdown.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// Connections above the limit that are being refused at a time. More wait in the kernel's queue.
const REFUSALS_MAX: usize = 64;

/// Settings of a listener.
#[derive(Clone)]
pub(crate) struct Front {
    pub(crate) context: SharedContext,
    pub(crate) tls: Option<ServerTls>,
    pub(crate) connections_max: usize,
    /// Connections that may still be opened, over all listeners.
    pub(crate) limit: Arc<Semaphore>,
    pub(crate) stop: watch::Receiver<bool>,
}

/// Accepts connections until shutdown, then waits for those that are open.
pub(crate) async fn serve<F, T>(listener: Listener, front: Front, handle: F)
where
    F: Fn(Stream, SharedContext, watch::Receiver<bool>) -> T + Clone + Send + Sync + 'static,
    T: Future<Output = ()> + Send + 'static,
{
    let options = AcceptOptions {
        tls: front.tls.clone(),
        limit: ConnectionLimit::new(front.connections_max.saturating_add(REFUSALS_MAX)),
        drain_timeout: DRAIN_TIMEOUT,
        ..AcceptOptions::default()
    };
    let stop = stopped(front.stop.clone());
    orlop_net::accept(listener, options, stop, move |connection, watcher| {
        let (front, handle) = (front.clone(), handle.clone());
        async move {
            let Ok(_permit) = front.limit.try_acquire() else {
                // Closed at once: waiting in line would only hide the limit.
                front.context.metrics.refused.inc();
                return;
            };
            let _guard = ConnectionGuard::new(&front.context);
            handle(connection.stream, Arc::clone(&front.context), front.stop.clone()).await;
            // Held until here, so that shutdown waits for the connection.
            drop(watcher);
        }
    })
    .await;
}

/// Waits for shutdown.
pub(crate) async fn stopped(mut stop: watch::Receiver<bool>) {
    // The sender is gone only when the server is.
    drop(stop.wait_for(|stop| *stop).await);
}

/// Counts an open connection while it lives.
#[derive(Debug)]
struct ConnectionGuard(SharedContext);

impl ConnectionGuard {
    fn new(context: &SharedContext) -> Self {
        context.metrics.connections.inc();
        Self(Arc::clone(context))
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.0.metrics.connections.dec();
    }
}
