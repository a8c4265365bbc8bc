//! Group commit.
//!
//! Writers enqueue jobs and then compete for one lock. Its holder runs every queued job in one transaction
//! of the store, each behind a savepoint, commits once, and finishes them all. A lone writer pays one sync;
//! many share it. No result is acknowledged before it is durable.
//!
//! On a store in memory a writer may also try to run its own job inline, without waiting for the leader.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::{Mutex, RwLock};

use crate::{
    catalog::{Catalog, adjust_count},
    error::{Error, Result},
    store::{Reader, Space, Store},
    transaction::Transaction,
};

/// Most jobs of one commit.
const JOBS_MAX: usize = 1024;
/// Most changed bytes of one commit, after which no further job joins it.
const BYTES_MAX: usize = 16 << 20;

/// Runs in a transaction. Returns false if its changes must be rolled back.
type Job = Box<dyn FnOnce(&mut Transaction<'_>) -> bool + Send>;

/// Serializes writes and publishes their effects.
#[derive(Debug)]
pub(crate) struct Committer {
    store: Arc<dyn Store>,
    queue: Mutex<VecDeque<Queued>>,
    /// Held by the writer that runs the queue.
    leader: Mutex<()>,
    /// The committed catalog. Locked for writing while a commit changes it, so that a reader's snapshot
    /// and catalog agree.
    catalog: RwLock<Arc<Catalog>>,
    /// Changes before and after each commit that changes the catalog.
    catalog_version: AtomicU64,
}

struct Queued {
    job: Job,
    outcome: Arc<Outcome>,
}

impl std::fmt::Debug for Queued {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Queued")
    }
}

/// Result of the commit that a job was part of.
#[derive(Debug, Default)]
struct Outcome(Mutex<Option<Result<()>>>);

/// A write that has been submitted.
#[derive(Debug)]
#[must_use = "a write is not done until it is waited for"]
pub struct PendingWrite<T> {
    committer: Arc<Committer>,
    outcome: Arc<Outcome>,
    value: Arc<Mutex<Option<Result<T>>>>,
}

