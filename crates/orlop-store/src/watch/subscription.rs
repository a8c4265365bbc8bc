//! The dispatcher's side of a watcher: what it selects, and its queue.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use bytes::Bytes;
use tokio::sync::Notify;

use crate::{Commit, Event, Filter, KeyRange, Previous, Revision, engine::Engine, error::Result};

/// Bytes of commits that may be queued for one watcher.
const QUEUE_BYTES: usize = 1 << 20;

/// Options of a watch.
#[derive(Clone, Debug)]
pub struct Watch {
    range: KeyRange,
    filter: Filter,
    after: Option<Revision>,
    previous: PreviousValues,
}

/// Superseded values that a watch loads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum PreviousValues {
    #[default]
    None,
    /// Of keys that were deleted or no longer match the filter.
    OfRemoved,
    All,
}

impl Watch {
    /// Watches every change in a range, from now on.
    pub fn new(range: KeyRange) -> Self {
        Self { range, filter: Filter::everything(), after: None, previous: PreviousValues::None }
    }

    /// Returns the revision after which to start, if it is not now.
    pub(super) fn start(&self) -> Option<Revision> {
        self.after
    }

    /// Returns the start of the range and the filter.
    pub(crate) fn selection(&self) -> (&[u8], &Filter) {
        (self.range.start(), &self.filter)
    }

    /// Starts after a revision, past or future, instead of now.
    #[must_use]
    pub fn after(self, revision: Revision) -> Self {
        Self { after: Some(revision), ..self }
    }

    /// Selects only keys that match before or after a change.
    #[must_use]
    pub fn filter(self, filter: Filter) -> Self {
        Self { filter, ..self }
    }

    /// Loads the superseded value of every event.
    #[must_use]
    pub fn previous(self) -> Self {
        Self { previous: PreviousValues::All, ..self }
    }

    /// Loads the last value of keys that are deleted or no longer match the filter, and no others.
    #[must_use]
    pub fn previous_of_removed(self) -> Self {
        Self { previous: PreviousValues::OfRemoved, ..self }
    }
}

/// The dispatcher's side of a watcher.
#[derive(Debug)]
pub(super) struct Subscription {
    watch: Watch,
    queue_limit: usize,
    queue: Mutex<Queue>,
    woken: Notify,
}

/// A commit in a queue. The ring buffer owns it: a watcher that finds it evicted reads the log instead.
#[derive(Clone, Debug)]
pub(super) struct QueuedCommit {
    pub(super) revision: Revision,
    pub(super) commit: Weak<Commit>,
}

impl QueuedCommit {
    pub(super) fn new(commit: &Arc<Commit>) -> Self {
        Self { revision: commit.revision, commit: Arc::downgrade(commit) }
    }
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    commits: VecDeque<QueuedCommit>,
    bytes: usize,
    /// The newest enqueued revision, so that a commit with several events is enqueued once.
    newest: Revision,
    /// Set when the queue has overflowed: the watcher has to catch up from this revision.
    lagging_after: Option<Revision>,
}

impl Queue {
    /// Returns the revision up to which every enqueued commit has been taken; `None` if all have been.
    pub(super) fn taken_up_to(&self) -> Option<Revision> {
        self.lagging_after.or_else(|| self.commits.front().map(|first| first.revision - 1))
    }

    /// Moves the commits out. Returns true if the queue has overflowed.
    pub(super) fn swap_into(&mut self, pending: &mut VecDeque<QueuedCommit>) -> bool {
        self.bytes = 0;
        std::mem::swap(pending, &mut self.commits);
        self.lagging_after.is_some()
    }

    fn mark_lagging(&mut self, after: Revision) {
        let after = self.taken_up_to().unwrap_or(after);
        *self = Self { lagging_after: Some(after), ..Self::default() };
    }
}

impl Subscription {
    pub(super) fn new(watch: Watch, queue_limit: usize) -> Self {
        Self { watch, queue_limit, queue: Mutex::default(), woken: Notify::new() }
    }

    pub(super) fn range(&self) -> &KeyRange {
        &self.watch.range
    }

    pub(super) fn wants_previous(&self, event: &Event) -> bool {
        match self.watch.previous {
            PreviousValues::None => false,
            PreviousValues::OfRemoved => !self.matches(event),
            PreviousValues::All => true,
        }
    }

