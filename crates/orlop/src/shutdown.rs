//! When to stop: on SIGINT or SIGTERM.

use tokio::signal::unix::{SignalKind, signal};

/// Returns once the process is asked to stop.
pub(crate) async fn asked() {
    let (Ok(mut interrupt), Ok(mut terminate)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        tracing::warn!("signals cannot be caught: the process stops without finishing requests");
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    tracing::info!("stopping: requests under way are finished first");
}
