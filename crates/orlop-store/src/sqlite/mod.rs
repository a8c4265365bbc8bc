//! The SQLite engine: a database in a file, or in memory.

mod checkpoint;
mod commit;
mod compact;
mod disk_reserve;
mod durability;
mod errors;
mod exclusivity;
mod file_identity;
mod files;
mod history;
mod log_length;
mod log_watch;
mod pool;
#[cfg(test)]
mod power_loss_tests;
mod purge;
mod query;
mod read;
mod read_mark;
mod rows;
mod schema;
mod snapshot;
mod tail;
mod wal_file;

use std::{
    path::Path,
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension};

use self::{
    checkpoint::Checkpointer,
    disk_reserve::DiskReserve,
    durability::{Durability, SyncLog},
    exclusivity::Exclusivity,
    file_identity::FileIdentity,
    log_length::LogLength,
    log_watch::LogWatch,
    pool::Connections,
    wal_file::WalFile,
};
pub(crate) use self::{errors::sql_error, schema::new_file};
use crate::{
    Config, Durability as DurabilityLevel, EncodedPage, Endpoint, Lease, LeaseId, Limits, Read, ReadResult,
    Revision, RowEncoder, Size,
    engine::{
        Bounds, Command, CommitSequence, CommittedBatch, Engine, FileSnapshot, Purge, Shrink, TailLimit,
    },
    error::{Error, Result},
    event::{Commit, VersionId},
    metrics::{Metrics, READ},
};

/// A SQLite database.
#[derive(Debug)]
pub(crate) struct Sqlite {
    /// Declared first: it ends before the connections do.
    _checkpointer: Option<Checkpointer>,
    connections: Arc<Connections>,
    log_length: Arc<LogLength>,
    durability: Arc<Durability>,
    /// Of a database in a file.
    file: Option<Arc<DatabaseFile>>,
    /// Permits of small reads that found no idle connection, and of others. Small reads never wait for others: each
    /// permit stands for a connection.
    small_reads: tokio::sync::Semaphore,
    long_reads: tokio::sync::Semaphore,
    /// Returns true on threads that may block for a page.
    may_block: fn() -> bool,
    limits: Limits,
    /// A key greater than every valid key.
    max_key: Bytes,
    /// Made by the first wait for other processes' writes.
    log_watch: OnceLock<LogWatch>,
    /// The last version id at the last look for other processes' writes.
    polled_last_id: std::sync::Mutex<Option<VersionId>>,
    metrics: Metrics,
}

/// Cost of a read, which decides where it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cost {
    /// A few rows: on the caller's thread.
    Small,
    /// A page of rows: on the caller's thread if it may block.
    Page,
    /// As much as there is: never on the caller's thread.
    Unbounded,
}

impl Cost {
    fn of(is_small: bool) -> Self {
        if is_small { Self::Small } else { Self::Unbounded }
    }
}

/// State of a database in a file.
#[derive(Debug)]
struct DatabaseFile {
    exclusivity: Exclusivity,
    identity: FileIdentity,
    reserve: Arc<DiskReserve>,
}

impl DatabaseFile {
    fn check_identity(&self) -> Result<()> {
        self.identity.check().map_err(|error| Error::Unavailable(error.to_string()))
    }
}

impl Sqlite {
    pub(crate) fn open(config: &Config, metrics: Metrics) -> Result<Self> {
        let sync = |wal: WalFile| -> SyncLog {
            Box::new(move || {
                wal.preallocate();
                wal.sync()
            })
        };
        let opened = Self::open_with_sync(config, metrics.clone(), sync);
        match (&config.endpoint, opened) {
            (Endpoint::Sqlite(path), Err(error)) if DiskReserve::release_for_start(path) => {
                tracing::warn!(%error, "the disk is full: the reserve is released to open the database");
                Self::open_with_sync(config, metrics, sync)
            }
            (_, opened) => opened,
        }
    }

