//! The ring buffer of recent commits, and the dispatcher that enqueues them to watchers.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    time::Duration,
};

use tokio::sync::{Notify, watch};

use super::{
    index::WatcherIndex,
    log_cache::LogCache,
    subscription::{Subscription, load_previous},
};
use crate::{Commit, Revision, engine::Engine, metrics::Metrics};

/// Commits that the dispatcher takes at a time: bounds how long it holds a lock.
const DISPATCH_COMMITS: usize = 128;

/// Publishes commits to watchers.
#[derive(Debug)]
pub(crate) struct Hub {
    ring: Mutex<Ring>,
    log_cache: Arc<LogCache>,
    watchers: Mutex<WatcherIndex>,
    /// Commits up to here have been enqueued to every watcher that selects them. Written only with `watchers` locked.
    dispatched: AtomicI64,
    /// The newest published revision.
    published: watch::Sender<Revision>,
    /// Wakes the dispatcher.
    dispatch_needed: Notify,
    /// Wakes the task that tails the log: a commit was published before one that precedes it.
    gap_detected: Notify,
    closed: AtomicBool,
    metrics: Metrics,
}

/// The newest commits, with consecutive revisions.
#[derive(Debug)]
struct Ring {
    commits: VecDeque<Arc<Commit>>,
    bytes: usize,
    limit_bytes: usize,
    newest: Revision,
}

impl Ring {
    fn push(&mut self, commit: Arc<Commit>) {
        self.newest = commit.revision;
        self.bytes += commit.memory_bytes();
        self.commits.push_back(commit);
        while self.bytes > self.limit_bytes && self.commits.len() > 1 {
            if let Some(oldest) = self.commits.pop_front() {
                self.bytes -= oldest.memory_bytes();
            }
        }
    }

    /// Returns commits after a revision; `None` if the ring begins later.
    fn after(&self, revision: Revision, limit: usize) -> Option<Vec<Arc<Commit>>> {
        if revision >= self.newest {
            return Some(Vec::new());
        }
        let first = self.commits.front()?.revision;
        let skip = usize::try_from(revision + 1 - first).ok()?;
        Some(self.commits.iter().skip(skip).take(limit).cloned().collect())
    }
}

