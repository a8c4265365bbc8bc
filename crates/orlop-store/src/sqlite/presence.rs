//! Whether other processes have the file too.
//!
//! A process that has the file to itself may answer reads from before its latest commits while those are on their
//! way to the disk; one that shares it may not, since others might have shown them already.
//!
//! Who enters holds a shared lock on the log from then on, and after that adds one to a count in the database,
//! before it shows anything to anybody. A process knows that it is alone if nobody held the lock when it entered
//! and the count has moved by its own step only: who came before it was there to hold the lock, who came at the
//! same time or later has moved the count. So it does not matter that a lock which changes between shared and
//! exclusive is lost for a moment.

use std::{
    fs::{File, TryLockError},
    io,
    path::Path,
    sync::Arc,
};

use rusqlite::{Connection, OptionalExtension};

use super::{errors::sql_error, pool::companion};
use crate::error::{Error, Result};

/// This process's place among those that have the file. It ends with the process, or when this is dropped.
#[derive(Debug)]
pub(super) struct Presence {
    log: Arc<File>,
    /// The count as this process left it, if nobody else was there.
    alone_at: Option<i64>,
}

impl Presence {
    /// Enters a database.
    pub(super) fn enter(database: &Path, writer: &Connection) -> Result<Self> {
        let path = companion(database, "-wal");
        let before = count(writer)?;
        let told = |error| Error::Unavailable(format!("cannot use {}: {error}", path.display()));
        let log = File::options().read(true).append(true).open(&path).map_err(told)?;
        let nobody_else = hold(&log).map_err(told)?;
        let sql = "INSERT INTO note VALUES ('presence', 1)
            ON CONFLICT (name) DO UPDATE SET text = text + 1 RETURNING CAST(text AS INTEGER)";
        let entered: i64 = writer.query_row(sql, [], |row| row.get(0)).map_err(sql_error)?;
        let alone_at = (nobody_else && entered == before + 1).then_some(entered);
        Ok(Self { log: Arc::new(log), alone_at })
    }

    /// The log, open for appending.
    pub(super) fn log(&self) -> Arc<File> {
        self.log.clone()
    }

    /// Whether nobody else has shown anything from this file since this process has had it.
    pub(super) fn is_alone(&self, connection: &Connection) -> Result<bool> {
        match self.alone_at {
            Some(entered) => Ok(count(connection)? == entered),
            None => Ok(false),
        }
    }
}

/// How often somebody has entered.
fn count(connection: &Connection) -> Result<i64> {
    let sql = "SELECT CAST(text AS INTEGER) FROM note WHERE name = 'presence'";
    let mut statement = connection.prepare_cached(sql).map_err(sql_error)?;
    let count = statement.query_row([], |row| row.get(0)).optional().map_err(sql_error)?;
    Ok(count.unwrap_or(0))
}

/// Takes a share of the lock; whether nobody else has one. Without locks in the file system there may be others.
fn hold(log: &File) -> io::Result<bool> {
    match log.try_lock() {
        Ok(()) => log.lock_shared().map(|()| true),
        Err(TryLockError::WouldBlock) => log.lock_shared().map(|()| false),
        Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}
