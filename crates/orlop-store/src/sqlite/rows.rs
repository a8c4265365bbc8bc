//! Conversion between table rows and the store's types.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::{Bytes, BytesMut};
use rusqlite::{Connection, OptionalExtension, Row};

use super::errors::sql_error;
use crate::{
    EncodedPage, KeyValue, ReadResult, Revision, RowEncoder, Terms,
    engine::Bounds,
    error::{Error, Result},
    evaluate::LeaseRow,
    event::{VersionId, VersionMeta, checksum},
};

/// The revision of a new store.
pub(super) const INITIAL_REVISION: Revision = 1;

/// Returns the newest and the oldest readable revision, and the id of the newest version.
pub(super) fn bounds(connection: &Connection) -> Result<(Bounds, VersionId)> {
    const SQL: &str = "SELECT compacted, coalesce((SELECT max(id) FROM log), 0) FROM state";
    let mut statement = connection.prepare_cached(SQL).map_err(sql_error)?;
    let (compacted, last_id): (i64, i64) =
        statement.query_row([], |row| Ok((row.get(0)?, row.get(1)?))).map_err(sql_error)?;
    let mut statement =
        connection.prepare_cached("SELECT revision FROM log WHERE id = ?").map_err(sql_error)?;
    let current = statement.query_row([last_id], |row| row.get(0)).optional().map_err(sql_error)?;
    Ok((Bounds { current: current.unwrap_or(INITIAL_REVISION), compacted }, last_id))
}

/// Columns of `live` and `history`, in the order that [`current`] reads them.
pub(super) const CURRENT: &str = "id, revision, create_revision, version, lease, terms";

/// Reads [`CURRENT`], beginning at a column.
pub(super) fn current(row: &Row<'_>, key: &[u8], at: usize) -> Result<VersionMeta> {
    let damaged = || Error::Corrupt { key: Bytes::copy_from_slice(key) };
    let terms = terms(row, at + 5).ok_or_else(damaged)?;
    Ok(VersionMeta { terms, ..current_to_replace(row, key, at)? })
}

/// As [`current`], for a transaction. Damaged terms count as none, so that the key can be overwritten or deleted. Reads
/// check entries of the index against the row.
pub(super) fn current_to_replace(row: &Row<'_>, key: &[u8], at: usize) -> Result<VersionMeta> {
    let read = || -> rusqlite::Result<_> {
        Ok(VersionMeta {
            id: row.get(at)?,
            revision: row.get(at + 1)?,
            create_revision: row.get(at + 2)?,
            version: row.get(at + 3)?,
            lease: row.get(at + 4)?,
            terms: terms(row, at + 5).unwrap_or_default(),
        })
    };
    read().map_err(|_| Error::Corrupt { key: Bytes::copy_from_slice(key) })
}

fn terms(row: &Row<'_>, at: usize) -> Option<Terms> {
    let encoded = row.get_ref(at).ok()?.as_blob().ok()?;
    if encoded.is_empty() { Some(Terms::none()) } else { Terms::decode(Bytes::copy_from_slice(encoded)) }
}

/// Returns the value of a version, verified by its checksum.
pub(super) fn value(connection: &Connection, key: &[u8], id: VersionId) -> Result<Bytes> {
    with_value(connection, key, id, Bytes::copy_from_slice)
}

/// Passes the verified value of a version to `work`, without a copy.
pub(super) fn with_value<T>(
    connection: &Connection,
    key: &[u8],
    id: VersionId,
    work: impl FnOnce(&[u8]) -> T,
) -> Result<T> {
    let mut statement =
        connection.prepare_cached("SELECT value, checksum FROM log WHERE id = ?").map_err(sql_error)?;
    let mut rows = statement.query([id]).map_err(sql_error)?;
    let damaged = || Error::Corrupt { key: Bytes::copy_from_slice(key) };
    let row = rows.next().map_err(sql_error)?.ok_or_else(damaged)?;
    let value = row.get_ref(0).ok().and_then(|value| value.as_blob().ok()).ok_or_else(damaged)?;
    let expected: i64 = row.get(1).map_err(|_| damaged())?;
    if checksum(key, value) != expected {
        return Err(damaged());
    }
    Ok(work(value))
}

pub(super) fn lease(row: &Row<'_>) -> rusqlite::Result<LeaseRow> {
    Ok(LeaseRow { id: row.get(0)?, ttl_seconds: row.get(1)?, deadline_ms: row.get(2)? })
}

/// Returns the milliseconds since 1970.
pub(super) fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_millis() as i64)
}

