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

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::READS;
    use crate::{Config, Endpoint, KeyRange, Read, engine::Engine, metrics::Metrics, sqlite::Sqlite};

    /// A store of a file that nobody else has, which has been read until it holds on to its log.
    async fn anchored(folder: &tempfile::TempDir) -> Sqlite {
        let endpoint = Endpoint::Sqlite(folder.path().join("store.db"));
        let store = Sqlite::open(&Config::new(endpoint), Metrics::default()).unwrap();
        read_often(&store).await;
        store
    }

    async fn read_often(store: &Sqlite) {
        for _ in 0..READS * 3 {
            store.read(&Read::new(KeyRange::key("key"))).await.unwrap();
        }
    }

    fn holds(store: &Sqlite) -> bool {
        store.connections.anchor.held.lock().unwrap().holds
    }

    /// Whether the log can be begun anew, which nobody may hold on to then.
    fn begins_anew(folder: &tempfile::TempDir) -> bool {
        let connection = Connection::open(folder.path().join("store.db")).unwrap();
        connection.busy_timeout(std::time::Duration::ZERO).unwrap();
        let busy: i64 = connection.query_row("PRAGMA wal_checkpoint(RESTART)", [], |row| row.get(0)).unwrap();
        busy == 0
    }

    #[tokio::test]
    async fn many_reads_hold_on_to_the_log_until_something_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let store = anchored(&folder).await;
        assert!(holds(&store));
        store.set_metadata("name", "text").await.unwrap();
        assert!(!holds(&store));
        assert_eq!(store.metadata("name").await.unwrap().as_deref(), Some("text"));
        read_often(&store).await;
        assert!(holds(&store));
    }

    #[tokio::test]
    async fn what_another_connection_writes_is_seen_while_the_log_is_held() {
        let folder = tempfile::tempdir().unwrap();
        let store = anchored(&folder).await;
        let other = Connection::open(folder.path().join("store.db")).unwrap();
        other.execute("INSERT INTO note VALUES ('from', 'elsewhere')", []).unwrap();
        assert!(holds(&store));
        assert_eq!(store.metadata("from").await.unwrap().as_deref(), Some("elsewhere"));
    }

    #[tokio::test]
    async fn a_log_that_was_held_can_be_begun_anew() {
        let folder = tempfile::tempdir().unwrap();
        let store = anchored(&folder).await;
        store.set_metadata("name", "text").await.unwrap();
        read_often(&store).await;
        assert!(holds(&store) && !begins_anew(&folder));
        store.connections.let_go();
        assert!(begins_anew(&folder));
    }

    #[tokio::test]
    async fn where_others_have_the_file_nothing_is_held() {
        let folder = tempfile::tempdir().unwrap();
        let store = anchored(&folder).await;
        let other = anchored(&folder).await;
        assert!(!holds(&other));
        store.connections.let_go();
        read_often(&store).await;
        assert!(!holds(&store));
    }
}
