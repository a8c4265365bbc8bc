//! Rows that become an answer while they are read: each is copied once, from the database's own memory into the
//! bytes that leave.

use std::fmt;

use bytes::{Bytes, BytesMut};

use crate::{ReadResult, Revision};

/// How a version is told in an answer.
pub trait RowEncoder: fmt::Debug + Send + Sync {
    /// Appends a version; `false` if that takes more than its bytes.
    fn append(&self, to: &mut BytesMut, value: &[u8], revision: Revision) -> bool;
}

/// A page of a read in a [`RowEncoder`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EncodedPage {
    /// The page, without the versions that are in `bytes`.
    pub page: ReadResult,
    /// The versions one after another; `None` if one of them does not take the form.
    pub bytes: Option<Bytes>,
    /// How many versions there are.
    pub keys: usize,
    /// The last of them: its key and revision.
    pub last: Option<(Bytes, Revision)>,
}

impl EncodedPage {
    /// A page without a form.
    pub(crate) fn stored(page: ReadResult) -> Self {
        let last = page.kvs.last().map(|kv| (kv.key.clone(), kv.revision));
        Self { keys: page.kvs.len(), last, page, bytes: None }
    }

    /// Puts a page that was read without a form into one.
    pub(crate) fn of(page: ReadResult, form: &dyn RowEncoder) -> Self {
        let mut bytes = BytesMut::with_capacity(page.kvs.iter().map(|kv| kv.value.len()).sum());
        let formed = page.kvs.iter().all(|kv| form.append(&mut bytes, &kv.value, kv.revision));
        let mut stored = Self::stored(page);
        if formed {
            stored.page.kvs.clear();
            stored.bytes = Some(bytes.freeze());
        }
        stored
    }
}
