//! Periodic compaction, for clients that do not compact: each interval compacts up to the revision of one interval ago,
//! and always retains the newest revisions.

use std::time::Duration;

use orlop_store::{Error, Revision, Store};

/// Compacts periodically, until dropped.
pub(crate) async fn run(store: Store, interval: Duration, min_retain: Revision) {
    let mut seen: Option<Revision> = None;
    loop {
        let now = match store.revision().await {
            Ok(now) => now,
            Err(error) => {
                tracing::debug!(%error, "cannot read the revision for compaction");
                tokio::time::sleep(interval).await;
                continue;
            }
        };
        let target =
            seen.replace(now).map(|before| before.min(now - min_retain)).filter(|target| *target > 0);
        if let Some(revision) = target {
            match store.compact(revision).await {
                Ok(()) => tracing::debug!(revision, "compacted"),
                // Another server or a client compacted further.
                Err(Error::Expired { .. }) => {}
                Err(error) => {
                    tracing::warn!(%error, revision, "compaction failed; retrying after the interval");
                }
            }
        }
        tokio::time::sleep(interval).await;
    }
}
