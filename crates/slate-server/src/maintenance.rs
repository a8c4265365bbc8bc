//! Background work: unfinished index builds, expiry, idle cursors.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;

use crate::context::SharedContext;

/// Interval of checks for index builds.
const BUILD_INTERVAL: Duration = Duration::from_millis(200);

/// Runs maintenance until shutdown.
pub(crate) async fn run(context: SharedContext, ttl_interval: Duration, mut stop: watch::Receiver<bool>) {
    let mut next_expiry = tokio::time::Instant::now();
    loop {
        let expire = tokio::time::Instant::now() >= next_expiry;
        if expire {
            next_expiry = tokio::time::Instant::now() + ttl_interval;
            context.cursors.sweep();
        }
        let shared = Arc::clone(&context);
        let worked = tokio::task::spawn_blocking(move || -> slate::Result<bool> {
            let building = shared.engine.build_pending()?;
            let expired = expire && shared.engine.expire(bson::DateTime::now())? > 0;
            Ok(building || expired)
        });
        let busy = match worked.await {
            Ok(Ok(busy)) => busy,
            Ok(Err(error)) => {
                tracing::warn!(%error, "maintenance failed");
                false
            }
            Err(_) => return,
        };
        if expire && busy {
            // More may have expired than one step deletes.
            next_expiry = tokio::time::Instant::now();
        }
        let delay = if busy { Duration::from_millis(1) } else { BUILD_INTERVAL };
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
    }
}
