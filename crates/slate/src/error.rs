//! The engine's one error type.

/// Result of an engine operation.
pub type Result<T> = std::result::Result<T, Error>;

/// Reason why an operation failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A filter, update, projection, sort, index or document is malformed.
    #[error("{0}")]
    Invalid(String),
    /// The collection does not exist.
    #[error("collection {0:?} does not exist")]
    NoCollection(String),
    /// The collection exists already.
    #[error("collection {0:?} already exists")]
    CollectionExists(String),
    /// The index does not exist.
    #[error("index {0:?} does not exist")]
    NoIndex(String),
    /// An index of that name exists with a different definition.
    #[error("index {0:?} already exists with a different definition")]
    IndexConflict(String),
    /// A unique index, or `_id`, already has this key.
    #[error("duplicate key in index {index:?}: {key}")]
    DuplicateKey {
        /// Name of the violated index.
        index: String,
        /// The key in readable form.
        key: String,
    },
    /// A document, result or request exceeds a limit.
    #[error("{0}")]
    TooLarge(String),
    /// The operation ran past its deadline.
    #[error("operation exceeded its time limit")]
    TimedOut,
    /// The caller gave up.
    #[error("operation was cancelled")]
    Cancelled,
    /// Stored data does not decode.
    #[error("stored data is corrupt: {0}")]
    Corrupt(String),
    /// The store failed: disk full, I/O error.
    #[error("store: {0}")]
    Store(String),
    /// The data directory cannot be used: foreign, damaged, or locked by another process.
    #[error("data directory {path}: {reason}")]
    DataDirectory {
        /// The directory.
        path: String,
        /// Why it cannot be used.
        reason: String,
    },
}

impl Error {
    /// Builds [`Error::Invalid`].
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::Invalid(message.into())
    }

    pub(crate) fn corrupt(error: impl std::fmt::Display) -> Self {
        Self::Corrupt(error.to_string())
    }
}
