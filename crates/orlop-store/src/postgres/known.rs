//! Which version each key had when this process last looked at it or wrote it.

use std::{borrow::Borrow, collections::HashMap};

use bytes::Bytes;

use crate::{
    Terms,
    event::{Commit, Current},
};

/// Bytes of keys and rows, at the most.
const BYTES: usize = 16 << 20;
/// What a row takes besides its key and terms, about.
const ROW_BYTES: usize = 160;

/// A bounded number of rows. They are in two halves: when the younger is full, the older is dropped.
#[derive(Debug, Default)]
pub(super) struct Known {
    young: HashMap<Bytes, Seen>,
    old: HashMap<Bytes, Seen>,
    /// What the younger half takes.
    bytes: usize,
    /// How often somebody else may have written.
    turns: u64,
}

/// A row as it was in a turn.
#[derive(Debug)]
struct Seen {
    row: Current,
    turn: u64,
}

impl Known {
    /// A key's row, and whether nobody else can have written since it was seen.
    pub(super) fn get(&mut self, key: &Bytes) -> Option<(&Current, bool)> {
        if let Some((key, seen)) = self.old.remove_entry(key) {
            self.insert(key, seen);
        }
        self.young.get(key).map(|seen| (&seen.row, seen.turn == self.turns))
    }

    /// Somebody else may have written.
    pub(super) fn turn(&mut self) {
        self.turns += 1;
    }

    pub(super) fn put(&mut self, key: &Bytes, row: &Current) {
        self.old.remove(key);
        // Copies: the caller's bytes may be part of something much larger.
        let terms = Bytes::copy_from_slice(row.terms.encoded());
        let row = Current { terms: Terms::decode(terms).unwrap_or_default(), ..row.clone() };
        self.insert(Bytes::copy_from_slice(key), Seen { row, turn: self.turns });
    }

    /// Takes what commits have made of their keys.
    pub(super) fn take(&mut self, commits: &[impl Borrow<Commit>]) {
        for event in commits.iter().flat_map(|commit| &commit.borrow().events) {
            let kv = &event.kv;
            if event.deleted {
                self.remove(&kv.key);
                continue;
            }
            let row = Current {
                id: event.id,
                revision: kv.revision,
                create_revision: kv.create_revision,
                version: kv.version,
                lease: kv.lease,
                terms: event.terms.clone(),
            };
            self.put(&kv.key, &row);
        }
    }

    /// Forgets the keys of commits.
    pub(super) fn drop(&mut self, commits: &[Commit]) {
        for event in commits.iter().flat_map(|commit| &commit.events) {
            self.remove(&event.kv.key);
        }
    }

    fn remove(&mut self, key: &Bytes) {
        self.old.remove(key);
        if let Some((key, seen)) = self.young.remove_entry(key) {
            self.bytes -= size(&key, &seen.row);
        }
    }

    fn insert(&mut self, key: Bytes, seen: Seen) {
        self.remove(&key);
        let size = size(&key, &seen.row);
        if self.bytes + size > BYTES / 2 {
            self.old = std::mem::take(&mut self.young);
            self.bytes = 0;
        }
        self.bytes += size;
        self.young.insert(key, seen);
    }
}

fn size(key: &Bytes, row: &Current) -> usize {
    key.len() + row.terms.encoded().len() + ROW_BYTES
}
