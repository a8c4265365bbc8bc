//! Rows encoded while they are read: each value is copied once, from the database's memory into the response.

use std::fmt;

use bytes::{Bytes, BytesMut};

use crate::{ReadResult, Revision};

/// Encodes versions into a response.
pub trait RowEncoder: fmt::Debug + Send + Sync {
    /// Appends a version. Returns `false` if its stored bytes alone do not suffice.
    fn append(&self, to: &mut BytesMut, value: &[u8], revision: Revision) -> bool;
}

/// A page of a read, encoded by a [`RowEncoder`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EncodedPage {
    /// The page, without the versions that are in `bytes`.
    pub page: ReadResult,
    /// The encoded versions one after another; `None` if one of them cannot be encoded.
    pub bytes: Option<Bytes>,
    /// The number of versions.
    pub keys: usize,
    /// Key and revision of the last version.
    pub last: Option<(Bytes, Revision)>,
}

impl EncodedPage {
    /// Wraps a page that is not encoded.
    pub(crate) fn stored(page: ReadResult) -> Self {
        let last = page.kvs.last().map(|kv| (kv.key.clone(), kv.revision));
        Self { keys: page.kvs.len(), last, page, bytes: None }
    }

    /// Encodes a page that was read as stored.
    pub(crate) fn encode(page: ReadResult, encoder: &dyn RowEncoder) -> Self {
        let mut bytes = BytesMut::with_capacity(page.kvs.iter().map(|kv| kv.value.len()).sum());
        let encoded = page.kvs.iter().all(|kv| encoder.append(&mut bytes, &kv.value, kv.revision));
        let mut result = Self::stored(page);
        if encoded {
            result.page.kvs.clear();
            result.bytes = Some(bytes.freeze());
        }
        result
    }
}
