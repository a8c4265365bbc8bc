//! Background maintenance: revokes expired leases, compacts history past its retention, and gives free space back
//! to the file system. Work is done in small steps, so that no caller waits for it, and is safe to interrupt after
//! any step.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use tokio::{
    sync::{Mutex, Notify},
    time::{Instant, sleep, timeout},
};

use crate::{
    Config, Revision,
    engine::{Command, Engine},
    error::{Error, Result},
    lease_renewals::COALESCE_WINDOW,
    metrics::Metrics,
    watch::Hub,
    writer::Writer,
};

/// Maximum versions deleted and pages given back in one step, and the pause between steps in which writers run.
const STEP_VERSIONS: usize = 512;
const STEP_PAGES: usize = 64;
const STEP_PAUSE: Duration = Duration::from_millis(4);
/// Revisions since the last step at which the pause is shortened: what they supersede has to be deleted too.
const BUSY_REVISIONS: Revision = 64;
/// Leases checked at a time, and the longest interval between checks.
const EXPIRE_LEASES: usize = 256;
const EXPIRE_INTERVAL: Duration = Duration::from_secs(1);
/// The longest interval between deletions of compacted history.
const DELETE_INTERVAL: Duration = Duration::from_secs(10);
/// Interval of size checks where size bounds history, and the history that stays readable even then.
const SIZE_INTERVAL: Duration = Duration::from_millis(250);
const HISTORY_MIN: Duration = Duration::from_secs(1);
/// Samples of the current revision taken per retention period; each is compacted once it is old enough.
const SAMPLES: u32 = 10;

/// Runs the maintenance of one store.
#[derive(Debug)]
pub(crate) struct Housekeeper {
    engine: Arc<dyn Engine>,
    hub: Arc<Hub>,
    writer: Arc<Writer>,
    retention: Option<Duration>,
    history_bytes: Option<u64>,
    metrics: Metrics,
    lease_granted: Notify,
    compacted: Notify,
    /// Serializes deletion of compacted history.
    deleting: Mutex<()>,
}

impl Housekeeper {
    pub(crate) fn new(
        engine: Arc<dyn Engine>,
        hub: Arc<Hub>,
        writer: Arc<Writer>,
        config: &Config,
        metrics: Metrics,
    ) -> Self {
        Self {
            engine,
            hub,
            writer,
            retention: config.retention,
            history_bytes: config.history_bytes,
            metrics,
            lease_granted: Notify::new(),
            compacted: Notify::new(),
            deleting: Mutex::new(()),
        }
    }

    /// Runs for ever.
    pub(crate) async fn run(self: Arc<Self>) {
        tokio::join!(self.expire_leases(), self.compact_by_retention(), self.delete_when_compacted());
    }

    /// Rechecks deadlines: a new lease may be the first to expire.
    pub(crate) fn lease_granted(&self) {
        self.lease_granted.notify_one();
    }

    async fn expire_leases(&self) {
        loop {
            let wait = match self.revoke_overdue().await {
                Ok(next) => next.clamp(Duration::from_millis(1), EXPIRE_INTERVAL),
                Err(error) => {
                    tracing::debug!(%error, "cannot check for expired leases now");
                    EXPIRE_INTERVAL
                }
            };
            let _ = timeout(wait, self.lease_granted.notified()).await;
        }
    }

    /// Revokes overdue leases. Returns the time until the next may be overdue.
    async fn revoke_overdue(&self) -> Result<Duration> {
        if !self.engine.is_leader().await {
            return Ok(EXPIRE_INTERVAL);
        }
        let leases = self.engine.leases(EXPIRE_LEASES).await?;
        let mut failed = false;
        for lease in &leases {
            let left_ms = lease.remaining_ms.saturating_add(COALESCE_WINDOW.as_millis() as i64);
            if left_ms > 0 {
                return Ok(Duration::from_millis(left_ms as u64));
            }
            // The writer checks the deadline again: a lease renewed meanwhile stays.
            if let Err(error) = self.writer.submit(Command::Expire(lease.id)).await {
                // One that cannot be revoked must not keep the others alive.
                tracing::warn!(%error, lease = lease.id, "overdue lease not revoked");
                failed = true;
            }
        }
        if failed {
            return Ok(EXPIRE_INTERVAL);
        }
        Ok(if leases.len() < EXPIRE_LEASES { EXPIRE_INTERVAL } else { Duration::ZERO })
    }

