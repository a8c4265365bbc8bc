//! One watch: its queue, its place in history, and how it catches up.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use tokio::{sync::Notify, time::timeout};

use super::hub::{Hub, commit_bytes};
use crate::{
    Commit, Event, Filter, KeyRange, Previous, Revision,
    engine::Engine,
    error::{Error, Result},
};

/// Events read at a time while catching up.
const CATCH_UP_EVENTS: usize = 256;
/// Bytes of commits that may wait for one watcher.
const QUEUE_BYTES: usize = 1 << 20;

/// What to watch.
#[derive(Clone, Debug)]
pub struct Watch {
    range: KeyRange,
    filter: Filter,
    after: Option<Revision>,
    previous: PreviousValues,
}

/// Which superseded values a watch brings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum PreviousValues {
    #[default]
    None,
    OfTheGone,
    All,
}

impl Watch {
    /// Every change in a range, from now on.
    pub fn new(range: KeyRange) -> Self {
        Self { range, filter: Filter::everything(), after: None, previous: PreviousValues::None }
    }

    /// Changes after this revision, past or future, instead of from now on.
    #[must_use]
    pub fn after(self, revision: Revision) -> Self {
        Self { after: Some(revision), ..self }
    }

    /// Only versions that match, before or after a change.
    #[must_use]
    pub fn filter(self, filter: Filter) -> Self {
        Self { filter, ..self }
    }

    /// Bring the superseded versions' values too.
    #[must_use]
    pub fn previous(self) -> Self {
        Self { previous: PreviousValues::All, ..self }
    }

    /// Bring the last values of keys that are deleted or no longer match, and no others.
    #[must_use]
    pub fn previous_of_removed(self) -> Self {
        Self { previous: PreviousValues::OfTheGone, ..self }
    }
}

/// The side of a watcher that the dispatcher sees.
#[derive(Debug)]
pub(super) struct Shared {
    watch: Watch,
    queue_limit: usize,
    queue: Mutex<Queue>,
    woken: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    commits: VecDeque<Arc<Commit>>,
    bytes: usize,
    /// The newest commit offered, so that one with several events is queued once.
    newest: Revision,
    /// Something did not fit: the watcher has to catch up by reading, from this revision on.
    overtaken: Option<Revision>,
}

impl Queue {
    /// Everything up to here that was offered has been taken; `None` if all of it has.
    fn taken_up_to(&self) -> Option<Revision> {
        self.overtaken.or_else(|| self.commits.front().map(|first| first.revision - 1))
    }

    fn overtake(&mut self, after: Revision) {
        let after = self.taken_up_to().unwrap_or(after);
        *self = Self { overtaken: Some(after), ..Self::default() };
    }
}

impl Shared {
    pub(super) fn range(&self) -> &KeyRange {
        &self.watch.range
    }

    pub(super) fn wants_previous(&self, event: &Event) -> bool {
        match self.watch.previous {
            PreviousValues::None => false,
            PreviousValues::OfTheGone => !self.matches(event),
            PreviousValues::All => true,
        }
    }

    /// The events of a commit whose superseded values this watch brings.
    fn with_previous<'a>(&'a self, commit: &'a Commit) -> impl Iterator<Item = &'a Previous> {
        let concerned =
            commit.events.iter().filter(|event| self.range().contains(&event.kv.key) && self.wants(event));
        concerned.filter(|event| self.wants_previous(event)).filter_map(|event| event.previous.as_ref())
    }

    /// Whether the event's version, or the one it supersedes, passes the filter.
    pub(super) fn wants(&self, event: &Event) -> bool {
        // What a damaged version would have matched is unknown: whoever watches its key has to be told.
        self.watch.filter.is_empty() || event.damaged || self.matches(event) || self.matched_before(event)
    }

    fn matches(&self, event: &Event) -> bool {
        !event.deleted && self.watch.filter.matches(&event.terms)
    }

    fn matched_before(&self, event: &Event) -> bool {
        event.previous.as_ref().is_some_and(|previous| self.watch.filter.matches(previous.terms()))
    }

    fn concerns(&self, commit: &Commit) -> bool {
        commit.events.iter().any(|event| self.range().contains(&event.kv.key) && self.wants(event))
    }

