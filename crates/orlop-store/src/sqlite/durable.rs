//! What of the write-ahead log is on the disk.
//!
//! SQLite commits without waiting for the disk, and shows a commit to its readers at once. One sync of the log
//! then makes all commits before it durable, while the writer is already at the next. Nobody may be told of
//! what a power cut could still take: neither the caller who wrote it nor a reader nor a watcher. So each
//! commit gets a ticket, tickets are settled in order by syncs, and a read that has seen a revision which is not
//! settled yet waits for it.
//!
//! A sync covers the file, whoever wrote to it. So what another process has committed is made durable here too
//! before this one shows it, and no process has to know how far another has come.

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
    engine::Ticket,
    error::{Error, Result},
    metrics::Metrics,
};

/// How the log is brought to the disk.
pub(super) type SyncLog = Box<dyn Fn() -> io::Result<()> + Send + Sync>;

/// Which commits are on the disk.
pub(super) struct Durable {
    /// `None` where commits are as durable as they are meant to be at once.
    sync_log: Option<SyncLog>,
    /// The newest revision on the disk, for readers to look at without a lock.
    revision: AtomicI64,
    state: Mutex<State>,
    /// A sync has ended: for threads, and for tasks.
    ended: Condvar,
    settled: watch::Sender<Ticket>,
    metrics: Metrics,
}

#[derive(Debug, Default)]
struct State {
    /// The newest ticket and the newest revision that it stands for.
    issued: Ticket,
    seen: Revision,
    /// What the sync under way settles.
    syncing: Option<(Ticket, Revision)>,
    settled: Ticket,
    /// Why nothing can be settled any more.
    failed: Option<String>,
}

impl Durable {
    /// Follows a log, in which everything up to `current` is visible already.
    pub(super) fn of_log(sync_log: SyncLog, current: Revision, metrics: Metrics) -> Result<Self> {
        let durable = Self::new(Some(sync_log), metrics);
        // A process that was killed may have left commits that only the operating system remembers.
        durable.settle(durable.committed(current, current, true))?;
        Ok(durable)
    }

    /// For a database whose commits need no settling.
    pub(super) fn at_once(metrics: Metrics) -> Self {
        Self::new(None, metrics)
    }

    fn new(sync_log: Option<SyncLog>, metrics: Metrics) -> Self {
        let revision = if sync_log.is_some() { 0 } else { Revision::MAX };
        Self {
            sync_log,
            revision: AtomicI64::new(revision),
            state: Mutex::default(),
            ended: Condvar::new(),
            settled: watch::Sender::new(0),
            metrics,
        }
    }

    /// Whether a commit has to be settled at all.
    pub(super) fn is_needed(&self) -> bool {
        self.sync_log.is_some()
    }

    /// The newest revision on the disk.
    pub(super) fn revision(&self) -> Revision {
        self.revision.load(Ordering::Acquire)
    }

    /// Fails if the disk has failed: what is committed now could never be settled.
    pub(super) fn check(&self) -> Result<()> {
        self.state().check()
    }

    /// A transaction of this process has ended, which found `before` the newest revision and left `after`; the
    /// ticket that it is to be settled by.
    pub(super) fn committed(&self, before: Revision, after: Revision, wrote: bool) -> Ticket {
        if self.sync_log.is_none() {
            return 0;
        }
        let mut state = self.state();
        if wrote || before > state.seen {
            state.issued += 1;
        }
        state.seen = state.seen.max(after);
        state.issued
    }

    /// Returns once a ticket is settled, syncing the log on this thread unless another is at it.
    pub(super) fn settle(&self, ticket: Ticket) -> Result<()> {
        let Some(sync_log) = &self.sync_log else { return Ok(()) };
        let mut state = self.state();
        loop {
            if state.settled >= ticket {
                return Ok(());
            }
            if let Some(error) = &state.failed {
                return Err(Error::AmbiguousCommit(failure(error)));
            }
            if state.syncing.is_some() {
                state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let target = (state.issued, state.seen);
            state.syncing = Some(target);
            drop(state);
            let result = self.sync(sync_log);
            state = self.state();
            state.syncing = None;
            match result {
                Ok(()) => {
                    state.settled = target.0;
                    self.revision.store(target.1, Ordering::Release);
                }
                Err(error) => state.failed = Some(error.to_string()),
            }
            self.ended.notify_all();
            // Also after a failure: those who wait look at the state.
            self.settled.send_replace(state.settled);
        }
    }

    fn sync(&self, sync_log: &SyncLog) -> io::Result<()> {
        let started = Instant::now();
        let result = sync_log();
        let told = result.as_ref().map(drop).map_err(|error| Error::Unavailable(error.to_string()));
        self.metrics.sql("sync", started, &told);
        result
    }

    /// The revision that a read may be answered with which found `newest` the newest one, and shows nothing that
    /// changed after `shown`. Waits until that is on the disk. `alone` says that no other process
    /// had the file when the read began.
    pub(super) async fn answer(
        self: &Arc<Self>,
        shown: Revision,
        newest: Revision,
        alone: bool,
    ) -> Result<Revision> {
        let (ticket, is_new) = {
            let mut state = self.state();
            let durable = self.revision();
            if newest <= durable {
                return Ok(newest);
            }
            // Nobody has been told of what is not settled, so as far as anybody knows it is yet to come. But
            // another process would have settled it for itself, and told.
            if shown <= durable && alone {
                return Ok(durable);
            }
            state.ticket_of(newest)
        };
        if is_new {
            let durable = self.clone();
            tokio::task::spawn_blocking(move || durable.settle(ticket));
        }
        self.settled(ticket).await?;
        Ok(newest)
    }

    /// Waits until everything that this process has committed is on the disk.
    pub(super) async fn all(&self) -> Result<()> {
        let ticket = self.state().issued;
        self.settled(ticket).await
    }

    /// Waits for a ticket. Whoever it was issued to settles it.
    async fn settled(&self, ticket: Ticket) -> Result<()> {
        let mut settled = self.settled.subscribe();
        while *settled.borrow_and_update() < ticket {
            self.check()?;
            if settled.changed().await.is_err() {
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
        self.failed.as_ref().map_or(Ok(()), |error| Err(Error::Unavailable(failure(error))))
    }

    /// The first ticket known to settle a revision that has been seen, and whether it had to be issued.
    fn ticket_of(&mut self, revision: Revision) -> (Ticket, bool) {
        if let Some((ticket, covered)) = self.syncing
            && revision <= covered
        {
            return (ticket, false);
        }
        let is_new = revision > self.seen;
        if is_new {
            self.issued += 1;
            self.seen = revision;
        }
        (self.issued, is_new)
    }
}

/// After a failed sync the operating system may hold the only copy, or think that the disk has it: no later sync
/// tells. So nothing is promised any more until the program has been started again and has read the disk.
fn failure(error: &str) -> String {
    format!("the disk did not keep what was written, so start again once it is well: {error}")
}

impl std::fmt::Debug for Durable {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Durable").field("state", &self.state).finish_non_exhaustive()
    }
}
