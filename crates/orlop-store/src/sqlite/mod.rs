//! The store on SQLite: in a file, or in memory.

mod anchor;
mod checkpoint;
mod commit;
mod compact;
mod durable;
mod errors;
mod log_file;
mod past;
mod pool;
#[cfg(test)]
mod power_cuts;
mod presence;
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
    durable::{Durable, SyncLog},
    log_file::LogFile,
    pool::Connections,
    presence::Presence,
};
use crate::{
    Config, Durability, EncodedPage, Endpoint, Lease, LeaseId, Limits, Read, ReadResult, Revision,
    RowEncoder, Size,
    engine::{Bounds, Command, Committed, Engine, Ticket},
    error::{Error, Result},
    event::{Commit, VersionId},
    metrics::{Metrics, READ},
    private_files,
};

/// How often to look whether another process has written to the file.
const LOOK: Duration = Duration::from_millis(100);

/// A SQLite database.
#[derive(Debug)]
pub(crate) struct Sqlite {
    /// In a file there is a write-ahead log to bring home. Ends before the connections do.
    _checkpointer: Option<Checkpointer>,
    connections: Arc<Connections>,
    durable: Arc<Durable>,
    /// In a file there may be other processes.
    presence: Option<Arc<Presence>>,
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
        Self::open_on(config, metrics, |log| {
            Box::new(move || {
                log.lay_out();
                log.sync()
            })
        })
    }

    /// Opens a database whose log is brought to the disk by what `disk` makes.
    fn open_on(config: &Config, metrics: Metrics, disk: impl FnOnce(LogFile) -> SyncLog) -> Result<Self> {
        let memory = config.endpoint == Endpoint::Memory;
        let gauge = Arc::<Gauge>::default();
        let connections = Arc::new(Connections::open(config, gauge.clone())?);
        let presence = match &config.endpoint {
            Endpoint::Sqlite(path) => Some(connections.write(|writer| Presence::enter(path, writer))?),
            _ => None,
        };
        let durable = match &presence {
            Some(presence) if config.durability == Durability::Full => {
                let current = connections.read(|connection| Ok(rows::bounds(connection)?.0.current))?;
                let log = LogFile::new(presence.log(), gauge.clone());
                Durable::of_log(disk(log), current, metrics.clone())?
            }
            _ => Durable::at_once(metrics.clone()),
        };
        Ok(Self {
            durable: Arc::new(durable),
            presence: presence.map(Arc::new),
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
            Some(result) => {
                if let Some(presence) = &self.presence {
                    self.connections.after_read(presence);
                }
                result
            }
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

    /// Reads a page, in a form if there is one, and answers once what it shows is durable.
    async fn read_page(&self, read: &Read, form: Option<Arc<dyn RowEncoder>>) -> Result<EncodedPage> {
        let (small, last, asked) = (read::is_small(read), self.last.clone(), read.clone());
        let work = move |connection: &Connection| read::read(connection, &asked, &last, form.as_deref());
        let mut formed = match self.read_with(READ, small, work).await {
            // A refusal tells of the newest revision too.
            Err(Error::FutureRevision { requested, current }) => {
                let current = self.answer(0, current).await?;
                return Err(Error::FutureRevision { requested, current });
            }
            read => read?,
        };
        let newest = formed.page.revision;
        let shown = read.revision.unwrap_or_else(|| match &formed.last {
            // There was nothing else to see.
            Some((_, revision)) if read.range.single().is_some() => *revision,
            _ => newest,
        });
        formed.page.revision = self.answer(shown, newest).await?;
        Ok(formed)
    }

    /// Does something small with the connection that writes, without holding up the runtime. It reaches the disk
    /// with the next commit that is settled: a power cut may take it.
    async fn write_with<T: Send + 'static>(
        &self,
        name: &'static str,
        work: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let connections = self.connections.clone();
        self.on_thread(name, move || connections.write(work)).await
    }

    /// As [`Self::write_with`], and returns when it is on the disk.
    async fn write_durably(
        &self,
        name: &'static str,
        work: impl FnOnce(&Connection) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let (connections, durable) = (self.connections.clone(), self.durable.clone());
        self.on_thread(name, move || {
            let ticket = connections.write(|connection| {
                durable.check()?;
                work(connection)?;
                let current = rows::bounds(connection)?.0.current;
                Ok(durable.committed(current, current, true))
            })?;
            durable.settle(ticket)
        })
        .await
    }

    /// Does what may wait on a thread of its own, to its end even if the caller goes away.
    async fn on_thread<T: Send + 'static>(
        &self,
        name: &'static str,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let started = std::time::Instant::now();
        let result = tokio::task::spawn_blocking(work)
            .await
            .unwrap_or_else(|_| Err(Error::Unavailable("the write was cut short".into())));
        self.metrics.sql(name, started, &result);
        result
    }

    /// The revision that a read may be answered with, once it is on the disk. See [`Durable::answer`].
    async fn answer(&self, shown: Revision, newest: Revision) -> Result<Revision> {
        if newest <= self.durable.revision() {
            return Ok(newest);
        }
        let alone = match self.presence.clone() {
            Some(presence) => {
                self.read_with("presence", true, move |connection| presence.is_alone(connection)).await?
            }
            None => true,
        };
        self.durable.answer(shown, newest, alone).await
    }

    /// What was read, once everything that this process wrote before is on the disk: for what has no revision.
    async fn settled<T>(&self, read: T) -> Result<T> {
        self.durable.all().await?;
        Ok(read)
    }
}

