//! What happened: the unit of the log, of the in-memory ring and of every watch.

use std::sync::OnceLock;

use bytes::Bytes;

use crate::{KeyValue, LeaseId, Revision, Terms};

/// Position of one version in the log: a gap-free sequence of its own, since one revision can hold many.
pub(crate) type VersionId = i64;

/// Everything one revision changed. It is never split: a watcher sees all of it or none.
#[derive(Debug)]
pub struct Commit {
    /// The revision.
    pub revision: Revision,
    /// The changes, in the order the transaction made them; never empty, and each key once.
    pub events: Vec<Event>,
}

/// One key written or deleted.
#[derive(Debug)]
pub struct Event {
    pub(crate) id: VersionId,
    /// The version written. Of a deletion only the key and the revision are set.
    pub kv: KeyValue,
    /// Whether the key was deleted.
    pub deleted: bool,
    /// What the version is found under.
    pub terms: Terms,
    /// The version this one supersedes; `None` for a creation, or when compaction has removed it.
    pub previous: Option<Previous>,
    /// A place for the form in which a front sends the event, so that it is made once for all watchers.
    pub encoded_once: OnceLock<Bytes>,
    /// The stored bytes are not what was written: of the version only the key and the revision are known.
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
        Self { id, kv, deleted, terms, previous, encoded_once: OnceLock::new(), damaged: false }
    }

    /// What is left of a version whose stored bytes are not what was written.
    pub(crate) fn damaged(id: VersionId, key: Bytes, revision: Revision) -> Self {
        let kv = KeyValue { key, revision, ..KeyValue::default() };
        Self { damaged: true, ..Self::new(id, kv, false, Terms::none(), None) }
    }

    /// The superseded version, if reads in the past find it through `history`: every so many versions of a key, and
    /// the last before a deletion. The others are found by walking back from there, or from the live version.
    pub(crate) fn milestone(&self) -> Option<&Current> {
        /// Versions of a key from one milestone to the next.
        const STRIDE: i64 = 64;
        let superseded = &self.previous.as_ref()?.row;
        (self.deleted || superseded.version % STRIDE == 0).then_some(superseded)
    }

    /// Whether the key did not exist before.
    pub fn created(&self) -> bool {
        !self.deleted && self.kv.version == 1
    }
}

/// The superseded version that an event points back to. Its value is loaded only for those who ask.
#[derive(Debug)]
pub struct Previous {
    /// The version's row, without its value.
    pub(crate) row: Current,
    pub(crate) value: OnceLock<Bytes>,
}

impl Previous {
    pub(crate) fn new(row: Current) -> Self {
        Self { row, value: OnceLock::new() }
    }

    /// What the version was found under.
    pub fn terms(&self) -> &Terms {
        &self.row.terms
    }

    /// The version with its value; `None` unless a watch asked for previous values.
    pub fn kv(&self, key: &Bytes) -> Option<KeyValue> {
        self.value.get().map(|value| self.row.kv(key.clone(), value.clone()))
    }
}

/// A version's row without its key and value: all that transactions, counts and filters look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Current {
    pub(crate) id: VersionId,
    pub(crate) revision: Revision,
    pub(crate) create_revision: Revision,
    pub(crate) version: i64,
    pub(crate) lease: LeaseId,
    pub(crate) terms: Terms,
}

impl Current {
    pub(crate) fn kv(&self, key: Bytes, value: Bytes) -> KeyValue {
        KeyValue {
            key,
            value,
            create_revision: self.create_revision,
            revision: self.revision,
            version: self.version,
            lease: self.lease,
        }
    }
}

/// Guards a stored version against damage: a row whose bytes no longer agree with it fails its key alone.
/// Terms are not in it, since they are replaced when an index is declared anew.
pub(crate) fn checksum(key: &[u8], value: &[u8]) -> i64 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(key);
    hasher.update(value);
    i64::from(hasher.finalize())
}
