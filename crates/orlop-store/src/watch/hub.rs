//! The ring of recent commits, and their way to the watchers.

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
    matcher::Matcher,
    watcher::{Shared, load_previous},
};
use crate::{Commit, Event, Revision, engine::Engine, metrics::Metrics};

/// Commits that the dispatcher takes at a time: bounds how long it holds a lock.
const DISPATCH_COMMITS: usize = 128;

/// Where commits are published and watchers are found.
#[derive(Debug)]
pub(crate) struct Hub {
    ring: Mutex<Ring>,
    watchers: Mutex<Matcher>,
    /// Every watcher has been offered all commits up to here. Changed only with `watchers` held.
    dispatched: AtomicI64,
    /// The newest commit published.
    published: watch::Sender<Revision>,
    /// There is something to dispatch.
    arrived: Notify,
    /// A commit was published out of turn: what lies before it has to be read from the log.
    gap: Notify,
    /// The store is gone.
    closed: AtomicBool,
    metrics: Metrics,
}

/// The newest commits, with consecutive revisions.
#[derive(Debug)]
struct Ring {
    commits: VecDeque<Arc<Commit>>,
    bytes: usize,
    limit_bytes: usize,
    tip: Revision,
}

/// About what a commit occupies. The keeping of an event's parts costs as much again as a small value.
pub(super) fn commit_bytes(commit: &Commit) -> usize {
    const ALLOCATIONS: usize = 192;
    let event_bytes = size_of::<Event>() + ALLOCATIONS;
    commit.events.iter().map(|event| event.kv.key.len() + event.kv.value.len() + event_bytes).sum()
}

impl Ring {
    fn push(&mut self, commit: Arc<Commit>) {
        self.tip = commit.revision;
        self.bytes += commit_bytes(&commit);
        self.commits.push_back(commit);
        while self.bytes > self.limit_bytes && self.commits.len() > 1 {
            if let Some(oldest) = self.commits.pop_front() {
                self.bytes -= commit_bytes(&oldest);
            }
        }
    }

