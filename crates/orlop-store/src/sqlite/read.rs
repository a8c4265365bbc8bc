//! Reads: each is one snapshot, and one page.

use bytes::Bytes;
use rusqlite::{Connection, Params, Row, ToSql, params, params_from_iter, types::ValueRef};

use super::{
    errors::sql_error,
    past,
    rows::{self, Gathered, NOTHING_WRITTEN},
};
use crate::{
    EncodedPage, Filter, KeyValue, Read, Requirement, Revision, RowEncoder, Select,
    error::{Error, Result},
    event::checksum,
};

/// Keys of a field that are sorted for a page.
const SORTED_MAX: u64 = 4096;
/// Values whose keys are merged: SQLite's limit is 500.
const MERGED_MAX: usize = 250;

/// Answers one page from a snapshot of its own, in a form if there is one. `last` is a key greater than every key.
pub(super) fn read(
    connection: &Connection,
    read: &Read,
    last: &[u8],
    form: Option<&dyn RowEncoder>,
) -> Result<EncodedPage> {
    if let (Some(key), None, Select::Values, true) =
        (read.range.single(), read.revision, read.select, read.filter.is_empty())
    {
        return get(connection, read, key, form);
    }
    in_snapshot(connection, || within(connection, read, last, form))
}

/// One key as it is now: one statement, which is a snapshot by itself.
fn get(
    connection: &Connection,
    read: &Read,
    key: &[u8],
    form: Option<&dyn RowEncoder>,
) -> Result<EncodedPage> {
    const SQL: &str = "
        SELECT live.key, live.revision, live.create_revision, live.version, live.lease, log.value, log.checksum,
               (SELECT revision FROM log ORDER BY id DESC LIMIT 1)
        FROM (SELECT 1) LEFT JOIN live ON live.key = ? LEFT JOIN log ON log.id = live.id";
    let mut statement = connection.prepare_cached(SQL).map_err(sql_error)?;
    let mut rows = statement.query([key]).map_err(sql_error)?;
    let (mut gathered, mut revision) = (Gathered::new(1, form), NOTHING_WRITTEN);
    if let Some(row) = rows.next().map_err(sql_error)? {
        revision = row.get::<_, Option<Revision>>(7).map_err(sql_error)?.unwrap_or(NOTHING_WRITTEN);
        if !matches!(row.get_ref(0).map_err(sql_error)?, ValueRef::Null) {
            push(&mut gathered, row, Select::Values)?;
        }
    }
    let mut result = gathered.finish();
    result.page.revision = revision;
    result.page.count = read.count.then_some(result.keys as u64);
    Ok(result)
}

/// Answers one page within the transaction that `connection` is in.
pub(super) fn within(
    connection: &Connection,
    read: &Read,
    last: &[u8],
    form: Option<&dyn RowEncoder>,
) -> Result<EncodedPage> {
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
    let (start, end) = (read.range.start(), read.range.end().map_or(last, |end| end));
    let query = Query { connection, read, form, start, end };
    let mut result = match (past, read.filter.is_empty()) {
        (None, true) => query.present(),
        (None, false) => query.present_filtered(),
        (Some(revision), _) => past::read(&query, revision),
    }?;
    result.page.revision = bounds.current;
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
    pub(super) form: Option<&'a dyn RowEncoder>,
    pub(super) start: &'a [u8],
    pub(super) end: &'a [u8],
}

