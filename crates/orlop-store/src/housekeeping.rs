//! Upkeep beside the traffic: expired leases are revoked, history past its retention is forgotten, free
//! space goes back to the file system. Everything happens in small steps, so that no caller waits for it,
//! and each step may be the last one before a crash.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use tokio::{
    sync::{Mutex, Notify},
    time::{Instant, sleep, timeout},
};

use crate::{
    Config, Revision,
    engine::{Command, Engine},
    error::{Error, Result},
    metrics::Metrics,
    renewals::RECENT,
    watch::Hub,
    writer::Writer,
};

/// Versions forgotten and pages given back in one step at the most, and the pause that lets writers in
/// between steps.
const STEP_VERSIONS: usize = 512;
const STEP_PAGES: usize = 64;
const STEP_PAUSE: Duration = Duration::from_millis(4);
const MANY_WRITES: Revision = 64;
/// Leases looked at in one go, and the longest time between two looks.
const EXPIRE_LEASES: usize = 256;
const EXPIRE_LOOK: Duration = Duration::from_secs(1);
/// The longest time between two looks for history to forget.
const FORGET_LOOK: Duration = Duration::from_secs(10);
/// How often the size is looked at where it bounds history, and what stays readable even then.
const SIZE_LOOK: Duration = Duration::from_millis(250);
const LEAST_HISTORY: Duration = Duration::from_secs(1);
/// How often a revision is noted down to be compacted once it is old enough: this often in each retention.
const SAMPLES: u32 = 10;

/// Runs the upkeep of one store.
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
    /// Held while history is being forgotten, by one task at a time.
    forgetting: Mutex<()>,
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
            forgetting: Mutex::new(()),
        }
    }

    /// Keeps house, for ever.
    pub(crate) async fn keep(self: Arc<Self>) {
        tokio::join!(self.expire_leases(), self.retain(), self.forget_when_compacted());
    }

    /// A lease may now be the first to run out.
    pub(crate) fn lease_granted(&self) {
        self.lease_granted.notify_one();
    }

    async fn expire_leases(&self) {
        loop {
            let wait = match self.revoke_overdue().await {
                Ok(next) => next.clamp(Duration::from_millis(1), EXPIRE_LOOK),
                Err(error) => {
                    tracing::debug!(%error, "cannot look for expired leases now");
                    EXPIRE_LOOK
                }
            };
            let _ = timeout(wait, self.lease_granted.notified()).await;
        }
    }

    /// Revokes what is overdue; how long until the next lease may be.
    async fn revoke_overdue(&self) -> Result<Duration> {
        if !self.engine.leads().await {
            return Ok(EXPIRE_LOOK);
        }
        let leases = self.engine.leases(EXPIRE_LEASES).await?;
        let mut failed = false;
        for lease in &leases {
            let left_ms = lease.remaining_ms.saturating_add(RECENT.as_millis() as i64);
            if left_ms > 0 {
                return Ok(Duration::from_millis(left_ms as u64));
            }
            // The writer looks at the deadline again: a lease renewed meanwhile stays.
            if let Err(error) = self.writer.submit(Command::Expire(lease.id)).await {
                // One that cannot be revoked now must not keep the others alive.
                tracing::warn!(%error, lease = lease.id, "overdue lease not revoked");
                failed = true;
            }
        }
        if failed {
            return Ok(EXPIRE_LOOK);
        }
        Ok(if leases.len() < EXPIRE_LEASES { EXPIRE_LOOK } else { Duration::ZERO })
    }

    /// Compacts what has been history for as long as it is to be kept.
    async fn retain(&self) {
        if self.retention.is_none() && self.history_bytes.is_none() {
            return;
        }
        let retention = self.retention.unwrap_or(Duration::MAX);
        let look = if self.history_bytes.is_some() { SIZE_LOOK } else { Duration::MAX };
        let mut samples: VecDeque<(Instant, Revision)> = VecDeque::new();
        loop {
            samples.push_back((Instant::now(), self.hub.tip()));
            let mut due = None;
            let kept = if self.is_over().await { retention.min(LEAST_HISTORY) } else { retention };
            while samples.front().is_some_and(|(taken, _)| taken.elapsed() >= kept) {
                due = samples.pop_front().map(|(_, revision)| revision);
            }
            if let Some(revision) = due
                && self.engine.leads().await
            {
                match self.compact(revision).await {
                    Ok(()) | Err(Error::Expired { .. }) => {}
                    Err(error) => tracing::warn!(%error, revision, "compaction put off"),
                }
            }
            sleep((retention / SAMPLES).max(Duration::from_millis(10)).min(look)).await;
        }
    }

    /// Whether there is more data than history may add to.
    async fn is_over(&self) -> bool {
        let Some(limit) = self.history_bytes else { return false };
        self.engine.size().await.is_ok_and(|size| size.used > limit)
    }

    /// Makes `revision` the oldest that can be read.
    pub(crate) async fn compact(&self, revision: Revision) -> Result<()> {
        let bounds = self.engine.bounds().await?;
        if revision > bounds.current {
            return Err(Error::FutureRevision { requested: revision, current: bounds.current });
        }
        if revision <= bounds.compacted {
            return Err(Error::Expired { compacted: bounds.compacted });
        }
        // Watchers that keep up must not lose the previous values of what they are about to be shown.
        self.hub.offered(revision).await;
        let marked = self.engine.mark_compacted(revision).await;
        self.metrics.compacted(&marked);
        self.compacted.notify_one();
        marked
    }

    async fn forget_when_compacted(&self) {
        loop {
            // Also without being asked: a compaction may have been cut short by a crash, or marked by another
            // process, and the lead may come to this one late.
            let leads = self.engine.leads().await;
            let mut wait = if leads { FORGET_LOOK } else { EXPIRE_LOOK };
            if leads && let Err(error) = self.forget().await {
                tracing::warn!(%error, "compaction will be tried again");
                wait = EXPIRE_LOOK;
            }
            let _ = timeout(wait, self.compacted.notified()).await;
        }
    }

    /// Forgets everything before the compacted revision and gives the space back.
    pub(crate) async fn forget(&self) -> Result<()> {
        let _one_at_a_time = self.forgetting.lock().await;
        let mut seen = self.hub.tip();
        while self.engine.compact_step(STEP_VERSIONS).await? {
            self.let_writers_in(&mut seen).await;
        }
        while self.engine.shrink_step(STEP_PAGES).await? {
            self.let_writers_in(&mut seen).await;
        }
        self.metrics.size(self.engine.size().await?);
        Ok(())
    }

    /// Pauses between two steps: not at all if nobody has written since the last, and shortly if many have, since what
    /// they write is to be forgotten too.
    async fn let_writers_in(&self, seen: &mut Revision) {
        let tip = self.hub.tip();
        match tip - std::mem::replace(seen, tip) {
            0 => tokio::task::yield_now().await,
            MANY_WRITES.. => sleep(STEP_PAUSE / 4).await,
            _ => sleep(STEP_PAUSE).await,
        }
    }
}
