//! A read of a range, as the statements of a snapshot see it.

use bytes::Bytes;
use rusqlite::{Connection, Params};

use super::{errors::sql_error, rows::PageBuilder};
use crate::{
    EncodedPage, Read, RowEncoder, Select,
    error::{Error, Result},
};

/// A read of the keys from `start` up to `end`.
pub(super) struct Query<'a> {
    pub(super) connection: &'a Connection,
    pub(super) read: &'a Read,
    /// Size at which a page ends.
    pub(super) bytes: usize,
    pub(super) encoder: Option<&'a dyn RowEncoder>,
    pub(super) start: &'a [u8],
    pub(super) end: &'a [u8],
}

impl Query<'_> {
    pub(super) fn page_builder(&self) -> PageBuilder<'_> {
        PageBuilder::new(self.read.limit, self.bytes, self.encoder)
    }

    /// Returns the page without rows if only a count was requested.
    pub(super) fn finish(&self, page: PageBuilder<'_>) -> EncodedPage {
        let mut page = page.finish();
        if self.read.select == Select::Nothing {
            page.page.kvs.clear();
        }
        page
    }

    pub(super) fn number(&self, sql: &str, params: impl Params) -> Result<u64> {
        let mut statement = self.connection.prepare_cached(sql).map_err(sql_error)?;
        let number: i64 = statement.query_row(params, |row| row.get(0)).map_err(sql_error)?;
        Ok(number.max(0) as u64)
    }
}

pub(super) fn counted(mut page: EncodedPage, count: Option<u64>) -> EncodedPage {
    page.page.count = count;
    page
}

pub(super) fn damaged(key: &[u8]) -> Error {
    Error::Corrupt { key: Bytes::copy_from_slice(key) }
}
