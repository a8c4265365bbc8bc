//! Reads at a past revision.
//!
//! A superseded version is found through the one that superseded it: each row of the log points to the one before. To
//! keep such walks short, `history` is a sparse index: every 64th version of a key has a row there, and the last before
//! a deletion (`Event::superseded_history_row`). A walk begins at the key's first history row that was superseded
//! after the revision, or else at its live version.

use bytes::Bytes;
use rusqlite::{CachedStatement, params};

use super::{
    errors::sql_error,
    query::{Query, counted, damaged},
    rows::PageBuilder,
};
use crate::{
    EncodedPage, KeyValue, Revision, Select, Terms,
    error::Result,
    event::{VersionId, checksum},
};

/// Reads a range at a past revision.
pub(super) fn read(query: &Query<'_>, revision: Revision) -> Result<EncodedPage> {
    // Rows of keys that had been created by then and were live after it. The key's version at the revision is one of
    // these or before it. They all belong to one creation of the key, and the first of them is the nearest.
    const SQL: &str = "
        SELECT key, superseded_at, id FROM history
        WHERE key >= ?1 AND key < ?2 AND superseded_at > ?3 AND create_revision <= ?3
        UNION ALL
        SELECT key, 9223372036854775807, id FROM live
        WHERE key >= ?1 AND key < ?2 AND create_revision <= ?3
        ORDER BY 1, 2";
    let read = query.read;
    let counts_all = read.count && read.filter.is_empty();
    let all = if counts_all { Some(count(query, revision)?) } else { None };
    if read.select == Select::Nothing && read.filter.is_empty() {
        return Ok(counted(EncodedPage::default(), all));
    }
    let mut versions = VersionWalk::prepare(query, revision)?;
    let mut statement = query.connection.prepare_cached(SQL).map_err(sql_error)?;
    let mut rows = statement.query(params![query.start, query.end, revision]).map_err(sql_error)?;
    let (mut page, mut matching) = (query.page_builder(), 0);
    let mut key = Vec::new();
    while let Some(row) = rows.next().map_err(sql_error)? {
        let next = row.get_ref(0).map_err(sql_error)?.as_blob().map_err(|_| damaged(b""))?;
        if next == key {
            continue;
        }
        next.clone_into(&mut key);
        let full = page.has_more();
        // Past the limit rows are only counted.
        if page.encoding_failed() || (full && (!read.count || counts_all)) {
            break;
        }
        if versions.take(&key, row.get(2).map_err(|_| damaged(&key))?, full, &mut page)? {
            matching += 1;
        }
    }
    Ok(counted(query.finish(page), all.or(read.count.then_some(matching))))
}

/// Counts the keys at a revision.
fn count(query: &Query<'_>, revision: Revision) -> Result<u64> {
    const SQL: &str = "
        SELECT (SELECT count(*) FROM live WHERE key >= ?1 AND key < ?2 AND create_revision <= ?3)
             + (SELECT count(DISTINCT key) FROM history
                WHERE key >= ?1 AND key < ?2 AND superseded_at > ?3 AND create_revision <= ?3 AND NOT EXISTS
                    (SELECT 1 FROM live WHERE live.key = history.key AND live.create_revision <= ?3))";
    query.number(SQL, params![query.start, query.end, revision])
}

/// Walks back through the versions of keys in the log.
struct VersionWalk<'a> {
    query: &'a Query<'a>,
    revision: Revision,
    version: CachedStatement<'a>,
}

impl<'a> VersionWalk<'a> {
    fn prepare(query: &'a Query<'a>, revision: Revision) -> Result<Self> {
        const SQL: &str = "SELECT revision, previous, create_revision, version, lease, terms, checksum, value
            FROM log WHERE id = ?";
        let version = query.connection.prepare_cached(SQL).map_err(sql_error)?;
        Ok(Self { query, revision, version })
    }

    /// Walks back from a version to the one at the revision, and adds it to the page unless that is full. Returns
    /// whether it matches the filter.
    fn take(&mut self, key: &[u8], id: VersionId, full: bool, page: &mut PageBuilder<'_>) -> Result<bool> {
        let read = self.query.read;
        let mut next = Some(id);
        while let Some(id) = next {
            let mut rows = self.version.query([id]).map_err(sql_error)?;
            let row = rows.next().map_err(sql_error)?.ok_or_else(|| damaged(key))?;
            let number = |at| row.get::<_, i64>(at).map_err(|_| damaged(key));
            let bytes = |at| row.get_ref(at).ok().and_then(|v| v.as_blob().ok()).ok_or_else(|| damaged(key));
            let revision = number(0)?;
            if revision > self.revision {
                next = row.get(1).map_err(|_| damaged(key))?;
                continue;
            }
            if !read.filter.is_empty() {
                let terms = Terms::decode(Bytes::copy_from_slice(bytes(5)?)).ok_or_else(|| damaged(key))?;
                if !read.filter.matches(&terms) {
                    return Ok(false);
                }
            }
            if full {
                return Ok(true);
            }
            let value = if read.select == Select::Values { bytes(7)? } else { &[] };
            if read.select == Select::Values && number(6)? != checksum(key, value) {
                return Err(damaged(key));
            }
            let kv = KeyValue {
                revision,
                create_revision: number(2)?,
                version: number(3)?,
                lease: number(4)?,
                ..KeyValue::default()
            };
            page.push(key, value, kv);
            return Ok(true);
        }
        // The log contradicts the creation revision of the row that the walk began at.
        Err(damaged(key))
    }
}
