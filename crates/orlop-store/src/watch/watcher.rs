//! One watch: its queue, its position in history, and catching up.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::{task::JoinHandle, time::timeout};

use super::{
    hub::Hub,
    log_cache::LARGE_COMMIT,
    subscription::{QueuedCommit, Subscription, Watch, load_previous},
};
use crate::{
    Commit, Event, Revision,
    engine::Engine,
    error::{Error, Result},
};

/// Commits taken from the ring buffer at a time while catching up.
const CATCH_UP_COMMITS: usize = 256;

/// An open watch. Dropping it ends it.
#[derive(Debug)]
pub struct Watcher {
    subscription: Arc<Subscription>,
    hub: Arc<Hub>,
    engine: Arc<dyn Engine>,
    /// Everything up to here has been delivered or is not selected.
    position: Revision,
    /// The first position. It may be in the future until the watcher has advanced.
    start: Revision,
    /// History up to here is read from the ring buffer or the log; later commits arrive in the queue.
    catch_up_to: Revision,
    /// Commits taken from the queue or the ring buffer, and not delivered yet.
    pending: VecDeque<QueuedCommit>,
    /// The load of superseded values that is under way, by the revision of its commit.
    loading: Option<(Revision, JoinHandle<Result<()>>)>,
}

impl Watcher {
    pub(crate) async fn open(
        watch: Watch,
        queue_limit: usize,
        hub: Arc<Hub>,
        engine: Arc<dyn Engine>,
    ) -> Result<Self> {
        let after = watch.start();
        let subscription = Arc::new(Subscription::new(watch, queue_limit));
        let dispatched = hub.subscribe(&subscription);
        // From here on `Drop` unsubscribes, whatever happens.
        let mut watcher = Self {
            subscription,
            hub,
            engine,
            position: dispatched,
            start: dispatched,
            catch_up_to: dispatched,
            pending: VecDeque::new(),
            loading: None,
        };
        let bounds = watcher.engine.bounds().await?;
        watcher.position = match after {
            Some(after) if after < bounds.compacted - 1 => {
                return Err(Error::Expired { compacted: bounds.compacted });
            }
            Some(after) => after,
            // "Now" is the state of the database, which may not have been published here yet.
            None => bounds.current.max(dispatched),
        };
        watcher.start = watcher.position;
        Ok(watcher)
    }

    /// Returns the next commit that this watch selects, whole. Cancel-safe.
    ///
    /// After [`Error::Expired`] the watch is over: history that it has not delivered is gone. After
    /// [`Error::Corrupt`] it is over too: the next event cannot be read.
    pub async fn next(&mut self) -> Result<WatchBatch> {
        loop {
            if let Some(batch) = self.advance().await? {
                return Ok(batch);
            }
            self.subscription.woken().await;
        }
    }

    /// As [`Self::next`]; `None` once everything up to a revision has been delivered.
    ///
    /// Commits that a watch does not select wake nobody, so progress is polled.
    pub async fn next_up_to(&mut self, revision: Revision) -> Result<Option<WatchBatch>> {
        const POLL_INTERVAL: Duration = Duration::from_millis(1);
        while self.progress() < revision {
            if let Some(batch) = self.advance().await? {
                return Ok(Some(batch));
            }
            let _ = timeout(POLL_INTERVAL, self.subscription.woken()).await;
        }
        Ok(None)
    }

    /// Returns the next commit that this watch selects, if it has been committed.
    async fn advance(&mut self) -> Result<Option<WatchBatch>> {
        loop {
            while let Some(queued) = self.pending.front() {
                if queued.revision <= self.position {
                    self.pending.pop_front();
                    continue;
                }
                let Some(commit) = queued.commit.upgrade() else {
                    // Evicted from the ring buffer while this watcher was not read from.
                    self.restart_queue();
                    break;
                };
                let batch = self.deliver(&commit).await?;
                self.pending.pop_front();
                if batch.is_some() {
                    return Ok(batch);
                }
            }
            if self.position < self.catch_up_to {
                if let Some(batch) = self.catch_up().await? {
                    return Ok(Some(batch));
                }
            } else if !self.take_queued() {
                if self.hub.is_closed() {
                    return Err(Error::Unavailable("the store is closed".into()));
                }
                return Ok(None);
            }
        }
    }

    /// Advances past a commit; `None` if the watch does not select it.
    async fn deliver(&mut self, commit: &Arc<Commit>) -> Result<Option<WatchBatch>> {
        let selected = self.subscription.selects_any(commit);
        if selected {
            if let Some(key) = self.subscription.damaged_key(commit) {
                return Err(Error::Corrupt { key });
            }
            self.load_previous_values(commit).await?;
        }
        self.position = commit.revision;
        let batch = || WatchBatch { commit: commit.clone(), subscription: self.subscription.clone() };
        Ok(selected.then(batch))
    }

