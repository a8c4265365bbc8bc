//! Overwrites what deleted rows left behind: in free pages, in unused parts of pages, and in the write-ahead log.

use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::errors::sql_error;
use crate::error::Result;

/// Time that readers get to finish, so that the log can be emptied.
const READERS_WAIT: Duration = Duration::from_secs(5);

/// Rewrites the whole database from its rows.
pub(super) fn rewrite(connection: &Connection) -> Result<()> {
    connection.execute_batch("VACUUM").map_err(sql_error)
}

/// Copies the log to the database, and truncates it. Returns false if another process still reads from it.
pub(super) fn empty_log(connection: &Connection) -> Result<bool> {
    let deadline = Instant::now() + READERS_WAIT;
    loop {
        let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
        let busy: i64 = connection.query_row(checkpoint, [], |row| row.get(0)).map_err(sql_error)?;
        if busy == 0 || Instant::now() > deadline {
            return Ok(busy == 0);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