    /// Returns the superseded versions of a commit whose values this watch loads.
    pub(super) fn wanted_previous<'a>(
        &'a self,
        commit: &'a Commit,
    ) -> impl Iterator<Item = (&'a Bytes, &'a Previous)> {
        let selected =
            commit.events.iter().filter(|event| self.range().contains(&event.kv.key) && self.selects(event));
        let wanted = selected.filter(|event| self.wants_previous(event));
        wanted.filter_map(|event| Some((&event.kv.key, event.previous.as_ref()?)))
    }

    /// Returns whether superseded values that this watch loads are missing.
    pub(super) fn misses_previous(&self, commit: &Commit) -> bool {
        self.wanted_previous(commit).any(|(_, previous)| previous.value.get().is_none())
    }

    /// Tests the filter against the event's version and the one it supersedes.
    pub(super) fn selects(&self, event: &Event) -> bool {
        // The terms of a damaged version are unknown: every watcher of its key has to learn of it.
        self.watch.filter.is_empty() || event.damaged || self.matches(event) || self.matched_before(event)
    }

    pub(super) fn matches(&self, event: &Event) -> bool {
        !event.deleted && self.watch.filter.matches(&event.terms)
    }

    pub(super) fn matched_before(&self, event: &Event) -> bool {
        event.previous.as_ref().is_some_and(|previous| self.watch.filter.matches(previous.terms()))
    }

    /// Returns true if the watch has no filter.
    pub(super) fn is_unfiltered(&self) -> bool {
        self.watch.filter.is_empty()
    }

    /// Returns true if any of a commit's events in the range is selected.
    pub(super) fn selects_any(&self, commit: &Commit) -> bool {
        commit.events.iter().any(|event| self.range().contains(&event.kv.key) && self.selects(event))
    }

    /// Returns a key in the range whose stored version is damaged.
    pub(super) fn damaged_key(&self, commit: &Commit) -> Option<Bytes> {
        let damaged = |event: &&Event| event.damaged && self.range().contains(&event.kv.key);
        commit.events.iter().find(damaged).map(|event| event.kv.key.clone())
    }

    pub(super) fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enqueues a commit, or marks the watcher as lagging if the queue is full. Returns whether the watcher was
    /// woken. Never blocks.
    pub(super) fn enqueue(&self, commit: &Arc<Commit>) -> bool {
        let mut queue = self.queue();
        if queue.lagging_after.is_some()
            || queue.newest >= commit.revision
            || self.watch.after.is_some_and(|after| commit.revision <= after)
        {
            return false;
        }
        queue.newest = commit.revision;
        queue.bytes += commit.memory_bytes();
        if queue.commits.len() >= self.queue_limit || (queue.bytes > QUEUE_BYTES && !queue.commits.is_empty())
        {
            queue.mark_lagging(commit.revision - 1);
        } else {
            queue.commits.push_back(QueuedCommit::new(commit));
        }
        drop(queue);
        self.woken.notify_one();
        true
    }

    /// Marks the watcher as lagging: commits after `dispatched` will not be enqueued.
    pub(super) fn mark_lagging(&self, dispatched: Revision) {
        self.queue().mark_lagging(dispatched);
        self.woken.notify_one();
    }

    /// Returns when a commit was enqueued, or the watcher was woken otherwise, since the last time.
    pub(super) async fn woken(&self) {
        self.woken.notified().await;
    }

    pub(super) fn wake(&self) {
        self.woken.notify_one();
    }

    pub(super) fn restart_queue(&self) {
        *self.queue() = Queue::default();
    }
}

/// Loads the superseded values that are not loaded yet.
pub(super) async fn load_previous(
    engine: &dyn Engine,
    wanted: impl IntoIterator<Item = (&Bytes, &Previous)>,
) -> Result<()> {
    let missing: Vec<_> = wanted.into_iter().filter(|(_, previous)| previous.value.get().is_none()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let ids: Vec<_> = missing.iter().map(|(_, previous)| previous.row.id).collect();
    for ((key, previous), value) in missing.iter().zip(engine.values(&ids).await?) {
        if let Some(value) = value {
            let _ = previous.value.set(engine.decode(key, value).await?);
        }
    }
    Ok(())
}
