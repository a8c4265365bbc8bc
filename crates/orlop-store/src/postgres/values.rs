//! Values that have been read or written lately, by version.
//!
//! A version never changes once it is written, whichever process wrote it, so what is kept here is never out of
//! date: it can only be of no more use. A list then asks the database which versions there are, and only for
//! the values that are not here.
//!
//! What is new goes into a short queue and is dropped at its end, unless it was used on the way or was dropped
//! from there not long ago: then it moves to the long queue. So a walk of everything, once, passes through the
//! short queue and leaves the long one alone.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::{Bytes, BytesMut};

use crate::{event::VersionId, metrics::Metrics};

/// Pages with fewer rows go to the database whole: there is little to save.
const ROWS_MIN: usize = 64;
/// What an entry takes besides its key and value, about.
const ENTRY_BYTES: usize = 160;
/// The share of the whole that is for what is new, once the rest is in use.
const NEW_SHARE: usize = 8;

/// A bounded number of bytes of values.
#[derive(Debug)]
pub(super) struct Values {
    limit_bytes: usize,
    kept: Mutex<Kept>,
    /// Whether most of the last page was here.
    warm: AtomicBool,
    metrics: Metrics,
}

#[derive(Debug, Default)]
struct Kept {
    /// The server that all of it is from.
    server: String,
    entries: HashMap<VersionId, Entry>,
    new: Queue,
    proven: Queue,
    /// Versions that were dropped unused, the oldest first, as many as there are proven ones.
    dropped: VecDeque<VersionId>,
    dropped_set: HashSet<VersionId>,
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

    /// The value, if it is the key's.
    fn value_of(&self, key: &[u8]) -> Option<Bytes> {
        (self.bytes.get(..self.key_length)? == key).then(|| self.bytes.slice(self.key_length..))
    }
}

impl Values {
    pub(super) fn new(limit_bytes: usize, metrics: Metrics) -> Self {
        Self { limit_bytes, kept: Mutex::default(), warm: AtomicBool::new(false), metrics }
    }

    /// Whether a page is better read without its values, since most of them are probably here.
    pub(super) fn is_worth_asking(&self, rows_max: usize) -> bool {
        rows_max >= ROWS_MIN && self.warm.load(Ordering::Relaxed)
    }

    /// The values of versions, those that are here.
    pub(super) fn get<'k>(
        &self,
        versions: impl ExactSizeIterator<Item = (VersionId, &'k Bytes)>,
    ) -> Vec<Option<Bytes>> {
        let rows = versions.len();
        let mut kept = self.lock();
        let found: Vec<_> = versions
            .map(|(id, key)| {
                let entry = kept.entries.get_mut(&id)?;
                entry.used = true;
                entry.value_of(key)
            })
            .collect();
        drop(kept);
        self.note(rows, found.iter().flatten().count());
        found
    }