impl Query<'_> {
    /// The newest version of every key in the range.
    fn present(&self) -> Result<EncodedPage> {
        let mut count = None;
        if self.read.count {
            const SQL: &str = "SELECT count(*) FROM live WHERE key >= ? AND key < ?";
            count = Some(self.number(SQL, params![self.start, self.end])?);
        }
        let limit = self.read.limit as i64;
        let sql = match self.read.select {
            Select::Nothing => return Ok(counted(EncodedPage::default(), count)),
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
        let page = self.gather(sql, params![self.start, self.end, limit.saturating_add(1)])?;
        Ok(counted(page, count))
    }

    /// The newest versions that pass the filter, found by the most selective term.
    fn present_filtered(&self) -> Result<EncodedPage> {
        let mut found =
            Matches { query: self, gathered: Gathered::new(self.read.limit, self.form), count: 0 };
        match self.plan()? {
            Some(Requirement::In(field, values)) => {
                let merged = Merged::of(self, field, values);
                found.take_keys(&merged.sql, merged.params())?;
            }
            Some(requirement) => {
                const SQL: &str =
                    "SELECT DISTINCT key FROM terms WHERE field = ? AND key >= ? AND key < ? ORDER BY key";
                found.take_keys(SQL, params![requirement.field(), self.start, self.end])?;
            }
            None => {
                const SQL: &str = "SELECT key, id, revision, create_revision, version, lease, terms FROM live
                     WHERE key >= ? AND key < ? ORDER BY key";
                found.take(SQL, params![self.start, self.end])?;
            }
        }
        let count = self.read.count.then_some(found.count);
        Ok(counted(self.selected(found.gathered), count))
    }

    /// The requirement to walk the index for, if one is worth it: it costs about twice as much for a key as walking
    /// the range does. Since the index gives the keys of values in order, what counts is how far a page of them
    /// reaches.
    fn plan(&self) -> Result<Option<&Requirement>> {
        let mut furthest: Option<(Reach, &Requirement)> = None;
        for requirement in &self.read.filter.0 {
            if let Requirement::In(field, values) = requirement
                && values.len() <= MERGED_MAX
            {
                let reach = self.reach(field, values)?;
                if furthest.as_ref().is_none_or(|(best, _)| reach.is_further(best)) {
                    furthest = Some((reach, requirement));
                }
            }
        }
        if let Some((reach, requirement)) = furthest {
            let worth_it = self.rows_before(reach.end.as_deref().unwrap_or(self.end), reach.keys * 2 + 1)?;
            if worth_it > reach.keys * 2 {
                return Ok(Some(requirement));
            }
        }
        self.plan_by_field()
    }

    /// The same of a field with whatever value. The keys of such are sorted anew for each page, so few are worth it.
    fn plan_by_field(&self) -> Result<Option<&Requirement>> {
        let (mut best, mut fewest) = (None, None);
        for requirement in &self.read.filter.0 {
            if let Requirement::Exists(field) = requirement {
                const FIELD: &str = "SELECT count(*) FROM (SELECT 1 FROM terms WHERE field = ? LIMIT ?)";
                let fewest = match &mut fewest {
                    Some(fewest) => fewest,
                    unknown => unknown.insert(self.rows_before(self.end, SORTED_MAX)?),
                };
                let rows = self.number(FIELD, params![field, SORTED_MAX as i64])?;
                if rows < *fewest {
                    (best, *fewest) = (Some(requirement), rows);
                }
            }
        }
        Ok(best)
    }

    /// Keys of the range before another, as far as they matter.
    fn rows_before(&self, end: &[u8], enough: u64) -> Result<u64> {
        const SQL: &str = "SELECT count(*) FROM (SELECT 1 FROM live WHERE key >= ? AND key < ? LIMIT ?)";
        self.number(SQL, params![self.start, end, enough as i64])
    }

    /// How far a page of the keys with some values of a field reaches.
    fn reach(&self, field: &str, values: &[String]) -> Result<Reach> {
        let merged = Merged::of(self, field, values);
        let mut statement = self.connection.prepare_cached(&merged.sql).map_err(sql_error)?;
        let mut rows = statement.query(merged.params()).map_err(sql_error)?;
        let mut keys = 0;
        while let Some(row) = rows.next().map_err(sql_error)? {
            keys += 1;
            if keys > self.read.limit as u64 {
                let end = row.get(0).map_err(|_| damaged(b""))?;
                return Ok(Reach { keys, end: Some(end) });
            }
        }
        Ok(Reach { keys, end: None })
    }

    /// Reads rows of (key, revision, create_revision, version, lease, value, checksum).
    fn gather(&self, sql: &str, params: impl Params) -> Result<EncodedPage> {
        let mut statement = self.connection.prepare_cached(sql).map_err(sql_error)?;
        let mut rows = statement.query(params).map_err(sql_error)?;
        let mut gathered = Gathered::new(self.read.limit, self.form);
        while let Some(row) = rows.next().map_err(sql_error)? {
            push(&mut gathered, row, self.read.select)?;
            if gathered.is_spoilt() {
                break;
            }
        }
        Ok(self.selected(gathered))
    }

    /// What was gathered, as far as it was asked for.
    pub(super) fn selected(&self, gathered: Gathered<'_>) -> EncodedPage {
        let mut page = gathered.finish();
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

/// The keys with any of some values of a field in key order, merged from the runs that the index has of each. No run
/// is read further than the rows that are asked for reach.
struct Merged<'a> {
    sql: String,
    field: &'a str,
    start: &'a [u8],
    end: &'a [u8],
    values: &'a [String],
}

impl<'a> Merged<'a> {
    fn of(query: &Query<'a>, field: &'a str, values: &'a [String]) -> Self {
        let run = |at: usize| {
            format!("SELECT key FROM terms WHERE field = ?1 AND value = ?{at} AND key >= ?2 AND key < ?3")
        };
        let runs: Vec<String> = (4..).take(values.len()).map(run).collect();
        let sql = match &runs[..] {
            [] => "SELECT key FROM terms WHERE field = ?1 AND key >= ?2 AND key < ?3 LIMIT 0".to_owned(),
            runs => format!("{} ORDER BY key", runs.join(" UNION ")),
        };
        Self { sql, field, start: query.start, end: query.end, values }
    }

    fn params(&self) -> impl Params + '_ {
        let place: [&dyn ToSql; 3] = [&self.field, &self.start, &self.end];
        params_from_iter(place.into_iter().chain(self.values.iter().map(|value| value as &dyn ToSql)))
    }
}

