//! The PostgreSQL engine, which many processes may share.
//!
//! One connection writes, a few read, and one listens and holds the leader lock. Calls survive the loss of a connection:
//! reads are retried, and the outcome of a commit is resolved before its batch is retried.

mod changes;
mod compact;
mod connection;
mod connection_string;
mod db_error;
mod extent;
mod filter;
mod history;
mod listener;
mod live;
mod lock_key;
mod pool;
mod read;
mod requirements;
mod restore;
mod rows;
mod schema;
mod snapshot;
mod speculation;
mod tail;
mod tls;
mod value_cache;
mod values;
mod view;
mod writer;

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;

use self::{
    connection::{Connector, Session},
    db_error::DbError,
    extent::Extent,
    listener::Listener,
    pool::Pool,
    rows::column,
    speculation::Listeners,
    writer::Writer,
};
use crate::{
    Config, Lease, LeaseId, Limits, Read, ReadResult, Revision, Size,
    engine::{Bounds, Command, CommittedBatch, Engine, FileSnapshot, TailLimit},
    error::Result,
    event::{Commit, VersionId},
    metrics::{Metrics, READ},
};

/// Time that opening waits for a server that is starting.
const START_MAX: Duration = Duration::from_secs(10);
/// Connections for maintenance.
const MAINTENANCE_CONNECTIONS: usize = 2;
/// Interval of size checks, if there is a quota.
const SIZE_INTERVAL: Duration = Duration::from_secs(2);

/// A PostgreSQL database.
#[derive(Debug)]
pub(crate) struct Postgres {
    writer: Writer,
    readers: Pool,
    maintenance: Pool,
    listener: Listener,
    limits: Limits,
    poll_interval: Duration,
    metrics: Metrics,
    over_quota: AtomicBool,
    /// The newest revision that a read has returned.
    newest: AtomicI64,
    size_checked: tokio::sync::Mutex<Option<Instant>>,
}

impl Postgres {
    pub(crate) async fn open(url: &str, config: &Config, metrics: Metrics) -> Result<Self> {
        let connector = Arc::new(Connector::new(url, config, metrics.clone())?);
        schema::migrate(&connector, START_MAX).await?;
        let listeners = Arc::new(Listeners::new(connector.schema()));
        let writer = Writer::new(connector.clone(), listeners.clone(), config, metrics.clone());
        Ok(Self {
            readers: Pool::new(connector.clone(), config.readers),
            maintenance: Pool::new(connector.clone(), MAINTENANCE_CONNECTIONS),
            listener: Listener::start(connector, listeners),
            writer,
            limits: config.limits.clone(),
            poll_interval: config.poll_interval,
            metrics,
            over_quota: AtomicBool::new(false),
            newest: AtomicI64::new(0),
            size_checked: tokio::sync::Mutex::default(),
        })
    }

    /// Restores a snapshot into an empty database. Returns its revision.
    pub(crate) async fn restore(url: &str, config: &Config, copy: &Path) -> Result<Revision> {
        let connector = Connector::new(url, config, Metrics::default())?;
        schema::migrate(&connector, START_MAX).await?;
        restore::restore(&connector, copy).await
    }

    /// Runs a job on a connection of a pool and records it.
    async fn run_on<T, F>(
        &self,
        pool: &Pool,
        name: &'static str,
        job: impl Fn(Arc<Session>) -> F,
    ) -> Result<T>
    where
        F: Future<Output = Result<T, DbError>>,
    {
        let started = Instant::now();
        let result = pool.run(job).await;
        self.metrics.sql(name, started, &result);
        result
    }

    /// Returns whether the database had reached its quota at the last check.
    async fn is_over_quota(&self) -> Result<bool> {
        if self.limits.database_bytes == 0 {
            return Ok(false);
        }
        let mut checked = self.size_checked.lock().await;
        if checked.is_none_or(|checked| checked.elapsed() >= SIZE_INTERVAL) {
            // Space that compaction has freed does not count: it is reused.
            let over = self.size().await?.used >= self.limits.database_bytes;
            self.over_quota.store(over, Ordering::Relaxed);
            *checked = Some(Instant::now());
        }
        Ok(self.over_quota.load(Ordering::Relaxed))
    }
}

/// Columns of a lease; the remaining time is by the database's clock.
const LEASE_COLUMNS: &str = "id, ttl_seconds, deadline_ms,
    deadline_ms - (extract(epoch from clock_timestamp()) * 1000)::int8";

fn lease(row: &tokio_postgres::Row) -> Result<Lease, DbError> {
    Ok(Lease { id: column(row, 0)?, ttl_seconds: column(row, 1)?, remaining_ms: column(row, 3)? })
}

/// There is no `Shrink`: autovacuum reuses free space and truncates tables by itself.
#[async_trait::async_trait]
impl Engine for Postgres {
    async fn commit(&self, batch: &[Command]) -> Result<CommittedBatch> {
        let full = self.is_over_quota().await?;
        self.writer.commit(batch, full).await
    }