    /// Takes a page that was read with its values; it may have been here all along.
    pub(super) fn learn<'k>(&self, page: impl ExactSizeIterator<Item = (VersionId, &'k Bytes, &'k Bytes)>) {
        let rows = page.len();
        if rows < ROWS_MIN || self.limit_bytes == 0 {
            return;
        }
        let mut hits = 0;
        let mut kept = self.lock();
        for (id, key, value) in page {
            match kept.entries.get_mut(&id) {
                Some(entry) => {
                    entry.used = true;
                    hits += 1;
                }
                None => kept.insert(id, key, value, self.limit_bytes),
            }
        }
        drop(kept);
        self.note(rows, hits);
    }

    /// Takes values that have been written to a server, or fetched from it one by one.
    pub(super) fn put<'k>(
        &self,
        server: &str,
        versions: impl Iterator<Item = (VersionId, &'k Bytes, &'k Bytes)>,
    ) {
        if self.limit_bytes == 0 {
            return;
        }
        let mut kept = self.lock();
        if kept.server != server {
            return;
        }
        for (id, key, value) in versions {
            kept.insert(id, key, value, self.limit_bytes);
        }
    }

    /// Forgets everything that another server said: after a failover to one that had not heard of everything, ids
    /// are given out again.
    pub(super) fn only_from(&self, server: &str) {
        let mut kept = self.lock();
        if kept.server != server {
            *kept = Kept { server: server.to_owned(), ..Kept::default() };
        }
    }

    fn note(&self, rows: usize, hits: usize) {
        self.metrics.values(hits, rows - hits);
        if rows >= ROWS_MIN {
            self.warm.store(hits * 2 >= rows, Ordering::Relaxed);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn insert(&mut self, id: VersionId, key: &Bytes, value: &Bytes, limit_bytes: usize) {
        let size = key.len() + value.len() + ENTRY_BYTES;
        if size > limit_bytes / NEW_SHARE || self.entries.contains_key(&id) {
            return;
        }
        // A copy: the caller's bytes may be part of something much larger.
        let mut bytes = BytesMut::with_capacity(key.len() + value.len());
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(value);
        self.entries.insert(id, Entry { bytes: bytes.freeze(), key_length: key.len(), used: false });
        let queue = if self.dropped_set.remove(&id) { &mut self.proven } else { &mut self.new };
        queue.ids.push_back(id);
        queue.bytes += size;
        while self.new.bytes + self.proven.bytes > limit_bytes {
            if self.new.bytes > limit_bytes / NEW_SHARE || self.proven.ids.is_empty() {
                self.drop_new();
            } else {
                self.drop_proven();
            }
        }
    }

    fn drop_new(&mut self) {
        let Some(id) = self.new.ids.pop_front() else { return };
        let Some(entry) = self.entries.get_mut(&id) else { return };
        self.new.bytes -= entry.size();
        if std::mem::take(&mut entry.used) {
            self.proven.bytes += entry.size();
            self.proven.ids.push_back(id);
            return;
        }
        self.entries.remove(&id);
        self.dropped.push_back(id);
        self.dropped_set.insert(id);
        while self.dropped.len() > self.proven.ids.len().max(self.new.ids.len()) {
            if let Some(oldest) = self.dropped.pop_front() {
                self.dropped_set.remove(&oldest);
            }
        }
    }

    /// What was used since it was last looked at gets another turn.
    fn drop_proven(&mut self) {
        let Some(id) = self.proven.ids.pop_front() else { return };
        let Some(entry) = self.entries.get_mut(&id) else { return };
        if std::mem::take(&mut entry.used) {
            self.proven.ids.push_back(id);
            return;
        }
        self.proven.bytes -= entry.size();
        self.entries.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRIES: usize = 1000;

    fn values(limit_entries: usize) -> Values {
        Values::new(limit_entries * (ENTRY_BYTES + 8), Metrics::default())
    }

    fn key(id: VersionId) -> Bytes {
        Bytes::copy_from_slice(&id.to_be_bytes()[4..])
    }

    /// Lists versions as a read does; how many were at hand.
    fn list(values: &Values, ids: std::ops::Range<VersionId>) -> usize {
        let keys: Vec<_> = ids.map(|id| (id, key(id))).collect();
        let mut hits = 0;
        for page in keys.chunks(100) {
            let found = values.get(page.iter().map(|(id, key)| (*id, key)));
            hits += found.iter().flatten().count();
            values.learn(page.iter().map(|(id, key)| (*id, key, key)).collect::<Vec<_>>().into_iter());
        }
        hits
    }

    #[test]
    fn what_fits_is_kept_and_is_found_under_its_own_key_only() {
        let values = values(ENTRIES);
        let all = 0..ENTRIES as VersionId;
        assert_eq!(list(&values, all.clone()), 0);
        assert!(!values.is_worth_asking(512));
        assert_eq!(list(&values, all), ENTRIES);
        assert!(values.is_worth_asking(512) && !values.is_worth_asking(3));
        let other = Bytes::from_static(b"another key");
        assert_eq!(values.get([(7, &other), (8, &key(8))].into_iter()), [None, Some(key(8))]);
        for (server, kept) in [("", Some(key(8))), ("another", None)] {
            values.only_from(server);
            assert_eq!(values.get([(8, &key(8))].into_iter()), [kept]);
        }
        values.put("", [(8, &key(8), &key(8))].into_iter());
        assert_eq!(values.get([(8, &key(8))].into_iter()), [None], "it is of the server before");
    }

    #[test]
    fn a_walk_of_everything_leaves_what_is_in_use_alone() {
        let values = values(ENTRIES);
        let used = 0..ENTRIES as VersionId / 2;
        list(&values, used.clone());
        list(&values, used.clone());
        list(&values, 10_000..110_000);
        let left = list(&values, used.clone());
        assert!(left * 4 >= used.end as usize * 3, "{left} of {used:?} are left");
    }

    #[test]
    fn what_comes_into_use_replaces_what_went_out_of_it() {
        let values = values(ENTRIES);
        let (old, new) = (0..ENTRIES as VersionId, 10_000..10_000 + ENTRIES as VersionId / 2);
        for _ in 0..3 {
            list(&values, old.clone());
        }
        for _ in 0..20 {
            list(&values, new.clone());
        }
        assert_eq!(list(&values, new.clone()), new.count());
        let kept = values.lock();
        assert!(kept.new.bytes + kept.proven.bytes <= values.limit_bytes);
    }

    #[test]
    fn nothing_is_kept_where_nothing_may_be() {
        let values = values(0);
        values.put("", [(1, &key(1), &key(1))].into_iter());
        list(&values, 0..100);
        assert!(values.lock().entries.is_empty() && !values.is_worth_asking(512));
    }
}
