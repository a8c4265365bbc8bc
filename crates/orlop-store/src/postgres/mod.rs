//! The store on PostgreSQL, which many processes may share.
//!
//! One connection writes, a few read, one listens and leads. Every call survives the loss of its connection
//! for a while: reads are done again, and a batch is either known to have happened or done again.

mod audience;
mod commit;
mod compact;
mod connect;
mod fault;
mod filter;
mod guess;
mod known;
mod lead;
mod past;
mod pool;
mod read;
mod restore;
mod rows;
mod schema;
mod snapshot;
mod statement;
mod tail;
mod tls;
mod turn;
mod undisturbed;
mod url;
mod values;
mod view;
mod write;

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
    audience::Audience,
    commit::Writer,
    connect::{Connector, Session},
    fault::Fault,
    lead::Listener,
    pool::Pool,
    rows::column,
};
use crate::{
    Config, Lease, LeaseId, Limits, Read, ReadResult, Revision, Size,
    engine::{Bounds, Command, Committed, Engine},
    error::Result,
    event::{Commit, VersionId},
    metrics::{Metrics, READ},
};

/// How long opening waits for a server that is only starting.
const START_MAX: Duration = Duration::from_secs(10);
/// Connections for what is neither a batch nor a read.
const CHORES: usize = 2;
/// How often the database's size is looked at, if it is limited.
const SIZE_LOOK: Duration = Duration::from_secs(2);

/// A PostgreSQL database.
#[derive(Debug)]
pub(crate) struct Postgres {
    writer: Writer,
    readers: Pool,
    chores: Pool,
    listener: Listener,
    limits: Limits,
    poll: Duration,
    metrics: Metrics,
    full: AtomicBool,
    /// The newest revision that a read has met.
    newest: AtomicI64,
    size_looked: tokio::sync::Mutex<Option<Instant>>,
}

impl Postgres {
    pub(crate) async fn open(url: &str, config: &Config, metrics: Metrics) -> Result<Self> {
        let connector = Arc::new(Connector::new(url, config, metrics.clone())?);
        schema::migrate(&connector, START_MAX).await?;
        let audience = Arc::new(Audience::of(connector.schema()));
        let writer = Writer::new(connector.clone(), audience.clone(), config.limits.clone(), metrics.clone());
        Ok(Self {
            readers: Pool::new(connector.clone(), config.readers),
            chores: Pool::new(connector.clone(), CHORES),
            listener: Listener::start(connector, audience),
            writer,
            limits: config.limits.clone(),
            poll: config.poll_interval,
            metrics,
            full: AtomicBool::new(false),
            newest: AtomicI64::new(0),
            size_looked: tokio::sync::Mutex::default(),
        })
    }

    /// Fills an empty database with a copy that a snapshot wrote; the revision it then has.
    pub(crate) async fn restore(url: &str, config: &Config, copy: &Path) -> Result<Revision> {
        let connector = Connector::new(url, config, Metrics::default())?;
        schema::migrate(&connector, START_MAX).await?;
        restore::restore(&connector, copy).await
    }

    /// Runs a job on a connection and measures it.
    async fn on<T, F>(&self, pool: &Pool, name: &'static str, job: impl Fn(Arc<Session>) -> F) -> Result<T>
    where
        F: Future<Output = Result<T, Fault>>,
    {
        let started = Instant::now();
        let result = pool.run(job).await;
        self.metrics.sql(name, started, &result);
        result
    }

    /// Whether the database has reached its size limit, as of a moment ago.
    async fn is_full(&self) -> Result<bool> {
        if self.limits.database_bytes == 0 {
            return Ok(false);
        }
        let mut looked = self.size_looked.lock().await;
        if looked.is_none_or(|looked| looked.elapsed() >= SIZE_LOOK) {
            // Space that compaction has freed is as good as a free disk.
            let full = self.size().await?.used >= self.limits.database_bytes;
            self.full.store(full, Ordering::Relaxed);
            *looked = Some(Instant::now());
        }
        Ok(self.full.load(Ordering::Relaxed))
    }
}

/// The database's clock decides what is left of a lease.
const LEASE_COLUMNS: &str = "id, ttl_seconds, deadline_ms,
    deadline_ms - (extract(epoch from clock_timestamp()) * 1000)::int8";

fn lease(row: &tokio_postgres::Row) -> Result<Lease, Fault> {
    Ok(Lease { id: column(row, 0)?, ttl_seconds: column(row, 1)?, remaining_ms: column(row, 3)? })
}

#[async_trait::async_trait]
impl Engine for Postgres {
    async fn commit(&self, batch: &[Command]) -> Result<Committed> {
        let full = self.is_full().await?;
        self.writer.commit(batch, full).await
    }

