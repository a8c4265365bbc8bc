//! Deletes compacted history, a few rows at a time.
//!
//! The log is scanned in order from where the last step stopped. Each row below the compacted revision names the
//! version it superseded, which can no longer be read. Tombstones are deleted too, since only a watch from before
//! could ask for them. Strictly below: a watch opened exactly at the compacted revision still sees the events of that
//! revision and what they replaced.

use std::time::{Duration, Instant};

use rusqlite::{Connection, params};

use super::errors::sql_error;
use crate::{Revision, error::Result, event::VersionId};

/// Raises the compacted revision.
pub(super) fn set_compacted(connection: &Connection, revision: Revision) -> Result<()> {
    connection.execute("UPDATE state SET compacted = max(compacted, ?)", [revision]).map_err(sql_error)?;
    Ok(())
}

/// Maximum time of a step, during which writers wait.
const STEP_TIME: Duration = Duration::from_millis(1);
/// Versions deleted between two checks of the clock, and rows scanned to find them: most supersede nothing.
const CHUNK_VERSIONS: usize = 64;
const CHUNK_ROWS: usize = 2048;

/// Deletes up to about `limit` superseded versions. Returns whether more are left.
pub(super) fn step(connection: &Connection, limit: usize) -> Result<bool> {
    connection.execute_batch("BEGIN IMMEDIATE").map_err(sql_error)?;
    let stepped = delete(connection, limit).map_err(sql_error);
    let end = if stepped.is_ok() { "COMMIT" } else { "ROLLBACK" };
    connection.execute_batch(end).map_err(sql_error)?;
    stepped
}

fn delete(connection: &Connection, limit: usize) -> rusqlite::Result<bool> {
    let sql = "SELECT compacted, forgotten_id FROM state";
    let (compacted, begin): (i64, i64) =
        connection.prepare_cached(sql)?.query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let (started, mut scanned, mut deleted, mut more) = (Instant::now(), begin, 0, true);
    while more && deleted < limit && started.elapsed() < STEP_TIME {
        let chunk = Chunk::scan(connection, scanned, compacted)?;
        deleted += chunk.versions.len();
        (scanned, more) = (chunk.last, chunk.more);
        chunk.delete(connection)?;
    }
    if scanned != begin {
        connection.prepare_cached("UPDATE state SET forgotten_id = ?")?.execute([scanned])?;
    }
    Ok(more)
}

/// Rows to delete, found by scanning a part of the log. Scan and deletion are separate: a statement that reads a table
/// has to seek again after each row that another deletes from it.
struct Chunk {
    versions: Vec<VersionId>,
    /// Rows of `history` that may point to them: a key, and when its version was superseded.
    history_rows: Vec<(Vec<u8>, Revision)>,
    /// The last row scanned, and whether there are more after it.
    last: VersionId,
    more: bool,
}

impl Chunk {
    fn scan(connection: &Connection, after: VersionId, compacted: Revision) -> rusqlite::Result<Self> {
        const SQL: &str =
            "SELECT id, revision, key, version, previous FROM log WHERE id > ? ORDER BY id LIMIT ?";
        let mut chunk = Self { versions: Vec::new(), history_rows: Vec::new(), last: after, more: false };
        let mut statement = connection.prepare_cached(SQL)?;
        let mut rows = statement.query([after, CHUNK_ROWS as i64])?;
        let mut scanned = 0;
        while let Some(row) = rows.next()? {
            let (id, revision): (VersionId, Revision) = (row.get(0)?, row.get(1)?);
            // Revisions rise with ids, so nothing follows. SQLite does not know that and would read every row.
            if revision >= compacted {
                return Ok(chunk);
            }
            if let Some(previous) = row.get(4)? {
                chunk.versions.push(previous);
                chunk.history_rows.push((row.get(2)?, revision));
            }
            if row.get::<_, i64>(3)? == 0 {
                chunk.versions.push(id);
            }
            (scanned, chunk.last) = (scanned + 1, id);
            if chunk.versions.len() >= CHUNK_VERSIONS {
                chunk.more = true;
                return Ok(chunk);
            }
        }
        chunk.more = scanned == CHUNK_ROWS;
        Ok(chunk)
    }

    /// Deletes the rows. Versions with consecutive ids are deleted by one statement.
    fn delete(mut self, connection: &Connection) -> rusqlite::Result<()> {
        let mut delete_history =
            connection.prepare_cached("DELETE FROM history WHERE key = ? AND superseded_at = ?")?;
        for (key, superseded_at) in self.history_rows {
            delete_history.execute(params![key, superseded_at])?;
        }
        self.versions.sort_unstable();
        let mut delete_log = connection.prepare_cached("DELETE FROM log WHERE id >= ? AND id <= ?")?;
        for run in self.versions.chunk_by(|one, next| one + 1 == *next) {
            delete_log.execute(params![run.first(), run.last()])?;
        }
        Ok(())
    }
}

/// Gives free pages back to the file system. Returns whether more are left. A few stay for the next writes.
pub(super) fn shrink(connection: &Connection, pages: usize) -> Result<bool> {
    const SPARE_PAGES: i64 = 256;
    let free: i64 =
        connection.pragma_query_value(None, "freelist_count", |row| row.get(0)).map_err(sql_error)?;
    if free <= SPARE_PAGES {
        return Ok(false);
    }
    connection
        .prepare(&format!("PRAGMA incremental_vacuum({pages})"))
        .and_then(|mut vacuum| {
            let mut rows = vacuum.query([])?;
            while rows.next()?.is_some() {}
            Ok(())
        })
        .map_err(sql_error)?;
    Ok(free - pages as i64 > SPARE_PAGES)
}
