//! The baseline: kine's table and the shape of its statements, on SQLite with the settings we use.
//!
//! It is flattered: one connection behind a lock, so that writers never collide, and no garbage from gaps.

use std::{path::Path, sync::Mutex};

use rusqlite::{Connection, OptionalExtension, config::DbConfig, params};

const SCHEMA: &str = "
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
PRAGMA wal_autocheckpoint = 16384;
CREATE TABLE kine (
    id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT, created INTEGER, deleted INTEGER,
    create_revision INTEGER, prev_revision INTEGER, lease INTEGER, value BLOB, old_value BLOB);
CREATE INDEX kine_name_index ON kine (name);
CREATE INDEX kine_name_id_index ON kine (name, id);
CREATE INDEX kine_id_deleted_index ON kine (id, deleted);
CREATE INDEX kine_prev_revision_index ON kine (prev_revision);
CREATE UNIQUE INDEX kine_name_prev_revision_uindex ON kine (name, prev_revision);
";

/// The current versions under a name pattern, as kine lists them.
const LIST: &str = "
SELECT (SELECT MAX(rkv.id) FROM kine AS rkv),
       (SELECT MAX(crkv.prev_revision) FROM kine AS crkv WHERE crkv.name = 'compact_rev_key'),
       kv.id, kv.name, kv.created, kv.deleted, kv.create_revision, kv.prev_revision, kv.lease, kv.value
FROM kine AS kv
JOIN (SELECT MAX(mkv.id) AS id FROM kine AS mkv WHERE mkv.name >= ?1 AND mkv.name < ?2 GROUP BY mkv.name) AS maxkv
  ON maxkv.id = kv.id
WHERE kv.deleted = 0 ORDER BY kv.name ASC LIMIT ?3";

/// A kine-shaped store.
#[derive(Debug)]
pub(crate) struct Kine(Mutex<Connection>);

impl Kine {
    /// A new one, in a file.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        let connection = Connection::open(path)?;
        connection.execute_batch(SCHEMA)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        connection.set_prepared_statement_cache_capacity(32);
        Ok(Self(Mutex::new(connection)))
    }

    /// Writes a key: reads what is there, then inserts.
    pub(crate) fn put(&self, key: &str, value: &[u8]) -> anyhow::Result<()> {
        let connection = self.0.lock().map_err(|_| anyhow::anyhow!("poisoned"))?;
        let current: Option<(i64, i64)> = connection
            .prepare_cached(LIST)?
            .query_row(params![key, format!("{key}\0"), 1], |row| Ok((row.get(2)?, row.get(6)?)))
            .optional()?;
        let (previous, created) = current.unwrap_or((0, 0));
        connection.prepare_cached(
            "INSERT INTO kine (name, created, deleted, create_revision, prev_revision, lease, value, old_value)
             VALUES (?, ?, 0, ?, ?, 0, ?, NULL)",
        )?
        .execute(params![key, previous == 0, created, previous, value])?;
        Ok(())
    }

    /// Reads a range; how many bytes came.
    pub(crate) fn list(&self, start: &str, end: &str, limit: i64) -> anyhow::Result<usize> {
        let connection = self.0.lock().map_err(|_| anyhow::anyhow!("poisoned"))?;
        let mut statement = connection.prepare_cached(LIST)?;
        let mut rows = statement.query(params![start, end, limit])?;
        let mut kept = Vec::new();
        while let Some(row) = rows.next()? {
            kept.push((row.get::<_, String>(3)?, row.get::<_, Vec<u8>>(9)?));
        }
        Ok(kept.iter().map(|(key, value)| key.len() + value.len()).sum())
    }
}

/// The least a durable write can cost: one row into one table, committed.
#[derive(Debug)]
pub(crate) struct OneRow(Connection);

impl OneRow {
    /// A new one, in a file.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        let connection = Connection::open(path)?;
        connection.execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 16384;
             CREATE TABLE one (id INTEGER PRIMARY KEY, value BLOB)",
        )?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        Ok(Self(connection))
    }

    /// Inserts a row.
    pub(crate) fn insert(&self, value: &[u8]) -> anyhow::Result<()> {
        self.0.prepare_cached("INSERT INTO one (value) VALUES (?)")?.execute([value])?;
        Ok(())
    }
}
