//! Detects whether other processes use the database file too.
//!
//! A process with exclusive use may answer reads as of before its latest commits while those are being synced. One
//! that shares the file may not, since others might have revealed them already.
//!
//! A process that opens the file takes a shared lock on the log, and then increments a counter in the database,
//! before it reveals anything. It has exclusive use if nobody held the lock at that time and the counter has moved by
//! its own step only: a process that came before would have held the lock, and one that came at the same time or
//! later has moved the counter. So it does not matter that converting a lock between shared and exclusive is not
//! atomic.

use std::{
    fs::{File, TryLockError},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use rusqlite::{Connection, OptionalExtension};

use super::{errors::sql_error, files::companion};
use crate::error::{Error, Result};

/// Registration of this process as a user of the file. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Exclusivity {
    log: Arc<File>,
    log_path: PathBuf,
    /// The counter after this process's step, if nobody held the lock.
    exclusive_at: Option<i64>,
}

impl Exclusivity {
    /// Registers with a database.
    pub(super) fn register(database: &Path, writer: &Connection) -> Result<Self> {
        let path = companion(database, "-wal");
        let before = counter(writer)?;
        let failed = |error| Error::Unavailable(format!("cannot use {}: {error}", path.display()));
        let log = File::options().read(true).append(true).open(&path).map_err(failed)?;
        let first = lock_shared(&log).map_err(failed)?;
        // The row's name is part of the file format.
        let sql = "INSERT INTO note VALUES ('presence', 1)
            ON CONFLICT (name) DO UPDATE SET text = text + 1 RETURNING CAST(text AS INTEGER)";
        let registered: i64 = writer.query_row(sql, [], |row| row.get(0)).map_err(sql_error)?;
        let exclusive_at = (first && registered == before + 1).then_some(registered);
        Ok(Self { log: Arc::new(log), log_path: path, exclusive_at })
    }

    /// Returns the write-ahead log, open for appending.
    pub(super) fn log(&self) -> Arc<File> {
        self.log.clone()
    }

    /// Returns the path of the write-ahead log.
    pub(super) fn log_path(&self) -> &Path {
        &self.log_path
    }

    /// Returns whether no other process has used this file since this one registered.
    pub(super) fn is_exclusive(&self, connection: &Connection) -> Result<bool> {
        match self.exclusive_at {
            Some(registered) => Ok(counter(connection)? == registered),
            None => Ok(false),
        }
    }
}

/// Returns the number of registrations.
fn counter(connection: &Connection) -> Result<i64> {
    let sql = "SELECT CAST(text AS INTEGER) FROM note WHERE name = 'presence'";
    let mut statement = connection.prepare_cached(sql).map_err(sql_error)?;
    let count = statement.query_row([], |row| row.get(0)).optional().map_err(sql_error)?;
    Ok(count.unwrap_or(0))
}

/// Takes a shared lock. Returns whether nobody else holds one; a file system without locks counts as shared.
fn lock_shared(log: &File) -> io::Result<bool> {
    match log.try_lock() {
        Ok(()) => log.lock_shared().map(|()| true),
        Err(TryLockError::WouldBlock) => log.lock_shared().map(|()| false),
        Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}
