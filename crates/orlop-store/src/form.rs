//! Rows that become an answer while they are read: each is copied once, from the database's own memory into the
//! bytes that leave.

use std::fmt;

use bytes::{Bytes, BytesMut};

use crate::{ReadResult, Revision};

/// How a version is told in an answer.
pub trait Form: fmt::Debug + Send + Sync {
    /// Appends a version; `false` if that takes more than its bytes.
    fn append(&self, to: &mut BytesMut, value: &[u8], revision: Revision) -> bool;
}

/// A page of a read in a [`Form`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FormedPage {
    /// The page. Its values are empty where they are in `bytes`.
    pub page: ReadResult,
    /// The versions one after another; `None` if one of them does not take the form.
    pub bytes: Option<Bytes>,
}

impl FormedPage {
    /// Puts a page that was read without a form into one.
    pub(crate) fn of(mut page: ReadResult, form: &dyn Form) -> Self {
        let mut bytes = BytesMut::with_capacity(page.kvs.iter().map(|kv| kv.value.len()).sum());
        if !page.kvs.iter().all(|kv| form.append(&mut bytes, &kv.value, kv.revision)) {
            return Self { page, bytes: None };
        }
        page.kvs.iter_mut().for_each(|kv| kv.value = Bytes::new());
        Self { page, bytes: Some(bytes.freeze()) }
    }
}