    /// Compacts history that is older than the retention.
    async fn compact_by_retention(&self) {
        if self.retention.is_none() && self.history_bytes.is_none() {
            return;
        }
        let retention = self.retention.unwrap_or(Duration::MAX);
        let interval_max = if self.history_bytes.is_some() { SIZE_INTERVAL } else { Duration::MAX };
        let mut samples: VecDeque<(Instant, Revision)> = VecDeque::new();
        loop {
            samples.push_back((Instant::now(), self.hub.published_revision()));
            let mut due = None;
            let kept = if self.is_over_size_limit().await { retention.min(HISTORY_MIN) } else { retention };
            while samples.front().is_some_and(|(taken, _)| taken.elapsed() >= kept) {
                due = samples.pop_front().map(|(_, revision)| revision);
            }
            if let Some(revision) = due
                && self.engine.is_leader().await
            {
                match self.compact(revision).await {
                    Ok(()) | Err(Error::Expired { .. }) => {}
                    Err(error) => tracing::warn!(%error, revision, "compaction failed and will be retried"),
                }
            }
            sleep((retention / SAMPLES).max(Duration::from_millis(10)).min(interval_max)).await;
        }
    }

    /// Returns whether data and history exceed the limit for history.
    async fn is_over_size_limit(&self) -> bool {
        let Some(limit) = self.history_bytes else { return false };
        self.engine.size().await.is_ok_and(|size| size.used > limit)
    }

    /// Makes `revision` the oldest readable one.
    pub(crate) async fn compact(&self, revision: Revision) -> Result<()> {
        let bounds = self.engine.bounds().await?;
        if revision > bounds.current {
            return Err(Error::FutureRevision { requested: revision, current: bounds.current });
        }
        if revision <= bounds.compacted {
            return Err(Error::Expired { compacted: bounds.compacted });
        }
        // Watchers that keep up must not lose the previous values of events that are about to be delivered.
        self.hub.wait_until_dispatched(revision).await;
        let result = self.engine.set_compacted(revision).await;
        self.metrics.compacted(&result);
        self.hub.evict_before(revision);
        self.compacted.notify_one();
        result
    }

    async fn delete_when_compacted(&self) {
        loop {
            // Also without a request: a crash may have interrupted a deletion, another process may have compacted, and
            // this one may become leader later.
            let is_leader = self.engine.is_leader().await;
            let mut wait = if is_leader { DELETE_INTERVAL } else { EXPIRE_INTERVAL };
            if is_leader && let Err(error) = self.delete_compacted().await {
                tracing::warn!(%error, "deleting compacted history failed and will be retried");
                wait = EXPIRE_INTERVAL;
            }
            let _ = timeout(wait, self.compacted.notified()).await;
        }
    }

    /// Deletes everything before the compacted revision and gives the space back.
    pub(crate) async fn delete_compacted(&self) -> Result<()> {
        let _one_at_a_time = self.deleting.lock().await;
        let mut last = self.hub.published_revision();
        while self.engine.compact_step(STEP_VERSIONS).await? {
            self.pause_for_writers(&mut last).await;
        }
        if let Some(shrink) = self.engine.shrink() {
            while shrink.shrink_step(STEP_PAGES).await? {
                self.pause_for_writers(&mut last).await;
            }
        }
        self.metrics.size(self.engine.size().await?);
        Ok(())
    }

    /// Pauses between two steps, unless nothing was written since the last.
    async fn pause_for_writers(&self, last: &mut Revision) {
        let newest = self.hub.published_revision();
        match newest - std::mem::replace(last, newest) {
            0 => tokio::task::yield_now().await,
            BUSY_REVISIONS.. => sleep(STEP_PAUSE / 4).await,
            _ => sleep(STEP_PAUSE).await,
        }
    }
}
