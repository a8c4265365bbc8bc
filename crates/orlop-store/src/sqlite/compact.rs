//! Forgetting history, a few rows at a time.
//!
//! The log is walked in order from where the last step stopped. Each row below the compacted revision
//! names the version it superseded, which nothing can read any more; a deletion goes as well, since only a
//! watch from before it could ask for it. Strictly below: a watch opened exactly at the compacted revision
//! still sees what happened there, and what it replaced.

use std::time::{Duration, Instant};

use rusqlite::{Connection, params};

use super::errors::sql_error;
use crate::{Revision, error::Result, event::VersionId};

pub(super) fn mark(connection: &Connection, revision: Revision) -> Result<()> {
    connection.execute("UPDATE state SET compacted = max(compacted, ?)", [revision]).map_err(sql_error)?;
    Ok(())
}

/// How long a step takes before it lets writers in.
const STEP_TIME: Duration = Duration::from_millis(1);
/// Versions forgotten between two looks at the clock, and rows walked to find them: most supersede nothing.
const STRETCH_VERSIONS: usize = 64;
const STRETCH_ROWS: usize = 2048;

/// Forgets up to about `limit` versions that rows of the log superseded; whether there is more to do.
pub(super) fn step(connection: &Connection, limit: usize) -> Result<bool> {
    connection.execute_batch("BEGIN IMMEDIATE").map_err(sql_error)?;
    let stepped = forget(connection, limit).map_err(sql_error);
    let end = if stepped.is_ok() { "COMMIT" } else { "ROLLBACK" };
    connection.execute_batch(end).map_err(sql_error)?;
    stepped
}

fn forget(connection: &Connection, limit: usize) -> rusqlite::Result<bool> {
    let sql = "SELECT compacted, forgotten_id FROM state";
    let (compacted, begin): (i64, i64) =
        connection.prepare_cached(sql)?.query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let (started, mut walked, mut forgotten, mut more) = (Instant::now(), begin, 0, true);
    while more && forgotten < limit && started.elapsed() < STEP_TIME {
        let stretch = Stretch::walk(connection, walked, compacted)?;
        forgotten += stretch.versions.len();
        (walked, more) = (stretch.last, stretch.more);
        stretch.delete(connection)?;
    }
    if walked != begin {
        connection.prepare_cached("UPDATE state SET forgotten_id = ?")?.execute([walked])?;
    }
    Ok(more)
}

/// What a stretch of the log leaves to be forgotten. It is walked first, and deleted from then: while a statement
/// reads a table, SQLite has it find its place again after each row that is deleted.
struct Stretch {
    versions: Vec<VersionId>,
    /// The rows of `history` that may lead there: a key, and when its version was superseded.
    milestones: Vec<(Vec<u8>, Revision)>,
    /// The last row walked, and whether there are more after it.
    last: VersionId,
    more: bool,
}

impl Stretch {
    fn walk(connection: &Connection, after: VersionId, compacted: Revision) -> rusqlite::Result<Self> {
        const SQL: &str =
            "SELECT id, revision, key, version, previous FROM log WHERE id > ? ORDER BY id LIMIT ?";
        let mut stretch = Self { versions: Vec::new(), milestones: Vec::new(), last: after, more: false };
        let mut statement = connection.prepare_cached(SQL)?;
        let mut rows = statement.query([after, STRETCH_ROWS as i64])?;
        let mut walked = 0;
        while let Some(row) = rows.next()? {
            let (id, revision): (VersionId, Revision) = (row.get(0)?, row.get(1)?);
            // Revisions rise with ids, so that is all. SQLite does not know, and would look at every row there is.
            if revision >= compacted {
                return Ok(stretch);
            }
            if let Some(previous) = row.get(4)? {
                stretch.versions.push(previous);
                stretch.milestones.push((row.get(2)?, revision));
            }
            if row.get::<_, i64>(3)? == 0 {
                stretch.versions.push(id);
            }
            (walked, stretch.last) = (walked + 1, id);
            if stretch.versions.len() >= STRETCH_VERSIONS {
                stretch.more = true;
                return Ok(stretch);
            }
        }
        stretch.more = walked == STRETCH_ROWS;
        Ok(stretch)
    }

    /// Keys that take turns leave versions side by side: one statement finds them all.
    fn delete(mut self, connection: &Connection) -> rusqlite::Result<()> {
        let mut milestone =
            connection.prepare_cached("DELETE FROM history WHERE key = ? AND superseded_at = ?")?;
        for (key, superseded_at) in self.milestones {
            milestone.execute(params![key, superseded_at])?;
        }
        self.versions.sort_unstable();
        let mut versions = connection.prepare_cached("DELETE FROM log WHERE id >= ? AND id <= ?")?;
        for run in self.versions.chunk_by(|one, next| one + 1 == *next) {
            versions.execute(params![run.first(), run.last()])?;
        }
        Ok(())
    }
}

/// Gives free pages back to the file system; whether there is more to do. A few stay, since the next
/// writes will want them.
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
