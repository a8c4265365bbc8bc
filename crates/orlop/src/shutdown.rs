//! When to stop: on SIGINT or SIGTERM.

use tokio::signal::unix::{SignalKind, signal};

/// Resolves once the process is asked to stop. From this call on, not from the first poll, a signal no
/// longer ends the process: whoever has said that it is ready must have called this before.
pub(crate) fn asked() -> impl Future<Output = ()> + Send {
    let signals = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    async move {
        let (Ok(mut interrupt), Ok(mut terminate)) = signals else {
            tracing::warn!("signals cannot be caught: the process stops without finishing requests");
            return std::future::pending().await;
        };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        tracing::info!("stopping: requests under way are finished first");
    }
}