    /// Commits after a revision; `None` if the ring no longer reaches back to it.
    fn after(&self, revision: Revision, limit: usize) -> Option<Vec<Arc<Commit>>> {
        if revision >= self.tip {
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
    /// Ends every watch: nobody will publish or dispatch any more.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        lock(&self.watchers).all().for_each(|watcher| watcher.wake());
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(crate) fn new(tip: Revision, limit_bytes: usize, metrics: Metrics) -> Self {
        Self {
            ring: Mutex::new(Ring { commits: VecDeque::new(), bytes: 0, limit_bytes, tip }),
            watchers: Mutex::default(),
            dispatched: AtomicI64::new(tip),
            published: watch::Sender::new(tip),
            arrived: Notify::new(),
            gap: Notify::new(),
            closed: AtomicBool::new(false),
            metrics,
        }
    }

    /// Takes commits in order. One that is already there is passed over; one that leaves a gap is left for
    /// the follower, which reads the gap and it from the log.
    pub(crate) fn publish(&self, commits: Vec<Arc<Commit>>) {
        let (before, tip) = {
            let mut ring = lock(&self.ring);
            let before = ring.tip;
            for commit in commits {
                if commit.revision == ring.tip + 1 {
                    ring.push(commit);
                } else if commit.revision > ring.tip {
                    self.gap.notify_one();
                    break;
                }
            }
            (before, ring.tip)
        };
        let moved = self.published.send_if_modified(|published| {
            let moved = *published < tip;
            *published = tip.max(*published);
            moved
        });
        if moved {
            self.metrics.revision(tip);
            if !self.nobody_watches(before, tip) {
                self.arrived.notify_one();
            }
        }
    }

    /// Whether commits up to `tip` are to be offered to nobody. To wake the dispatcher for that would cost a lone writer
    /// more than all the rest of publishing.
    fn nobody_watches(&self, before: Revision, tip: Revision) -> bool {
        let watchers = lock(&self.watchers);
        let nobody = watchers.open() == 0 && self.dispatched() == before;
        if nobody {
            self.dispatched.store(tip, Ordering::Release);
        }
        nobody
    }

    /// Forgets the ring and starts again at `tip`, when the log before it is gone. Every watcher has to
    /// look for itself what it missed.
    pub(crate) fn restart(&self, tip: Revision) {
        {
            let mut ring = lock(&self.ring);
            if tip <= ring.tip {
                // The writer published it meanwhile.
                return;
            }
            ring.commits.clear();
            ring.bytes = 0;
            ring.tip = tip;
        }
        self.published.send_replace(tip);
        self.arrived.notify_one();
    }

    /// The newest commit published here. The database may be ahead by what is on its way.
    pub(crate) fn tip(&self) -> Revision {
        *self.published.borrow()
    }

    /// Follows the newest published revision.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Revision> {
        self.published.subscribe()
    }

    /// Returns when commits have to be read from the log.
    pub(crate) async fn gap(&self) {
        self.gap.notified().await;
    }

    /// Recent commits after a revision; `None` if they have to be read from the tables.
    pub(super) fn recent(&self, after: Revision, limit: usize) -> Option<Vec<Arc<Commit>>> {
        lock(&self.ring).after(after, limit)
    }

    pub(super) fn dispatched(&self) -> Revision {
        self.dispatched.load(Ordering::Acquire)
    }

    /// From the returned revision on, every commit that concerns the watcher is offered to it.
    pub(super) fn join(&self, watcher: &Arc<Shared>, new: bool) -> Revision {
        let mut watchers = lock(&self.watchers);
        if new {
            watchers.insert(watcher.clone());
            self.metrics.watchers(watchers.open());
        }
        watcher.restart();
        self.dispatched()
    }

    pub(super) fn leave(&self, watcher: &Arc<Shared>) {
        let mut watchers = lock(&self.watchers);
        watchers.remove(watcher);
        self.metrics.watchers(watchers.open());
    }

    /// Offers published commits to watchers, for ever.
    pub(crate) async fn dispatch(&self, engine: &dyn Engine) {
        loop {
            let dispatched = self.dispatched();
            let tip = self.tip();
            self.metrics.watch_lag(tip - dispatched);
            match self.recent(dispatched, DISPATCH_COMMITS) {
                Some(commits) if commits.is_empty() => self.arrived.notified().await,
                Some(commits) => {
                    self.prepare(engine, &commits).await;
                    self.offer(&commits);
                }
                None => {
                    let watchers = lock(&self.watchers);
                    watchers.all().for_each(|watcher| watcher.overtake(dispatched));
                    self.dispatched.store(tip, Ordering::Release);
                }
            }
        }
    }

    /// Loads previous values once, before compaction can take them, if a watcher will want them.
    async fn prepare(&self, engine: &dyn Engine, commits: &[Arc<Commit>]) {
        let mut wanted = Vec::new();
        {
            let watchers = lock(&self.watchers);
            for commit in commits {
                watchers.each(commit, |watcher, event| {
                    if watcher.wants_previous(event) {
                        wanted.extend(&event.previous);
                    }
                });
            }
        }
        if let Err(error) = load_previous(engine, wanted).await {
            // Watchers try again for themselves, and are told if it fails for good.
            tracing::debug!(%error, "previous values not loaded ahead");
        }
    }

    fn offer(&self, commits: &[Arc<Commit>]) {
        let watchers = lock(&self.watchers);
        // Some may have been published while nobody watched.
        let dispatched = self.dispatched();
        for commit in commits.iter().filter(|commit| commit.revision > dispatched) {
            watchers.each(commit, |watcher, _| {
                if watcher.offer(commit) {
                    self.metrics.watcher_woken();
                }
            });
            self.dispatched.store(commit.revision, Ordering::Release);
        }
    }

    /// Returns once every commit up to `revision` that is published has been offered.
    pub(crate) async fn offered(&self, revision: Revision) {
        while self.dispatched() < revision.min(self.tip()) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}
