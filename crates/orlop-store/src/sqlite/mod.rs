//! The store on SQLite: in a file, or in memory.

mod checkpoint;
mod commit;
mod compact;
mod errors;
mod pool;
mod read;
mod rows;
mod schema;
mod snapshot;
mod tail;

use std::{path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension};

pub(crate) use self::errors::sql_error;
use self::{
    checkpoint::{Checkpointer, Gauge},
    pool::{Connections, Sync},
};
use crate::{
    Config, Endpoint, Form, FormedPage, Lease, LeaseId, Limits, Read, ReadResult, Revision, Size,
    engine::{Bounds, Command, Committed, Engine},
    error::{Error, Result},
    event::{Commit, VersionId},
    metrics::Metrics,
};

/// How often to look whether another process has written to the file.
const LOOK: Duration = Duration::from_millis(100);

/// A SQLite database.
#[derive(Debug)]
pub(crate) struct Sqlite {
    /// In a file there is a write-ahead log to bring home. Ends before the connections do.
    _checkpointer: Option<Checkpointer>,
    connections: Arc<Connections>,
    /// One for each connection that reads.
    places: tokio::sync::Semaphore,
    limits: Limits,
    /// A key greater than every key there can be.
    last: Bytes,
    memory: bool,
    /// The end of the log at the last look for other processes' writes.
    seen_last: std::sync::Mutex<Option<VersionId>>,
    metrics: Metrics,
}

impl Sqlite {
    pub(crate) fn open(config: &Config, metrics: Metrics) -> Result<Self> {
        let memory = config.endpoint == Endpoint::Memory;
        let gauge = Arc::<Gauge>::default();
        let connections = Arc::new(Connections::open(config, gauge.clone())?);
        Ok(Self {
            _checkpointer: if memory { None } else { Some(Checkpointer::start(&connections, gauge)?) },
            connections,
            places: tokio::sync::Semaphore::new(config.readers.max(1)),
            limits: config.limits.clone(),
            last: vec![0xff; config.limits.key_bytes + 2].into(),
            memory,
            seen_last: std::sync::Mutex::default(),
            metrics,
        })
    }

    /// Reads at once if a connection is free and the work is small, else on a thread that may wait.
    async fn read_with<T: Send + 'static>(
        &self,
        name: &'static str,
        small: bool,
        work: impl Fn(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let started = std::time::Instant::now();
        let result = match if small { self.connections.try_read(&work) } else { None } {
            Some(result) => result,
            None => {
                // As many threads as connections: one that only waited for a connection would hold on to
                // memory of its own.
                let _place = self.places.acquire().await;
                let connections = self.connections.clone();
                tokio::task::spawn_blocking(move || connections.read(work))
                    .await
                    .unwrap_or_else(|_| Err(Error::Unavailable("the read was cut short".into())))
            }
        };
        self.metrics.sql(name, started, &result);
        result
    }

    /// Does something small with the connection that writes, without holding up the runtime.
    async fn write_with<T: Send + 'static>(
        &self,
        name: &'static str,
        sync: Sync,
        work: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let started = std::time::Instant::now();
        let connections = self.connections.clone();
        let result = tokio::task::spawn_blocking(move || connections.write(sync, work))
            .await
            .unwrap_or_else(|_| Err(Error::Unavailable("the write was cut short".into())));
        self.metrics.sql(name, started, &result);
        result
    }
}

/// A new file with empty tables, for an engine that writes a copy of itself. Until it is closed it is not
/// safe from a crash.
pub(crate) fn new_file(path: &Path) -> Result<Connection> {
    let connection = Connection::open(path).map_err(sql_error)?;
    let settings = "PRAGMA auto_vacuum = 2; PRAGMA synchronous = off";
    connection.execute_batch(settings).map_err(sql_error)?;
    // The answer of this one is a row.
    connection.pragma_update_and_check(None, "journal_mode", "off", |_| Ok(())).map_err(sql_error)?;
    schema::migrate(&connection)?;
    Ok(connection)
}

/// Opens a copy that an engine wrote, for another engine to read.
pub(crate) fn open_copy(path: &Path) -> Result<Connection> {
    if !path.exists() {
        return Err(Error::Invalid(format!("{}: no such file", path.display())));
    }
    let connection = Connection::open(path).map_err(sql_error)?;
    let found: i64 =
        connection.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(sql_error)?;
    match found {
        schema::VERSION => Ok(connection),
        0 => Err(Error::Invalid(format!("{} is not a copy of a store", path.display()))),
        found => Err(Error::NewerSchema { found, known: schema::VERSION }),
    }
}

#[async_trait::async_trait]
impl Engine for Sqlite {
    async fn commit(&self, batch: &[Command]) -> Result<Committed> {
        self.connections
            .write(Sync::Now, |connection| commit::commit(connection, batch, &self.limits, &self.last))
    }

    fn commits_at_once(&self) -> bool {
        true
    }

    async fn read(&self, read: &Read) -> Result<ReadResult> {
        let (small, last, read) = (read::is_small(read), self.last.clone(), read.clone());
        let page = move |connection: &Connection| Ok(read::read(connection, &read, &last, None)?.page);
        self.read_with("read", small, page).await
    }

