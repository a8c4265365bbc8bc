//! Reads: each is one snapshot, and one page.

use bytes::Bytes;
use rusqlite::{Connection, Params, Row, params, types::ValueRef};

use super::{
    errors::sql_error,
    past,
    rows::{self, Gathered, NOTHING_WRITTEN},
};
use crate::{
    Filter, KeyValue, Read, ReadResult, Requirement, Revision, Select,
    error::{Error, Result},
    event::checksum,
};

/// Rows counted of each candidate before the planner stops telling them apart.
const PLAN_ROWS: i64 = 4096;

/// Answers one page from a snapshot of its own. `last` is a key greater than every key.
pub(super) fn read(connection: &Connection, read: &Read, last: &[u8]) -> Result<ReadResult> {
    if let (Some(key), None, Select::Values, true) =
        (read.range.single(), read.revision, read.select, read.filter.is_empty())
    {
        return get(connection, read, key);
    }
    in_snapshot(connection, || within(connection, read, last))
}

/// One key as it is now: one statement, which is a snapshot by itself.
fn get(connection: &Connection, read: &Read, key: &[u8]) -> Result<ReadResult> {
    const SQL: &str = "
        SELECT live.key, live.revision, live.create_revision, live.version, live.lease, log.value, log.checksum,
               (SELECT revision FROM log ORDER BY id DESC LIMIT 1)
        FROM (SELECT 1) LEFT JOIN live ON live.key = ? LEFT JOIN log ON log.id = live.id";
    let mut statement = connection.prepare_cached(SQL).map_err(sql_error)?;
    let mut rows = statement.query([key]).map_err(sql_error)?;
    let mut result = ReadResult { count: read.count.then_some(0), ..ReadResult::default() };
    if let Some(row) = rows.next().map_err(sql_error)? {
        result.revision = row.get::<_, Option<Revision>>(7).map_err(sql_error)?.unwrap_or(NOTHING_WRITTEN);
        if !matches!(row.get_ref(0).map_err(sql_error)?, ValueRef::Null) {
            let mut gathered = Gathered::new(1);
            push(&mut gathered, row, Select::Values)?;
            result.kvs = gathered.finish();
            result.count = read.count.then_some(1);
        }
    }
    Ok(result)
}

/// Answers one page within the transaction that `connection` is in.
pub(super) fn within(connection: &Connection, read: &Read, last: &[u8]) -> Result<ReadResult> {
    let (bounds, _) = rows::bounds(connection)?;
    let past = match read.revision {
        Some(revision) if revision > bounds.current => {
            return Err(Error::FutureRevision { requested: revision, current: bounds.current });
        }
        Some(revision) if revision < bounds.compacted => {
            return Err(Error::Expired { compacted: bounds.compacted });
        }
        // Nothing has happened since: the present answers, without history.
        Some(revision) if revision == bounds.current => None,
        other => other,
    };
    let query =
        Query { connection, read, start: read.range.start(), end: read.range.end().map_or(last, |e| e) };
    let mut result = match (past, read.filter.is_empty()) {
        (None, true) => query.present(),
        (None, false) => query.present_filtered(),
        (Some(revision), _) => past::read(&query, revision),
    }?;
    result.revision = bounds.current;
    Ok(result)
}

/// Runs several statements on one snapshot.
pub(super) fn in_snapshot<T>(connection: &Connection, work: impl FnOnce() -> Result<T>) -> Result<T> {
    execute(connection, "BEGIN")?;
    let result = work();
    execute(connection, "COMMIT")?;
    result
}

fn execute(connection: &Connection, sql: &str) -> Result<()> {
    connection.prepare_cached(sql).and_then(|mut statement| statement.execute([])).map_err(sql_error)?;
    Ok(())
}

/// A read of what is between two keys.
pub(super) struct Query<'a> {
    pub(super) connection: &'a Connection,
    pub(super) read: &'a Read,
    pub(super) start: &'a [u8],
    pub(super) end: &'a [u8],
}