/// A lock is only ever poisoned by a panic elsewhere; the data behind these stays consistent throughout.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Hub {
    pub(crate) fn new(newest: Revision, ring_bytes: usize, catch_up_bytes: usize, metrics: Metrics) -> Self {
        Self {
            ring: Mutex::new(Ring { commits: VecDeque::new(), bytes: 0, limit_bytes: ring_bytes, newest }),
            log_cache: Arc::new(LogCache::new(catch_up_bytes)),
            watchers: Mutex::default(),
            dispatched: AtomicI64::new(newest),
            published: watch::Sender::new(newest),
            dispatch_needed: Notify::new(),
            gap_detected: Notify::new(),
            closed: AtomicBool::new(false),
            metrics,
        }
    }

    /// Ends every watch: nothing is published or dispatched any more.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        lock(&self.watchers).iter().for_each(|subscription| subscription.wake());
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(super) fn log_cache(&self) -> &Arc<LogCache> {
        &self.log_cache
    }

    /// Drops cached history that compaction has made unreadable.
    pub(crate) fn evict_before(&self, compacted: Revision) {
        self.log_cache.evict_before(compacted);
    }

    /// Drops cached history after index terms in the log have changed.
    pub(crate) fn terms_changed(&self) {
        self.log_cache.clear();
    }

    /// Publishes commits in revision order. Known ones are skipped. One that leaves a gap is left to the task
    /// that tails the log, which reads the gap and it.
    pub(crate) fn publish(&self, commits: Vec<Arc<Commit>>) {
        let (before, newest) = {
            let mut ring = lock(&self.ring);
            let before = ring.newest;
            for commit in commits {
                if commit.revision == ring.newest + 1 {
                    self.log_cache.published(&commit);
                    ring.push(commit);
                } else if commit.revision > ring.newest {
                    self.gap_detected.notify_one();
                    break;
                }
            }
            (before, ring.newest)
        };
        let advanced = self.published.send_if_modified(|published| {
            let advanced = *published < newest;
            *published = newest.max(*published);
            advanced
        });
        if advanced {
            self.metrics.revision(newest);
            if !self.skip_dispatch(before, newest) {
                self.dispatch_needed.notify_one();
            }
        }
    }

    /// Marks commits as dispatched if there are no watchers. To wake the dispatcher for nothing would cost a
    /// lone writer more than the rest of publishing.
    fn skip_dispatch(&self, before: Revision, newest: Revision) -> bool {
        let watchers = lock(&self.watchers);
        let skip = watchers.len() == 0 && self.dispatched() == before;
        if skip {
            self.dispatched.store(newest, Ordering::Release);
        }
        skip
    }

    /// Empties the ring and continues at `newest`, when the log before it has been compacted. Every watcher
    /// looks for what it missed by itself.
    pub(crate) fn restart(&self, newest: Revision) {
        {
            let mut ring = lock(&self.ring);
            if newest <= ring.newest {
                // The writer has published it meanwhile.
                return;
            }
            ring.commits.clear();
            ring.bytes = 0;
            ring.newest = newest;
        }
        self.published.send_replace(newest);
        self.dispatch_needed.notify_one();
    }

    /// Returns the newest revision published here. The database may be ahead.
    pub(crate) fn published_revision(&self) -> Revision {
        *self.published.borrow()
    }

    /// Follows the newest published revision.
    pub(crate) fn published_revisions(&self) -> watch::Receiver<Revision> {
        self.published.subscribe()
    }

    /// Returns when commits have to be read from the log.
    pub(crate) async fn gap_detected(&self) {
        self.gap_detected.notified().await;
    }

    /// Returns recent commits after a revision; `None` if they have to be read from the log.
    pub(super) fn recent(&self, after: Revision, limit: usize) -> Option<Vec<Arc<Commit>>> {
        lock(&self.ring).after(after, limit)
    }

    pub(super) fn dispatched(&self) -> Revision {
        self.dispatched.load(Ordering::Acquire)
    }

    /// Registers a new watcher. Commits after the returned revision are enqueued to it.
    pub(super) fn subscribe(&self, subscription: &Arc<Subscription>) -> Revision {
        let mut watchers = lock(&self.watchers);
        watchers.insert(subscription.clone());
        self.metrics.watchers(watchers.len());
        self.dispatched()
    }

    /// Empties a watcher's queue. Commits after the returned revision are enqueued to it again.
    pub(super) fn restart_queue(&self, subscription: &Arc<Subscription>) -> Revision {
        let _watchers = lock(&self.watchers);
        subscription.restart_queue();
        self.dispatched()
    }

    pub(super) fn unsubscribe(&self, subscription: &Arc<Subscription>) {
        let mut watchers = lock(&self.watchers);
        watchers.remove(subscription);
        self.metrics.watchers(watchers.len());
    }

    /// Enqueues published commits to watchers, for ever.
    pub(crate) async fn dispatch(&self, engine: &dyn Engine) {
        loop {
            let dispatched = self.dispatched();
            let newest = self.published_revision();
            self.metrics.watch_lag(newest - dispatched);
            match self.recent(dispatched, DISPATCH_COMMITS) {
                Some(commits) if commits.is_empty() => self.dispatch_needed.notified().await,
                Some(commits) => {
                    self.load_previous_values(engine, &commits).await;
                    self.enqueue(&commits);
                }
                None => {
                    let watchers = lock(&self.watchers);
                    watchers.iter().for_each(|subscription| subscription.mark_lagging(dispatched));
                    self.dispatched.store(newest, Ordering::Release);
                }
            }
        }
    }

    /// Loads previous values once for all watchers that want them, before compaction can delete them.
    async fn load_previous_values(&self, engine: &dyn Engine, commits: &[Arc<Commit>]) {
        let mut wanted = Vec::new();
        {
            let watchers = lock(&self.watchers);
            for commit in commits {
                watchers.for_each_match(commit, |subscription, event| {
                    if subscription.wants_previous(event) {
                        wanted.extend(event.previous.as_ref().map(|previous| (&event.kv.key, previous)));
                    }
                });
            }
        }
        if let Err(error) = load_previous(engine, wanted).await {
            // Watchers retry for themselves and report a lasting failure.
            tracing::debug!(%error, "previous values not loaded ahead");
        }
    }

    fn enqueue(&self, commits: &[Arc<Commit>]) {
        let watchers = lock(&self.watchers);
        // Some may have been published while there were no watchers.
        let dispatched = self.dispatched();
        for commit in commits.iter().filter(|commit| commit.revision > dispatched) {
            watchers.for_each_match(commit, |subscription, _| {
                if subscription.enqueue(commit) {
                    self.metrics.watcher_woken();
                }
            });
            self.dispatched.store(commit.revision, Ordering::Release);
        }
    }

    /// Returns once every published commit up to `revision` has been dispatched.
    pub(crate) async fn wait_until_dispatched(&self, revision: Revision) {
        while self.dispatched() < revision.min(self.published_revision()) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}