    /// Opens a database whose log is synced by what `sync` returns.
    fn open_with_sync(
        config: &Config,
        metrics: Metrics,
        sync: impl FnOnce(WalFile) -> SyncLog,
    ) -> Result<Self> {
        let length = Arc::<LogLength>::default();
        let connections = Arc::new(Connections::open(config, length.clone())?);
        let file = match &config.endpoint {
            Endpoint::Sqlite(path) => {
                let exclusivity = connections.write(|writer| Exclusivity::register(path, writer))?;
                let identity = FileIdentity::of(path)
                    .map_err(|error| Error::Unavailable(format!("{}: {error}", path.display())))?;
                let reserve = Arc::new(DiskReserve::open(path, config.reserve_bytes));
                Some(Arc::new(DatabaseFile { exclusivity, identity, reserve }))
            }
            _ => None,
        };
        let durability = match &file {
            Some(file) if config.durability == DurabilityLevel::Full => {
                let current = connections.read(|connection| Ok(rows::bounds(connection)?.0.current))?;
                let sync = sync(WalFile::new(file.exclusivity.log(), length.clone()));
                let file = file.clone();
                // The files are checked last: a commit must not be acknowledged if they are gone.
                let sync_and_check = move || sync().and_then(|()| file.identity.check());
                Durability::of_log(Box::new(sync_and_check), current, metrics.clone())?
            }
            _ => Durability::immediate(metrics.clone()),
        };
        let start = |file: &Arc<DatabaseFile>| {
            Checkpointer::start(&connections, length.clone(), file.reserve.clone())
        };
        let checkpointer = file.as_ref().map(start).transpose()?;
        Ok(Self {
            durability: Arc::new(durability),
            file,
            _checkpointer: checkpointer,
            connections,
            log_length: length,
            small_reads: tokio::sync::Semaphore::new(pool::SMALL_READERS),
            long_reads: tokio::sync::Semaphore::new(config.readers.max(1)),
            may_block: config.may_block,
            limits: config.limits.clone(),
            max_key: vec![0xff; config.limits.key_bytes + 2].into(),
            log_watch: OnceLock::new(),
            polled_last_id: std::sync::Mutex::default(),
            metrics,
        })
    }

    /// Reads. Small work is done inline if a connection is idle, other work on a blocking thread.
    async fn read_with<T: Send + 'static>(
        &self,
        name: &'static str,
        cost: Cost,
        work: impl Fn(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let started = std::time::Instant::now();
        let result = match if cost == Cost::Small { self.connections.try_read(&work) } else { None } {
            Some(result) => {
                if let Some(file) = &self.file {
                    self.connections.after_read(&file.exclusivity);
                }
                result
            }
            None => self.read_on_thread(cost, work).await,
        };
        self.metrics.sql(name, started, &result);
        result
    }