impl Query<'_> {
    /// The newest version of every key in the range.
    fn present(&self) -> Result<ReadResult> {
        let mut result = ReadResult::default();
        if self.read.count {
            const SQL: &str = "SELECT count(*) FROM live WHERE key >= ? AND key < ?";
            result.count = Some(self.number(SQL, params![self.start, self.end])?);
        }
        let limit = self.read.limit as i64;
        let sql = match self.read.select {
            Select::Nothing => return Ok(result),
            Select::Keys => {
                "SELECT key, revision, create_revision, version, lease, x'', 0 FROM live
                 WHERE key >= ? AND key < ? ORDER BY key LIMIT ?"
            }
            Select::Values => {
                "SELECT live.key, live.revision, live.create_revision, live.version, live.lease, value, checksum
                 FROM live LEFT JOIN log ON log.id = live.id
                 WHERE live.key >= ? AND live.key < ? ORDER BY live.key LIMIT ?"
            }
        };
        let rows = self.gather(sql, params![self.start, self.end, limit.saturating_add(1)])?;
        self.paged(rows, &mut result);
        Ok(result)
    }

    /// The newest versions that pass the filter, found by the most selective term.
    fn present_filtered(&self) -> Result<ReadResult> {
        let mut result = ReadResult::default();
        let candidates = match self.plan()? {
            Some(Requirement::In(field, values)) => {
                let holders = vec!["?"; values.len()].join(", ");
                let sql = format!(
                    "SELECT DISTINCT key FROM terms WHERE field = ? AND value IN ({holders}) AND key >= ? AND key < ?
                     ORDER BY key"
                );
                let mut bound: Vec<rusqlite::types::Value> = vec![field.clone().into()];
                bound.extend(values.iter().map(|value| value.clone().into()));
                bound.extend([self.start.to_vec().into(), self.end.to_vec().into()]);
                Some(self.keys(&sql, rusqlite::params_from_iter(bound))?)
            }
            Some(requirement) => {
                const SQL: &str =
                    "SELECT DISTINCT key FROM terms WHERE field = ? AND key >= ? AND key < ? ORDER BY key";
                Some(self.keys(SQL, params![requirement.field(), self.start, self.end])?)
            }
            None => None,
        };
        let mut found =
            Matches { query: self, gathered: Gathered::new(self.read.limit.saturating_add(1)), count: 0 };
        match candidates {
            Some(keys) => {
                for key in keys {
                    if !found.take("SELECT key, id, revision, create_revision, version, lease, terms FROM live WHERE key = ?", params![key])? {
                        break;
                    }
                }
            }
            None => {
                found.take(
                    "SELECT key, id, revision, create_revision, version, lease, terms FROM live
                     WHERE key >= ? AND key < ? ORDER BY key",
                    params![self.start, self.end],
                )?;
            }
        }
        if self.read.count {
            result.count = Some(found.count);
        }
        let rows = found.gathered.finish();
        self.paged(rows, &mut result);
        Ok(result)
    }

    /// The requirement with the fewest rows in the index, if there is one that the index can answer and
    /// that is worth it: fewer rows than the range itself.
    fn plan(&self) -> Result<Option<&Requirement>> {
        let mut best = None;
        const RANGE: &str = "SELECT count(*) FROM (SELECT 1 FROM live WHERE key >= ? AND key < ? LIMIT ?)";
        let mut fewest = self.number(RANGE, params![self.start, self.end, PLAN_ROWS])?;
        for requirement in &self.read.filter.0 {
            let rows = match requirement {
                Requirement::In(field, values) => {
                    const TERM: &str = "SELECT count(*) FROM
                        (SELECT 1 FROM terms WHERE field = ? AND value = ? AND key >= ? AND key < ? LIMIT ?)";
                    let mut rows = 0;
                    for value in values {
                        rows += self.number(TERM, params![field, value, self.start, self.end, PLAN_ROWS])?;
                    }
                    rows
                }
                Requirement::Exists(field) => {
                    const FIELD: &str = "SELECT count(*) FROM (SELECT 1 FROM terms WHERE field = ? LIMIT ?)";
                    self.number(FIELD, params![field, PLAN_ROWS])?
                }
                Requirement::NotIn(..) | Requirement::Absent(_) => continue,
            };
            if rows < fewest {
                (best, fewest) = (Some(requirement), rows);
            }
        }
        Ok(best)
    }

    /// Reads rows of (key, revision, create_revision, version, lease, value, checksum).
    fn gather(&self, sql: &str, params: impl Params) -> Result<Vec<KeyValue>> {
        let mut statement = self.connection.prepare_cached(sql).map_err(sql_error)?;
        let mut rows = statement.query(params).map_err(sql_error)?;
        let mut gathered = Gathered::new(self.read.limit.saturating_add(1));
        while let Some(row) = rows.next().map_err(sql_error)? {
            push(&mut gathered, row, self.read.select)?;
        }
        Ok(gathered.finish())
    }

    /// Cuts to the limit and says whether that left anything out.
    pub(super) fn paged(&self, mut kvs: Vec<KeyValue>, result: &mut ReadResult) {
        result.more = kvs.len() > self.read.limit;
        kvs.truncate(self.read.limit);
        if self.read.select != Select::Nothing {
            result.kvs = kvs;
        }
    }

    pub(super) fn number(&self, sql: &str, params: impl Params) -> Result<u64> {
        let mut statement = self.connection.prepare_cached(sql).map_err(sql_error)?;
        let number: i64 = statement.query_row(params, |row| row.get(0)).map_err(sql_error)?;
        Ok(number.max(0) as u64)
    }

    fn keys(&self, sql: &str, params: impl Params) -> Result<Vec<Vec<u8>>> {
        let mut statement = self.connection.prepare_cached(sql).map_err(sql_error)?;
        let keys = statement.query_map(params, |row| row.get(0)).map_err(sql_error)?;
        keys.collect::<rusqlite::Result<_>>().map_err(sql_error)
    }
}