impl Committer {
    pub(crate) fn new(store: Arc<dyn Store>) -> Result<Self> {
        let catalog = Catalog::load(store.snapshot()?.as_ref())?;
        Ok(Self {
            store,
            queue: Mutex::default(),
            leader: Mutex::default(),
            catalog: RwLock::new(Arc::new(catalog)),
            catalog_version: AtomicU64::new(0),
        })
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Opens a snapshot with the catalog that belongs to it.
    pub(crate) fn snapshot(&self) -> Result<(Arc<Catalog>, Box<dyn Reader + '_>)> {
        let catalog = self.catalog.read();
        let reader = self.store.snapshot()?;
        Ok((Arc::clone(&catalog), reader))
    }

    /// Reads one document of a collection by its encoded `_id`. The catalog is locked meanwhile, so that the
    /// collection is not dropped.
    pub(crate) fn read(
        &self,
        collection: &str,
        id: &[u8],
        read: &mut dyn FnMut(Option<&[u8]>),
    ) -> Result<()> {
        let catalog = self.catalog.read();
        self.store.read(catalog.get(collection)?.space, id, read)
    }

    /// Returns the space of a collection's documents, with the version of the catalog that says so.
    pub(crate) fn resolve(&self, collection: &str) -> Result<(u64, Space)> {
        let catalog = self.catalog.read();
        let space = catalog.get(collection)?.space;
        Ok((self.catalog_version(), space))
    }

    /// Returns the version of the catalog.
    pub(crate) fn catalog_version(&self) -> u64 {
        self.catalog_version.load(Ordering::SeqCst)
    }

    /// Returns true if a read waits for nothing: neither for a disk nor for a commit that changes the catalog.
    pub(crate) fn reads_without_blocking(&self) -> bool {
        self.store.is_in_memory() && !self.catalog.is_locked_exclusive()
    }

    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.catalog.read())
    }

    pub(crate) fn submit<T, F>(self: &Arc<Self>, job: F) -> PendingWrite<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Transaction<'_>) -> Result<T> + Send + 'static,
    {
        let value = Arc::new(Mutex::new(None));
        let outcome = Arc::new(Outcome::default());
        let slot = Arc::clone(&value);
        let job: Job = Box::new(move |transaction| {
            let result = job(transaction);
            let succeeded = result.is_ok();
            *slot.lock() = Some(result);
            succeeded
        });
        self.queue.lock().push_back(Queued { job, outcome: Arc::clone(&outcome) });
        PendingWrite { committer: Arc::clone(self), outcome, value }
    }

    /// Runs and commits one job now, or hands it back if it would wait: for a disk, or for the writer that leads.
    pub(crate) fn try_run<T, F>(&self, job: F) -> std::result::Result<Result<T>, F>
    where
        F: FnOnce(&mut Transaction<'_>) -> Result<T>,
    {
        if !self.store.commits_without_blocking() {
            return Err(job);
        }
        let Some(_leader) = self.leader.try_lock() else { return Err(job) };
        Ok(self.run_inline(job))
    }

    fn run_inline<T>(&self, job: impl FnOnce(&mut Transaction<'_>) -> Result<T>) -> Result<T> {
        let before = self.catalog();
        let mut transaction = Transaction::new(self.store.begin()?, Arc::clone(&before));
        // As in a queue: a panic is the job's own. What it changed is dropped with the transaction.
        let job = std::panic::AssertUnwindSafe(|| job(&mut transaction));
        let value = std::panic::catch_unwind(job).unwrap_or(Err(Error::Cancelled))?;
        self.commit(&before, transaction)?;
        Ok(value)
    }

    /// Runs and commits what is queued. The caller holds the leader's lock.
    fn lead(&self) {
        let mut outcomes = Vec::new();
        let result = self.run_queue(&mut outcomes);
        for outcome in outcomes {
            *outcome.0.lock() = Some(result.clone());
        }
    }

    fn run_queue(&self, outcomes: &mut Vec<Arc<Outcome>>) -> Result<()> {
        let before = self.catalog();
        let writer = self.store.begin();
        let mut transaction = match writer {
            Ok(writer) => Transaction::new(writer, Arc::clone(&before)),
            Err(error) => {
                // Fail what waits, or it would wait for ever.
                outcomes.extend(self.queue.lock().drain(..).map(|queued| queued.outcome));
                return Err(error);
            }
        };
        while outcomes.len() < JOBS_MAX && transaction.changed_bytes() < BYTES_MAX {
            let Some(queued) = self.queue.lock().pop_front() else { break };
            outcomes.push(queued.outcome);
            transaction.savepoint();
            // A panic must not strand the others of this commit; its own caller gets `Cancelled`.
            let job = std::panic::AssertUnwindSafe(|| (queued.job)(&mut transaction));
            if !std::panic::catch_unwind(job).unwrap_or(false) {
                transaction.roll_back();
            }
        }
        self.commit(&before, transaction)
    }

    /// Commits a transaction and publishes its catalog.
    fn commit(&self, before: &Arc<Catalog>, transaction: Transaction<'_>) -> Result<()> {
        let (mut writer, catalog, counts) = transaction.into_parts();
        for (space, change) in &counts {
            adjust_count(writer.as_mut(), *space, *change)?;
        }
        if Arc::ptr_eq(before, &catalog) {
            return writer.commit();
        }
        let mut published = self.catalog.write();
        // Changed first, so that whoever reads the new state without the lock finds that the catalog is changing.
        self.catalog_version.fetch_add(1, Ordering::SeqCst);
        let committed = writer.commit();
        if committed.is_ok() {
            *published = catalog;
        }
        self.catalog_version.fetch_add(1, Ordering::SeqCst);
        committed
    }
}

impl<T> PendingWrite<T> {
    /// Waits until the write is durable, or has failed. Becomes the leader if there is none.
    pub fn wait(self) -> Result<T> {
        loop {
            if let Some(outcome) = self.outcome.0.lock().take() {
                outcome?;
                let value = self.value.lock().take();
                return value.unwrap_or(Err(Error::Cancelled));
            }
            let _leader = self.committer.leader.lock();
            if self.outcome.0.lock().is_none() {
                self.committer.lead();
            }
        }
    }
}
