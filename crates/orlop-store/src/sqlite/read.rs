//! Reads: each is one page of one snapshot.

use bytes::Bytes;
use rusqlite::{Connection, Params, Row, ToSql, params, params_from_iter, types::ValueRef};

use super::{
    errors::sql_error,
    history,
    query::{Query, counted, damaged},
    rows::{self, INITIAL_REVISION, PageBuilder},
};
use crate::{
    EncodedPage, Filter, KeyValue, Read, Requirement, Revision, RowEncoder, Select,
    error::{Error, Result},
    event::checksum,
};

/// Maximum keys of a field that are sorted for a page.
const SORTED_MAX: u64 = 4096;
/// Maximum values whose keys are merged: SQLite's limit is 500.
const MERGED_MAX: usize = 250;

/// Reads one page from a snapshot of its own. `max_key` is greater than every key.
pub(super) fn read(
    connection: &Connection,
    read: &Read,
    max_key: &[u8],
    bytes: usize,
    encoder: Option<&dyn RowEncoder>,
) -> Result<EncodedPage> {
    if let (Some(key), None, Select::Values, true) =
        (read.range.single(), read.revision, read.select, read.filter.is_empty())
    {
        return get(connection, read, key, encoder);
    }
    in_snapshot(connection, || within(connection, read, max_key, bytes, encoder))
}

/// Reads one key at the newest revision by one statement, which is a snapshot by itself.
fn get(
    connection: &Connection,
    read: &Read,
    key: &[u8],
    encoder: Option<&dyn RowEncoder>,
) -> Result<EncodedPage> {
    const SQL: &str = "
        SELECT live.key, live.revision, live.create_revision, live.version, live.lease, log.value, log.checksum,
               (SELECT revision FROM log ORDER BY id DESC LIMIT 1)
        FROM (SELECT 1) LEFT JOIN live ON live.key = ? LEFT JOIN log ON log.id = live.id";
    let mut statement = connection.prepare_cached(SQL).map_err(sql_error)?;
    let mut rows = statement.query([key]).map_err(sql_error)?;
    let (mut page, mut revision) = (PageBuilder::new(1, usize::MAX, encoder), INITIAL_REVISION);
    if let Some(row) = rows.next().map_err(sql_error)? {
        revision = row.get::<_, Option<Revision>>(7).map_err(sql_error)?.unwrap_or(INITIAL_REVISION);
        if !matches!(row.get_ref(0).map_err(sql_error)?, ValueRef::Null) {
            push(&mut page, row, Select::Values)?;
        }
    }
    let mut result = page.finish();
    result.page.revision = revision;
    result.page.count = read.count.then_some(result.keys as u64);
    Ok(result)
}

