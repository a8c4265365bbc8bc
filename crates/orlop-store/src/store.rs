//! The store as callers see it: checks what they ask, and hands it to the writer, the readers or the hub.

use std::{path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::task::JoinSet;

use crate::{
    Config, EncodedPage, Endpoint, KeyRange, Lease, LeaseId, Limits, Op, Read, ReadResult, Revision,
    RowEncoder, Select, Size, Txn, TxnResult, Watch, Watcher,
    counts::Counts,
    engine::{Bounds, Command, Engine, Outcome},
    error::{Error, Result},
    housekeeping::Housekeeper,
    indexing::IndexFloor,
    metrics::Metrics,
    postgres::Postgres,
    renewals::Renewals,
    sqlite::Sqlite,
    terms::check_terms,
    watch::Hub,
    writer::Writer,
};

/// Keys of the first page of a long read, before it is known how large values are. A page is one short database
/// transaction: long reads pin a revision, never a lock.
const FIRST_PAGE_KEYS: usize = 128;
/// Bytes that a page is to come to: a read of large values holds few of them at a time.
const PAGE_BYTES: usize = 2 << 20;

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
    renewals: Renewals,
    counts: Counts,
    index_floor: IndexFloor,
    limits: Limits,
    watcher_queue: usize,
    metrics: Metrics,
    /// The dispatcher, the follower and the housekeeper; they end with the store.
    _tasks: JoinSet<()>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.hub.close();
    }
}

impl Store {
    /// Opens the store, creating or migrating its tables as needed.
    pub async fn open(config: Config) -> Result<Self> {
        let metrics = Metrics::default();
        let engine: Arc<dyn Engine> = match &config.endpoint {
            Endpoint::Memory | Endpoint::Sqlite(_) => Arc::new(Sqlite::open(&config, metrics.clone())?),
            Endpoint::Postgres(url) => Arc::new(Postgres::open(url, &config, metrics.clone()).await?),
        };
        Self::start(engine, config, metrics).await
    }

    /// Makes a new PostgreSQL database of a copy that [`Self::snapshot`] wrote, revisions, history and leases
    /// included; the revision it has. A database that holds data is refused. (A SQLite store needs no such
    /// step: the copy is one.)
    pub async fn restore(config: &Config, copy: &Path) -> Result<Revision> {
        match &config.endpoint {
            Endpoint::Postgres(url) => Postgres::restore(url, config, copy).await,
            Endpoint::Memory | Endpoint::Sqlite(_) => {
                Err(Error::Invalid("a copy is a SQLite database already: open it".into()))
            }
        }
    }

