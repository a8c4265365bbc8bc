//! The store's API: validates requests and passes them to the writer, the engine or the hub.

use futures_util::future::BoxFuture;
use std::{path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::task::JoinSet;

use crate::{
    Config, Delete, EncodedPage, Endpoint, KeyRange, Lease, LeaseId, Limits, Op, Put, Read, ReadResult,
    Revision, RowEncoder, Select, Size, Terms, Txn, TxnResult, Watch, Watcher,
    engine::{Bounds, Command, Engine, Outcome, TailLimit},
    error::{Error, Result},
    housekeeping::Housekeeper,
    index_floor::IndexFloor,
    lease_renewals::LeaseRenewals,
    metrics::Metrics,
    page_counts::PageCounts,
    postgres::Postgres,
    sqlite::Sqlite,
    terms::check_terms,
    transform::Transform,
    transforming_engine::TransformingEngine,
    watch::Hub,
    writer::Writer,
};

/// Keys of the first page of a long read, while the size of values is unknown. A page is one short database
/// transaction: long reads pin a revision, never a lock.
const FIRST_PAGE_KEYS: usize = 128;
/// Size of the first page, by how much pages grow, and up to what: a read of large values holds few of them at a time,
/// and one that nobody takes further pages from holds little.
const FIRST_PAGE_BYTES: usize = 192 << 10;
const PAGE_GROWTH: usize = 4;
const PAGE_BYTES_MAX: usize = 2 << 20;

/// An open store. Clones share it; it closes when the last one is dropped.
#[derive(Clone, Debug)]
pub struct Store {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    engine: Arc<dyn Engine>,
    writer: Arc<Writer>,
    hub: Arc<Hub>,
    housekeeper: Arc<Housekeeper>,
    renewals: LeaseRenewals,
    counts: PageCounts,
    index_floor: IndexFloor,
    limits: Limits,
    watcher_queue: usize,
    metrics: Metrics,
    transform: Transform,
    /// The dispatcher, the log tailer and the housekeeper; they end with the store.
    _tasks: JoinSet<()>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.hub.close();
    }
}

