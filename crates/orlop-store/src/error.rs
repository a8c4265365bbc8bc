//! Errors of the store.
//!
//! Each cause that a server answers differently has its own variant. Messages are for the person who has to act on
//! them; they contain keys, never values.

use bytes::Bytes;

use crate::{LeaseId, Revision};

/// Result of a store operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the store.
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
        /// The requested revision.
        requested: Revision,
        /// The newest revision.
        current: Revision,
    },

    /// A put that keeps the value or lease of its key did not find the key.
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
        /// The requested id.
        lease: LeaseId,
    },

    /// A lease with the chosen id is already granted.
    #[error("lease {lease} already exists")]
    LeaseExists {
        /// The chosen id.
        lease: LeaseId,
    },

    /// A request exceeds one of the store's [`Limits`](crate::Limits).
    #[error("{what} is too large: {size} is over the limit of {limit}")]
    TooLarge {
        /// The object of the limit: a key, a value, a transaction.
        what: &'static str,
        /// Its size.
        size: u64,
        /// The limit.
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

    /// The request is malformed.
    #[error("invalid request: {0}")]
    Invalid(String),

    /// A filter names a field that is not indexed (yet) for the range and revision.
    #[error("field is not indexed here: {0}")]
    NotIndexed(String),

    /// The stored bytes of a key fail their checksum. Other keys are unaffected, and the key can be deleted.
    #[error("stored value is corrupt: {}", Printable(.key))]
    Corrupt {
        /// The key whose row is damaged.
        key: Bytes,
    },

    /// A value cannot be encoded for the database, or decoded: its key is missing, wrong or unavailable.
    #[error("unable to transform key {:?}: {reason}", Printable(.key).to_string())]
    Transform {
        /// The key.
        key: Bytes,
        /// The reason, in the transformer's words.
        reason: String,
    },

    /// The disk is full or the quota is exceeded. Reads work, and so do deletes on SQLite or over a quota.
    #[error("out of space: {0}")]
    Full(String),

    /// The database cannot be reached or used now. Nothing was written; a retry may succeed.
    #[error("storage is unavailable: {0}")]
    Unavailable(String),

    /// The outcome of a commit is unknown: the write may have happened, may still happen, or not at all.
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

/// A key in printable form.
struct Printable<'a>(&'a Bytes);

impl std::fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}
