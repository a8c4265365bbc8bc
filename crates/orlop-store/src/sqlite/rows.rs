//! Rows as they are in the tables, to and from what the store speaks of.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::{Bytes, BytesMut};
use rusqlite::{Connection, OptionalExtension, Row};

use super::errors::sql_error;
use crate::{
    EncodedPage, KeyValue, ReadResult, Revision, RowEncoder, Terms,
    engine::Bounds,
    error::{Error, Result},
    evaluate::LeaseRow,
    event::{Current, VersionId, checksum},
};

/// The revision of a store that nothing has been written to.
pub(super) const NOTHING_WRITTEN: Revision = 1;

/// The newest revision, the id of its last version, and the oldest readable revision.
pub(super) fn bounds(connection: &Connection) -> Result<(Bounds, VersionId)> {
    const SQL: &str = "SELECT compacted, coalesce((SELECT max(id) FROM log), 0) FROM state";
    let mut statement = connection.prepare_cached(SQL).map_err(sql_error)?;
    let (compacted, last_id): (i64, i64) =
        statement.query_row([], |row| Ok((row.get(0)?, row.get(1)?))).map_err(sql_error)?;
    let mut statement =
        connection.prepare_cached("SELECT revision FROM log WHERE id = ?").map_err(sql_error)?;
    let current = statement.query_row([last_id], |row| row.get(0)).optional().map_err(sql_error)?;
    Ok((Bounds { current: current.unwrap_or(NOTHING_WRITTEN), compacted }, last_id))
}

/// Columns of `live` and `history`, in the order that [`current`] reads them.
pub(super) const CURRENT: &str = "id, revision, create_revision, version, lease, terms";

/// Reads [`CURRENT`], beginning at a column.
pub(super) fn current(row: &Row<'_>, key: &[u8], at: usize) -> Result<Current> {
    let damaged = || Error::Corrupt { key: Bytes::copy_from_slice(key) };
    let terms = terms(row, at + 5).ok_or_else(damaged)?;
    Ok(Current { terms, ..current_to_replace(row, key, at)? })
}

/// As [`current`], for a transaction. Damaged terms count as none, so that the key can be written over or
/// deleted; what the index still says of it is checked against the row by whoever finds it there.
pub(super) fn current_to_replace(row: &Row<'_>, key: &[u8], at: usize) -> Result<Current> {
    let read = || -> rusqlite::Result<_> {
        Ok(Current {
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

/// Looks up the value of a version and checks that it is whole.
pub(super) fn value(connection: &Connection, key: &[u8], id: VersionId) -> Result<Bytes> {
    with_value(connection, key, id, Bytes::copy_from_slice)
}

/// The same, without a copy.
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

/// Milliseconds since 1970.
pub(super) fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_millis() as i64)
}

/// Gathers the bytes of many keys and values in one buffer, which the answers then share; or the values in a form, and
/// no keys but the last.
pub(super) struct Gathered<'a> {
    bytes: Vec<u8>,
    rows: Vec<(usize, usize, KeyValue)>,
    limit: usize,
    keys: usize,
    form: Option<Forming<'a>>,
}

/// Values in a form.
struct Forming<'a> {
    form: &'a dyn RowEncoder,
    bytes: BytesMut,
    /// Every row so far took the form.
    all_formed: bool,
    last: Option<(Vec<u8>, Revision)>,
}

impl<'a> Gathered<'a> {
    /// For up to so many rows, and one that says whether there are more.
    pub(super) fn new(limit: usize, form: Option<&'a dyn RowEncoder>) -> Self {
        let form = form.map(|form| Forming { form, bytes: BytesMut::new(), all_formed: true, last: None });
        Self { bytes: Vec::new(), rows: Vec::new(), limit, keys: 0, form }
    }

    /// Whether nothing of a row but its revision and value is of interest.
    pub(super) fn is_formed(&self) -> bool {
        self.form.is_some()
    }

    pub(super) fn push(&mut self, key: &[u8], value: &[u8], row: KeyValue) {
        if self.keys == 0 {
            self.make_room(key, value);
        }
        self.keys += 1;
        match &mut self.form {
            Some(forming) if self.keys <= self.limit => forming.push(key, value, row.revision),
            Some(_) => {}
            None => {
                self.bytes.extend_from_slice(key);
                self.bytes.extend_from_slice(value);
                self.rows.push((key.len(), value.len(), row));
            }
        }
    }

    /// Rows of a range are much alike: what has room at once is not copied while it grows.
    fn make_room(&mut self, key: &[u8], value: &[u8]) {
        const ROOM_MAX: usize = 1 << 20;
        /// What a form may add to a value.
        const FORM: usize = 64;
        let rows = self.limit.saturating_add(1);
        let room = |each: usize| each.saturating_mul(rows).min(ROOM_MAX);
        match &mut self.form {
            Some(forming) => forming.bytes.reserve(room(value.len() + FORM)),
            None => {
                self.rows.reserve(rows.min(ROOM_MAX / 1024));
                self.bytes.reserve(room(key.len() + value.len()));
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.keys
    }

    /// Whether there is no point in more rows: one did not take the form.
    pub(super) fn is_spoilt(&self) -> bool {
        self.form.as_ref().is_some_and(|forming| !forming.all_formed)
    }

    /// The page, without its revision and count.
    pub(super) fn finish(self) -> EncodedPage {
        let more = self.keys > self.limit;
        if let Some(Forming { bytes, all_formed, last, .. }) = self.form {
            return EncodedPage {
                page: ReadResult { more, ..ReadResult::default() },
                bytes: all_formed.then(|| bytes.freeze()),
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
        let rows = self.rows.into_iter().take(self.limit);
        let kvs =
            rows.map(|(key, value, row)| KeyValue { key: cut(key), value: cut(value), ..row }).collect();
        EncodedPage::stored(ReadResult { kvs, more, ..ReadResult::default() })
    }
}

impl Forming<'_> {
    fn push(&mut self, key: &[u8], value: &[u8], revision: Revision) {
        self.all_formed = self.all_formed && self.form.append(&mut self.bytes, value, revision);
        match &mut self.last {
            Some((last, at)) => {
                key.clone_into(last);
                *at = revision;
            }
            None => self.last = Some((key.to_vec(), revision)),
        }
    }
}
