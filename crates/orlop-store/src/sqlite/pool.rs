//! Connections: one that writes, a few that read.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use rusqlite::{Connection, OpenFlags, config::DbConfig, hooks::Wal};

use super::{
    anchor::{Anchor, Away},
    checkpoint,
    errors::sql_error,
    presence::Presence,
    schema,
};
use crate::{
    Config, Endpoint,
    error::{Error, Result},
    private_files,
};

/// Statements that a connection keeps prepared.
const STATEMENTS: usize = 64;
/// How long a connection waits for another process that writes.
const BUSY: Duration = Duration::from_secs(10);

/// Every connection to one database.
#[derive(Debug)]
pub(super) struct Connections {
    name: String,
    flags: OpenFlags,
    reader_cache_bytes: usize,
    writer: Mutex<Connection>,
    /// Who wants the connection that writes waits here first. Without it the writer, who wants it again at once,
    /// would take it again and again before upkeep that has waited for long.
    next: Mutex<()>,
    readers: Mutex<Readers>,
    reader_free: Condvar,
    gate: Gate,
    pub(super) anchor: Anchor,
}

#[derive(Debug)]
struct Readers {
    idle: Vec<Connection>,
    open: usize,
    limit: usize,
    /// Who waits for one. To wake nobody is a system call all the same, as dear as a page.
    waiting: usize,
}

/// A write-ahead log lets readers and the writer pass each other, but only in a file. In memory, readers
/// share and the writer excludes them: for one page or one batch at a time, so neither waits long.
#[derive(Debug)]
struct Gate(Option<RwLock<()>>);

impl Gate {
    fn shared<T>(&self, work: impl FnOnce() -> T) -> T {
        let _guard = self.0.as_ref().map(|lock| lock.read().unwrap_or_else(PoisonError::into_inner));
        work()
    }

    fn alone<T>(&self, work: impl FnOnce() -> T) -> T {
        let _guard = self.0.as_ref().map(|lock| lock.write().unwrap_or_else(PoisonError::into_inner));
        work()
    }
}

impl Connections {
    /// Opens the database; `gauge` is told how long the write-ahead log is.
    pub(super) fn open(config: &Config, gauge: Arc<checkpoint::Gauge>) -> Result<Self> {
        static MEMORIES: AtomicU64 = AtomicU64::new(0);
        let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let (name, memory) = match &config.endpoint {
            Endpoint::Sqlite(path) => {
                flags |= OpenFlags::SQLITE_OPEN_CREATE;
                create_privately(path);
                (file_name(path)?, false)
            }
            _ => {
                flags |= OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_CREATE;
                let number = MEMORIES.fetch_add(1, Ordering::Relaxed);
                (format!("file:/orlop-{number}?vfs=memdb"), true)
            }
        };
        let mut writer = connect(&name, flags)?;
        schema::prepare_writer(&writer, config, memory)?;
        let told = move |_: &mut Wal, pages: i32| {
            gauge.committed(pages.unsigned_abs());
            Ok(())
        };
        writer.wal_hook(Some(told)).map_err(sql_error)?;
        Ok(Self {
            name,
            flags,
            reader_cache_bytes: config.cache_bytes / 4,
            writer: Mutex::new(writer),
            next: Mutex::default(),
            readers: Mutex::new(Readers {
                idle: Vec::new(),
                open: 0,
                limit: config.readers.max(1),
                waiting: 0,
            }),
            reader_free: Condvar::new(),
            gate: Gate(memory.then(|| RwLock::new(()))),
            anchor: Anchor::default(),
        })
    }

    /// Runs `work` on the connection that writes. What it commits is visible, and not yet on the disk.
    pub(super) fn write<T>(&self, work: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        let (writer, _away) = self.writer();
        self.gate.alone(|| work(&writer))
    }

    /// Runs `work` while nobody in this process writes.
    pub(super) fn hold_writer<T>(&self, work: impl FnOnce() -> T) -> T {
        let _held = self.writer();
        work()
    }