    /// Returns a revision up to which every event of this watch has been delivered, and after which none has
    /// been skipped: the revision of a bookmark. It never decreases.
    pub fn progress(&self) -> Revision {
        if !self.pending.is_empty() || self.position < self.catch_up_to {
            return self.position;
        }
        let dispatched = self.hub.dispatched();
        match self.subscription.queue().taken_up_to() {
            Some(taken) => self.position.max(taken),
            // A watch that starts in the future must not report revisions that do not exist.
            None if self.position == self.start => {
                self.position.min(self.hub.published_revision()).max(dispatched)
            }
            None => self.position.max(dispatched),
        }
    }

    /// Moves the queue to `pending`. Returns whether there is anything to deliver or to catch up with.
    fn take_queued(&mut self) -> bool {
        let lagging = {
            let mut queue = self.subscription.queue();
            // Commits that were not enqueued are not selected, so compaction of their history is not missed.
            self.position = self.position.max(queue.taken_up_to().unwrap_or(self.position));
            queue.swap_into(&mut self.pending)
        };
        if lagging {
            self.restart_queue();
        }
        lagging || !self.pending.is_empty()
    }

    /// Discards queued commits and continues from history.
    fn restart_queue(&mut self) {
        self.pending.clear();
        self.catch_up_to = self.hub.restart_queue(&self.subscription);
    }

    /// Reads on from the ring buffer, or from the log where the ring begins later.
    async fn catch_up(&mut self) -> Result<Option<WatchBatch>> {
        if let Some(commits) = self.hub.recent(self.position, CATCH_UP_COMMITS) {
            if commits.is_empty() {
                self.position = self.catch_up_to;
            }
            self.pending.extend(commits.iter().map(QueuedCommit::new));
            return Ok(None);
        }
        let Some(segment) = self.hub.log_cache().segment_after(&self.engine, self.position).await? else {
            self.position = self.catch_up_to;
            return Ok(None);
        };
        for commit in segment.after(self.position) {
            if let Some(batch) = self.deliver(commit).await? {
                return Ok(Some(batch));
            }
        }
        Ok(None)
    }

    /// Loads the superseded values of a commit. One that compaction has deleted means that this watch is behind
    /// compaction, unless its event is the oldest that can still be watched.
    async fn load_previous_values(&mut self, commit: &Arc<Commit>) -> Result<()> {
        if !self.subscription.misses_previous(commit) {
            return Ok(());
        }
        // A task of its own: a caller that polls with a timeout would otherwise cancel the query each time, and never
        // get past a slow one.
        let loading = match &mut self.loading {
            Some((revision, loading)) if *revision == commit.revision => loading,
            _ => {
                let (engine, subscription) = (self.engine.clone(), self.subscription.clone());
                let (revision, commit) = (commit.revision, commit.clone());
                let load =
                    async move { load_previous(&*engine, subscription.wanted_previous(&commit)).await };
                &mut self.loading.insert((revision, tokio::spawn(load))).1
            }
        };
        let loaded = loading.await;
        self.loading = None;
        loaded.unwrap_or_else(|_| Err(Error::Unavailable("the store is closed".into())))?;
        if self.subscription.misses_previous(commit) {
            let compacted = self.engine.bounds().await?.compacted;
            if commit.revision < compacted {
                return Err(Error::Expired { compacted });
            }
        }
        Ok(())
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.hub.unsubscribe(&self.subscription);
    }
}

/// The changes of one revision that a watch selects.
#[derive(Debug)]
pub struct WatchBatch {
    commit: Arc<Commit>,
    subscription: Arc<Subscription>,
}

/// An encoded event with its commit.
struct Shared {
    encoded: Bytes,
    _commit: Arc<Commit>,
}

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.encoded
    }
}

/// An event and how it relates to the watch's filter. Without a filter, `matches` means "exists now" and
/// `matched_before` means "existed before".
#[derive(Clone, Copy, Debug)]
pub struct WatchEvent<'a> {
    /// The change.
    pub event: &'a Event,
    /// Set if the new version matches the filter.
    pub matches: bool,
    /// Set if the superseded version matched the filter.
    pub matched_before: bool,
}

impl WatchBatch {
    /// Returns the revision of all the events.
    pub fn revision(&self) -> Revision {
        self.commit.revision
    }

    /// Ties the life of this commit to an encoding of one of its events, if it is large. As long as a client does not
    /// read it, others are sent the same bytes.
    pub fn share(&self, encoded: Bytes) -> Bytes {
        if self.commit.memory_bytes() < LARGE_COMMIT {
            return encoded;
        }
        Bytes::from_owner(Shared { encoded, _commit: self.commit.clone() })
    }

    /// Returns the events that the watch selects; at least one.
    pub fn events(&self) -> impl Iterator<Item = WatchEvent<'_>> {
        let subscription = &self.subscription;
        let in_range = self.commit.events.iter().filter(|event| subscription.range().contains(&event.kv.key));
        in_range
            .map(|event| WatchEvent {
                event,
                matches: subscription.matches(event),
                matched_before: subscription.matched_before(event),
            })
            .filter(|found| subscription.is_unfiltered() || found.matches || found.matched_before)
    }
}
