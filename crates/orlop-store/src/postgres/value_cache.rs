//! Cache of values by version.
//!
//! A version is immutable, whichever process wrote it, so entries are never stale. A list reads which versions there are
//! and only the values that are not cached.
//!
//! The eviction is scan-resistant (as in S3-FIFO): a new entry goes into a probation queue and is evicted at its end,
//! unless it was used meanwhile or had been evicted from there recently; then it moves to the main queue. One scan of
//! everything passes through the probation queue and leaves the main queue alone.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::{Bytes, BytesMut};

use crate::{event::VersionId, metrics::Metrics};

/// Pages with fewer rows are read with their values: there is little to save.
const ROWS_MIN: usize = 64;
/// Estimated memory of an entry besides its key and value.
const ENTRY_BYTES: usize = 160;
/// The probation queue gets one part in so many, once the main queue is in use.
const PROBATION_SHARE: usize = 8;

/// A cache with a byte limit.
#[derive(Debug)]
pub(super) struct ValueCache {
    limit_bytes: usize,
    state: Mutex<State>,
    /// Set if most values of the last page were cached.
    warm: AtomicBool,
    metrics: Metrics,
}

#[derive(Debug, Default)]
struct State {
    /// The server that all entries are from.
    server: String,
    entries: HashMap<VersionId, Entry>,
    probation: Queue,
    main: Queue,
    /// Ghost queue: versions that were evicted from probation, the oldest first.
    ghosts: VecDeque<VersionId>,
    ghost_set: HashSet<VersionId>,
}

#[derive(Debug, Default)]
struct Queue {
    ids: VecDeque<VersionId>,
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    /// The key, then the value.
    bytes: Bytes,
    key_length: usize,
    used: bool,
}

impl Entry {
    fn size(&self) -> usize {
        self.bytes.len() + ENTRY_BYTES
    }

    /// Returns the value if the entry is of this key.
    fn value_of(&self, key: &[u8]) -> Option<Bytes> {
        (self.bytes.get(..self.key_length)? == key).then(|| self.bytes.slice(self.key_length..))
    }
}

impl ValueCache {
    pub(super) fn new(limit_bytes: usize, metrics: Metrics) -> Self {
        Self { limit_bytes, state: Mutex::default(), warm: AtomicBool::new(false), metrics }
    }

    /// Returns whether to read a page without its values, because most are probably cached.
    pub(super) fn is_warm(&self, rows_max: usize) -> bool {
        rows_max >= ROWS_MIN && self.warm.load(Ordering::Relaxed)
    }

    /// Returns the cached values of versions.
    pub(super) fn get<'k>(
        &self,
        versions: impl ExactSizeIterator<Item = (VersionId, &'k Bytes)>,
    ) -> Vec<Option<Bytes>> {
        let rows = versions.len();
        let mut state = self.lock();
        let found: Vec<_> = versions
            .map(|(id, key)| {
                let entry = state.entries.get_mut(&id)?;
                entry.used = true;
                entry.value_of(key)
            })
            .collect();
        drop(state);
        self.record_page(rows, found.iter().flatten().count());
        found
    }

