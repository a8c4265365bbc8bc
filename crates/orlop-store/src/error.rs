//! What can go wrong, as values.
//!
//! A caller's mistake, a lost race and a broken disk are different things, and each has its own variant,
//! so that a front can answer with the right code without reading messages. Messages are written for the
//! person who has to act on them; they never contain values, only keys.

use bytes::Bytes;

use crate::{LeaseId, Revision};

/// The result of anything the store does.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything the store can answer instead of a result.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// A read or watch asked for a revision whose history has been compacted away.
    #[error("revision has been compacted: the oldest readable revision is {compacted}")]
    Expired {
        /// The oldest revision that can still be read.
        compacted: Revision,
    },

    /// A read asked for a revision that has not happened yet.
    #[error("revision {requested} is in the future: the newest revision is {current}")]
    FutureRevision {
        /// What was asked for.
        requested: Revision,
        /// The newest revision there is.
        current: Revision,
    },

    /// A put that keeps the value or lease of its key found no such key.
    #[error("key not found: {}", Printable(.key))]
    NotFound {
        /// The key that does not exist.
        key: Bytes,
    },

    /// One transaction would change the same key twice, which has no order within one revision.
    #[error("duplicate key in one transaction: {}", Printable(.key))]
    DuplicateKey {
        /// The key changed twice.
        key: Bytes,
    },

    /// No lease has this id: it was never granted, was revoked, or has expired.
    #[error("lease {lease} not found")]
    LeaseNotFound {
        /// The id that was asked for.
        lease: LeaseId,
    },

    /// A lease with the chosen id is already granted.
    #[error("lease {lease} already exists")]
    LeaseExists {
        /// The id that was chosen.
        lease: LeaseId,
    },

    /// A request is over one of the store's [`Limits`](crate::Limits).
    #[error("{what} is too large: {size} is over the limit of {limit}")]
    TooLarge {
        /// What is too large: a key, a value, a transaction.
        what: &'static str,
        /// How large it is.
        size: u64,
        /// How large it may be.
        limit: u64,
    },

    /// A transaction would return more than [`Limits::txn_read_bytes`](crate::Limits::txn_read_bytes).
    #[error("the response is too large: {size} bytes are over the limit of {limit}")]
    ResponseTooLarge {
        /// Bytes read before the transaction was given up.
        size: u64,
        /// The limit.
        limit: u64,
    },

    /// The request contradicts itself.
    #[error("invalid request: {0}")]
    Invalid(String),

    /// A filter names a field that is not indexed (yet) for the asked range and revision.
    #[error("field is not indexed here: {0}")]
    NotIndexed(String),

    /// The stored bytes of this key are damaged. Other keys are unaffected; deleting the key still works.
    #[error("stored value is corrupt: {}", Printable(.key))]
    Corrupt {
        /// The key whose row is damaged.
        key: Bytes,
    },

    /// The database holds no more: its disk or its size limit is full. Reads still work, and so do
    /// deletes where the limit is the store's own.
    #[error("out of space: {0}")]
    Full(String),

    /// The database cannot be reached or used now; nothing was written. The same call may work later.
    #[error("storage is unavailable: {0}")]
    Unavailable(String),

    /// The database has been out of sight for so long that the caller is answered without it. The write may
    /// have happened, may happen yet, or not at all: the store goes on to find out.
    #[error("the outcome of the write is unknown: {0}")]
    AmbiguousCommit(String),

    /// The database was written by a newer program than this one.
    #[error("the database has schema version {found}, this program knows up to {known}: use a newer orlop")]
    NewerSchema {
        /// The version found in the database.
        found: i64,
        /// The newest version this program knows.
        known: i64,
    },
}

/// A key as a person can read it.
struct Printable<'a>(&'a Bytes);

impl std::fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}
