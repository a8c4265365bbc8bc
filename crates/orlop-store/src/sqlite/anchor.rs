//! Reads that follow one another share a lock.
//!
//! SQLite locks its place in the write-ahead log for every read and lets go of it afterwards: two system calls, under a
//! mutex of the process. Connections of a process share such a lock for as long as one of them holds it. So after some
//! reads without a write in between, a connection that does nothing else takes hold of the newest place. It decides
//! nothing: each read still finds out for itself which place is the newest, and locks another one if it has to.
//!
//! What is held cannot be copied home and begun anew, so it is let go before anything is written, and after a moment in
//! any case. Where other processes have the file too it is not held at all: their writes would not be seen here.

use std::sync::{
    Mutex, MutexGuard, PoisonError, TryLockError,
    atomic::{AtomicU32, Ordering::Relaxed},
};

use rusqlite::Connection;

use super::{errors::sql_error, presence::Presence};
use crate::error::Result;

/// Reads without a write in between, after which more are expected.
const READS: u32 = 16;

/// The connection that holds on to a place.
#[derive(Debug, Default)]
pub(super) struct Anchor {
    held: Mutex<Held>,
    /// Reads since it was let go.
    reads: AtomicU32,
}

#[derive(Debug, Default)]
struct Held {
    /// Opened when it is first of use.
    connection: Option<Connection>,
    holds: bool,
}

/// While this is there, nothing is held.
#[derive(Debug)]
pub(super) struct Away<'a>(#[expect(dead_code, reason = "it is held, not looked at")] MutexGuard<'a, Held>);

impl Anchor {
    /// Something has been read.
    pub(super) fn after_read(&self, presence: &Presence, open: impl FnOnce() -> Result<Connection>) {
        if self.reads.fetch_add(1, Relaxed) != READS {
            return;
        }
        // Who writes right now will let go anyway.
        let mut held = match self.held.try_lock() {
            Ok(held) => held,
            Err(TryLockError::WouldBlock) => return,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        };
        if let Err(error) = held.take_hold(presence, open) {
            tracing::debug!(%error, "reads go on without an anchor");
            *held = Held::default();
        }
    }

    /// Lets go, and holds nothing until the answer is dropped.
    pub(super) fn away(&self) -> Away<'_> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.holds {
            let let_go = held.connection.as_ref().map(|connection| connection.execute_batch("COMMIT"));
            held.holds = false;
            if !matches!(let_go, Some(Ok(()))) {
                // A connection that is closed holds nothing.
                held.connection = None;
            }
        }
        self.reads.store(0, Relaxed);
        Away(held)
    }
}

impl Held {
    fn take_hold(&mut self, presence: &Presence, open: impl FnOnce() -> Result<Connection>) -> Result<()> {
        if self.holds {
            return Ok(());
        }
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => open()?,
        };
        connection.execute_batch("BEGIN").map_err(sql_error)?;
        // This reads, and so takes the place.
        self.holds = presence.is_alone(&connection)?;
        if !self.holds {
            connection.execute_batch("COMMIT").map_err(sql_error)?;
        }
        self.connection = Some(connection);
        Ok(())
    }
}
