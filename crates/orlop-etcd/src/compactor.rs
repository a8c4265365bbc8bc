//! Compaction by the clock, for those whose clients do not compact: every interval, what was history one
//! interval ago is forgotten, but never the last so many revisions.

use std::time::Duration;

use orlop_store::{Error, Revision, Store};

/// Compacts for ever.
pub(crate) async fn run(store: Store, interval: Duration, min_retain: Revision) {
    let mut seen: Option<Revision> = None;
    loop {
        let now = match store.revision().await {
            Ok(now) => now,
            Err(error) => {
                tracing::debug!(%error, "cannot look at the revision now");
                tokio::time::sleep(interval).await;
                continue;
            }
        };
        let due = seen.replace(now).map(|before| before.min(now - min_retain)).filter(|due| *due > 0);
        if let Some(revision) = due {
            match store.compact(revision).await {
                Ok(()) => tracing::debug!(revision, "compacted"),
                // By another server, or by a client.
                Err(Error::Expired { .. }) => {}
                Err(error) => tracing::warn!(%error, revision, "compaction put off"),
            }
        }
        tokio::time::sleep(interval).await;
    }
}