    fn writer(&self) -> (MutexGuard<'_, Connection>, Away<'_>) {
        let _next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        (writer, self.anchor.away())
    }

    /// A small read of a file has ended; more may follow.
    pub(super) fn after_read(&self, presence: &Presence) {
        self.anchor.after_read(presence, || self.open_bystander());
    }

    /// Lets go of the log, which nobody can begin anew while it is held.
    pub(super) fn let_go(&self) {
        drop(self.anchor.away());
    }

    /// Runs `work` on a connection that reads, if one is free.
    pub(super) fn try_read<T>(&self, work: impl FnOnce(&Connection) -> Result<T>) -> Option<Result<T>> {
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        let connection = readers.idle.pop()?;
        drop(readers);
        Some(self.read_on(connection, work))
    }

    /// Runs `work` on a connection that reads, waiting for one if need be.
    pub(super) fn read<T>(&self, work: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(connection) = readers.idle.pop() {
                drop(readers);
                return self.read_on(connection, work);
            }
            if readers.open < readers.limit {
                readers.open += 1;
                drop(readers);
                return match self.open_reader() {
                    Ok(connection) => self.read_on(connection, work),
                    Err(error) => {
                        self.readers.lock().unwrap_or_else(PoisonError::into_inner).open -= 1;
                        Err(error)
                    }
                };
            }
            readers.waiting += 1;
            readers = self.reader_free.wait(readers).unwrap_or_else(PoisonError::into_inner);
            readers.waiting -= 1;
        }
    }

    fn read_on<T>(&self, connection: Connection, work: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        let result = self.gate.shared(|| work(&connection));
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        readers.idle.push(connection);
        let awaited = readers.waiting > 0;
        drop(readers);
        if awaited {
            self.reader_free.notify_one();
        }
        result
    }

    /// A connection that copies the write-ahead log home.
    pub(super) fn open_checkpointer(&self) -> Result<Connection> {
        let connection = self.open_bystander()?;
        connection.busy_timeout(checkpoint::READERS_MAX).map_err(sql_error)?;
        Ok(connection)
    }

    /// A connection that neither reads nor writes much.
    fn open_bystander(&self) -> Result<Connection> {
        let connection = connect(&self.name, self.flags)?;
        schema::prepare_bystander(&connection)?;
        Ok(connection)
    }

    fn open_reader(&self) -> Result<Connection> {
        let connection = connect(&self.name, self.flags)?;
        schema::prepare_reader(&connection, self.reader_cache_bytes)?;
        Ok(connection)
    }
}

/// Files that SQLite keeps beside the database.
const COMPANIONS: [&str; 3] = ["-wal", "-shm", "-journal"];

/// Creates the database file for its owner alone, and restricts files that others can read. SQLite gives the
/// write-ahead log and its index the mode of the database.
fn create_privately(path: &Path) {
    // Errors are left to SQLite, which meets the same ones: a read-only file system must not fail here.
    let _ = private_files::create_new(path);
    let companions = COMPANIONS.iter().map(|suffix| companion(path, suffix));
    for file in std::iter::once(path.to_owned()).chain(companions) {
        if let Err(error) = private_files::restrict(&file)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, path = %file.display(), "cannot restrict the file's permissions to its owner");
        }
    }
}

/// The path of a file beside the database.
pub(super) fn companion(database: &Path, suffix: &str) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}

fn file_name(path: &Path) -> Result<String> {
    let name = path.to_str().ok_or_else(|| Error::Invalid("the path of the database is not UTF-8".into()))?;
    Ok(name.to_owned())
}

fn connect(name: &str, flags: OpenFlags) -> Result<Connection> {
    let connection = Connection::open_with_flags(name, flags).map_err(sql_error)?;
    connection.busy_timeout(BUSY).map_err(sql_error)?;
    // Without this a statement with `= ?` or `LIMIT ?` is compiled anew for every value bound to it, in the hope
    // of a better plan: that costs more than most of our statements do.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(sql_error)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(connection)
}