    /// A key in the range whose version was damaged in the database.
    fn damaged_key(&self, commit: &Commit) -> Option<Bytes> {
        let damaged = |event: &&Event| event.damaged && self.range().contains(&event.kv.key);
        commit.events.iter().find(damaged).map(|event| event.kv.key.clone())
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a commit, or notes that the watcher has been overtaken; whether that woke it. Never waits.
    pub(super) fn offer(&self, commit: &Arc<Commit>) -> bool {
        let mut queue = self.queue();
        if queue.overtaken.is_some()
            || queue.newest >= commit.revision
            || self.watch.after.is_some_and(|a| commit.revision <= a)
        {
            return false;
        }
        queue.newest = commit.revision;
        queue.bytes += commit_bytes(commit);
        if queue.commits.len() >= self.queue_limit || (queue.bytes > QUEUE_BYTES && !queue.commits.is_empty())
        {
            queue.overtake(commit.revision - 1);
        } else {
            queue.commits.push_back(commit.clone());
        }
        drop(queue);
        self.woken.notify_one();
        true
    }

    /// Commits after `offered` are not going to be offered.
    pub(super) fn overtake(&self, offered: Revision) {
        self.queue().overtake(offered);
        self.woken.notify_one();
    }

    pub(super) fn wake(&self) {
        self.woken.notify_one();
    }

    pub(super) fn restart(&self) {
        *self.queue() = Queue::default();
    }
}

/// An open watch. Dropping it ends it.
#[derive(Debug)]
pub struct Watcher {
    shared: Arc<Shared>,
    hub: Arc<Hub>,
    engine: Arc<dyn Engine>,
    /// Everything up to here has been delivered, or does not concern this watch.
    position: Revision,
    /// Where it began: the position may be in the future until it has moved on from here.
    start: Revision,
    /// History up to here has to be read; what comes after it is offered to the queue.
    catch_up_to: Revision,
    /// Read or taken from the queue, not delivered yet.
    pending: VecDeque<Arc<Commit>>,
}

impl Watcher {
    pub(crate) async fn open(
        watch: Watch,
        queue_limit: usize,
        hub: Arc<Hub>,
        engine: Arc<dyn Engine>,
    ) -> Result<Self> {
        let after = watch.after;
        let shared = Arc::new(Shared { watch, queue_limit, queue: Mutex::default(), woken: Notify::new() });
        let joined = hub.join(&shared, true);
        // From here on `Drop` leaves the hub again, whatever happens.
        let mut watcher = Self {
            shared,
            hub,
            engine,
            position: joined,
            start: joined,
            catch_up_to: joined,
            pending: VecDeque::new(),
        };
        match after {
            Some(after) => {
                let bounds = watcher.engine.bounds().await?;
                if after < bounds.compacted - 1 {
                    return Err(Error::Expired { compacted: bounds.compacted });
                }
                watcher.position = after;
            }
            // "Now" is what the database holds, which this process may not have been told of yet.
            None => watcher.position = watcher.engine.bounds().await?.current.max(joined),
        }
        watcher.start = watcher.position;
        Ok(watcher)
    }

    /// The next commit that concerns this watch, whole. May be dropped and called again without loss.
    ///
    /// After [`Error::Expired`] the watch is over: history that it has not delivered is gone. After
    /// [`Error::Corrupt`] it is over too: what it would deliver next cannot be read.
    pub async fn next(&mut self) -> Result<WatchBatch> {
        loop {
            if let Some(batch) = self.advance().await? {
                return Ok(batch);
            }
            self.shared.woken.notified().await;
        }
    }

    /// As [`Self::next`]; `None` once everything up to a revision has been delivered. Nobody is woken by commits that
    /// do not concern a watch, so it is looked for now and then how far they have come; what is being read meanwhile
    /// is read to its end.
    pub async fn next_up_to(&mut self, revision: Revision) -> Result<Option<WatchBatch>> {
        const LOOK: Duration = Duration::from_millis(1);
        while self.progress() < revision {
            if let Some(batch) = self.advance().await? {
                return Ok(Some(batch));
            }
            let _ = timeout(LOOK, self.shared.woken.notified()).await;
        }
        Ok(None)
    }

    /// The next commit that concerns this watch, if it is there to be had.
    async fn advance(&mut self) -> Result<Option<WatchBatch>> {
        loop {
            while let Some(commit) = self.pending.front() {
                if commit.revision <= self.position || !self.shared.concerns(commit) {
                    self.position = self.position.max(commit.revision);
                    self.pending.pop_front();
                    continue;
                }
                if let Some(key) = self.shared.damaged_key(commit) {
                    return Err(Error::Corrupt { key });
                }
                let commit = commit.clone();
                self.previous_values(&commit).await?;
                let Some(commit) = self.pending.pop_front() else { break };
                self.position = commit.revision;
                return Ok(Some(WatchBatch { commit, shared: self.shared.clone() }));
            }
            if self.position < self.catch_up_to {
                self.catch_up().await?;
            } else if !self.take_queued() {
                if self.hub.is_closed() {
                    return Err(Error::Unavailable("the store is closed".into()));
                }
                return Ok(None);
            }
        }
    }