    /// Each page is a round trip.
    fn page_keys(&self) -> usize {
        2048
    }

    async fn read(&self, read: &Read) -> Result<ReadResult> {
        self.on(&self.readers, READ, |session| async move {
            // As far as this process knows nothing has happened since: then the present answers, which is one
            // walk of an index and not two.
            if read.filter.is_empty() && read.revision == Some(self.newest.load(Ordering::Relaxed)) {
                let present = Read { revision: None, ..read.clone() };
                let result = read::read(&session, &self.limits, &present, false).await?;
                self.newest.fetch_max(result.revision, Ordering::Relaxed);
                if read.revision == Some(result.revision) {
                    return Ok(result);
                }
            }
            let result = read::read(&session, &self.limits, read, false).await?;
            self.newest.fetch_max(result.revision, Ordering::Relaxed);
            Ok(result)
        })
        .await
    }

    async fn tail(&self, after: Revision, limit: usize) -> Result<Vec<Arc<Commit>>> {
        self.on(&self.readers, "tail", |session| async move { tail::tail(&session, after, limit).await })
            .await
    }

    async fn values(&self, ids: &[VersionId]) -> Result<Vec<Option<Bytes>>> {
        self.on(&self.readers, "values", |session| async move { tail::values(&session, ids).await }).await
    }

    async fn bounds(&self) -> Result<Bounds> {
        self.on(&self.readers, "bounds", |session| async move { read::bounds(&session).await }).await
    }

    async fn mark_compacted(&self, revision: Revision) -> Result<()> {
        self.on(
            &self.chores,
            "compact_mark",
            |session| async move { compact::mark(&session, revision).await },
        )
        .await
    }

    async fn compact_step(&self, limit: usize) -> Result<bool> {
        self.on(&self.chores, "compact", |session| async move { compact::step(&session, limit).await }).await
    }

    /// PostgreSQL's autovacuum reuses the space and cuts off empty ends of tables by itself.
    async fn shrink_step(&self, _pages: usize) -> Result<bool> {
        Ok(false)
    }

    async fn changed(&self) {
        self.listener.changed(self.poll).await;
    }

    async fn leads(&self) -> bool {
        self.listener.leads().await
    }

    async fn lease(&self, id: LeaseId) -> Result<Option<Lease>> {
        let sql = format!("select {LEASE_COLUMNS} from lease where id = $1");
        self.on(&self.readers, "lease", |session| {
            let sql = &sql;
            async move { session.query(sql, &[&id]).await?.first().map(lease).transpose() }
        })
        .await
    }

    async fn lease_keys(&self, id: LeaseId) -> Result<Vec<Bytes>> {
        let sql = "select key from live where lease = $1 and lease <> 0 order by key";
        self.on(&self.readers, "lease_keys", |session| async move {
            let rows = session.query(sql, &[&id]).await?;
            rows.iter().map(|row| Ok(Bytes::copy_from_slice(column(row, 0)?))).collect()
        })
        .await
    }

    async fn leases(&self, limit: usize) -> Result<Vec<Lease>> {
        let sql = format!("select {LEASE_COLUMNS} from lease order by deadline_ms limit $1");
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.on(&self.chores, "leases", |session| {
            let sql = &sql;
            async move { session.query(sql, &[&limit]).await?.iter().map(lease).collect() }
        })
        .await
    }

    async fn metadata(&self, name: &str) -> Result<Option<String>> {
        self.on(&self.chores, "metadata", |session| async move {
            let rows = session.query("select text from note where name = $1", &[&name]).await?;
            rows.first().map(|row| column(row, 0)).transpose()
        })
        .await
    }

    async fn set_metadata(&self, name: &str, text: &str) -> Result<()> {
        let sql = "insert into note values ($1, $2) on conflict (name) do update set text = excluded.text";
        self.on(&self.chores, "set_metadata", |session| async move {
            session.execute(sql, &[&name, &text]).await.map(drop)
        })
        .await
    }

    async fn size(&self) -> Result<Size> {
        self.on(&self.chores, "size", |session| async move {
            let sql = "select pg_database_size(current_database()), bytes from head";
            let Some(row) = session.query(sql, &[]).await?.pop() else { return Ok(Size::default()) };
            let (total, used): (i64, i64) = (column(&row, 0)?, column(&row, 1)?);
            // Large values are compressed: what they take may be less than what they are.
            Ok(Size { total: total.max(0) as u64, used: used.clamp(0, total.max(0)) as u64 })
        })
        .await
    }

    async fn snapshot(&self, path: &Path) -> Result<()> {
        self.on(&self.chores, "snapshot", |session| async move { snapshot::write(&session, path).await })
            .await
    }
}