    /// Inserts a page that was read with its values.
    pub(super) fn insert_page<'k>(
        &self,
        page: impl ExactSizeIterator<Item = (VersionId, &'k Bytes, &'k Bytes)>,
    ) {
        let rows = page.len();
        if rows < ROWS_MIN || self.limit_bytes == 0 {
            return;
        }
        let mut hits = 0;
        let mut state = self.lock();
        for (id, key, value) in page {
            match state.entries.get_mut(&id) {
                Some(entry) => {
                    entry.used = true;
                    hits += 1;
                }
                None => state.insert(id, key, value, self.limit_bytes),
            }
        }
        drop(state);
        self.record_page(rows, hits);
    }

    /// Inserts values that were written to a server, or fetched from it one by one.
    pub(super) fn insert<'k>(
        &self,
        server: &str,
        versions: impl Iterator<Item = (VersionId, &'k Bytes, &'k Bytes)>,
    ) {
        if self.limit_bytes == 0 {
            return;
        }
        let mut state = self.lock();
        if state.server != server {
            return;
        }
        for (id, key, value) in versions {
            state.insert(id, key, value, self.limit_bytes);
        }
    }

    /// Drops the entries of another server: after a failover that lost commits, ids are assigned again.
    pub(super) fn set_server(&self, server: &str) {
        let mut state = self.lock();
        if state.server != server {
            *state = State { server: server.to_owned(), ..State::default() };
        }
    }

    fn record_page(&self, rows: usize, hits: usize) {
        self.metrics.value_cache(hits, rows - hits);
        if rows >= ROWS_MIN {
            self.warm.store(hits * 2 >= rows, Ordering::Relaxed);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn insert(&mut self, id: VersionId, key: &Bytes, value: &Bytes, limit_bytes: usize) {
        let size = key.len() + value.len() + ENTRY_BYTES;
        if size > limit_bytes / PROBATION_SHARE || self.entries.contains_key(&id) {
            return;
        }
        // A copy: the caller's bytes may be part of something much larger.
        let mut bytes = BytesMut::with_capacity(key.len() + value.len());
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(value);
        self.entries.insert(id, Entry { bytes: bytes.freeze(), key_length: key.len(), used: false });
        let queue = if self.ghost_set.remove(&id) { &mut self.main } else { &mut self.probation };
        queue.ids.push_back(id);
        queue.bytes += size;
        while self.probation.bytes + self.main.bytes > limit_bytes {
            if self.probation.bytes > limit_bytes / PROBATION_SHARE || self.main.ids.is_empty() {
                self.evict_from_probation();
            } else {
                self.evict_from_main();
            }
        }
    }

    fn evict_from_probation(&mut self) {
        let Some(id) = self.probation.ids.pop_front() else { return };
        let Some(entry) = self.entries.get_mut(&id) else { return };
        self.probation.bytes -= entry.size();
        if std::mem::take(&mut entry.used) {
            self.main.bytes += entry.size();
            self.main.ids.push_back(id);
            return;
        }
        self.entries.remove(&id);
        self.ghosts.push_back(id);
        self.ghost_set.insert(id);
        while self.ghosts.len() > self.main.ids.len().max(self.probation.ids.len()) {
            if let Some(oldest) = self.ghosts.pop_front() {
                self.ghost_set.remove(&oldest);
            }
        }
    }

    /// Evicts the oldest entry that was not used since its last inspection (CLOCK).
    fn evict_from_main(&mut self) {
        let Some(id) = self.main.ids.pop_front() else { return };
        let Some(entry) = self.entries.get_mut(&id) else { return };
        if std::mem::take(&mut entry.used) {
            self.main.ids.push_back(id);
            return;
        }
        self.main.bytes -= entry.size();
        self.entries.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRIES: usize = 1000;

    fn cache(limit_entries: usize) -> ValueCache {
        ValueCache::new(limit_entries * (ENTRY_BYTES + 8), Metrics::default())
    }

    fn key(id: VersionId) -> Bytes {
        Bytes::copy_from_slice(&id.to_be_bytes()[4..])
    }

    /// Lists versions as a read does. Returns the number of hits.
    fn list(values: &ValueCache, ids: std::ops::Range<VersionId>) -> usize {
        let keys: Vec<_> = ids.map(|id| (id, key(id))).collect();
        let mut hits = 0;
        for page in keys.chunks(100) {
            let found = values.get(page.iter().map(|(id, key)| (*id, key)));
            hits += found.iter().flatten().count();
            values.insert_page(page.iter().map(|(id, key)| (*id, key, key)).collect::<Vec<_>>().into_iter());
        }
        hits
    }

    #[test]
    fn values_are_cached_per_key_and_server() {
        let values = cache(ENTRIES);
        let all = 0..ENTRIES as VersionId;
        assert_eq!(list(&values, all.clone()), 0);
        assert!(!values.is_warm(512));
        assert_eq!(list(&values, all), ENTRIES);
        assert!(values.is_warm(512) && !values.is_warm(3));
        let other = Bytes::from_static(b"another key");
        assert_eq!(values.get([(7, &other), (8, &key(8))].into_iter()), [None, Some(key(8))]);
        for (server, kept) in [("", Some(key(8))), ("another", None)] {
            values.set_server(server);
            assert_eq!(values.get([(8, &key(8))].into_iter()), [kept]);
        }
        values.insert("", [(8, &key(8), &key(8))].into_iter());
        assert_eq!(values.get([(8, &key(8))].into_iter()), [None], "the entry is of another server");
    }

    #[test]
    fn one_scan_does_not_evict_entries_in_use() {
        let values = cache(ENTRIES);
        let used = 0..ENTRIES as VersionId / 2;
        list(&values, used.clone());
        list(&values, used.clone());
        list(&values, 10_000..110_000);
        let left = list(&values, used.clone());
        assert!(left * 4 >= used.end as usize * 3, "{left} of {used:?} are left");
    }

    #[test]
    fn entries_in_use_replace_unused_ones() {
        let values = cache(ENTRIES);
        let (old, new) = (0..ENTRIES as VersionId, 10_000..10_000 + ENTRIES as VersionId / 2);
        for _ in 0..3 {
            list(&values, old.clone());
        }
        for _ in 0..20 {
            list(&values, new.clone());
        }
        assert_eq!(list(&values, new.clone()), new.count());
        let state = values.lock();
        assert!(state.probation.bytes + state.main.bytes <= values.limit_bytes);
    }

    #[test]
    fn limit_of_zero_disables_the_cache() {
        let values = cache(0);
        values.insert("", [(1, &key(1), &key(1))].into_iter());
        list(&values, 0..100);
        assert!(values.lock().entries.is_empty() && !values.is_warm(512));
    }
}
