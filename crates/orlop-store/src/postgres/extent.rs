//! Bounds of a read: its size, its number of keys, and the revisions that can be read.

use crate::{
    Limits, Read, Revision,
    engine::Bounds,
    error::{Error, Result},
};

/// Extent of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// One page of a snapshot of its own, which ends with the value that makes it so long.
    Page {
        /// Size of keys and values.
        bytes: usize,
    },
    /// All of it, in the snapshot of the transaction that the session is in.
    Transaction,
}

impl Extent {
    /// Returns the size at which a page ends.
    pub(super) fn bytes_max(self) -> usize {
        match self {
            Self::Page { bytes } => bytes,
            Self::Transaction => usize::MAX,
        }
    }
}

/// Returns the maximum number of keys of a read.
pub(super) fn limit(limits: &Limits, read: &Read) -> usize {
    if read.limit == 0 { limits.read_keys } else { read.limit.min(limits.read_keys) }
}

/// Fails if a revision cannot be read.
pub(super) fn check(bounds: Bounds, revision: Option<Revision>) -> Result<()> {
    match revision {
        Some(requested) if requested > bounds.current => {
            Err(Error::FutureRevision { requested, current: bounds.current })
        }
        Some(requested) if requested < bounds.compacted => {
            Err(Error::Expired { compacted: bounds.compacted })
        }
        _ => Ok(()),
    }
}
