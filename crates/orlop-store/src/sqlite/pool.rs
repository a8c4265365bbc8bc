//! SQLite connections: one that writes, a few that read.

use std::{
    path::Path,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use rusqlite::{Connection, OpenFlags, config::DbConfig, hooks::Wal};

use super::{
    errors::sql_error,
    exclusivity::Exclusivity,
    files::create_privately,
    log_length::LogLength,
    read_mark::{ReadMark, Released},
    schema,
};
use crate::{
    Config, Endpoint,
    error::{Error, Result},
};

/// Connections kept for small reads, beside those of [`Config::readers`].
pub(super) const SMALL_READERS: usize = 2;
/// Prepared statements cached per connection.
const STATEMENTS: usize = 64;
/// Time a connection waits for another process that writes.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// All connections to one database.
#[derive(Debug)]
pub(super) struct Connections {
    name: String,
    flags: OpenFlags,
    reader_cache_bytes: usize,
    writer: Mutex<Connection>,
    /// Taken before `writer`, for fairness: without it the group-commit writer, which locks again at once, would starve
    /// maintenance.
    next_writer: Mutex<()>,
    readers: Mutex<Readers>,
    reader_idle: Condvar,
    memory_lock: MemoryLock,
    pub(super) read_mark: ReadMark,
    /// Writes are refused. Read with `writer` locked.
    closed: AtomicBool,
}

#[derive(Debug)]
struct Readers {
    idle: Vec<Connection>,
    open: usize,
    limit: usize,
    /// Threads that wait for one. Notifying nobody is a system call all the same, as expensive as a page.
    waiting: usize,
}

/// A readers-writer lock that stands in for the write-ahead log of a database in memory. It is held for one page or
/// one batch at a time, so nobody waits long.
#[derive(Debug)]
struct MemoryLock(Option<RwLock<()>>);

impl MemoryLock {
    fn shared<T>(&self, work: impl FnOnce() -> T) -> T {
        let _guard = self.0.as_ref().map(|lock| lock.read().unwrap_or_else(PoisonError::into_inner));
        work()
    }

    fn exclusive<T>(&self, work: impl FnOnce() -> T) -> T {
        let _guard = self.0.as_ref().map(|lock| lock.write().unwrap_or_else(PoisonError::into_inner));
        work()
    }
}

impl Connections {
    /// Opens the database. Commits report the length of the write-ahead log to `length`.
    pub(super) fn open(config: &Config, length: Arc<LogLength>) -> Result<Self> {
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
        let committed = move |_: &mut Wal, pages: i32| {
            length.committed(pages.unsigned_abs());
            Ok(())
        };
        writer.wal_hook(Some(committed)).map_err(sql_error)?;
        Ok(Self {
            name,
            flags,
            reader_cache_bytes: config.cache_bytes / 4,
            writer: Mutex::new(writer),
            next_writer: Mutex::default(),
            readers: Mutex::new(Readers {
                idle: Vec::new(),
                open: 0,
                limit: config.readers.max(1) + SMALL_READERS,
                waiting: 0,
            }),
            reader_idle: Condvar::new(),
            memory_lock: MemoryLock(memory.then(|| RwLock::new(()))),
            read_mark: ReadMark::default(),
            closed: AtomicBool::new(false),
        })
    }

    /// Runs `work` on the connection that writes. Its commits are visible to readers, and not durable yet.
    pub(super) fn write<T>(&self, work: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        let (writer, _released) = self.writer();
        if self.closed.load(Ordering::Relaxed) {
            return Err(Error::Unavailable("the store is closed".into()));
        }
        self.memory_lock.exclusive(|| work(&writer))
    }

    /// Runs `work` while nobody in this process writes.
    pub(super) fn block_writer<T>(&self, work: impl FnOnce() -> T) -> T {
        let _blocked = self.writer();
        work()
    }

    /// Refuses further writes, and runs `work` as the last one unless it has run before.
    pub(super) fn close(&self, work: impl FnOnce(&Connection) -> Result<()>) -> Result<()> {
        let (writer, _released) = self.writer();
        if self.closed.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        self.memory_lock.exclusive(|| work(&writer))
    }

    fn writer(&self) -> (MutexGuard<'_, Connection>, Released<'_>) {
        let _next = self.next_writer.lock().unwrap_or_else(PoisonError::into_inner);
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        (writer, self.read_mark.release())
    }

    /// Counts a small read of a file, and holds its read mark if more are expected.
    pub(super) fn after_read(&self, exclusivity: &Exclusivity) {
        self.read_mark.after_read(exclusivity, || self.open_auxiliary());
    }

    /// Releases the read mark, which prevents the log from being restarted.
    pub(super) fn release_read_mark(&self) {
        drop(self.read_mark.release());
    }

    /// Runs `work` on a connection that reads, if one is idle.
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
            readers = self.reader_idle.wait(readers).unwrap_or_else(PoisonError::into_inner);
            readers.waiting -= 1;
        }
    }

    fn read_on<T>(&self, connection: Connection, work: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        let result = self.memory_lock.shared(|| work(&connection));
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        readers.idle.push(connection);
        let has_waiters = readers.waiting > 0;
        drop(readers);
        if has_waiters {
            self.reader_idle.notify_one();
        }
        result
    }

    /// Opens a connection that neither reads nor writes much.
    pub(super) fn open_auxiliary(&self) -> Result<Connection> {
        let connection = connect(&self.name, self.flags)?;
        schema::prepare_auxiliary(&connection)?;
        Ok(connection)
    }

    fn open_reader(&self) -> Result<Connection> {
        let connection = connect(&self.name, self.flags)?;
        schema::prepare_reader(&connection, self.reader_cache_bytes)?;
        Ok(connection)
    }
}

fn file_name(path: &Path) -> Result<String> {
    let name = path.to_str().ok_or_else(|| Error::Invalid("the path of the database is not UTF-8".into()))?;
    Ok(name.to_owned())
}

fn connect(name: &str, flags: OpenFlags) -> Result<Connection> {
    let connection = Connection::open_with_flags(name, flags).map_err(sql_error)?;
    connection.busy_timeout(BUSY_TIMEOUT).map_err(sql_error)?;
    // Without this a statement with `= ?` or `LIMIT ?` is recompiled for every value bound to it, in search of a
    // better plan. That costs more than most of our statements do.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(sql_error)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(connection)
}