    async fn read_on_thread<T: Send + 'static>(
        &self,
        cost: Cost,
        work: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        // As many threads as connections: a thread that only waited for a connection would hold memory of its own.
        let permits = if cost == Cost::Small { &self.small_reads } else { &self.long_reads };
        let _permit = permits.acquire().await;
        if cost == Cost::Page && (self.may_block)() {
            return self.connections.read(work);
        }
        let connections = self.connections.clone();
        tokio::task::spawn_blocking(move || connections.read(work))
            .await
            .unwrap_or_else(|_| Err(Error::Unavailable("the read was cancelled".into())))
    }

    /// Reads a page, encoded if there is an encoder, and returns once everything it shows is durable.
    async fn read_page(
        &self,
        read: &Read,
        bytes: usize,
        encoder: Option<Arc<dyn RowEncoder>>,
    ) -> Result<EncodedPage> {
        let cost = if read::is_small(read) { Cost::Small } else { Cost::Page };
        let (max_key, asked) = (self.max_key.clone(), read.clone());
        let work = move |connection: &Connection| {
            read::read(connection, &asked, &max_key, bytes, encoder.as_deref())
        };
        let mut encoded = match self.read_with(READ, cost, work).await {
            // This error reveals the newest revision too.
            Err(Error::FutureRevision { requested, current }) => {
                let current = self.readable_revision(0, current).await?;
                return Err(Error::FutureRevision { requested, current });
            }
            read => read?,
        };
        let newest = encoded.page.revision;
        let shown = read.revision.unwrap_or_else(|| match &encoded.last {
            // A single key shows nothing else.
            Some((_, revision)) if read.range.single().is_some() => *revision,
            _ => newest,
        });
        encoded.page.revision = self.readable_revision(shown, newest).await?;
        Ok(encoded)
    }

    /// Runs a small write on a blocking thread. It becomes durable with the next commit that does: a power loss may
    /// undo it.
    async fn write_with<T: Send + 'static>(
        &self,
        name: &'static str,
        work: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let connections = self.connections.clone();
        self.on_thread(name, move || connections.write(work)).await
    }

    /// As [`Self::write_with`], and returns when the write is durable.
    async fn write_durably(
        &self,
        name: &'static str,
        work: impl FnOnce(&Connection) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let (connections, durability) = (self.connections.clone(), self.durability.clone());
        self.on_thread(name, move || {
            let sequence = connections.write(|connection| {
                durability.check()?;
                work(connection)?;
                let current = rows::bounds(connection)?.0.current;
                Ok(durability.committed(current, current, true))
            })?;
            durability.wait(sequence)
        })
        .await
    }

    /// Runs blocking work on a thread, to completion even if the caller goes away.
    async fn on_thread<T: Send + 'static>(
        &self,
        name: &'static str,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let started = std::time::Instant::now();
        let (connections, file, length) =
            (self.connections.clone(), self.file.clone(), self.log_length.clone());
        let work = move || {
            let result = work();
            if let (Err(Error::Full(_)), Some(file)) = (&result, file) {
                // Maintenance retries, and frees space where it succeeds.
                make_room(&connections, &file, &length);
            }
            result
        };
        let result = tokio::task::spawn_blocking(work)
            .await
            .unwrap_or_else(|_| Err(Error::Unavailable("the write was cancelled".into())));
        self.metrics.sql(name, started, &result);
        result
    }

    /// Evaluates and commits a batch. With `refuse_puts` only deletes and reads are accepted.
    fn commit_batch(&self, batch: &[Command], refuse_puts: Option<Error>) -> Result<CommittedBatch> {
        self.connections.write(|connection| {
            let context = commit::Context {
                limits: &self.limits,
                max_key: &self.max_key,
                durability: &self.durability,
                refuse_puts,
            };
            commit::commit(connection, batch, context)
        })
    }

    /// Covers a batch by the disk reserve, so that the checkpoint after it succeeds on a full disk too.
    fn cover(&self, file: &DatabaseFile, batch: &[Command]) -> Result<()> {
        let put_bytes = batch.iter().map(|command| match command {
            Command::Txn(txn) => txn.put_bytes(),
            _ => 0,
        });
        let pages_bytes = || self.connections.write(commit::file_bytes);
        file.reserve.cover(self.log_length.bytes(), put_bytes.sum::<usize>() as u64, pages_bytes)
    }

    /// Returns the revision to report for a read, once it is durable. See [`Durability::readable_revision`].
    async fn readable_revision(&self, shown: Revision, newest: Revision) -> Result<Revision> {
        if newest <= self.durability.revision() {
            return Ok(newest);
        }
        let exclusive = match self.file.clone() {
            Some(file) => {
                let check = move |connection: &Connection| file.exclusivity.is_exclusive(connection);
                self.read_with("exclusivity", Cost::Small, check).await?
            }
            None => true,
        };
        self.durability.readable_revision(shown, newest, exclusive).await
    }

    /// Returns what was read once every earlier write of this process is durable: for data without a revision.
    async fn once_durable<T>(&self, read: T) -> Result<T> {
        self.durability.wait_for_all().await?;
        Ok(read)
    }
}

/// Releases the disk reserve after a write has failed, and copies the log into the database with it: a log that is copied is
/// overwritten rather than appended to.
fn make_room(connections: &Connections, file: &DatabaseFile, length: &LogLength) {
    file.reserve.release();
    let copied = connections.write(|writer| {
        checkpoint::passive(writer)?;
        file.reserve.copied(length.bytes(), || commit::file_bytes(writer))
    });
    if let Err(error) = copied {
        tracing::warn!(%error, "checkpoint failed on a full disk");
    }
}