    pub(crate) async fn start(engine: Arc<dyn Engine>, config: Config, metrics: Metrics) -> Result<Self> {
        let bounds = engine.bounds().await?;
        let hub = Arc::new(Hub::new(bounds.current, config.ring_bytes, metrics.clone()));
        let writer = Arc::new(Writer::start(engine.clone(), hub.clone(), metrics.clone(), &config)?);
        let housekeeper =
            Arc::new(Housekeeper::new(engine.clone(), hub.clone(), writer.clone(), &config, metrics.clone()));
        let mut tasks = JoinSet::new();
        {
            let (hub, engine) = (hub.clone(), engine.clone());
            tasks.spawn(async move { hub.dispatch(&*engine).await });
        }
        tasks.spawn(follow(engine.clone(), hub.clone()));
        tasks.spawn(housekeeper.clone().keep());
        Ok(Self {
            inner: Arc::new(Inner {
                index_floor: IndexFloor::load(&*engine).await?,
                engine,
                writer,
                hub,
                housekeeper,
                renewals: Renewals::default(),
                counts: Counts::default(),
                limits: config.limits,
                watcher_queue: config.watcher_queue,
                metrics,
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

    pub(crate) fn counts(&self) -> &Counts {
        &self.inner.counts
    }

    pub(crate) async fn submit(&self, command: Command) -> Result<Outcome> {
        self.inner.writer.submit(command).await
    }

    // --- reading ---

    /// Reads a range at one revision. Without a limit everything is gathered in memory: see [`Self::pages`].
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
    pub fn pages(&self, read: Read) -> Result<Pages> {
        self.check_range(&read.range)?;
        let limit = if read.limit == 0 { self.inner.limits.read_keys } else { read.limit };
        let keys = match read.select {
            Select::Values => FIRST_PAGE_KEYS,
            Select::Keys | Select::Nothing => self.inner.engine.page_keys(),
        };
        Ok(Pages {
            store: self.clone(),
            read: Some(Read { limit, ..read }),
            revision: None,
            left: None,
            keys,
        })
    }

    /// Waits until this process has seen a revision, as after being told of it by another. Reads and
    /// watches that begin afterwards are not older.
    pub async fn wait_for_revision(&self, revision: Revision, patience: Duration) -> Result<()> {
        if self.inner.engine.bounds().await?.current >= revision {
            return Ok(());
        }
        let mut published = self.inner.hub.subscribe();
        let arrived = published.wait_for(|current| *current >= revision);
        if tokio::time::timeout(patience, arrived).await.is_ok_and(|arrived| arrived.is_ok()) {
            return Ok(());
        }
        match self.inner.engine.bounds().await?.current {
            current if current >= revision => Ok(()),
            current => Err(Error::FutureRevision { requested: revision, current }),
        }
    }

    /// The newest revision.
    pub async fn revision(&self) -> Result<Revision> {
        Ok(self.inner.engine.bounds().await?.current)
    }

    /// The newest revision that this process has heard of, without asking the database: that of every answer it
    /// has given, or a later one.
    pub fn observed_revision(&self) -> Revision {
        self.inner.hub.tip()
    }

    /// The oldest revision that can be read.
    pub async fn compacted(&self) -> Result<Revision> {
        Ok(self.inner.engine.bounds().await?.compacted)
    }

    /// Opens a watch.
    pub async fn watch(&self, watch: Watch) -> Result<Watcher> {
        let inner = &self.inner;
        Watcher::open(watch, inner.watcher_queue, inner.hub.clone(), inner.engine.clone()).await
    }

    // --- writing ---

    /// The bounds on every input.
    pub fn limits(&self) -> &Limits {
        &self.inner.limits
    }

    /// Runs a transaction. When this returns `Ok`, what it wrote is durable.
    pub async fn txn(&self, txn: Txn) -> Result<TxnResult> {
        let mut operations = 0;
        self.learn_floor(&txn).await?;
        self.check_txn(&txn, 1, &mut operations)?;
        match self.submit(Command::Txn(txn)).await? {
            Outcome::Txn(result) => Ok(result),
            other => Err(unexpected(&other)),
        }
    }

    /// Learns what other processes have declared, if a step filters the past.
    async fn learn_floor(&self, txn: &Txn) -> Result<()> {
        for op in txn.then.iter().chain(&txn.otherwise) {
            match op {
                Op::Read(read) => {
                    let inner = &self.inner;
                    inner.index_floor.refresh(&*inner.engine, read.revision, &read.filter).await?;
                }
                Op::Txn(inner) => Box::pin(self.learn_floor(inner)).await?,
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

    /// Gives a lease its whole time to live again.
    pub async fn keep_alive(&self, id: LeaseId) -> Result<Lease> {
        let renewals = &self.inner.renewals;
        if let Some(lease) = renewals.recent(id) {
            return Ok(lease);
        }
        let begun = renewals.begin();
        let lease = self.lease_command(Command::Renew(id)).await?;
        renewals.renewed(&lease, begun);
        Ok(lease)
    }

    /// Deletes a lease and every key that hangs on it, at one revision, which is returned.
    pub async fn revoke(&self, id: LeaseId) -> Result<Revision> {
        let revoked = self.submit(Command::Revoke(id)).await;
        self.inner.renewals.forget(id);
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

    /// A lease, if it is granted.
    pub async fn lease(&self, id: LeaseId) -> Result<Lease> {
        self.inner.engine.lease(id).await?.ok_or(Error::LeaseNotFound { lease: id })
    }

    /// The keys that hang on a lease, sorted.
    pub async fn lease_keys(&self, id: LeaseId) -> Result<Vec<bytes::Bytes>> {
        self.inner.engine.lease_keys(id).await
    }

    /// Every lease, the one that runs out first in front.
    pub async fn leases(&self) -> Result<Vec<Lease>> {
        self.inner.engine.leases(self.inner.limits.read_keys).await
    }

    // --- upkeep ---

    /// Forgets history before `revision`, which stays readable. Returns when no older revision can be read;
    /// the space is given back in small steps afterwards.
    pub async fn compact(&self, revision: Revision) -> Result<()> {
        self.inner.housekeeper.compact(revision).await
    }

    /// Returns when everything before the compacted revision has been forgotten.
    pub async fn wait_for_compaction(&self) -> Result<()> {
        self.inner.housekeeper.forget().await
    }

    /// How large the database is.
    pub async fn size(&self) -> Result<Size> {
        let size = self.inner.engine.size().await?;
        self.inner.metrics.size(size);
        Ok(size)
    }

    /// Writes a consistent copy of everything to a new file, while the store goes on. The copy is a SQLite
    /// database, whatever this store runs on: open it as one to restore it.
    pub async fn snapshot(&self, path: &Path) -> Result<()> {
        self.inner.engine.snapshot(path).await
    }

    /// A small fact kept beside the data under a name: no key, no revision, no event.
    pub async fn metadata(&self, name: &str) -> Result<Option<String>> {
        self.inner.engine.metadata(name).await
    }

    /// Keeps a small fact beside the data.
    pub async fn set_metadata(&self, name: &str, text: &str) -> Result<()> {
        self.inner.engine.set_metadata(name, text).await
    }

    /// What the store measures of itself.
    pub fn metrics(&self) -> &Metrics {
        &self.inner.metrics
    }

    /// Closes the store once the writer has answered everyone. Other clones keep it open.
    pub async fn close(self) {
        let mut finished = self.inner.writer.finished();
        drop(self);
        // Fails only if the thread is gone already.
        let _ = finished.wait_for(|finished| *finished).await;
    }
}

/// The pages of a long read. See [`Store::pages`]. A clone goes on from the same page by itself.
#[derive(Clone, Debug)]
pub struct Pages {
    store: Store,
    /// What is left to read.
    read: Option<Read>,
    /// The revision that the first page was answered at.
    revision: Option<Revision>,
    /// How many keys there were from here on, if that was asked.
    left: Option<u64>,
    /// How many keys the next page may have.
    keys: usize,
}

impl Pages {
    /// Whether the page that came last was the last.
    pub fn is_done(&self) -> bool {
        self.read.is_none()
    }

    /// The next page; `None` after the last. Each page's `revision` is that of the first; `count` comes
    /// with the first; `more` says whether the read's own limit left keys out.
    pub async fn next(&mut self) -> Result<Option<ReadResult>> {
        Ok(self.advance(None).await?.map(|formed| formed.page))
    }

    /// The same, in a form.
    pub async fn next_encoded(&mut self, form: &Arc<dyn RowEncoder>) -> Result<Option<EncodedPage>> {
        self.advance(Some(form)).await
    }

    async fn advance(&mut self, form: Option<&Arc<dyn RowEncoder>>) -> Result<Option<EncodedPage>> {
        let Some(mut read) = self.read.take() else { return Ok(None) };
        if self.revision.is_none() {
            let inner = &self.store.inner;
            inner.index_floor.refresh(&*inner.engine, read.revision, &read.filter).await?;
            inner.index_floor.check(read.revision, &read.filter)?;
        }
        if read.range.is_empty() {
            let page = self.nothing(&read).await?;
            return Ok(Some(EncodedPage {
                page,
                bytes: form.map(|_| Bytes::new()),
                ..EncodedPage::default()
            }));
        }
        let limit = read.limit;
        read.limit = limit.min(self.keys);
        let inner = &self.store.inner;
        let known = if read.count { inner.counts.known(&read) } else { None };
        let asked = Read { count: read.count && known.is_none(), ..read.clone() };
        let mut formed = match form {
            Some(form) => inner.engine.read_formed(&asked, form).await?,
            None => EncodedPage::stored(inner.engine.read(&asked).await?),
        };
        let (keys, page) = (formed.keys, &mut formed.page);
        page.count = page.count.or(known);
        if let Some(count) = page.count.or(self.left) {
            let rest = count.saturating_sub(keys as u64);
            self.left = Some(rest);
            if let (Some((last, _)), true) = (&formed.last, page.more) {
                inner.counts.learn(&read, page.revision, last, rest);
            }
        }
        page.revision = *self.revision.get_or_insert(page.revision);
        if let Some((last, _)) = &formed.last
            && page.more
            && keys < limit
        {
            page.more = false;
            let revision = Some(read.revision.unwrap_or(page.revision));
            let range = read.range.after(last);
            self.read = Some(Read { range, revision, limit: limit - keys, count: false, ..read });
        }
        self.keys = keys_of_next_page(&formed, inner.engine.page_keys());
        Ok(Some(formed))
    }
}

/// As many keys as come to [`PAGE_BYTES`], if they go on as they were.
fn keys_of_next_page(last: &EncodedPage, keys_max: usize) -> usize {
    let stored: usize = last.page.kvs.iter().map(|kv| kv.key.len() + kv.value.len()).sum();
    let formed = last.bytes.as_ref().map_or(0, Bytes::len);
    let each = (stored + formed) / last.keys.max(1);
    (PAGE_BYTES / each.max(1)).clamp(1, keys_max)
}

impl Pages {
    /// The answer to a read of a range that can hold nothing: its revision must be readable all the same.
    async fn nothing(&self, read: &Read) -> Result<ReadResult> {
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
async fn follow(engine: Arc<dyn Engine>, hub: Arc<Hub>) {
    const TAIL_EVENTS: usize = 1024;
    loop {
        tokio::select! {
            () = engine.changed() => {}
            () = hub.gap() => {}
        }
        loop {
            match engine.tail(hub.tip(), TAIL_EVENTS).await {
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

/// Outcomes answer commands kind by kind; anything else is a mistake of this crate, told as such.
fn unexpected(outcome: &Outcome) -> Error {
    Error::Unavailable(format!("internal error: unexpected outcome {outcome:?}"))
}