/// Reads one page within the transaction that `connection` is in.
pub(super) fn within(
    connection: &Connection,
    read: &Read,
    max_key: &[u8],
    bytes: usize,
    encoder: Option<&dyn RowEncoder>,
) -> Result<EncodedPage> {
    let (bounds, _) = rows::bounds(connection)?;
    let past = match read.revision {
        Some(revision) if revision > bounds.current => {
            return Err(Error::FutureRevision { requested: revision, current: bounds.current });
        }
        Some(revision) if revision < bounds.compacted => {
            return Err(Error::Expired { compacted: bounds.compacted });
        }
        // Nothing was written since: live versions answer, without history.
        Some(revision) if revision == bounds.current => None,
        other => other,
    };
    let (start, end) = (read.range.start(), read.range.end().map_or(max_key, |end| end));
    let query = Query { connection, read, bytes, encoder, start, end };
    let mut result = match (past, read.filter.is_empty()) {
        (None, true) => query.live(),
        (None, false) => query.live_filtered(),
        (Some(revision), _) => history::read(&query, revision),
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

impl Query<'_> {
    /// Reads the live version of every key in the range.
    fn live(&self) -> Result<EncodedPage> {
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
        let page = self.collect(sql, params![self.start, self.end, limit.saturating_add(1)])?;
        Ok(counted(page, count))
    }

    /// Reads the live versions that match the filter, found by the most selective term.
    fn live_filtered(&self) -> Result<EncodedPage> {
        let mut found = Matches { query: self, page: self.page_builder(), count: 0 };
        match self.plan()? {
            Some(Requirement::In(field, values)) => {
                let merged = MergedRuns::new(self, field, values);
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
        Ok(counted(self.finish(found.page), count))
    }

    /// Picks the requirement to scan the index for, if that pays: it costs about twice as much per key as scanning the
    /// range. Since the index returns the keys of values in order, what counts is how far into the range a page of
    /// them reaches.
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
            let rows_scanned =
                self.rows_before(reach.end.as_deref().unwrap_or(self.end), reach.keys * 2 + 1)?;
            if rows_scanned > reach.keys * 2 {
                return Ok(Some(requirement));
            }
        }
        self.plan_by_field()
    }

    /// Picks a requirement on the existence of a field. Its keys are sorted for each page, so only few pay.
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

    /// Counts the keys of the range before `end`, up to a maximum.
    fn rows_before(&self, end: &[u8], max: u64) -> Result<u64> {
        const SQL: &str = "SELECT count(*) FROM (SELECT 1 FROM live WHERE key >= ? AND key < ? LIMIT ?)";
        self.number(SQL, params![self.start, end, max as i64])
    }

    /// Returns how far a page of the keys with some values of a field reaches.
    fn reach(&self, field: &str, values: &[String]) -> Result<Reach> {
        let merged = MergedRuns::new(self, field, values);
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
    fn collect(&self, sql: &str, params: impl Params) -> Result<EncodedPage> {
        let mut statement = self.connection.prepare_cached(sql).map_err(sql_error)?;
        let mut rows = statement.query(params).map_err(sql_error)?;
        let mut page = self.page_builder();
        while let Some(row) = rows.next().map_err(sql_error)? {
            push(&mut page, row, self.read.select)?;
            if page.encoding_failed() || page.has_more() {
                break;
            }
        }
        Ok(self.finish(page))
    }
}

/// A statement for the keys with any of some values of a field, in key order: a merge of the index's runs of each
/// value. No run is read further than the requested rows reach.
struct MergedRuns<'a> {
    sql: String,
    field: &'a str,
    start: &'a [u8],
    end: &'a [u8],
    values: &'a [String],
}

impl<'a> MergedRuns<'a> {
    fn new(query: &Query<'a>, field: &'a str, values: &'a [String]) -> Self {
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
        let range: [&dyn ToSql; 3] = [&self.field, &self.start, &self.end];
        params_from_iter(range.into_iter().chain(self.values.iter().map(|value| value as &dyn ToSql)))
    }
}

/// Extent of a page of keys.
struct Reach {
    /// Keys found, up to one more than the page has.
    keys: u64,
    /// The first key after the page; `None` if it reaches the end of the range.
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

/// Live versions that match the filter, collected up to one more than the limit and counted past it.
struct Matches<'a> {
    query: &'a Query<'a>,
    page: PageBuilder<'a>,
    count: u64,
}

impl Matches<'_> {
    /// Takes the live versions of the keys that a statement returns, in its order, until the page is complete.
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

    /// Takes the rows of a statement over `live`. Returns whether the page needs more.
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
            if !self.page.has_more() {
                let (page, row) = (&mut self.page, current.kv(Bytes::new(), Bytes::new()));
                match read.select {
                    Select::Values => rows::with_value(connection, key, current.id, |value| {
                        page.push(key, value, row);
                    })?,
                    Select::Keys | Select::Nothing => page.push(key, &[], row),
                }
                if page.encoding_failed() {
                    return Ok(false);
                }
            } else if !read.count {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Adds a row of (key, revision, create_revision, version, lease, value, checksum, …).
fn push(page: &mut PageBuilder<'_>, row: &Row<'_>, select: Select) -> Result<()> {
    let key = row.get_ref(0).map_err(sql_error)?.as_blob().map_err(|_| damaged(b""))?;
    let read = || -> rusqlite::Result<KeyValue> {
        let revision = row.get(1)?;
        if page.is_encoding() {
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
    page.push(key, value, kv);
    Ok(())
}

/// Returns whether a read is small enough to run inline.
pub(super) fn is_small(read: &Read) -> bool {
    let rows_max = match read.select {
        Select::Values => 16,
        // Narrow, adjacent rows.
        Select::Keys | Select::Nothing => 512,
    };
    read.range.single().is_some()
        || (read.limit <= rows_max && !read.count && read.filter == Filter::everything())
}
