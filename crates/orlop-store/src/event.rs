//! Commits and events: the unit of the log, of the ring buffer and of every watch.

use std::sync::OnceLock;

use bytes::Bytes;

use crate::{KeyValue, LeaseId, Revision, Terms};

/// Position of a version in the log. Ids are a gap-free sequence of their own, since one revision can hold many.
pub(crate) type VersionId = i64;

/// All changes of one revision. It is never split: a watcher sees all of it or none.
#[derive(Debug)]
pub struct Commit {
    /// The revision.
    pub revision: Revision,
    /// The changes, in the order the transaction made them; never empty, and each key once.
    pub events: Vec<Event>,
}

impl Commit {
    /// Estimates the memory of the commit. The allocations of an event cost as much again as a small value.
    pub(crate) fn memory_bytes(&self) -> usize {
        const ALLOCATIONS: usize = 192;
        let event_bytes = size_of::<Event>() + ALLOCATIONS;
        self.events.iter().map(|event| event.kv.key.len() + event.kv.value.len() + event_bytes).sum()
    }
}

/// One key written or deleted.
#[derive(Debug)]
pub struct Event {
    pub(crate) id: VersionId,
    /// The version written. Of a tombstone only the key and the revision are set.
    pub kv: KeyValue,
    /// Set for a deletion.
    pub deleted: bool,
    /// Index terms of the version.
    pub terms: Terms,
    /// The superseded version; `None` for a creation, or when compaction has deleted it.
    pub previous: Option<Previous>,
    /// Cache for the encodings in which a server sends the event, so that each is encoded once for all watchers.
    pub encoded_once: [OnceLock<Bytes>; 2],
    /// The stored bytes fail their checksum: only the key and the revision are known.
    pub(crate) damaged: bool,
}

impl Event {
    pub(crate) fn new(
        id: VersionId,
        kv: KeyValue,
        deleted: bool,
        terms: Terms,
        previous: Option<Previous>,
    ) -> Self {
        Self { id, kv, deleted, terms, previous, encoded_once: Default::default(), damaged: false }
    }

    /// Creates the event of a version whose stored bytes fail their checksum.
    pub(crate) fn damaged(id: VersionId, key: Bytes, revision: Revision) -> Self {
        let kv = KeyValue { key, revision, ..KeyValue::default() };
        Self { damaged: true, ..Self::new(id, kv, false, Terms::none(), None) }
    }

    /// Returns the superseded version if it gets a row in the sparse index `history`: every 64th version of a key,
    /// and the last before a deletion. Reads in the past walk back to the others from there, or from the live version.
    pub(crate) fn superseded_history_row(&self) -> Option<&VersionMeta> {
        /// Versions of a key from one row to the next.
        const STRIDE: i64 = 64;
        let superseded = &self.previous.as_ref()?.row;
        (self.deleted || superseded.version % STRIDE == 0).then_some(superseded)
    }

    /// Returns whether the event created the key.
    pub fn created(&self) -> bool {
        !self.deleted && self.kv.version == 1
    }
}

/// The version that an event supersedes. Its value is loaded only for watches that ask for it.
#[derive(Debug)]
pub struct Previous {
    /// The version's row, without its value.
    pub(crate) row: VersionMeta,
    pub(crate) value: OnceLock<Bytes>,
}

impl Previous {
    pub(crate) fn new(row: VersionMeta) -> Self {
        Self { row, value: OnceLock::new() }
    }

    /// Returns the index terms of the version.
    pub fn terms(&self) -> &Terms {
        &self.row.terms
    }

    /// Returns the version with its value; `None` unless a watch asked for previous values.
    pub fn kv(&self, key: &Bytes) -> Option<KeyValue> {
        self.value.get().map(|value| self.row.kv(key.clone(), value.clone()))
    }
}

/// A version without its key and value: all that transactions, counts and filters need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VersionMeta {
    pub(crate) id: VersionId,
    pub(crate) revision: Revision,
    pub(crate) create_revision: Revision,
    pub(crate) version: i64,
    pub(crate) lease: LeaseId,
    pub(crate) terms: Terms,
}

impl VersionMeta {
    pub(crate) fn kv(&self, key: Bytes, value: Bytes) -> KeyValue {
        KeyValue {
            key,
            value,
            create_revision: self.create_revision,
            revision: self.revision,
            version: self.version,
            lease: self.lease,
            stale: false,
        }
    }
}

/// Computes the checksum of a stored version. A row that does not match it fails its key alone. Index terms are not
/// covered, since declaring an index replaces them.
pub(crate) fn checksum(key: &[u8], value: &[u8]) -> i64 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(key);
    hasher.update(value);
    i64::from(hasher.finalize())
}
