//! What a workload needs of whatever it torments: the store itself, or a front before it.

use orlop_store::{
    Error, Filter, KeyRange, KeyValue, Read, ReadResult, Revision, Store, Txn, TxnResult, Watch, Watcher,
};

/// Why there is no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The request was turned down: nothing happened.
    Refused(Error),
    /// Nobody knows whether it happened.
    Unknown(String),
}

/// What a client is answered.
pub type Answer<T> = Result<T, Failure>;

/// One way to the store.
#[async_trait::async_trait]
pub trait Client: Send + Sync {
    /// Runs a transaction.
    async fn txn(&self, txn: Txn) -> Answer<TxnResult>;
    /// Reads a range.
    async fn read(&self, read: Read) -> Answer<ReadResult>;
    /// Forgets history before a revision.
    async fn compact(&self, revision: Revision) -> Answer<()>;
    /// The newest revision.
    async fn revision(&self) -> Answer<Revision>;
    /// Opens a watch.
    async fn watch(&self, spec: WatchSpec) -> Answer<Box<dyn WatchStream>>;
}

/// What to watch.
#[derive(Clone, Debug)]
pub struct WatchSpec {
    /// Which keys.
    pub range: KeyRange,
    /// Which versions of them.
    pub filter: Filter,
    /// After which revision; `None` for from now on.
    pub after: Option<Revision>,
    /// Whether to bring superseded values.
    pub previous: bool,
}

/// An open watch.
#[async_trait::async_trait]
pub trait WatchStream: Send {
    /// The next revision's events. May be dropped and called again.
    async fn next(&mut self) -> Answer<Batch>;
    /// Up to where everything has been delivered.
    async fn progress(&mut self) -> Answer<Revision>;
}

/// The events of one revision, as a watch delivered them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Their revision.
    pub revision: Revision,
    /// The events.
    pub events: Vec<Observed>,
}

/// One event, as a watch delivered it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// What was written; of a deletion the key and the revision.
    pub kv: KeyValue,
    /// Whether the key was deleted.
    pub deleted: bool,
    /// Whether the key is new.
    pub created: bool,
    /// Whether the version now, and the one before, pass the filter; `None` where nobody says.
    pub passes: Option<(bool, bool)>,
    /// The superseded version, if it was asked for.
    pub previous: Option<KeyValue>,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            // The store says that nothing was written, but a checker must not take its word for it.
            Error::Unavailable(reason) | Error::AmbiguousCommit(reason) => Self::Unknown(reason),
            error => Self::Refused(error),
        }
    }
}

#[async_trait::async_trait]
impl Client for Store {
    async fn txn(&self, txn: Txn) -> Answer<TxnResult> {
        Ok(Store::txn(self, txn).await?)
    }

    async fn read(&self, read: Read) -> Answer<ReadResult> {
        Ok(Store::read(self, read).await?)
    }

    async fn compact(&self, revision: Revision) -> Answer<()> {
        Ok(Store::compact(self, revision).await?)
    }

    async fn revision(&self) -> Answer<Revision> {
        Ok(Store::revision(self).await?)
    }

    async fn watch(&self, spec: WatchSpec) -> Answer<Box<dyn WatchStream>> {
        let mut watch = Watch::new(spec.range).filter(spec.filter);
        if let Some(revision) = spec.after {
            watch = watch.after(revision);
        }
        if spec.previous {
            watch = watch.previous();
        }
        Ok(Box::new(Store::watch(self, watch).await?))
    }
}

#[async_trait::async_trait]
impl WatchStream for Watcher {
    async fn next(&mut self) -> Answer<Batch> {
        let batch = Watcher::next(self).await?;
        let events = batch.events().map(|seen| Observed {
            kv: seen.event.kv.clone(),
            deleted: seen.event.deleted,
            created: seen.event.created(),
            passes: Some((seen.matches, seen.matched_before)),
            previous: seen.event.previous.as_ref().and_then(|previous| previous.kv(&seen.event.kv.key)),
        });
        Ok(Batch { revision: batch.revision(), events: events.collect() })
    }

    async fn progress(&mut self) -> Answer<Revision> {
        Ok(Watcher::progress(self))
    }
}