impl Store {
    /// Opens the store, creating or migrating its tables as needed.
    pub fn open(config: Config) -> BoxFuture<'static, Result<Self>> {
        Box::pin(async move {
            let metrics = Metrics::default();
            let engine: Arc<dyn Engine> = match &config.endpoint {
                Endpoint::Memory | Endpoint::Sqlite(_) => Arc::new(Sqlite::open(&config, metrics.clone())?),
                Endpoint::Postgres(url) => Arc::new(Postgres::open(url, &config, metrics.clone()).await?),
            };
            Self::start(engine, config, metrics).await
        })
    }

    /// Restores a copy that [`Self::snapshot`] wrote into an empty PostgreSQL database, with revisions, history and
    /// leases, and returns its revision. A database that holds data is refused. (SQLite needs no such step: the
    /// copy is a SQLite database.)
    pub fn restore<'a>(config: &'a Config, copy: &'a Path) -> BoxFuture<'a, Result<Revision>> {
        Box::pin(async move {
            match &config.endpoint {
                Endpoint::Postgres(url) => Postgres::restore(url, config, copy).await,
                Endpoint::Memory | Endpoint::Sqlite(_) => {
                    Err(Error::Invalid("a copy is a SQLite database already: open it".into()))
                }
            }
        })
    }

    pub(crate) async fn start(engine: Arc<dyn Engine>, config: Config, metrics: Metrics) -> Result<Self> {
        let transform = Transform::new(config.transformer.clone());
        let engine: Arc<dyn Engine> = match config.transformer.is_some() {
            true => Arc::new(TransformingEngine::new(engine, transform.clone())),
            false => engine,
        };
        let bounds = engine.bounds().await?;
        let hub =
            Arc::new(Hub::new(bounds.current, config.ring_bytes, config.catch_up_bytes, metrics.clone()));
        let writer = Arc::new(Writer::start(engine.clone(), hub.clone(), metrics.clone(), &config)?);
        let housekeeper =
            Arc::new(Housekeeper::new(engine.clone(), hub.clone(), writer.clone(), &config, metrics.clone()));
        let mut tasks = JoinSet::new();
        {
            let (hub, engine) = (hub.clone(), engine.clone());
            tasks.spawn(async move { hub.dispatch(&*engine).await });
        }
        tasks.spawn(publish_log_tail(engine.clone(), hub.clone()));
        tasks.spawn(housekeeper.clone().run());
        Ok(Self {
            inner: Arc::new(Inner {
                index_floor: IndexFloor::load(&*engine).await?,
                engine,
                writer,
                hub,
                housekeeper,
                renewals: LeaseRenewals::default(),
                counts: PageCounts::default(),
                limits: config.limits,
                watcher_queue: config.watcher_queue,
                metrics,
                transform,
                _tasks: tasks,
            }),
        })
    }

    pub(crate) fn engine(&self) -> &dyn Engine {
        &*self.inner.engine
    }

    pub(crate) fn index_floor(&self) -> &IndexFloor {
        &self.inner.index_floor
    }

    /// Drops caches that depend on index terms.
    pub(crate) fn terms_changed(&self) {
        self.inner.counts.clear();
        self.inner.hub.terms_changed();
    }

    pub(crate) async fn submit(&self, command: Command) -> Result<Outcome> {
        self.inner.writer.submit(command).await
    }

    // --- reading ---

    /// Reads a range at one revision. Without a limit the whole result is held in memory: see [`Self::pages`].
    pub async fn read(&self, read: Read) -> Result<ReadResult> {
        let mut pages = self.pages(read)?;
        let Some(mut result) = pages.next().await? else { return Ok(ReadResult::default()) };
        while let Some(page) = pages.next().await? {
            result.kvs.extend(page.kvs);
            result.more = page.more;
        }
        Ok(result)
    }

    /// Reads a range page by page, all at the revision of the first.
    pub fn pages(&self, mut read: Read) -> Result<Pages> {
        self.check_range(&read.range)?;
        self.inner.transform.hide_filter(&mut read);
        let limit = if read.limit == 0 { self.inner.limits.read_keys } else { read.limit };
        let keys = match read.select {
            Select::Values => FIRST_PAGE_KEYS,
            Select::Keys | Select::Nothing => self.inner.engine.max_page_keys(),
        };
        Ok(Pages {
            store: self.clone(),
            read: Some(Read { limit, ..read }),
            revision: None,
            remaining: None,
            keys,
            bytes: FIRST_PAGE_BYTES,
        })
    }

    /// Waits until this process has observed a revision, such as one reported by another process. Reads and
    /// watches that begin afterwards are not older.
    pub async fn wait_for_revision(&self, revision: Revision, timeout: Duration) -> Result<()> {
        if self.inner.engine.bounds().await?.current >= revision {
            return Ok(());
        }
        let mut published = self.inner.hub.published_revisions();
        let arrived = published.wait_for(|current| *current >= revision);
        if tokio::time::timeout(timeout, arrived).await.is_ok_and(|arrived| arrived.is_ok()) {
            return Ok(());
        }
        match self.inner.engine.bounds().await?.current {
            current if current >= revision => Ok(()),
            current => Err(Error::FutureRevision { requested: revision, current }),
        }
    }

    /// Returns the newest revision.
    pub async fn revision(&self) -> Result<Revision> {
        Ok(self.inner.engine.bounds().await?.current)
    }

    /// Returns the newest revision that this process has observed, without asking the database. It is at least that
    /// of every answer given.
    pub fn observed_revision(&self) -> Revision {
        self.inner.hub.published_revision()
    }

    /// Returns the oldest readable revision.
    pub async fn compacted(&self) -> Result<Revision> {
        Ok(self.inner.engine.bounds().await?.compacted)
    }

    /// Opens a watch.
    pub async fn watch(&self, watch: Watch) -> Result<Watcher> {
        let inner = &self.inner;
        let (start, filter) = watch.selection();
        let watch = match inner.transform.stored_filter(start, filter) {
            Some(filter) => watch.filter(filter),
            None => watch,
        };
        Watcher::open(watch, inner.watcher_queue, inner.hub.clone(), inner.engine.clone()).await
    }

    // --- writing ---

    /// Returns the limits on every input.
    pub fn limits(&self) -> &Limits {
        &self.inner.limits
    }

    /// Runs a transaction. When this returns `Ok`, its writes are durable.
    pub async fn txn(&self, txn: Txn) -> Result<TxnResult> {
        let mut operations = 0;
        self.refresh_index_floor(&txn).await?;
        self.check_txn(&txn, 1, &mut operations)?;
        let txn = self.inner.transform.encode(txn)?;
        match self.submit(Command::Txn(txn)).await? {
            Outcome::Txn(mut result) => {
                self.inner.transform.decode_result(&mut result).await?;
                Ok(result)
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Loads other processes' index declarations, if an operation filters the past.
    async fn refresh_index_floor(&self, txn: &Txn) -> Result<()> {
        for op in txn.then.iter().chain(&txn.otherwise) {
            match op {
                Op::Read(read) => {
                    let inner = &self.inner;
                    inner.index_floor.refresh(&*inner.engine, read.revision, &read.filter).await?;
                }
                Op::Txn(inner) => Box::pin(self.refresh_index_floor(inner)).await?,
                Op::Put(_) | Op::Delete(_) => {}
            }
        }
        Ok(())
    }

    fn check_txn(&self, txn: &Txn, depth: usize, operations: &mut usize) -> Result<()> {
        let limits = &self.inner.limits;
        within("the nesting of the transaction", depth, limits.txn_depth)?;
        *operations += txn.compares.len() + txn.then.len() + txn.otherwise.len();
        within("the number of operations", *operations, limits.txn_operations)?;
        for compare in &txn.compares {
            self.check_range(&compare.range)?;
        }
        for op in txn.then.iter().chain(&txn.otherwise) {
            match op {
                Op::Put(put) => {
                    if put.key.is_empty() {
                        return Err(Error::Invalid("a key must not be empty".into()));
                    }
                    within("the key", put.key.len(), limits.key_bytes)?;
                    within("the value", put.value.len(), limits.value_bytes)?;
                    check_terms(&put.terms, limits.terms_bytes)?;
                }
                Op::Delete(delete) => self.check_range(&delete.range)?,
                Op::Read(read) => {
                    self.check_range(&read.range)?;
                    self.inner.index_floor.check(read.revision, &read.filter)?;
                }
                Op::Txn(inner) => self.check_txn(inner, depth + 1, operations)?,
            }
        }
        Ok(())
    }

    fn check_range(&self, range: &KeyRange) -> Result<()> {
        // A range's end is at most one byte longer than the longest key.
        let limit = self.inner.limits.key_bytes + 1;
        within("the key", range.start().len(), limit)?;
        within("the key", range.end().map_or(0, bytes::Bytes::len), limit)
    }

    // --- leases ---

    /// Grants a lease, with a chosen id or a generated one.
    pub async fn grant(&self, id: Option<LeaseId>, ttl: Duration) -> Result<Lease> {
        let ttl_seconds = i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX).max(1);
        if id == Some(0) {
            return Err(Error::Invalid("a lease id must not be 0, which is no lease".into()));
        }
        let lease = self.lease_command(Command::Grant { id, ttl_seconds }).await?;
        self.inner.housekeeper.lease_granted();
        Ok(lease)
    }

    /// Restarts a lease's time to live.
    pub async fn keep_alive(&self, id: LeaseId) -> Result<Lease> {
        let renewals = &self.inner.renewals;
        if let Some(lease) = renewals.recent(id) {
            return Ok(lease);
        }
        let started = renewals.start();
        let lease = self.lease_command(Command::Renew(id)).await?;
        renewals.committed(&lease, started);
        Ok(lease)
    }

    /// Deletes a lease and every key attached to it at one revision, which is returned.
    pub async fn revoke(&self, id: LeaseId) -> Result<Revision> {
        let revoked = self.submit(Command::Revoke(id)).await;
        self.inner.renewals.revoked(id);
        match revoked? {
            Outcome::Done(revision) => Ok(revision),
            other => Err(unexpected(&other)),
        }
    }

    async fn lease_command(&self, command: Command) -> Result<Lease> {
        match self.submit(command).await? {
            Outcome::Lease(lease) => Ok(lease),
            other => Err(unexpected(&other)),
        }
    }

    /// Returns a lease.
    pub async fn lease(&self, id: LeaseId) -> Result<Lease> {
        self.inner.engine.lease(id).await?.ok_or(Error::LeaseNotFound { lease: id })
    }

    /// Returns the keys attached to a lease, sorted.
    pub async fn lease_keys(&self, id: LeaseId) -> Result<Vec<bytes::Bytes>> {
        self.inner.engine.lease_keys(id).await
    }

    /// Returns every lease, sorted by expiry.
    pub async fn leases(&self) -> Result<Vec<Lease>> {
        self.inner.engine.leases(self.inner.limits.read_keys).await
    }

    // --- maintenance ---

    /// Compacts history before `revision`, which stays readable. Returns when no older revision can be read; the
    /// space is given back in small steps afterwards.
    pub async fn compact(&self, revision: Revision) -> Result<()> {
        self.inner.housekeeper.compact(revision).await
    }

    /// Returns when everything before the compacted revision has been deleted.
    pub async fn wait_for_compaction(&self) -> Result<()> {
        self.inner.housekeeper.delete_compacted().await
    }

    /// Returns the terms of a key as they are stored.
    pub(crate) fn stored_terms(&self, key: &[u8], terms: Terms) -> Terms {
        self.inner.transform.stored_terms(key, terms)
    }

    /// Deletes all history, and overwrites what deleted rows left behind in the database's files. Returns `None` if the
    /// database cannot do the latter, and `Some(false)` if another process still uses the write-ahead log.
    pub async fn purge(&self) -> Result<Option<bool>> {
        /// Written and deleted again: compaction keeps what the commit at its revision superseded.
        const MARK: &str = "/orlop/purged";
        self.txn(Txn::of([Op::Put(Put::new(MARK, ""))])).await?;
        let delete = Delete { range: KeyRange::key(MARK), previous: false };
        self.txn(Txn::of([Op::Delete(delete)])).await?;
        match self.compact(self.revision().await?).await {
            Ok(()) | Err(Error::Expired { .. }) => {}
            Err(error) => return Err(error),
        }
        self.wait_for_compaction().await?;
        match self.inner.engine.purge() {
            Some(engine) => engine.purge().await.map(Some),
            None => Ok(None),
        }
    }

    /// Returns the size of the database.
    pub async fn size(&self) -> Result<Size> {
        let size = self.inner.engine.size().await?;
        self.inner.metrics.size(size);
        Ok(size)
    }

    /// Writes a consistent copy of everything to a new file, without stopping writers. The copy is a SQLite
    /// database, whatever this store runs on: open it as one to restore it.
    pub async fn snapshot(&self, path: &Path) -> Result<()> {
        let Some(engine) = self.inner.engine.file_snapshot() else {
            return Err(Error::Invalid("this database cannot be copied to a file".into()));
        };
        engine.snapshot(path).await
    }

    /// Returns a named entry kept beside the data: no key, no revision, no event.
    pub async fn metadata(&self, name: &str) -> Result<Option<String>> {
        self.inner.engine.metadata(name).await
    }

    /// Writes a named entry beside the data.
    pub async fn set_metadata(&self, name: &str, text: &str) -> Result<()> {
        self.inner.engine.set_metadata(name, text).await
    }

    /// Returns the store's metrics.
    pub fn metrics(&self) -> &Metrics {
        &self.inner.metrics
    }

    /// Fails with the reason why the store cannot accept writes now: a full disk, a database file that was
    /// removed, a failed sync, an unreachable server. Does not wait; meant for readiness probes.
    pub fn health(&self) -> Result<()> {
        self.inner.engine.health()?;
        self.inner.writer.health()
    }

    /// Closes the store for all its clones: answers the writes that were submitted, refuses new ones, and leaves the
    /// database as a clean stop should. A SQLite file is complete by itself afterwards, without its write-ahead log.
    pub fn close(self) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            self.inner.writer.drain().await;
            if let Err(error) = self.inner.engine.close().await {
                tracing::warn!(%error, "the database was not closed cleanly; nothing acknowledged is lost");
            }
            let mut finished = self.inner.writer.finished();
            if let Some(inner) = Arc::into_inner(self.inner) {
                drop(inner);
                // Fails only if the writer has ended already.
                let _ = finished.wait_for(|finished| *finished).await;
            }
        })
    }
}