/// Opens a snapshot for another engine to read.
pub(crate) fn open_copy(path: &Path) -> Result<Connection> {
    if !path.exists() {
        return Err(Error::Invalid(format!("{}: no such file", path.display())));
    }
    let connection = Connection::open(path).map_err(sql_error)?;
    let found: i64 =
        connection.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(sql_error)?;
    match found {
        schema::VERSION => Ok(connection),
        0 => Err(Error::Invalid(format!("{} is not a snapshot of a store", path.display()))),
        found => Err(Error::NewerSchema { found, known: schema::VERSION }),
    }
}

#[async_trait::async_trait]
impl Engine for Sqlite {
    async fn commit(&self, batch: &[Command]) -> Result<CommittedBatch> {
        let Some(file) = &self.file else { return self.commit_batch(batch, None) };
        self.cover(file, batch)?;
        let committed = match self.commit_batch(batch, file.reserve.check().err()) {
            Err(error @ Error::Full(_)) => {
                make_room(&self.connections, file, &self.log_length);
                self.commit_batch(batch, Some(error))
            }
            committed => committed,
        };
        if !self.durability.is_deferred() {
            file.check_identity()?;
        }
        committed
    }

    fn wait_durable(&self, sequence: CommitSequence) -> Result<()> {
        self.durability.wait(sequence)
    }

    fn defers_durability(&self) -> bool {
        self.durability.is_deferred()
    }

    fn commits_inline(&self) -> bool {
        true
    }

    async fn read(&self, read: &Read, bytes: usize) -> Result<ReadResult> {
        Ok(self.read_page(read, bytes, None).await?.page)
    }

    async fn read_encoded(
        &self,
        read: &Read,
        bytes: usize,
        encoder: &Arc<dyn RowEncoder>,
    ) -> Result<EncodedPage> {
        match self.read_page(read, bytes, Some(encoder.clone())).await? {
            // Some row cannot be encoded: the page is returned as stored.
            EncodedPage { bytes: None, .. } => self.read_page(read, bytes, None).await,
            encoded => Ok(encoded),
        }
    }

    async fn tail(&self, after: Revision, limit: TailLimit) -> Result<Vec<Arc<Commit>>> {
        let commits = self
            .read_with("tail", Cost::Page, move |connection| tail::tail(connection, after, limit))
            .await?;
        if let Some(last) = commits.last() {
            self.readable_revision(last.revision, last.revision).await?;
        }
        Ok(commits)
    }

    async fn values(&self, ids: &[VersionId]) -> Result<Vec<Option<Bytes>>> {
        let ids = ids.to_vec();
        self.read_with("values", Cost::of(ids.len() < 16), move |connection| tail::values(connection, &ids))
            .await
    }

    async fn bounds(&self) -> Result<Bounds> {
        let bounds = self.read_with("bounds", Cost::Small, |connection| {
            read::in_snapshot(connection, || Ok(rows::bounds(connection)?.0))
        });
        let Bounds { current, compacted } = bounds.await?;
        Ok(Bounds { current: self.readable_revision(0, current).await?, compacted })
    }

    async fn set_compacted(&self, revision: Revision) -> Result<()> {
        self.write_durably("compact_mark", move |connection| compact::set_compacted(connection, revision))
            .await
    }

    async fn compact_step(&self, limit: usize) -> Result<bool> {
        self.write_with("compact", move |connection| compact::step(connection, limit)).await
    }

    async fn wait_for_changes(&self) {
        let Some(file) = &self.file else { return std::future::pending().await };
        let watch = self.log_watch.get_or_init(|| LogWatch::open(file.exclusivity.log_path()));
        loop {
            watch.changed().await;
            self.connections.release_read_mark();
            // Any connection can tell by the end of the log; `data_version` only compares on one connection. Our own
            // commits show too, which costs one read.
            let poll = self.read_with("last_id", Cost::Small, |connection| Ok(rows::bounds(connection)?.1));
            let Ok(last) = poll.await else { return };
            let mut polled = self.polled_last_id.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if polled.replace(last) != Some(last) {
                return;
            }
        }
    }

    async fn is_leader(&self) -> bool {
        // Each maintenance step reads the tables within its own transaction, so processes that share a file may all
        // run them.
        true
    }

