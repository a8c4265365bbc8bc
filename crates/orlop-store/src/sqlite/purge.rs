//! Overwrites what deleted rows left behind: in free pages, in unused parts of pages, and in the write-ahead log.

use std::time::Duration;

use rusqlite::Connection;

use super::{checkpoint, errors::sql_error};
use crate::error::Result;

/// Time that readers get to finish, so that the log can be emptied.
const READERS_MAX: Duration = Duration::from_secs(5);

/// Rewrites the whole database from its rows.
pub(super) fn rewrite(connection: &Connection) -> Result<()> {
    connection.execute_batch("VACUUM").map_err(sql_error)
}

/// Copies the log to the database, and truncates it. Returns false if another process still reads from it.
pub(super) fn empty_log(connection: &Connection) -> Result<bool> {
    checkpoint::truncate(connection, READERS_MAX)
}