/// The pages of a long read. See [`Store::pages`]. A clone continues independently from the same page.
#[derive(Clone, Debug)]
pub struct Pages {
    store: Store,
    /// The rest of the range.
    read: Option<Read>,
    /// The revision of the first page.
    revision: Option<Revision>,
    /// Number of keys from here on, if the read counts.
    remaining: Option<u64>,
    /// Maximum keys of the next page.
    keys: usize,
    /// Maximum size of the next page.
    bytes: usize,
}

impl Pages {
    /// Returns whether the last page has been read.
    pub fn is_done(&self) -> bool {
        self.read.is_none()
    }

    /// Returns the next page; `None` after the last. Each page's `revision` is that of the first; `count` comes with
    /// the first; `more` says whether the read's own limit left keys out.
    pub async fn next(&mut self) -> Result<Option<ReadResult>> {
        Ok(self.advance(None).await?.map(|encoded| encoded.page))
    }

    /// Returns the next page, encoded.
    pub async fn next_encoded(&mut self, encoder: &Arc<dyn RowEncoder>) -> Result<Option<EncodedPage>> {
        self.advance(Some(encoder)).await
    }

    async fn advance(&mut self, encoder: Option<&Arc<dyn RowEncoder>>) -> Result<Option<EncodedPage>> {
        let Some(mut read) = self.read.take() else { return Ok(None) };
        if self.revision.is_none() {
            let inner = &self.store.inner;
            inner.index_floor.refresh(&*inner.engine, read.revision, &read.filter).await?;
            inner.index_floor.check(read.revision, &read.filter)?;
        }
        if read.range.is_empty() {
            let page = self.empty_page(&read).await?;
            return Ok(Some(EncodedPage {
                page,
                bytes: encoder.map(|_| Bytes::new()),
                ..EncodedPage::default()
            }));
        }
        let limit = read.limit;
        read.limit = limit.min(self.keys);
        let inner = &self.store.inner;
        let cached = if read.count { inner.counts.get(&read) } else { None };
        let asked = Read { count: read.count && cached.is_none(), ..read.clone() };
        let mut encoded = match encoder {
            Some(encoder) => inner.engine.read_encoded(&asked, self.bytes, encoder).await?,
            None => EncodedPage::stored(inner.engine.read(&asked, self.bytes).await?),
        };
        let (keys, page) = (encoded.keys, &mut encoded.page);
        page.count = page.count.or(cached);
        if let Some(count) = page.count.or(self.remaining) {
            let rest = count.saturating_sub(keys as u64);
            self.remaining = Some(rest);
            if let (Some((last, _)), true) = (&encoded.last, page.more) {
                inner.counts.insert(&read, page.revision, last, rest);
            }
        }
        page.revision = *self.revision.get_or_insert(page.revision);
        if let Some((last, _)) = &encoded.last
            && page.more
            && keys < limit
        {
            page.more = false;
            let revision = Some(read.revision.unwrap_or(page.revision));
            let range = read.range.after(last);
            self.read = Some(Read { range, revision, limit: limit - keys, count: false, ..read });
        }
        self.bytes = (self.bytes * PAGE_GROWTH).min(PAGE_BYTES_MAX);
        self.keys = keys_of_next_page(&encoded, self.bytes, inner.engine.max_page_keys());
        Ok(Some(encoded))
    }
}

