//! Tables and connection settings.
//!
//! `log` holds every version and tombstone in commit order; a value is written once and never moves. `live` holds each
//! key's current version without its value, in key order, so that counts, compares and filters read no value. A
//! superseded version is found through the one after it; `history` is a sparse index of them: see `history.rs`. `terms`
//! is the index over live versions. `note` holds named metadata.
//!
//! The newest revision is that of the last row of `log`. Compaction always leaves that row, so there is no counter to
//! maintain.

use std::path::Path;

use rusqlite::Connection;

use super::{errors::sql_error, wal_file::FILE_MAX};
use crate::{
    Config,
    error::{Error, Result},
    private_files,
};

/// Schema version of this program. Older ones are migrated, newer ones refused.
pub(super) const VERSION: i64 = 1;

const TABLES: &str = "
CREATE TABLE log (
    id INTEGER PRIMARY KEY,
    revision INTEGER NOT NULL,
    key BLOB NOT NULL,
    create_revision INTEGER NOT NULL,
    version INTEGER NOT NULL,
    lease INTEGER NOT NULL,
    previous INTEGER,
    checksum INTEGER NOT NULL,
    terms BLOB NOT NULL,
    value BLOB NOT NULL
);
CREATE TABLE live (
    key BLOB PRIMARY KEY,
    id INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    create_revision INTEGER NOT NULL,
    version INTEGER NOT NULL,
    lease INTEGER NOT NULL,
    terms BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX live_lease ON live (lease) WHERE lease <> 0;
CREATE TABLE history (
    key BLOB NOT NULL,
    superseded_at INTEGER NOT NULL,
    id INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    create_revision INTEGER NOT NULL,
    version INTEGER NOT NULL,
    lease INTEGER NOT NULL,
    PRIMARY KEY (key, superseded_at)
) WITHOUT ROWID;
CREATE TABLE terms (
    field TEXT NOT NULL,
    value TEXT NOT NULL,
    key BLOB NOT NULL,
    PRIMARY KEY (field, value, key)
) WITHOUT ROWID;
CREATE TABLE lease (
    id INTEGER PRIMARY KEY,
    ttl_seconds INTEGER NOT NULL,
    deadline_ms INTEGER NOT NULL
);
CREATE INDEX lease_deadline ON lease (deadline_ms);
CREATE TABLE note (name TEXT PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID;
-- The oldest readable revision, and the last row of the log whose predecessor has been deleted.
CREATE TABLE state (compacted INTEGER NOT NULL, forgotten_id INTEGER NOT NULL);
INSERT INTO state VALUES (0, 0);
";

/// Configures the connection that writes, and creates or migrates the tables.
pub(super) fn prepare_writer(connection: &Connection, config: &Config, memory: bool) -> Result<()> {
    let pragma = |name: &str, value: &str| {
        connection.pragma_update_and_check(None, name, value, |_| Ok(())).or_else(|error| match error {
            rusqlite::Error::QueryReturnedNoRows => Ok(()),
            error => Err(sql_error(error)),
        })
    };
    pragma("auto_vacuum", "2")?;
    // A database in memory has no write-ahead log; `MemoryLock` stands in for it.
    pragma("journal_mode", if memory { "memory" } else { "wal" })?;
    pragma("journal_size_limit", &FILE_MAX.to_string())?;
    // The checkpoint thread copies the log: see `checkpoint.rs`.
    pragma("wal_autocheckpoint", "0")?;
    pragma("cache_size", &in_kib(config.cache_bytes))?;
    pragma("temp_store", "memory")?;
    // Commits do not wait for the disk; acknowledgements do: see `durability.rs`.
    pragma("synchronous", if memory { "off" } else { "normal" })?;
    migrate(connection)?;
    renew_leases(connection)
}

/// Restarts the time to live of every lease, as etcd does: nobody could renew them while no server ran.
fn renew_leases(connection: &Connection) -> Result<()> {
    const SQL: &str =
        "UPDATE lease SET deadline_ms = ?1 + ttl_seconds * 1000 WHERE deadline_ms < ?1 + ttl_seconds * 1000";
    connection.execute(SQL, [super::rows::now_ms()]).map_err(sql_error)?;
    Ok(())
}

/// Configures a connection that reads.
pub(super) fn prepare_reader(connection: &Connection, cache_bytes: usize) -> Result<()> {
    connection.pragma_update(None, "query_only", true).map_err(sql_error)?;
    connection.pragma_update(None, "cache_size", in_kib(cache_bytes)).map_err(sql_error)
}

/// Formats a size for SQLite, where negative numbers are KiB and positive ones pages.
fn in_kib(bytes: usize) -> String {
    format!("-{}", (bytes >> 10).max(1))
}

/// Configures a connection that checkpoints or holds a read mark. It caches no pages.
pub(super) fn prepare_auxiliary(connection: &Connection) -> Result<()> {
    connection.pragma_update(None, "wal_autocheckpoint", 0).map_err(sql_error)?;
    connection.pragma_update(None, "cache_size", 8).map_err(sql_error)
}

/// Creates a file with empty tables, for a new database or a copy of another engine. It is not crash-safe until it is
/// closed and synced.
pub(crate) fn new_file(path: &Path) -> Result<Connection> {
    private_files::open_or_create(path)
        .map_err(|error| Error::Unavailable(format!("cannot create {}: {error}", path.display())))?;
    let connection = Connection::open(path).map_err(sql_error)?;
    let settings = "PRAGMA auto_vacuum = 2; PRAGMA synchronous = off";
    connection.execute_batch(settings).map_err(sql_error)?;
    // This pragma returns a row.
    connection.pragma_update_and_check(None, "journal_mode", "off", |_| Ok(())).map_err(sql_error)?;
    migrate(&connection)?;
    Ok(connection)
}

pub(super) fn migrate(connection: &Connection) -> Result<()> {
    // Lock first: two processes that open a new file must not both create its tables.
    connection.execute_batch("BEGIN IMMEDIATE").map_err(sql_error)?;
    let migrated = (|| {
        let found: i64 =
            connection.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(sql_error)?;
        match found {
            0 => {
                connection.execute_batch(TABLES).map_err(sql_error)?;
                connection.pragma_update(None, "user_version", VERSION).map_err(sql_error)
            }
            VERSION => Ok(()),
            newer => Err(Error::NewerSchema { found: newer, known: VERSION }),
        }
    })();
    let end = if migrated.is_ok() { "COMMIT" } else { "ROLLBACK" };
    connection.execute_batch(end).map_err(sql_error)?;
    migrated
}