    /// Every event of this watch up to the returned revision has been delivered, and none after it has
    /// been skipped: what a bookmark may say. It never goes back.
    pub fn progress(&self) -> Revision {
        if !self.pending.is_empty() || self.position < self.catch_up_to {
            return self.position;
        }
        let dispatched = self.hub.dispatched();
        match self.shared.queue().taken_up_to() {
            Some(taken) => self.position.max(taken),
            // A watch of the future must not announce what has not happened.
            None if self.position == self.start => self.position.min(self.hub.tip()).max(dispatched),
            None => self.position.max(dispatched),
        }
    }

    /// Moves the queue over; whether there was anything.
    fn take_queued(&mut self) -> bool {
        let overtaken = {
            let mut queue = self.shared.queue();
            // What was not queued did not concern this watch: history that it has outlived is not missed.
            self.position = self.position.max(queue.taken_up_to().unwrap_or(self.position));
            queue.bytes = 0;
            std::mem::swap(&mut self.pending, &mut queue.commits);
            queue.overtaken.is_some()
        };
        if overtaken {
            self.catch_up_to = self.hub.join(&self.shared, false);
        }
        overtaken || !self.pending.is_empty()
    }

    /// Reads the next stretch of history, from the ring if it reaches back that far.
    async fn catch_up(&mut self) -> Result<()> {
        let commits = match self.hub.recent(self.position, CATCH_UP_EVENTS) {
            Some(commits) => commits,
            None => self.engine.tail(self.position, CATCH_UP_EVENTS).await?,
        };
        if commits.is_empty() {
            self.position = self.catch_up_to;
        }
        self.pending.extend(commits);
        Ok(())
    }

    /// Sees to it that the superseded values are there. One that compaction has taken means that this watch
    /// is behind compaction, unless its event is the oldest that may still be watched.
    async fn previous_values(&self, commit: &Arc<Commit>) -> Result<()> {
        load_previous(&*self.engine, self.shared.with_previous(commit)).await?;
        if self.shared.with_previous(commit).any(|previous| previous.value.get().is_none()) {
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
        self.hub.leave(&self.shared);
    }
}

/// Loads the superseded values that are not loaded yet.
pub(super) async fn load_previous(
    engine: &dyn Engine,
    wanted: impl IntoIterator<Item = &Previous>,
) -> Result<()> {
    let unloaded: Vec<_> = wanted.into_iter().filter(|previous| previous.value.get().is_none()).collect();
    if unloaded.is_empty() {
        return Ok(());
    }
    let ids: Vec<_> = unloaded.iter().map(|previous| previous.row.id).collect();
    for (previous, value) in unloaded.iter().zip(engine.values(&ids).await?) {
        if let Some(value) = value {
            let _ = previous.value.set(value);
        }
    }
    Ok(())
}

/// One revision's changes, as far as they concern a watch.
#[derive(Debug)]
pub struct WatchBatch {
    commit: Arc<Commit>,
    shared: Arc<Shared>,
}

/// An event as a filtered watch sees it. Without a filter, `matches` says "exists now" and
/// `matched_before` says "existed before".
#[derive(Clone, Copy, Debug)]
pub struct WatchEvent<'a> {
    /// What happened.
    pub event: &'a Event,
    /// Whether the version it left passes the filter.
    pub matches: bool,
    /// Whether the version it superseded passed the filter.
    pub matched_before: bool,
}

impl WatchBatch {
    /// The revision of all the events.
    pub fn revision(&self) -> Revision {
        self.commit.revision
    }

    /// The events that concern the watch; at least one.
    pub fn events(&self) -> impl Iterator<Item = WatchEvent<'_>> {
        let concerned = self.commit.events.iter().filter(|event| self.shared.range().contains(&event.kv.key));
        concerned
            .map(|event| WatchEvent {
                event,
                matches: self.shared.matches(event),
                matched_before: self.shared.matched_before(event),
            })
            .filter(|seen| self.shared.watch.filter.is_empty() || seen.matches || seen.matched_before)
    }
}