/// Live versions that pass the filter, gathered up to one more than the limit and counted past it.
struct Matches<'a> {
    query: &'a Query<'a>,
    gathered: Gathered,
    count: u64,
}

impl Matches<'_> {
    /// Takes the rows of a statement over `live`; whether there is any point in more.
    fn take(&mut self, sql: &str, params: impl Params) -> Result<bool> {
        let (connection, read) = (self.query.connection, self.query.read);
        let mut statement = connection.prepare_cached(sql).map_err(sql_error)?;
        let mut rows = statement.query(params).map_err(sql_error)?;
        while let Some(row) = rows.next().map_err(sql_error)? {
            let key = row.get_ref(0).map_err(sql_error)?.as_blob().map_err(|_| damaged(b""))?;
            let current = rows::current(row, key, 1)?;
            if !read.filter.matches(&current.terms) {
                continue;
            }
            self.count += 1;
            if self.gathered.len() <= read.limit {
                let value = match read.select {
                    Select::Values => rows::value(connection, key, current.id)?,
                    Select::Keys | Select::Nothing => Bytes::new(),
                };
                self.gathered.push(key, &value, current.kv(Bytes::new(), Bytes::new()));
            } else if !read.count {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Gathers a row of (key, revision, create_revision, version, lease, value, checksum, …).
fn push(gathered: &mut Gathered, row: &Row<'_>, select: Select) -> Result<()> {
    let key = row.get_ref(0).map_err(sql_error)?.as_blob().map_err(|_| damaged(b""))?;
    let read = || -> rusqlite::Result<KeyValue> {
        Ok(KeyValue {
            revision: row.get(1)?,
            create_revision: row.get(2)?,
            version: row.get(3)?,
            lease: row.get(4)?,
            ..KeyValue::default()
        })
    };
    let kv = read().map_err(|_| damaged(key))?;
    let value = match select {
        Select::Values => {
            let value =
                row.get_ref(5).ok().and_then(|value| value.as_blob().ok()).ok_or_else(|| damaged(key))?;
            if row.get::<_, i64>(6).map_err(|_| damaged(key))? != checksum(key, value) {
                return Err(damaged(key));
            }
            value
        }
        Select::Keys | Select::Nothing => &[],
    };
    gathered.push(key, value, kv);
    Ok(())
}

pub(super) fn damaged(key: &[u8]) -> Error {
    Error::Corrupt { key: Bytes::copy_from_slice(key) }
}

/// Whether a read is so small that it is answered at once, without a thread of its own.
pub(super) fn is_small(read: &Read) -> bool {
    let rows_max = match read.select {
        Select::Values => 16,
        // Narrow rows, side by side.
        Select::Keys | Select::Nothing => 512,
    };
    read.range.single().is_some()
        || (read.limit <= rows_max && !read.count && read.filter == Filter::everything())
}