/// Collects a page. Keys and values share one buffer; with an encoder there are only encoded values and the last key.
pub(super) struct PageBuilder<'a> {
    bytes: Vec<u8>,
    rows: Vec<(usize, usize, KeyValue)>,
    limit: usize,
    /// Size of keys and values at which the page ends, and so far.
    bytes_max: usize,
    stored_bytes: usize,
    keys: usize,
    encoding: Option<Encoding<'a>>,
}

/// Encoded values.
struct Encoding<'a> {
    encoder: &'a dyn RowEncoder,
    bytes: BytesMut,
    /// A row could not be encoded.
    failed: bool,
    last: Option<(Vec<u8>, Revision)>,
}

impl<'a> PageBuilder<'a> {
    /// Creates a page of up to `limit` rows, which ends before that with the row that makes it `bytes_max` long. One
    /// more row may be pushed, to find out whether there are more.
    pub(super) fn new(limit: usize, bytes_max: usize, encoder: Option<&'a dyn RowEncoder>) -> Self {
        let encoding =
            encoder.map(|encoder| Encoding { encoder, bytes: BytesMut::new(), failed: false, last: None });
        Self { bytes: Vec::new(), rows: Vec::new(), limit, bytes_max, stored_bytes: 0, keys: 0, encoding }
    }

    /// Returns whether only revisions and values of rows are used.
    pub(super) fn is_encoding(&self) -> bool {
        self.encoding.is_some()
    }

    pub(super) fn push(&mut self, key: &[u8], value: &[u8], row: KeyValue) {
        if self.keys == 0 {
            self.reserve(key, value);
        }
        self.keys += 1;
        if self.has_more() {
            return;
        }
        self.stored_bytes += key.len() + value.len();
        if self.stored_bytes >= self.bytes_max {
            self.limit = self.keys;
        }
        match &mut self.encoding {
            Some(encoding) => encoding.push(key, value, row.revision),
            None => {
                self.bytes.extend_from_slice(key);
                self.bytes.extend_from_slice(value);
                self.rows.push((key.len(), value.len(), row));
            }
        }
    }

    /// Reserves memory by the size of the first row: rows of a range are much alike.
    fn reserve(&mut self, key: &[u8], value: &[u8]) {
        const RESERVE_MAX: usize = 1 << 20;
        /// Bytes that an encoder may add to a value.
        const ENCODER_BYTES: usize = 64;
        let rows = self.limit.saturating_add(1);
        let total = |each: usize| each.saturating_mul(rows).min(RESERVE_MAX);
        match &mut self.encoding {
            Some(encoding) => encoding.bytes.reserve(total(value.len() + ENCODER_BYTES)),
            None => {
                self.rows.reserve(rows.min(RESERVE_MAX / 1024));
                self.bytes.reserve(total(key.len() + value.len()));
            }
        }
    }

    /// Returns true once a row was pushed that the page has no place for.
    pub(super) fn has_more(&self) -> bool {
        self.keys > self.limit
    }

    /// Returns whether a row could not be encoded, so that more rows are of no use.
    pub(super) fn encoding_failed(&self) -> bool {
        self.encoding.as_ref().is_some_and(|encoding| encoding.failed)
    }

    /// Returns the page, without its revision and count.
    pub(super) fn finish(self) -> EncodedPage {
        let more = self.has_more();
        if let Some(Encoding { bytes, failed, last, .. }) = self.encoding {
            return EncodedPage {
                page: ReadResult { more, ..ReadResult::default() },
                bytes: (!failed).then(|| bytes.freeze()),
                keys: self.keys.min(self.limit),
                last: last.map(|(key, revision)| (key.into(), revision)),
            };
        }
        let bytes = Bytes::from(self.bytes);
        let mut at = 0;
        let mut cut = |length: usize| {
            let start = at;
            at += length;
            bytes.slice(start..at)
        };
        let kvs = self
            .rows
            .into_iter()
            .map(|(key, value, row)| KeyValue { key: cut(key), value: cut(value), ..row })
            .collect();
        EncodedPage::stored(ReadResult { kvs, more, ..ReadResult::default() })
    }
}

impl Encoding<'_> {
    fn push(&mut self, key: &[u8], value: &[u8], revision: Revision) {
        self.failed = self.failed || !self.encoder.append(&mut self.bytes, value, revision);
        match &mut self.last {
            Some((last, at)) => {
                key.clone_into(last);
                *at = revision;
            }
            None => self.last = Some((key.to_vec(), revision)),
        }
    }
}
