//! Tracks which commits the write-ahead log has on disk.
//!
//! SQLite commits without waiting for the disk, and shows a commit to its readers at once. One sync of the log then
//! makes all commits before it durable, while the writer is already at the next. Nothing that a power loss could
//! undo may be revealed, neither to the caller that wrote it nor to a reader nor to a watcher. So each commit gets a
//! sequence number, syncs make sequence numbers durable in order, and a read that has seen a revision which is not
//! durable yet waits for it.
//!
//! A sync covers the file, whichever process wrote to it. So commits of another process are made durable here too before this
//! one reveals them, and no process has to know the progress of another.

use std::{
    io,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
    time::Instant,
};

use tokio::sync::watch;

use crate::{
    Revision,
    engine::CommitSequence,
    error::{Error, Result},
    metrics::Metrics,
};

/// Syncs the write-ahead log.
pub(super) type SyncLog = Box<dyn Fn() -> io::Result<()> + Send + Sync>;

/// Durable commits of one database.
pub(super) struct Durability {
    /// `None` where commits need no sync.
    sync_log: Option<SyncLog>,
    /// The newest durable revision, readable without the lock.
    revision: AtomicI64,
    state: Mutex<State>,
    /// Wakes threads when a sync has ended.
    sync_ended: Condvar,
    /// Wakes tasks when a sync has ended.
    durable: watch::Sender<CommitSequence>,
    metrics: Metrics,
}

#[derive(Debug, Default)]
struct State {
    /// The newest sequence number, and the newest revision that it covers.
    issued: CommitSequence,
    issued_revision: Revision,
    /// The commits that the sync under way makes durable.
    syncing: Option<(CommitSequence, Revision)>,
    durable: CommitSequence,
    /// Reason of a failed sync, after which nothing can become durable any more.
    failure: Option<String>,
}

impl Durability {
    /// Tracks a log in which everything up to `current` is visible already.
    pub(super) fn of_log(sync_log: SyncLog, current: Revision, metrics: Metrics) -> Result<Self> {
        let durability = Self::new(Some(sync_log), metrics);
        // A killed process may have left commits that are only in the operating system's cache.
        durability.wait(durability.committed(current, current, true))?;
        Ok(durability)
    }

    /// Tracks a database whose commits need no sync.
    pub(super) fn immediate(metrics: Metrics) -> Self {
        Self::new(None, metrics)
    }

    fn new(sync_log: Option<SyncLog>, metrics: Metrics) -> Self {
        let revision = if sync_log.is_some() { 0 } else { Revision::MAX };
        Self {
            sync_log,
            revision: AtomicI64::new(revision),
            state: Mutex::default(),
            sync_ended: Condvar::new(),
            durable: watch::Sender::new(0),
            metrics,
        }
    }

    /// Returns whether commits need a sync.
    pub(super) fn is_deferred(&self) -> bool {
        self.sync_log.is_some()
    }

    /// Returns the newest durable revision.
    pub(super) fn revision(&self) -> Revision {
        self.revision.load(Ordering::Acquire)
    }

    /// Fails if a sync has failed: a commit made now could never become durable.
    pub(super) fn check(&self) -> Result<()> {
        self.state().check()
    }

    /// Records a transaction that found `before` the newest revision and left `after`. Returns its sequence number.
    pub(super) fn committed(&self, before: Revision, after: Revision, wrote: bool) -> CommitSequence {
        if self.sync_log.is_none() {
            return 0;
        }
        let mut state = self.state();
        if wrote || before > state.issued_revision {
            state.issued += 1;
        }
        state.issued_revision = state.issued_revision.max(after);
        state.issued
    }

    /// Blocks until a commit is durable, syncing the log on this thread unless another is doing so.
    pub(super) fn wait(&self, sequence: CommitSequence) -> Result<()> {
        let Some(sync_log) = &self.sync_log else { return Ok(()) };
        let mut state = self.state();
        loop {
            if state.durable >= sequence {
                return Ok(());
            }
            if let Some(reason) = &state.failure {
                return Err(Error::AmbiguousCommit(refusal(reason)));
            }
            if state.syncing.is_some() {
                state = self.sync_ended.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let target = (state.issued, state.issued_revision);
            state.syncing = Some(target);
            drop(state);
            let result = self.sync(sync_log);
            state = self.state();
            state.syncing = None;
            match result {
                Ok(()) => {
                    state.durable = target.0;
                    self.revision.store(target.1, Ordering::Release);
                }
                Err(error) => state.failure = Some(error.to_string()),
            }
            self.sync_ended.notify_all();
            // Also after a failure: waiters check the state.
            self.durable.send_replace(state.durable);
        }
    }

    fn sync(&self, sync_log: &SyncLog) -> io::Result<()> {
        let started = Instant::now();
        let result = sync_log();
        let outcome = result.as_ref().map(drop).map_err(|error| Error::Unavailable(error.to_string()));
        self.metrics.sql("sync", started, &outcome);
        result
    }

    /// Returns the revision to report for a read that found `newest` the newest one and shows no change after
    /// `shown`, once that revision is durable. `exclusive` means that no other process had the file when the read
    /// began.
    pub(super) async fn readable_revision(
        self: &Arc<Self>,
        shown: Revision,
        newest: Revision,
        exclusive: bool,
    ) -> Result<Revision> {
        let (sequence, is_new) = {
            let mut state = self.state();
            let durable = self.revision();
            if newest <= durable {
                return Ok(newest);
            }
            // Commits that are not durable have not been revealed, so the read may be ordered before them. But
            // another process would have made them durable for itself, and revealed them.
            if shown <= durable && exclusive {
                return Ok(durable);
            }
            state.sequence_of(newest)
        };
        if is_new {
            let durability = self.clone();
            tokio::task::spawn_blocking(move || durability.wait(sequence));
        }
        self.wait_async(sequence).await?;
        Ok(newest)
    }

    /// Waits until everything that this process has committed is durable.
    pub(super) async fn wait_for_all(&self) -> Result<()> {
        let sequence = self.state().issued;
        self.wait_async(sequence).await
    }

    /// Waits for a commit whose sync another thread performs.
    async fn wait_async(&self, sequence: CommitSequence) -> Result<()> {
        let mut durable = self.durable.subscribe();
        while *durable.borrow_and_update() < sequence {
            self.check()?;
            if durable.changed().await.is_err() {
                return Err(Error::Unavailable("the store is closed".into()));
            }
        }
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn check(&self) -> Result<()> {
        self.failure.as_ref().map_or(Ok(()), |reason| Err(Error::Unavailable(refusal(reason))))
    }

    /// Returns the first sequence number that covers a revision, and whether it had to be issued.
    fn sequence_of(&mut self, revision: Revision) -> (CommitSequence, bool) {
        if let Some((sequence, covered)) = self.syncing
            && revision <= covered
        {
            return (sequence, false);
        }
        let is_new = revision > self.issued_revision;
        if is_new {
            self.issued += 1;
            self.issued_revision = revision;
        }
        (self.issued, is_new)
    }
}

/// After a failed sync the operating system may have dropped the data, and a later sync would not report it. So
/// nothing is acknowledged until the program has been restarted and has read the disk.
fn refusal(reason: &str) -> String {
    format!("writes are refused until a restart: {reason}")
}

impl std::fmt::Debug for Durability {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Durability").field("state", &self.state).finish_non_exhaustive()
    }
}
