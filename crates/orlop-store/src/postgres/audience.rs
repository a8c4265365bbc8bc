//! Who hears of this process's batches.
//!
//! To notify costs as much as a small write, and mostly nobody is there to hear it. Each session that listens holds a
//! shared lock, and ends the turn that lasts (`turn.rs`) when it begins, before it looks for the first time at what
//! there is. So whoever found no lock but its own is alone for as long as its turn lasts.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicI32, Ordering},
    },
    time::{Duration, Instant},
};

use tokio_postgres::Client;

use super::{
    connect::Session,
    fault::Fault,
    rows::column,
    schema::lock_number,
    turn::{Turn, WriteLock},
};

const LISTEN_LOCK: i32 = i32::from_be_bytes(*b"orlh");
/// How often it is looked whether others who once listened still do.
const LOOK: Duration = Duration::from_secs(5);

const OTHERS: &str = "
    select count(*) from pg_locks
    where locktype = 'advisory' and database = (select oid from pg_database where datname = current_database())
        and classid = $1 and objid = $2 and objsubid = 2 and pid <> $3";

/// The sessions that listen, as far as this process knows.
#[derive(Debug)]
pub(super) struct Audience {
    lock_number: i32,
    write_lock: WriteLock,
    /// The server's processes behind this process's own writing and listening sessions, 0 if there are none.
    writer: AtomicI32,
    listener: AtomicI32,
    looked: Mutex<Option<Looked>>,
}

#[derive(Clone, Copy, Debug)]
struct Looked {
    at: Instant,
    turn: Turn,
    empty: bool,
}

impl Audience {
    pub(super) fn of(schema: &str) -> Self {
        Self {
            lock_number: lock_number(schema),
            write_lock: WriteLock::of(schema),
            writer: AtomicI32::default(),
            listener: AtomicI32::default(),
            looked: Mutex::default(),
        }
    }

    /// What this process notifies of comes from here.
    pub(super) fn writes_as(&self, backend: i32) {
        self.writer.store(backend, Ordering::Release);
    }

    pub(super) fn is_own_writer(&self, backend: i32) -> bool {
        self.writer.load(Ordering::Acquire) == backend
    }

    /// Makes a session of this process, which listens already, one of the audience.
    pub(super) async fn join(&self, listening: &Client) -> Result<(), tokio_postgres::Error> {
        let lock = "select pg_backend_pid(), pg_advisory_lock_shared($1, $2)";
        let row = listening.query_one(lock, &[&LISTEN_LOCK, &self.lock_number]).await?;
        self.listener.store(row.try_get(0)?, Ordering::Release);
        listening.batch_execute(&self.write_lock.interrupt()).await
    }

    /// Whether nobody else listens, as far as can be told without asking.
    pub(super) fn is_known_empty(&self, turn: Turn) -> bool {
        self.looked().is_some_and(|looked| looked.empty && looked.turn == turn)
    }

    /// Whether nobody else listens. The lock must be held alone, and this be the turn to write in.
    pub(super) async fn is_empty(&self, session: &Session, turn: Turn) -> Result<bool, Fault> {
        if let Some(looked) = self.looked()
            && (if looked.empty { looked.turn == turn } else { looked.at.elapsed() < LOOK })
        {
            return Ok(looked.empty);
        }
        // Both are as they are written in an oid, which has no sign.
        let lock = [LISTEN_LOCK.cast_unsigned(), self.lock_number.cast_unsigned()];
        let own = self.listener.load(Ordering::Acquire);
        let rows = session.query(OTHERS, &[&lock[0], &lock[1], &own]).await?;
        let empty = rows.first().map_or(Ok(1), |row| column::<i64>(row, 0))? == 0;
        let looked = Looked { at: Instant::now(), turn, empty };
        *self.looked.lock().unwrap_or_else(PoisonError::into_inner) = Some(looked);
        Ok(empty)
    }

    fn looked(&self) -> Option<Looked> {
        *self.looked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
