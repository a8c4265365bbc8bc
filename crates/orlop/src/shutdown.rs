//! Shutdown on SIGINT or SIGTERM.

use tokio::signal::unix::{SignalKind, signal};

/// Returns a future that resolves when the process receives SIGINT or SIGTERM. Signals are caught from this
/// call on, not from the first poll: call it before the process says that it is ready.
pub(crate) fn requested() -> impl Future<Output = ()> + Send {
    let signals = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    async move {
        let (Ok(mut interrupt), Ok(mut terminate)) = signals else {
            tracing::warn!("signals cannot be caught: the process will stop without draining requests");
            return std::future::pending().await;
        };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        tracing::info!("shutting down: draining requests");
    }
}
