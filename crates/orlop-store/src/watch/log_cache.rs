//! Segments of the log that watchers share while they catch up.
//!
//! A watcher that resumes far behind reads the log from the database. Each with a buffer of its own, a thousand
//! such watchers took gigabytes and all read connections. So there is one cache for all of them, with a byte
//! budget and LRU eviction. Watchers hold a position, never a segment: one that stops reading costs nothing.
//!
//! Segments begin at multiples of [`SEGMENT_REVISIONS`] where compaction allows, so that watchers at different
//! positions share them. A large commit that somebody still holds is not held twice: what is sent of it to clients
//! that do not read may outlive its segment ([`WatchBatch::share`](super::watcher::WatchBatch::share)).
//!
//! Reads of the database take turns in the order of their requests, one at a time: a
//! crowd that catches up leaves the other connections and processors to everybody else.
//!
//! A read runs as a task of its own. The future that waits for it may not be polled for as long as a client does
//! not read, and must not hold a turn meanwhile.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use tokio::sync::{Semaphore, watch};

use crate::{
    Commit, Revision,
    engine::{Engine, TailLimit},
    error::{Error, Result},
};

/// Revisions from the beginning of one segment to the next, and events that a segment holds at most, the rest
/// of its last commit excepted.
const SEGMENT_REVISIONS: i64 = 256;
const SEGMENT_LIMIT: TailLimit = TailLimit { events: SEGMENT_REVISIONS as usize, bytes: 1 << 20 };
/// Bytes from which a commit is large.
pub(super) const LARGE_COMMIT: usize = 16 << 10;
/// Large commits that are remembered before those that are gone are forgotten.
const LARGE_COMMITS_MIN: usize = 1024;
/// Reads of the database at a time.
const CONCURRENT_READS: usize = 1;

/// Consecutive commits, read from the log.
#[derive(Debug)]
pub(super) struct Segment {
    commits: Vec<Arc<Commit>>,
    last: Revision,
    bytes: usize,
}

impl Segment {
    fn new(commits: Vec<Arc<Commit>>) -> Option<Self> {
        let last = commits.last()?.revision;
        let bytes = commits.iter().map(|commit| commit.memory_bytes()).sum();
        Some(Self { commits, last, bytes })
    }

    /// Returns the commits after a revision.
    pub(super) fn after(&self, revision: Revision) -> &[Arc<Commit>] {
        let first = self.commits.partition_point(|commit| commit.revision <= revision);
        self.commits.get(first..).unwrap_or_default()
    }
}

/// Result of a read: `None` while it is under way; a segment of `None` if the log ends at the position.
type ReadState = Option<Result<Option<Arc<Segment>>>>;

/// Recently read segments.
#[derive(Debug)]
pub(super) struct LogCache {
    limit_bytes: usize,
    state: Mutex<State>,
    /// Fair: permits go to waiters in order.
    turns: Semaphore,
}

#[derive(Debug, Default)]
struct State {
    /// Segments by the revision that they begin after.
    segments: BTreeMap<Revision, Entry>,
    bytes: usize,
    /// Large commits that were read or published, and may still be held by somebody.
    large: HashMap<Revision, Weak<Commit>>,
    /// Number of them at which those that are gone are forgotten.
    large_limit: usize,
    /// Counts uses, for LRU.
    clock: u64,
    /// Reads under way, by position.
    reads: HashMap<Revision, watch::Receiver<ReadState>>,
}

#[derive(Debug)]
struct Entry {
    segment: Arc<Segment>,
    used_at: u64,
}

impl LogCache {
    pub(super) fn new(limit_bytes: usize) -> Self {
        Self { limit_bytes, state: Mutex::default(), turns: Semaphore::new(CONCURRENT_READS) }
    }

    /// Returns a segment with commits after `position`, from the cache or the database; `None` if there are none.
    ///
    /// Cancel-safe.
    pub(super) async fn segment_after(
        self: &Arc<Self>,
        engine: &Arc<dyn Engine>,
        position: Revision,
    ) -> Result<Option<Arc<Segment>>> {
        if let Some(segment) = self.lock().get(position) {
            return Ok(Some(segment));
        }
        let mut read = self.start_read(engine, position);
        let done = read.wait_for(Option::is_some).await;
        let closed = || Error::Unavailable("the store is closed".into());
        done.map_err(|_| closed())?.clone().unwrap_or_else(|| Err(closed()))
    }

    /// Remembers a commit that was published, if it is large.
    pub(super) fn published(&self, commit: &Arc<Commit>) {
        if commit.memory_bytes() >= LARGE_COMMIT {
            self.lock().only_one(commit);
        }
    }

    /// Drops segments that end before a revision, which compaction has made unreadable.
    pub(super) fn evict_before(&self, revision: Revision) {
        self.lock().retain(|segment| segment.last >= revision);
    }

    /// Drops every segment: index terms of versions in the log have changed.
    pub(super) fn clear(&self) {
        let mut state = self.lock();
        state.retain(|_| false);
        state.large.clear();
    }

    /// Joins the read at a position, or starts one.
    fn start_read(
        self: &Arc<Self>,
        engine: &Arc<dyn Engine>,
        position: Revision,
    ) -> watch::Receiver<ReadState> {
        let mut state = self.lock();
        if let Some(read) = state.reads.get(&position) {
            return read.clone();
        }
        let (result, read) = watch::channel(None);
        state.reads.insert(position, read.clone());
        let (cache, engine) = (self.clone(), engine.clone());
        tokio::spawn(async move {
            let _turn = cache.turns.acquire().await;
            // The map holds one receiver. Without another, every watcher that waited is gone.
            let abandoned = {
                let mut state = cache.lock();
                let abandoned = result.receiver_count() <= 1;
                if abandoned {
                    state.reads.remove(&position);
                }
                abandoned
            };
            if abandoned {
                return;
            }
            let segment = cache.load(&*engine, position).await;
            cache.lock().reads.remove(&position);
            result.send_replace(Some(segment));
        });
        read
    }