    /// Each page is a round trip.
    fn max_page_keys(&self) -> usize {
        2048
    }

    async fn read(&self, read: &Read, bytes: usize) -> Result<ReadResult> {
        self.run_on(&self.readers, READ, |session| async move {
            // If nothing was written since, live rows answer, which is one index scan instead of two.
            if read.filter.is_empty() && read.revision == Some(self.newest.load(Ordering::Relaxed)) {
                let live = Read { revision: None, ..read.clone() };
                let result = read::read(&session, &self.limits, &live, Extent::Page { bytes }).await?;
                self.newest.fetch_max(result.revision, Ordering::Relaxed);
                if read.revision == Some(result.revision) {
                    return Ok(result);
                }
            }
            let result = read::read(&session, &self.limits, read, Extent::Page { bytes }).await?;
            self.newest.fetch_max(result.revision, Ordering::Relaxed);
            Ok(result)
        })
        .await
    }

    async fn tail(&self, after: Revision, limit: TailLimit) -> Result<Vec<Arc<Commit>>> {
        self.run_on(&self.readers, "tail", |session| async move { tail::tail(&session, after, limit).await })
            .await
    }

    async fn values(&self, ids: &[VersionId]) -> Result<Vec<Option<Bytes>>> {
        self.run_on(&self.readers, "values", |session| async move { tail::values(&session, ids).await }).await
    }

    async fn bounds(&self) -> Result<Bounds> {
        self.run_on(&self.readers, "bounds", |session| async move { read::bounds(&session).await }).await
    }

    async fn set_compacted(&self, revision: Revision) -> Result<()> {
        self.run_on(&self.maintenance, "compact_mark", |session| async move {
            compact::set_compacted(&session, revision).await
        })
        .await
    }

    async fn compact_step(&self, limit: usize) -> Result<bool> {
        self.run_on(
            &self.maintenance,
            "compact",
            |session| async move { compact::step(&session, limit).await },
        )
        .await
    }

    async fn wait_for_changes(&self) {
        self.listener.changed(self.poll_interval).await;
    }

    async fn is_leader(&self) -> bool {
        self.listener.is_leader().await
    }

    async fn lease(&self, id: LeaseId) -> Result<Option<Lease>> {
        let sql = format!("select {LEASE_COLUMNS} from lease where id = $1");
        self.run_on(&self.readers, "lease", |session| {
            let sql = &sql;
            async move { session.query(sql, &[&id]).await?.first().map(lease).transpose() }
        })
        .await
    }

    async fn lease_keys(&self, id: LeaseId) -> Result<Vec<Bytes>> {
        let sql = "select key from live where lease = $1 and lease <> 0 order by key";
        self.run_on(&self.readers, "lease_keys", |session| async move {
            let rows = session.query(sql, &[&id]).await?;
            rows.iter().map(|row| Ok(Bytes::copy_from_slice(column(row, 0)?))).collect()
        })
        .await
    }

    async fn leases(&self, limit: usize) -> Result<Vec<Lease>> {
        let sql = format!("select {LEASE_COLUMNS} from lease order by deadline_ms limit $1");
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.run_on(&self.maintenance, "leases", |session| {
            let sql = &sql;
            async move { session.query(sql, &[&limit]).await?.iter().map(lease).collect() }
        })
        .await
    }

    async fn metadata(&self, name: &str) -> Result<Option<String>> {
        self.run_on(&self.maintenance, "metadata", |session| async move {
            let rows = session.query("select text from note where name = $1", &[&name]).await?;
            rows.first().map(|row| column(row, 0)).transpose()
        })
        .await
    }

    async fn set_metadata(&self, name: &str, text: &str) -> Result<()> {
        let sql = "insert into note values ($1, $2) on conflict (name) do update set text = excluded.text";
        self.run_on(&self.maintenance, "set_metadata", |session| async move {
            session.execute(sql, &[&name, &text]).await.map(drop)
        })
        .await
    }

    async fn size(&self) -> Result<Size> {
        self.run_on(&self.maintenance, "size", |session| async move {
            let sql = "select pg_database_size(current_database()), bytes from head";
            let Some(row) = session.query(sql, &[]).await?.pop() else { return Ok(Size::default()) };
            let (total, used): (i64, i64) = (column(&row, 0)?, column(&row, 1)?);
            // Large values are compressed and may take less than their size.
            Ok(Size { total: total.max(0) as u64, used: used.clamp(0, total.max(0)) as u64 })
        })
        .await
    }

    fn file_snapshot(&self) -> Option<&dyn FileSnapshot> {
        Some(self)
    }
}

#[async_trait::async_trait]
impl FileSnapshot for Postgres {
    async fn snapshot(&self, path: &Path) -> Result<()> {
        self.run_on(
            &self.maintenance,
            "snapshot",
            |session| async move { snapshot::write(&session, path).await },
        )
        .await
    }
}
