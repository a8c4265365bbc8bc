//! Forgetting history, a few rows at a time.
//!
//! The log is walked in order from where the last step stopped. Each row below the compacted revision
//! names the version it superseded, which nothing can read any more; a deletion goes as well, since only a
//! watch from before it could ask for it. Strictly below: a watch opened exactly at the compacted revision
//! still sees what happened there, and what it replaced.

use std::time::{Duration, Instant};

use rusqlite::{Connection, params};

use super::errors::sql_error;
use crate::{Revision, error::Result};

pub(super) fn mark(connection: &Connection, revision: Revision) -> Result<()> {
    connection.execute("UPDATE state SET compacted = max(compacted, ?)", [revision]).map_err(sql_error)?;
    Ok(())
}

/// How long a step walks before it lets writers in.
const STEP_TIME: Duration = Duration::from_millis(2);

/// Rows walked for each one that may be forgotten: most rows supersede nothing, and cost no write.
const WALK_ROWS: usize = 32;

/// Forgets up to `limit` versions that rows of the log superseded; whether there is more to do.
pub(super) fn step(connection: &Connection, limit: usize) -> Result<bool> {
    connection.execute_batch("BEGIN IMMEDIATE").map_err(sql_error)?;
    let stepped = forget(connection, limit).map_err(sql_error);
    let end = if stepped.is_ok() { "COMMIT" } else { "ROLLBACK" };
    connection.execute_batch(end).map_err(sql_error)?;
    stepped
}

fn forget(connection: &Connection, limit: usize) -> rusqlite::Result<bool> {
    const WALK: &str =
        "SELECT id, revision, key, version, previous FROM log WHERE id > ? ORDER BY id LIMIT ?";
    let mut state = connection.prepare_cached("SELECT compacted, forgotten_id FROM state")?;
    let (compacted, forgotten_id): (i64, i64) = state.query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let mut walk = connection.prepare_cached(WALK)?;
    let mut version_gone = connection.prepare_cached("DELETE FROM log WHERE id = ?")?;
    let mut history_gone =
        connection.prepare_cached("DELETE FROM history WHERE key = ? AND superseded_at = ?")?;
    let mut deletions = Vec::new();
    let (mut walked, mut forgotten, mut last, mut cut_short) = (0, 0, None, false);
    let started = Instant::now();
    let rows_max = limit.saturating_mul(WALK_ROWS);
    let mut rows = walk.query([forgotten_id, i64::try_from(rows_max).unwrap_or(i64::MAX)])?;
    while let Some(row) = rows.next()? {
        let (id, revision): (i64, i64) = (row.get(0)?, row.get(1)?);
        // Revisions rise with ids, so that is all. SQLite does not know, and would look at every row there is.
        if revision >= compacted {
            break;
        }
        if let Some(previous) = row.get::<_, Option<i64>>(4)? {
            version_gone.execute([previous])?;
            history_gone.execute(params![row.get_ref(2)?.as_blob()?, revision])?;
            forgotten += 1;
        }
        if row.get::<_, i64>(3)? == 0 {
            deletions.push(id);
        }
        (walked, last) = (walked + 1, Some(id));
        if started.elapsed() > STEP_TIME || forgotten >= limit {
            cut_short = true;
            break;
        }
    }
    drop(rows);
    for id in deletions {
        version_gone.execute([id])?;
    }
    if let Some(last) = last {
        connection.execute("UPDATE state SET forgotten_id = ?", [last])?;
    }
    Ok(cut_short || walked == rows_max)
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