    async fn lease(&self, id: LeaseId) -> Result<Option<Lease>> {
        let lease = self.read_with("lease", Cost::Small, move |connection| {
            let mut statement =
                connection.prepare_cached("SELECT * FROM lease WHERE id = ?").map_err(sql_error)?;
            let row = statement.query_row([id], rows::lease).optional().map_err(sql_error)?;
            Ok(row.map(|row| row.lease(rows::now_ms())))
        });
        self.once_durable(lease.await?).await
    }

    async fn lease_keys(&self, id: LeaseId) -> Result<Vec<Bytes>> {
        let keys = self.read_with("lease_keys", Cost::Unbounded, move |connection| {
            const SQL: &str = "SELECT key FROM live WHERE lease = ? AND lease <> 0 ORDER BY key";
            let mut statement = connection.prepare_cached(SQL).map_err(sql_error)?;
            let keys = statement.query_map([id], |row| row.get::<_, Vec<u8>>(0)).map_err(sql_error)?;
            keys.map(|key| key.map(Bytes::from).map_err(sql_error)).collect()
        });
        self.once_durable(keys.await?).await
    }

    async fn leases(&self, limit: usize) -> Result<Vec<Lease>> {
        let leases = self.read_with("leases", Cost::of(limit < 1024), move |connection| {
            const SQL: &str = "SELECT * FROM lease ORDER BY deadline_ms LIMIT ?";
            let now_ms = rows::now_ms();
            let mut statement = connection.prepare_cached(SQL).map_err(sql_error)?;
            let leases = statement.query_map([limit as i64], rows::lease).map_err(sql_error)?;
            leases.map(|row| row.map(|row| row.lease(now_ms)).map_err(sql_error)).collect()
        });
        self.once_durable(leases.await?).await
    }

    async fn metadata(&self, name: &str) -> Result<Option<String>> {
        let name = name.to_owned();
        self.read_with("metadata", Cost::Small, move |connection| {
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
        self.read_with("size", Cost::Small, |connection| {
            Ok(Size { total: commit::file_bytes(connection)?, used: commit::database_bytes(connection)? })
        })
        .await
    }

    fn health(&self) -> Result<()> {
        self.durability.check()?;
        let Some(file) = &self.file else { return Ok(()) };
        file.check_identity()?;
        file.reserve.check()
    }

    async fn close(&self) -> Result<()> {
        self.durability.wait_for_all().await?;
        let (connections, file) = (self.connections.clone(), self.file.clone());
        self.on_thread("close", move || {
            connections.close(|writer| match &file {
                Some(file) => file.reserve.spend(|| checkpoint::on_close(writer)),
                None => Ok(()),
            })
        })
        .await
    }

    fn file_snapshot(&self) -> Option<&dyn FileSnapshot> {
        Some(self)
    }

    fn shrink(&self) -> Option<&dyn Shrink> {
        Some(self)
    }

    fn purge(&self) -> Option<&dyn Purge> {
        Some(self)
    }
}

#[async_trait::async_trait]
impl Purge for Sqlite {
    async fn purge(&self) -> Result<bool> {
        self.durability.wait_for_all().await?;
        self.write_with("purge", purge::rewrite).await?;
        if self.file.is_none() {
            return Ok(true);
        }
        self.connections.release_read_mark();
        self.write_with("purge_log", purge::empty_log).await
    }
}

#[async_trait::async_trait]
impl FileSnapshot for Sqlite {
    async fn snapshot(&self, path: &Path) -> Result<()> {
        let path = path.to_owned();
        let written = self.read_with("snapshot", Cost::Unbounded, move |c| snapshot::write(c, &path)).await?;
        self.once_durable(written).await
    }
}

#[async_trait::async_trait]
impl Shrink for Sqlite {
    async fn shrink_step(&self, pages: usize) -> Result<bool> {
        let more = self.write_with("shrink", move |connection| compact::shrink(connection, pages)).await?;
        if !more && self.file.is_some() {
            // The file gets shorter only with a checkpoint.
            self.read_with("checkpoint", Cost::Unbounded, |connection| {
                checkpoint::passive(connection).map(drop)
            })
            .await?;
        }
        Ok(more)
    }
}
