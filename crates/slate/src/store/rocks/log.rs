//! Writes of a transaction, in order, for RocksDB.

use std::collections::BTreeSet;

use rocksdb::WriteBatch;

use super::super::Space;

/// A log of writes. A savepoint is its length, a roll-back cuts it.
#[derive(Default)]
pub(super) struct Log {
    /// Full keys and values.
    bytes: Vec<u8>,
    writes: Vec<Write>,
    dropped: Vec<Space>,
}

/// A write: where its key begins, and its value begins and ends.
#[derive(Clone, Copy)]
struct Write {
    key: usize,
    value: usize,
    end: usize,
    deletes: bool,
}

/// Length of a log.
#[derive(Clone, Copy, Default)]
pub(super) struct Mark {
    bytes: usize,
    writes: usize,
    dropped: usize,
}

impl Log {
    pub(super) fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.dropped.is_empty()
    }

    pub(super) fn put(&mut self, space: Space, key: &[u8], value: &[u8]) {
        self.push(space, key, value, false);
    }

    pub(super) fn delete(&mut self, space: Space, key: &[u8]) {
        self.push(space, key, &[], true);
    }

    fn push(&mut self, space: Space, key: &[u8], value: &[u8], deletes: bool) {
        let from = self.bytes.len();
        self.bytes.extend_from_slice(&space.to_be_bytes());
        self.bytes.extend_from_slice(key);
        let middle = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.writes.push(Write { key: from, value: middle, end: self.bytes.len(), deletes });
    }

    pub(super) fn drop_space(&mut self, space: Space) {
        self.dropped.push(space);
    }

    pub(super) fn mark(&self) -> Mark {
        Mark { bytes: self.bytes.len(), writes: self.writes.len(), dropped: self.dropped.len() }
    }

    pub(super) fn truncate(&mut self, mark: Mark) {
        self.bytes.truncate(mark.bytes);
        self.writes.truncate(mark.writes);
        self.dropped.truncate(mark.dropped);
    }

    /// Builds the batch: the last write of each key, in the order of keys, which a memtable takes fastest.
    pub(super) fn into_batch(mut self) -> WriteBatch {
        let bytes = &self.bytes;
        let key = |write: &Write| &bytes[write.key..write.value];
        // Stable, so the last of several writes of a key stays the last.
        self.writes.sort_by(|left, right| key(left).cmp(key(right)));
        let mut batch = WriteBatch::default();
        for space in &self.dropped {
            batch.delete_range(space.to_be_bytes(), (space + 1).to_be_bytes());
        }
        // A dropped space stays empty, whatever was written before.
        let dropped: BTreeSet<[u8; 4]> = self.dropped.iter().map(|space| space.to_be_bytes()).collect();
        for (position, write) in self.writes.iter().enumerate() {
            let key = key(write);
            let superseded =
                self.writes.get(position + 1).is_some_and(|next| bytes[next.key..next.value] == *key);
            if superseded || key.first_chunk::<4>().is_some_and(|space| dropped.contains(space)) {
                continue;
            }
            if write.deletes {
                batch.delete(key);
            } else {
                batch.put(key, &bytes[write.value..write.end]);
            }
        }
        batch
    }
}