    async fn load(&self, engine: &dyn Engine, position: Revision) -> Result<Option<Arc<Segment>>> {
        // Another watcher's read may have brought it while this one waited for its turn.
        if let Some(segment) = self.lock().get(position) {
            return Ok(Some(segment));
        }
        let aligned = position - position.rem_euclid(SEGMENT_REVISIONS);
        if aligned < position {
            match self.read(engine, aligned).await {
                Ok(Some(segment)) if segment.last > position => return Ok(Some(segment)),
                // It ends too early because its values are large, or begins before compaction.
                Ok(_) | Err(Error::Expired { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        self.read(engine, position).await
    }

    async fn read(&self, engine: &dyn Engine, after: Revision) -> Result<Option<Arc<Segment>>> {
        let mut commits = engine.tail(after, SEGMENT_LIMIT).await?;
        for commit in commits.iter_mut().filter(|commit| commit.memory_bytes() >= LARGE_COMMIT) {
            *commit = self.lock().only_one(commit);
        }
        let Some(segment) = Segment::new(commits).map(Arc::new) else { return Ok(None) };
        self.lock().insert(after, segment.clone(), self.limit_bytes);
        Ok(Some(segment))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns the commit of the same revision that somebody holds, else this one.
    fn only_one(&mut self, commit: &Arc<Commit>) -> Arc<Commit> {
        if let Some(held) = self.large.get(&commit.revision).and_then(Weak::upgrade) {
            return held;
        }
        if self.large.len() >= self.large_limit.max(LARGE_COMMITS_MIN) {
            self.large.retain(|_, commit| commit.strong_count() > 0);
            self.large_limit = self.large.len() * 2;
        }
        self.large.insert(commit.revision, Arc::downgrade(commit));
        commit.clone()
    }

    /// Returns the segment that holds the commit after `position`.
    fn get(&mut self, position: Revision) -> Option<Arc<Segment>> {
        self.clock += 1;
        let (_, entry) = self.segments.range_mut(..=position).next_back()?;
        if entry.segment.last <= position {
            return None;
        }
        entry.used_at = self.clock;
        Some(entry.segment.clone())
    }

    fn insert(&mut self, after: Revision, segment: Arc<Segment>, limit_bytes: usize) {
        self.clock += 1;
        self.bytes += segment.bytes;
        let replaced = self.segments.insert(after, Entry { segment, used_at: self.clock });
        self.bytes -= replaced.map_or(0, |entry| entry.segment.bytes);
        while self.bytes > limit_bytes && self.segments.len() > 1 {
            let oldest = self.segments.iter().min_by_key(|(_, entry)| entry.used_at).map(|(after, _)| *after);
            let evicted = oldest.and_then(|after| self.segments.remove(&after));
            self.bytes -= evicted.map_or(0, |entry| entry.segment.bytes);
        }
    }

    fn retain(&mut self, keep: impl Fn(&Segment) -> bool) {
        self.segments.retain(|_, entry| keep(&entry.segment));
        self.bytes = self.segments.values().map(|entry| entry.segment.bytes).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Event, KeyValue, Terms};

    fn segment(revisions: std::ops::RangeInclusive<Revision>) -> Arc<Segment> {
        let commit = |revision| {
            let kv = KeyValue { key: "key".into(), revision, ..KeyValue::default() };
            Arc::new(Commit { revision, events: vec![Event::new(revision, kv, false, Terms::none(), None)] })
        };
        Arc::new(Segment::new(revisions.map(commit).collect()).unwrap())
    }

    #[test]
    fn a_segment_serves_every_position_within_it() {
        let mut state = State::default();
        state.insert(256, segment(257..=512), usize::MAX);
        for position in [256, 300, 511] {
            let found = state.get(position).unwrap();
            assert_eq!(found.after(position)[0].revision, position + 1);
        }
        assert!(state.get(255).is_none(), "the commit after 255 is before the segment");
        assert!(state.get(512).is_none(), "the segment ends at 512");
    }

    #[test]
    fn a_large_commit_that_is_held_is_not_held_twice() {
        let mut state = State::default();
        let (first, again) = (segment(1..=1).commits[0].clone(), segment(1..=1).commits[0].clone());
        assert!(Arc::ptr_eq(&state.only_one(&first), &first));
        assert!(Arc::ptr_eq(&state.only_one(&again), &first));
        drop(first);
        assert!(Arc::ptr_eq(&state.only_one(&again), &again));
        for revision in 2..5_000 {
            state.only_one(&segment(revision..=revision).commits[0]);
        }
        assert!(state.large.len() <= LARGE_COMMITS_MIN, "those that are gone are forgotten");
    }

    #[test]
    fn eviction_removes_the_least_recently_used_segment() {
        let mut state = State::default();
        let limit = 2 * segment(1..=10).bytes;
        state.insert(0, segment(1..=10), limit);
        state.insert(10, segment(11..=20), limit);
        assert!(state.get(0).is_some());
        state.insert(20, segment(21..=30), limit);
        assert!(state.get(0).is_some() && state.get(10).is_none() && state.get(20).is_some());
        assert!(state.bytes <= limit);
        state.retain(|segment| segment.last > 10);
        assert_eq!(state.bytes, limit / 2);
    }
}