/// A new file with empty tables, for an engine that writes a copy of itself. Until it is closed it is not
/// safe from a crash.
pub(crate) fn new_file(path: &Path) -> Result<Connection> {
    private_files::open_or_create(path)
        .map_err(|error| Error::Unavailable(format!("cannot create {}: {error}", path.display())))?;
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
            .write(|connection| commit::commit(connection, batch, &self.limits, &self.last, &self.durable))
    }

    fn settle(&self, ticket: Ticket) -> Result<()> {
        self.durable.settle(ticket)
    }

    fn settles(&self) -> bool {
        self.durable.is_needed()
    }

    fn commits_at_once(&self) -> bool {
        true
    }

    async fn read(&self, read: &Read) -> Result<ReadResult> {
        Ok(self.read_page(read, None).await?.page)
    }

    async fn read_formed(&self, read: &Read, form: &Arc<dyn RowEncoder>) -> Result<EncodedPage> {
        match self.read_page(read, Some(form.clone())).await? {
            // Some row does not take the form: as they are stored, then.
            EncodedPage { bytes: None, .. } => self.read_page(read, None).await,
            formed => Ok(formed),
        }
    }

    async fn tail(&self, after: Revision, limit: usize) -> Result<Vec<Arc<Commit>>> {
        let commits =
            self.read_with("tail", false, move |connection| tail::tail(connection, after, limit)).await?;
        if let Some(last) = commits.last() {
            self.answer(last.revision, last.revision).await?;
        }
        Ok(commits)
    }

    async fn values(&self, ids: &[VersionId]) -> Result<Vec<Option<Bytes>>> {
        let ids = ids.to_vec();
        self.read_with("values", ids.len() < 16, move |connection| tail::values(connection, &ids)).await
    }

    async fn bounds(&self) -> Result<Bounds> {
        let bounds = self.read_with("bounds", true, |connection| {
            read::in_snapshot(connection, || Ok(rows::bounds(connection)?.0))
        });
        let Bounds { current, compacted } = bounds.await?;
        Ok(Bounds { current: self.answer(0, current).await?, compacted })
    }

    async fn mark_compacted(&self, revision: Revision) -> Result<()> {
        self.write_durably("compact_mark", move |connection| compact::mark(connection, revision)).await
    }

    async fn compact_step(&self, limit: usize) -> Result<bool> {
        self.write_with("compact", move |connection| compact::step(connection, limit)).await
    }

    async fn shrink_step(&self, pages: usize) -> Result<bool> {
        let more = self.write_with("shrink", move |connection| compact::shrink(connection, pages)).await?;
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
            self.connections.let_go();
            // The end of the log says it from any connection; `data_version` means something only to the
            // connection that it was asked on before. Our own commits show too, which costs one look.
            let look = self.read_with("last_id", true, |connection| Ok(rows::bounds(connection)?.1));
            let Ok(last) = look.await else { return };
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
        let lease = self.read_with("lease", true, move |connection| {
            let mut statement =
                connection.prepare_cached("SELECT * FROM lease WHERE id = ?").map_err(sql_error)?;
            let row = statement.query_row([id], rows::lease).optional().map_err(sql_error)?;
            Ok(row.map(|row| row.lease(rows::now_ms())))
        });
        self.settled(lease.await?).await
    }

    async fn lease_keys(&self, id: LeaseId) -> Result<Vec<Bytes>> {
        let keys = self.read_with("lease_keys", false, move |connection| {
            const SQL: &str = "SELECT key FROM live WHERE lease = ? AND lease <> 0 ORDER BY key";
            let mut statement = connection.prepare_cached(SQL).map_err(sql_error)?;
            let keys = statement.query_map([id], |row| row.get::<_, Vec<u8>>(0)).map_err(sql_error)?;
            keys.map(|key| key.map(Bytes::from).map_err(sql_error)).collect()
        });
        self.settled(keys.await?).await
    }

    async fn leases(&self, limit: usize) -> Result<Vec<Lease>> {
        let leases = self.read_with("leases", limit < 1024, move |connection| {
            const SQL: &str = "SELECT * FROM lease ORDER BY deadline_ms LIMIT ?";
            let now_ms = rows::now_ms();
            let mut statement = connection.prepare_cached(SQL).map_err(sql_error)?;
            let leases = statement.query_map([limit as i64], rows::lease).map_err(sql_error)?;
            leases.map(|row| row.map(|row| row.lease(now_ms)).map_err(sql_error)).collect()
        });
        self.settled(leases.await?).await
    }

    async fn metadata(&self, name: &str) -> Result<Option<String>> {
        let name = name.to_owned();
        self.read_with("metadata", true, move |connection| {
            let sql = "SELECT text FROM note WHERE name = ?";
            connection.query_row(sql, [&name], |row| row.get(0)).optional().map_err(sql_error)
        })
        .await
    }

    async fn set_metadata(&self, name: &str, text: &str) -> Result<()> {
        let (name, text) = (name.to_owned(), text.to_owned());
        self.write_durably("set_metadata", move |connection| {
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
        let written = self.read_with("snapshot", false, move |c| snapshot::write(c, &path)).await?;
        self.settled(written).await
    }
}
