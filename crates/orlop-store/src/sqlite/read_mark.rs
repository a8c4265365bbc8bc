//! Keeps SQLite's read lock between consecutive reads.
//!
//! SQLite takes a shared lock on a read mark of the write-ahead log for every read and releases it afterwards: two
//! system calls, under a mutex of the process. Connections of a process share that lock for as long as one of them
//! holds it. So after some reads without a write in between, a connection that does nothing else holds the newest
//! read mark. It decides nothing: each read still determines the newest read mark by itself, and locks another one
//! if it has to.
//!
//! A held read mark prevents the log from being restarted, so it is released before every write, and soon after another
//! process has written, as it does when it opens the file. Where other processes use the file it is not held: their
//! writes would not be noticed here.

use std::sync::{
    Mutex, MutexGuard, PoisonError, TryLockError,
    atomic::{AtomicU32, Ordering::Relaxed},
};

use rusqlite::Connection;

use super::{errors::sql_error, exclusivity::Exclusivity};
use crate::error::Result;

/// Reads without a write in between, after which more are expected.
const READS: u32 = 16;

/// The connection that holds a read mark.
#[derive(Debug, Default)]
pub(super) struct ReadMark {
    holder: Mutex<Holder>,
    /// Reads since the last release.
    reads: AtomicU32,
}

#[derive(Debug, Default)]
struct Holder {
    /// Opened on first use.
    connection: Option<Connection>,
    holds: bool,
}

/// Prevents the read mark from being held while it exists.
#[derive(Debug)]
pub(super) struct Released<'a>(
    #[expect(dead_code, reason = "a guard, held for its lifetime")] MutexGuard<'a, Holder>,
);

impl ReadMark {
    /// Counts a read, and holds the read mark if more reads are expected.
    pub(super) fn after_read(&self, exclusivity: &Exclusivity, open: impl FnOnce() -> Result<Connection>) {
        if self.reads.fetch_add(1, Relaxed) != READS {
            return;
        }
        // A writer at work would release it anyway.
        let mut holder = match self.holder.try_lock() {
            Ok(holder) => holder,
            Err(TryLockError::WouldBlock) => return,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        };
        if let Err(error) = holder.hold(exclusivity, open) {
            tracing::debug!(%error, "reads continue without a held read mark");
            *holder = Holder::default();
        }
    }

    /// Releases the read mark. It is not held again until the guard is dropped.
    pub(super) fn release(&self) -> Released<'_> {
        let mut holder = self.holder.lock().unwrap_or_else(PoisonError::into_inner);
        if holder.holds {
            let committed = holder.connection.as_ref().map(|connection| connection.execute_batch("COMMIT"));
            holder.holds = false;
            if !matches!(committed, Some(Ok(()))) {
                // Closing the connection releases its locks.
                holder.connection = None;
            }
        }
        self.reads.store(0, Relaxed);
        Released(holder)
    }
}

impl Holder {
    fn hold(&mut self, exclusivity: &Exclusivity, open: impl FnOnce() -> Result<Connection>) -> Result<()> {
        if self.holds {
            return Ok(());
        }
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => open()?,
        };
        connection.execute_batch("BEGIN").map_err(sql_error)?;
        // The first read of a transaction takes the lock.
        self.holds = exclusivity.is_exclusive(&connection)?;
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

    /// Opens a file and reads until the store holds a read mark, if it may.
    async fn opened_and_read(folder: &tempfile::TempDir) -> Sqlite {
        let endpoint = Endpoint::Sqlite(folder.path().join("store.db"));
        let store = Sqlite::open(&Config::new(endpoint), Metrics::default()).unwrap();
        read_repeatedly(&store).await;
        store
    }

    async fn read_repeatedly(store: &Sqlite) {
        for _ in 0..READS * 3 {
            store.read(&Read::new(KeyRange::key("key")), usize::MAX).await.unwrap();
        }
    }

    fn holds(store: &Sqlite) -> bool {
        store.connections.read_mark.holder.lock().unwrap().holds
    }

    /// Returns whether the log can be restarted, which a held read mark prevents.
    fn can_restart_log(folder: &tempfile::TempDir) -> bool {
        let connection = Connection::open(folder.path().join("store.db")).unwrap();
        connection.busy_timeout(std::time::Duration::ZERO).unwrap();
        let busy: i64 = connection.query_row("PRAGMA wal_checkpoint(RESTART)", [], |row| row.get(0)).unwrap();
        busy == 0
    }

    #[tokio::test]
    async fn consecutive_reads_hold_the_read_mark_until_a_write() {
        let folder = tempfile::tempdir().unwrap();
        let store = opened_and_read(&folder).await;
        assert!(holds(&store));
        store.set_metadata("name", "text").await.unwrap();
        assert!(!holds(&store));
        assert_eq!(store.metadata("name").await.unwrap().as_deref(), Some("text"));
        read_repeatedly(&store).await;
        assert!(holds(&store));
    }

    #[tokio::test]
    async fn writes_of_another_connection_are_visible_while_the_read_mark_is_held() {
        let folder = tempfile::tempdir().unwrap();
        let store = opened_and_read(&folder).await;
        let other = Connection::open(folder.path().join("store.db")).unwrap();
        other.execute("INSERT INTO note VALUES ('from', 'elsewhere')", []).unwrap();
        assert!(holds(&store));
        assert_eq!(store.metadata("from").await.unwrap().as_deref(), Some("elsewhere"));
    }

    #[tokio::test]
    async fn log_can_be_restarted_after_the_read_mark_is_released() {
        let folder = tempfile::tempdir().unwrap();
        let store = opened_and_read(&folder).await;
        store.set_metadata("name", "text").await.unwrap();
        read_repeatedly(&store).await;
        assert!(holds(&store) && !can_restart_log(&folder));
        store.connections.release_read_mark();
        assert!(can_restart_log(&folder));
    }

    #[tokio::test]
    async fn read_mark_is_not_held_on_a_shared_file() {
        let folder = tempfile::tempdir().unwrap();
        let store = opened_and_read(&folder).await;
        let other = opened_and_read(&folder).await;
        assert!(!holds(&other));
        store.connections.release_read_mark();
        read_repeatedly(&store).await;
        assert!(!holds(&store));
    }
}
