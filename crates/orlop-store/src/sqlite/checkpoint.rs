//! Checkpoints the write-ahead log beside the writer.
//!
//! By default SQLite checkpoints in the commit that makes the log too long, and that caller waits for all of it. Here a
//! thread of its own copies the log in steps, without blocking others. A log that is written without a pause is never
//! copied to its end that way and would grow for ever, so once it is long the writer is blocked for the last few pages,
//! after which SQLite restarts the log. Nearly all copied pages have been synced by then: the writer never waits for
//! that.

use std::{
    io,
    sync::{Arc, Weak, mpsc::sync_channel},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use rusqlite::Connection;

use super::{commit, disk_reserve::DiskReserve, errors::sql_error, log_length::LogLength, pool::Connections};
use crate::error::{Error, Result};

/// Length of a log that is to be restarted even if the writer has to wait. What is written meanwhile fits a file
/// of [`super::wal_file::FILE_MAX`].
const RESTART_PAGES: u32 = 12288;
/// Pages that are copied while the writer is blocked, unless it adds more than the thread can copy.
const LAST_PAGES: u32 = 256;
/// Attempts to get that close before the writer is blocked for however many there are.
const ATTEMPTS: usize = 4;
/// Time to copy the last pages.
const COPY_TIME: Duration = Duration::from_millis(3);
/// Maximum time the writer is blocked for readers of the old log.
const READERS_MAX: Duration = Duration::from_millis(5);
/// Pause before a checkpoint that failed is tried again. Nothing else would: a log on a full disk does not grow.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Pause between attempts to truncate a log that is in use.
const BUSY_PAUSE: Duration = Duration::from_millis(5);
/// Maximum time a clean stop waits for readers and other processes.
const CLOSE_MAX: Duration = Duration::from_secs(2);

/// The checkpoint thread, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct Checkpointer {
    length: Arc<LogLength>,
    thread: Option<JoinHandle<()>>,
}

impl Checkpointer {
    pub(super) fn start(
        connections: &Arc<Connections>,
        length: Arc<LogLength>,
        reserve: Arc<DiskReserve>,
    ) -> Result<Self> {
        let (connections, reported) = (Arc::downgrade(connections), length.clone());
        let thread = std::thread::Builder::new()
            .name("orlop-checkpoint".into())
            .spawn(move || run(&connections, &reported, &reserve))
            .map_err(thread_error)?;
        Ok(Self { length, thread: Some(thread) })
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.length.close();
        // The next process to open the file must not find this thread's connection.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn thread_error(error: io::Error) -> Error {
    Error::Unavailable(format!("cannot start the checkpoint thread: {error}"))
}

/// Opens the connection that checkpoints.
fn open_checkpointer(connections: &Connections) -> Result<Connection> {
    let connection = connections.open_auxiliary()?;
    connection.busy_timeout(READERS_MAX).map_err(sql_error)?;
    Ok(connection)
}

fn run(connections: &Weak<Connections>, length: &LogLength, reserve: &DiskReserve) {
    let mut own: Option<Connection> = None;
    let mut pause = Duration::MAX;
    while let Some(pages) = length.wait_until_due(pause) {
        let Some(connections) = connections.upgrade() else { return };
        let copied = match own.take() {
            Some(connection) => Ok(connection),
            None => open_checkpointer(&connections),
        }
        .and_then(|connection| {
            let log_end = length.bytes();
            reserve.spend(|| step(&connections, &connection, pages))?;
            reserve.copied(log_end, || commit::file_bytes(&connection))?;
            Ok(connection)
        });
        pause = if copied.is_ok() { Duration::MAX } else { RETRY_PAUSE };
        match copied {
            Ok(connection) => own = Some(connection),
            Err(error) => tracing::warn!(%error, pages, "checkpoint failed and will be retried"),
        }
    }
}

/// Copies and syncs the log, and restarts it if it is long.
fn step(connections: &Connections, connection: &Connection, pages: u32) -> Result<()> {
    copy_most(connection)?;
    sync_database(connections, connection)?;
    if pages < RESTART_PAGES {
        return Ok(());
    }
    copy_most(connection)?;
    connections.block_writer(|| checkpoint(connection, "PRAGMA wal_checkpoint(RESTART)")).map(drop)
}

/// Copies until few pages are left.
fn copy_most(connection: &Connection) -> Result<()> {
    for _ in 0..ATTEMPTS {
        if passive(connection)? <= LAST_PAGES {
            break;
        }
    }
    Ok(())
}

/// Syncs the database file. SQLite does that at the end of a checkpoint, but only if nothing was committed meanwhile.
/// So the writer is blocked while the last few pages are copied, and released while the disk syncs.
fn sync_database(connections: &Connections, connection: &Connection) -> Result<()> {
    let (blocked, is_blocked) = sync_channel(1);
    let (finish, finished) = sync_channel::<()>(0);
    std::thread::scope(|scope| {
        let block = move || {
            connections.block_writer(|| {
                let _ = blocked.send(());
                // Nothing signals the end of the copy before the end of the sync.
                let _ = finished.recv_timeout(COPY_TIME);
            });
        };
        let thread = std::thread::Builder::new().name("orlop-hold".into());
        thread.spawn_scoped(scope, block).map_err(thread_error)?;
        let _ = is_blocked.recv();
        passive(connection)?;
        drop(finish);
        Ok(())
    })
}

/// Copies the whole log into the database and truncates it, so that the file is complete by itself. Readers and other
/// processes can prevent that; then the log keeps what was not copied.
pub(super) fn on_close(writer: &Connection) -> Result<()> {
    writer.busy_timeout(CLOSE_MAX).map_err(sql_error)?;
    if !truncate(writer, CLOSE_MAX)? {
        tracing::warn!("the write-ahead log is in use; a copy of the database needs it");
    }
    Ok(())
}

/// Copies the whole log into the database and truncates it. Returns false if readers or other checkpoints prevented
/// that for as long as `max`.
pub(super) fn truncate(connection: &Connection, max: Duration) -> Result<bool> {
    let deadline = Instant::now() + max;
    loop {
        let sql = "PRAGMA wal_checkpoint(TRUNCATE)";
        let busy: bool = connection.query_row(sql, [], |row| row.get(0)).map_err(sql_error)?;
        if !busy || Instant::now() > deadline {
            return Ok(!busy);
        }
        // SQLite's busy handler waits for readers, and not for another checkpoint.
        std::thread::sleep(BUSY_PAUSE);
    }
}

/// Copies everything that no reader prevents, without blocking others. Returns the pages left.
pub(super) fn passive(connection: &Connection) -> Result<u32> {
    checkpoint(connection, "PRAGMA wal_checkpoint(PASSIVE)")
}

/// Runs a checkpoint. Returns the pages of the log that are not copied.
fn checkpoint(connection: &Connection, sql: &str) -> Result<u32> {
    let (pages, copied): (i64, i64) =
        connection.query_row(sql, [], |row| Ok((row.get(1)?, row.get(2)?))).map_err(sql_error)?;
    Ok(u32::try_from(pages - copied).unwrap_or(0))
}