    async fn read_formed(&self, read: &Read, form: &Arc<dyn Form>) -> Result<FormedPage> {
        let small = read::is_small(read);
        let (asked, last, form) = (read.clone(), self.last.clone(), form.clone());
        let work = move |connection: &Connection| read::read(connection, &asked, &last, Some(&*form));
        match self.read_with("read", small, work).await? {
            // Some row does not take the form: as they are stored, then.
            FormedPage { bytes: None, .. } => Ok(FormedPage { page: self.read(read).await?, bytes: None }),
            formed => Ok(formed),
        }
    }

    async fn tail(&self, after: Revision, limit: usize) -> Result<Vec<Arc<Commit>>> {
        self.read_with("tail", false, move |connection| tail::tail(connection, after, limit)).await
    }

    async fn values(&self, ids: &[VersionId]) -> Result<Vec<Option<Bytes>>> {
        let ids = ids.to_vec();
        self.read_with("values", ids.len() < 16, move |connection| tail::values(connection, &ids)).await
    }

    async fn bounds(&self) -> Result<Bounds> {
        self.read_with("bounds", true, |connection| {
            read::in_snapshot(connection, || Ok(rows::bounds(connection)?.0))
        })
        .await
    }

    async fn mark_compacted(&self, revision: Revision) -> Result<()> {
        self.write_with("compact_mark", Sync::Now, move |connection| compact::mark(connection, revision))
            .await
    }

    async fn compact_step(&self, limit: usize) -> Result<bool> {
        self.write_with("compact", Sync::Later, move |connection| compact::step(connection, limit)).await
    }

    async fn shrink_step(&self, pages: usize) -> Result<bool> {
        let more = self
            .write_with("shrink", Sync::Later, move |connection| compact::shrink(connection, pages))
            .await?;
        if !more && !self.memory {
            // Only then does the file get shorter.
            self.read_with("checkpoint", false, |connection| checkpoint::passive(connection).map(drop))
                .await?;
        }
        Ok(more)
    }

    async fn changed(&self) {
        if self.memory {
            return std::future::pending().await;
        }
        loop {
            tokio::time::sleep(LOOK).await;
            // The end of the log says it from any connection; `data_version` means something only to the
            // connection that it was asked on before. Our own commits show too, which costs one look.
            let Ok(last) =
                self.read_with("last_id", true, |connection| Ok(rows::bounds(connection)?.1)).await
            else {
                return;
            };
            let mut seen = self.seen_last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if seen.replace(last) != Some(last) {
                return;
            }
        }
    }

    async fn leads(&self) -> bool {
        // Each step of the upkeep looks at the tables within its own transaction, so that processes that
        // share a file may all take part.
        true
    }

    async fn lease(&self, id: LeaseId) -> Result<Option<Lease>> {
        self.read_with("lease", true, move |connection| {
            let mut statement =
                connection.prepare_cached("SELECT * FROM lease WHERE id = ?").map_err(sql_error)?;
            let row = statement.query_row([id], rows::lease).optional().map_err(sql_error)?;
            Ok(row.map(|row| row.lease(rows::now_ms())))
        })
        .await
    }

    async fn lease_keys(&self, id: LeaseId) -> Result<Vec<Bytes>> {
        self.read_with("lease_keys", false, move |connection| {
            const SQL: &str = "SELECT key FROM live WHERE lease = ? AND lease <> 0 ORDER BY key";
            let mut statement = connection.prepare_cached(SQL).map_err(sql_error)?;
            let keys = statement.query_map([id], |row| row.get::<_, Vec<u8>>(0)).map_err(sql_error)?;
            keys.map(|key| key.map(Bytes::from).map_err(sql_error)).collect()
        })
        .await
    }

    async fn leases(&self, limit: usize) -> Result<Vec<Lease>> {
        self.read_with("leases", limit < 1024, move |connection| {
            const SQL: &str = "SELECT * FROM lease ORDER BY deadline_ms LIMIT ?";
            let now_ms = rows::now_ms();
            let mut statement = connection.prepare_cached(SQL).map_err(sql_error)?;
            let leases = statement.query_map([limit as i64], rows::lease).map_err(sql_error)?;
            leases.map(|row| row.map(|row| row.lease(now_ms)).map_err(sql_error)).collect()
        })
        .await
    }

    async fn note(&self, name: &str) -> Result<Option<String>> {
        let name = name.to_owned();
        self.read_with("note", true, move |connection| {
            let sql = "SELECT text FROM note WHERE name = ?";
            connection.query_row(sql, [&name], |row| row.get(0)).optional().map_err(sql_error)
        })
        .await
    }

    async fn set_note(&self, name: &str, text: &str) -> Result<()> {
        let (name, text) = (name.to_owned(), text.to_owned());
        self.write_with("set_note", Sync::Now, move |connection| {
            connection
                .execute("INSERT OR REPLACE INTO note VALUES (?, ?)", [&name, &text])
                .map_err(sql_error)?;
            Ok(())
        })
        .await
    }

    async fn size(&self) -> Result<Size> {
        self.read_with("size", true, |connection| {
            let number = |name| {
                connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).map_err(sql_error)
            };
            Ok(Size {
                total: (number("page_count")? * number("page_size")?) as u64,
                used: commit::database_bytes(connection)?,
            })
        })
        .await
    }

    async fn snapshot(&self, path: &Path) -> Result<()> {
        let path = path.to_owned();
        self.read_with("snapshot", false, move |connection| snapshot::write(connection, &path)).await
    }
}