/// How far a page of keys reaches.
struct Reach {
    /// Keys that were found, up to one more than the page has.
    keys: u64,
    /// The key where the page ends; `None` if it reaches the end of the range.
    end: Option<Vec<u8>>,
}

impl Reach {
    fn is_further(&self, than: &Self) -> bool {
        match (&self.end, &than.end) {
            (Some(end), Some(other)) => end > other,
            (None, Some(_)) => true,
            (Some(_), None) => false,
            (None, None) => self.keys < than.keys,
        }
    }
}

/// Live versions that pass the filter, gathered up to one more than the limit and counted past it.
struct Matches<'a> {
    query: &'a Query<'a>,
    gathered: Gathered<'a>,
    count: u64,
}

impl Matches<'_> {
    /// Takes the live versions of the keys that a statement finds, in its order and no further than there is a point:
    /// the next page of a long read looks for its keys again.
    fn take_keys(&mut self, sql: &str, params: impl Params) -> Result<()> {
        const LIVE: &str =
            "SELECT key, id, revision, create_revision, version, lease, terms FROM live WHERE key = ?";
        let mut statement = self.query.connection.prepare_cached(sql).map_err(sql_error)?;
        let mut keys = statement.query(params).map_err(sql_error)?;
        while let Some(row) = keys.next().map_err(sql_error)? {
            let key = row.get_ref(0).map_err(sql_error)?.as_blob().map_err(|_| damaged(b""))?;
            if !self.take(LIVE, params![key])? {
                break;
            }
        }
        Ok(())
    }

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
                let (gathered, row) = (&mut self.gathered, current.kv(Bytes::new(), Bytes::new()));
                match read.select {
                    Select::Values => rows::with_value(connection, key, current.id, |value| {
                        gathered.push(key, value, row);
                    })?,
                    Select::Keys | Select::Nothing => gathered.push(key, &[], row),
                }
                if gathered.is_spoilt() {
                    return Ok(false);
                }
            } else if !read.count {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Gathers a row of (key, revision, create_revision, version, lease, value, checksum, …).
fn push(gathered: &mut Gathered<'_>, row: &Row<'_>, select: Select) -> Result<()> {
    let key = row.get_ref(0).map_err(sql_error)?.as_blob().map_err(|_| damaged(b""))?;
    let read = || -> rusqlite::Result<KeyValue> {
        let revision = row.get(1)?;
        if gathered.is_formed() {
            return Ok(KeyValue { revision, ..KeyValue::default() });
        }
        Ok(KeyValue {
            revision,
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

pub(super) fn counted(mut page: EncodedPage, count: Option<u64>) -> EncodedPage {
    page.page.count = count;
    page
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
