//! Omits notifications that nobody would receive.
//!
//! A notification costs as much as a small write, and mostly no other process listens. Each session that listens holds
//! a shared advisory lock, and fences the current epoch when it begins, before its first read of the log. So a writer
//! that found no such lock but its own stays the only listener for as long as its epoch lasts.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicI32, Ordering},
    },
    time::{Duration, Instant},
};

use tokio_postgres::Client;

use super::{Epoch, WriteLock};
use crate::postgres::{connection::Session, db_error::DbError, lock_key::lock_key, rows::column};

const LISTEN_LOCK: i32 = i32::from_be_bytes(*b"orlh");
/// Interval of checking whether other listeners are still there.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

const COUNT_OTHERS: &str = "
    select count(*) from pg_locks
    where locktype = 'advisory' and database = (select oid from pg_database where datname = current_database())
        and classid = $1 and objid = $2 and objsubid = 2 and pid <> $3";

/// Other processes' listening sessions, as far as this process knows.
#[derive(Debug)]
pub(in crate::postgres) struct Listeners {
    lock_key: i32,
    write_lock: WriteLock,
    /// Backend process ids of this process's own writing and listening sessions, 0 if there are none.
    own_writer: AtomicI32,
    own_listener: AtomicI32,
    last_check: Mutex<Option<Check>>,
}

#[derive(Clone, Copy, Debug)]
struct Check {
    at: Instant,
    epoch: Epoch,
    others: bool,
}

impl Listeners {
    pub(in crate::postgres) fn new(schema: &str) -> Self {
        Self {
            lock_key: lock_key(schema),
            write_lock: WriteLock::new(schema),
            own_writer: AtomicI32::default(),
            own_listener: AtomicI32::default(),
            last_check: Mutex::default(),
        }
    }

    /// Sets the backend that this process's notifications come from.
    pub(in crate::postgres) fn set_own_writer(&self, backend: i32) {
        self.own_writer.store(backend, Ordering::Release);
    }

    pub(in crate::postgres) fn is_own_writer(&self, backend: i32) -> bool {
        self.own_writer.load(Ordering::Acquire) == backend
    }

    /// Registers a session of this process that listens already.
    pub(in crate::postgres) async fn register(
        &self,
        listening: &Client,
    ) -> Result<(), tokio_postgres::Error> {
        let lock = "select pg_backend_pid(), pg_advisory_lock_shared($1, $2)";
        let row = listening.query_one(lock, &[&LISTEN_LOCK, &self.lock_key]).await?;
        self.own_listener.store(row.try_get(0)?, Ordering::Release);
        listening.batch_execute(&self.write_lock.fence()).await
    }

    /// Returns whether other processes may listen, without asking the server.
    pub(in crate::postgres) fn may_exist(&self, epoch: Epoch) -> bool {
        self.last_check().is_none_or(|check| check.others || check.epoch != epoch)
    }

    /// Returns whether other processes listen. The write lock must be held exclusively, and `epoch` be the one to
    /// write in.
    pub(in crate::postgres) async fn exist(&self, session: &Session, epoch: Epoch) -> Result<bool, DbError> {
        if let Some(check) = self.last_check()
            && (if check.others { check.at.elapsed() < CHECK_INTERVAL } else { check.epoch == epoch })
        {
            return Ok(check.others);
        }
        // `pg_locks` has both as oids, which are unsigned.
        let lock = [LISTEN_LOCK.cast_unsigned(), self.lock_key.cast_unsigned()];
        let own = self.own_listener.load(Ordering::Acquire);
        let rows = session.query(COUNT_OTHERS, &[&lock[0], &lock[1], &own]).await?;
        let others = rows.first().map_or(Ok(1), |row| column::<i64>(row, 0))? > 0;
        let check = Check { at: Instant::now(), epoch, others };
        *self.last_check.lock().unwrap_or_else(PoisonError::into_inner) = Some(check);
        Ok(others)
    }

    fn last_check(&self) -> Option<Check> {
        *self.last_check.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
