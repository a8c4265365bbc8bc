//! Cache of rows that this process has read or written.

use std::{borrow::Borrow, collections::HashMap};

use bytes::Bytes;

use crate::{
    Terms,
    event::{Commit, VersionMeta},
};

/// Maximum bytes of keys and rows.
const LIMIT_BYTES: usize = 16 << 20;
/// Estimated memory of a row besides its key and terms.
const ROW_BYTES: usize = 160;

/// A bounded cache in two generations: when the young one is full, the old one is dropped.
#[derive(Debug, Default)]
pub(super) struct RowCache {
    young: HashMap<Bytes, Entry>,
    old: HashMap<Bytes, Entry>,
    young_bytes: usize,
    /// Counts the epochs of this process. Rows of earlier ones may be stale.
    generation: u64,
}

#[derive(Debug)]
struct Entry {
    row: VersionMeta,
    generation: u64,
}

impl RowCache {
    /// Returns a key's row, and whether it is of the current epoch.
    pub(super) fn get(&mut self, key: &Bytes) -> Option<(&VersionMeta, bool)> {
        if let Some((key, entry)) = self.old.remove_entry(key) {
            self.insert_entry(key, entry);
        }
        self.young.get(key).map(|entry| (&entry.row, entry.generation == self.generation))
    }

    /// Marks every row as possibly stale: another process may have written.
    pub(super) fn end_epoch(&mut self) {
        self.generation += 1;
    }

    pub(super) fn insert(&mut self, key: &Bytes, row: &VersionMeta) {
        self.old.remove(key);
        // Copies: the caller's bytes may be part of something much larger.
        let terms = Bytes::copy_from_slice(row.terms.encoded());
        let row = VersionMeta { terms: Terms::decode(terms).unwrap_or_default(), ..row.clone() };
        self.insert_entry(Bytes::copy_from_slice(key), Entry { row, generation: self.generation });
    }

    /// Applies the changes of commits.
    pub(super) fn apply(&mut self, commits: &[impl Borrow<Commit>]) {
        for event in commits.iter().flat_map(|commit| &commit.borrow().events) {
            let kv = &event.kv;
            if event.deleted {
                self.remove(&kv.key);
                continue;
            }
            let row = VersionMeta {
                id: event.id,
                revision: kv.revision,
                create_revision: kv.create_revision,
                version: kv.version,
                lease: kv.lease,
                terms: event.terms.clone(),
            };
            self.insert(&kv.key, &row);
        }
    }

    /// Removes the keys of commits.
    pub(super) fn invalidate(&mut self, commits: &[Commit]) {
        for event in commits.iter().flat_map(|commit| &commit.events) {
            self.remove(&event.kv.key);
        }
    }

    fn remove(&mut self, key: &Bytes) {
        self.old.remove(key);
        if let Some((key, entry)) = self.young.remove_entry(key) {
            self.young_bytes -= size(&key, &entry.row);
        }
    }

    fn insert_entry(&mut self, key: Bytes, entry: Entry) {
        self.remove(&key);
        let size = size(&key, &entry.row);
        if self.young_bytes + size > LIMIT_BYTES / 2 {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        self.young_bytes += size;
        self.young.insert(key, entry);
    }
}

fn size(key: &Bytes, row: &VersionMeta) -> usize {
    key.len() + row.terms.encoded().len() + ROW_BYTES
}
