//! Bringing the write-ahead log home, beside the writer.
//!
//! Left to itself SQLite copies the log into the database in the commit that makes the log too long, and that
//! caller waits for all of it. Here a thread of its own copies, in stretches, waiting for nobody. A log that is
//! written without a pause is never copied to its end that way and would grow for ever, so once it is long the
//! writer is held for the last few pages, after which it begins the log anew. By then nearly all that was copied is
//! on the disk already: the writer never waits for that.

use std::{
    io,
    sync::{Arc, Condvar, Mutex, PoisonError, Weak, mpsc::sync_channel},
    thread::JoinHandle,
    time::Duration,
};

use rusqlite::Connection;

use super::{errors::sql_error, pool::Connections};
use crate::error::{Error, Result};

/// Pages added to the log before they are copied: a page written many times in between is copied once.
const STRETCH_PAGES: u32 = 4096;
/// Pages of a log that is to be begun anew even if the writer has to wait for that. What is written meanwhile
/// finds room in a file of [`super::log_file::FILE_MAX`].
const LONG_PAGES: u32 = 12288;
/// Pages that are copied while the writer waits, unless it keeps adding more than the thread can copy.
const LAST_PAGES: u32 = 256;
/// Attempts to get that close before the writer waits for however many there are.
const APPROACHES: usize = 4;
/// What the log begins with, and what a page takes in it.
const HEADER_BYTES: u64 = 32;
const FRAME_BYTES: u64 = 24 + 4096;
/// Time to copy those.
const COPY_TIME: Duration = Duration::from_millis(3);
/// How long the writer is held, at the most, for readers of the old log.
pub(super) const READERS_MAX: Duration = Duration::from_millis(5);

/// How long the log is, as the writer tells the thread.
#[derive(Debug, Default)]
pub(super) struct Gauge {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Pages in the log after the last commit.
    pages: u32,
    /// How many of them there were when the thread last copied.
    copied_at: u32,
    closing: bool,
}

impl Gauge {
    /// Called after every commit with the length of the log.
    pub(super) fn committed(&self, pages: u32) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let begun_anew = pages < state.pages;
        state.pages = pages;
        if begun_anew {
            state.copied_at = 0;
        }
        if state.is_due() {
            self.changed.notify_one();
        }
    }

    /// Where the log ends in its file.
    pub(super) fn bytes(&self) -> u64 {
        let pages = self.state.lock().unwrap_or_else(PoisonError::into_inner).pages;
        HEADER_BYTES + u64::from(pages) * FRAME_BYTES
    }

    /// Waits until there is a stretch to copy; `None` when the store closes.
    fn due(&self) -> Option<u32> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self
            .changed
            .wait_while(state, |state| !state.closing && !state.is_due())
            .unwrap_or_else(PoisonError::into_inner);
        state.copied_at = state.pages;
        (!state.closing).then_some(state.pages)
    }

    fn close(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).closing = true;
        self.changed.notify_one();
    }
}

impl State {
    fn is_due(&self) -> bool {
        self.pages >= self.copied_at.saturating_add(STRETCH_PAGES)
    }
}

/// The thread, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct Checkpointer {
    gauge: Arc<Gauge>,
    thread: Option<JoinHandle<()>>,
}

impl Checkpointer {
    pub(super) fn start(connections: &Arc<Connections>, gauge: Arc<Gauge>) -> Result<Self> {
        let (connections, told) = (Arc::downgrade(connections), gauge.clone());
        let thread = std::thread::Builder::new()
            .name("orlop-checkpoint".into())
            .spawn(move || work(&connections, &told))
            .map_err(thread_error)?;
        Ok(Self { gauge, thread: Some(thread) })
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.gauge.close();
        // Whoever opens the file next must not meet this thread's connection.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn thread_error(error: io::Error) -> Error {
    Error::Unavailable(format!("cannot start the checkpoint thread: {error}"))
}

fn work(connections: &Weak<Connections>, gauge: &Gauge) {
    let mut own: Option<Connection> = None;
    while let Some(pages) = gauge.due() {
        let Some(connections) = connections.upgrade() else { return };
        let copied = match own.take() {
            Some(connection) => Ok(connection),
            None => connections.open_checkpointer(),
        }
        .and_then(|connection| {
            copy(&connections, &connection, pages)?;
            Ok(connection)
        });
        match copied {
            Ok(connection) => own = Some(connection),
            // A full disk, say. The next stretch tries again.
            Err(error) => tracing::warn!(%error, pages, "the write-ahead log stays as it is for now"),
        }
    }
}

/// Copies what there is and brings it to the disk, and has a long log begun anew.
fn copy(connections: &Connections, connection: &Connection, pages: u32) -> Result<()> {
    approach(connection)?;
    bring_to_disk(connections, connection)?;
    if pages < LONG_PAGES {
        return Ok(());
    }
    approach(connection)?;
    connections.hold_writer(|| checkpoint(connection, "PRAGMA wal_checkpoint(RESTART)")).map(drop)
}

/// Copies until little is left.
fn approach(connection: &Connection) -> Result<()> {
    for _ in 0..APPROACHES {
        if passive(connection)? <= LAST_PAGES {
            break;
        }
    }
    Ok(())
}

/// Brings the database to the disk. SQLite does that at the end of a copy, but only if nothing was committed while
/// it copied. So the writer is held for the copying of the last few pages, and let go while the disk is at work.
fn bring_to_disk(connections: &Connections, connection: &Connection) -> Result<()> {
    let (held, is_held) = sync_channel(1);
    let (finish, finished) = sync_channel::<()>(0);
    std::thread::scope(|scope| {
        let hold = move || {
            connections.hold_writer(|| {
                let _ = held.send(());
                // Until the copy is made, which nobody tells, or all of it is done.
                let _ = finished.recv_timeout(COPY_TIME);
            });
        };
        let thread = std::thread::Builder::new().name("orlop-hold".into());
        thread.spawn_scoped(scope, hold).map_err(thread_error)?;
        let _ = is_held.recv();
        passive(connection)?;
        drop(finish);
        Ok(())
    })
}

/// Copies all that no reader stands in the way of, without waiting for anybody; how many pages are left.
pub(super) fn passive(connection: &Connection) -> Result<u32> {
    checkpoint(connection, "PRAGMA wal_checkpoint(PASSIVE)")
}

/// Runs a checkpoint; how many pages of the log are not copied.
fn checkpoint(connection: &Connection, sql: &str) -> Result<u32> {
    let (pages, copied): (i64, i64) =
        connection.query_row(sql, [], |row| Ok((row.get(1)?, row.get(2)?))).map_err(sql_error)?;
    Ok(u32::try_from(pages - copied).unwrap_or(0))
}