/// Returns the keys that come to `bytes`, if they are like those of the last page.
fn keys_of_next_page(last: &EncodedPage, bytes: usize, keys_max: usize) -> usize {
    let stored: usize = last.page.kvs.iter().map(|kv| kv.key.len() + kv.value.len()).sum();
    let encoded = last.bytes.as_ref().map_or(0, Bytes::len);
    let each = (stored + encoded) / last.keys.max(1);
    (bytes / each.max(1)).clamp(1, keys_max)
}

impl Pages {
    /// Answers a read of an empty range, whose revision must be readable all the same.
    async fn empty_page(&self, read: &Read) -> Result<ReadResult> {
        let Bounds { current, compacted } = self.store.inner.engine.bounds().await?;
        match read.revision {
            Some(requested) if requested > current => Err(Error::FutureRevision { requested, current }),
            Some(requested) if requested < compacted => Err(Error::Expired { compacted }),
            _ => {
                Ok(ReadResult { revision: current, count: read.count.then_some(0), ..ReadResult::default() })
            }
        }
    }
}

/// Reads other processes' commits from the log and publishes them, for ever.
async fn publish_log_tail(engine: Arc<dyn Engine>, hub: Arc<Hub>) {
    const LIMIT: TailLimit = TailLimit { events: 1024, bytes: 4 << 20 };
    loop {
        tokio::select! {
            () = engine.wait_for_changes() => {}
            () = hub.gap_detected() => {}
        }
        loop {
            match engine.tail(hub.published_revision(), LIMIT).await {
                Ok(commits) if commits.is_empty() => break,
                Ok(commits) => hub.publish(commits),
                Err(Error::Expired { .. }) => match engine.bounds().await {
                    Ok(bounds) => hub.restart(bounds.current),
                    Err(_) => break,
                },
                Err(error) => {
                    tracing::debug!(%error, "cannot read the log now");
                    break;
                }
            }
        }
    }
}

fn within(what: &'static str, size: usize, limit: usize) -> Result<()> {
    if size > limit {
        return Err(Error::TooLarge { what, size: size as u64, limit: limit as u64 });
    }
    Ok(())
}

/// Reports an outcome of the wrong kind, which is a bug of this crate.
fn unexpected(outcome: &Outcome) -> Error {
    Error::Unavailable(format!("internal error: unexpected outcome {outcome:?}"))
}
