//! Byte strings that are cheap to clone and to compare.

use std::{borrow::Borrow, sync::Arc};

/// Longest string kept in place.
const INLINE_MAX: usize = 30;

/// An immutable byte string. Short ones, as most keys are, live in place: comparing them follows no pointer.
#[derive(Clone)]
pub(super) enum Bytes {
    Inline { len: u8, data: [u8; INLINE_MAX] },
    Shared(Arc<[u8]>),
}

impl Bytes {
    pub(super) fn new(bytes: &[u8]) -> Self {
        if bytes.len() <= INLINE_MAX {
            let mut data = [0; INLINE_MAX];
            data[..bytes.len()].copy_from_slice(bytes);
            // At most 30.
            Self::Inline { len: bytes.len() as u8, data }
        } else {
            Self::Shared(bytes.into())
        }
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        match self {
            Self::Inline { len, data } => &data[..usize::from(*len)],
            Self::Shared(bytes) => bytes,
        }
    }
}

impl Bytes {
    /// Returns the string, perhaps with zero bytes after it, so that its first bytes can be read as a number.
    pub(super) fn padded(&self) -> &[u8] {
        match self {
            Self::Inline { data, .. } => data,
            Self::Shared(bytes) => bytes,
        }
    }
}

impl Borrow<[u8]> for Bytes {
    fn borrow(&self) -> &[u8] {
        self.as_slice()
    }
}

impl PartialEq for Bytes {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for Bytes {}

impl PartialOrd for Bytes {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Bytes {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.as_slice().cmp(other.as_slice())
    }
}

impl std::fmt::Debug for Bytes {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(self.as_slice(), formatter)
    }
}
