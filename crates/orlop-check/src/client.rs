//! The interface to the system under test: the store itself, or a server of it.

use orlop_store::{
    Error, Filter, KeyRange, KeyValue, Read, ReadResult, Revision, Store, Txn, TxnResult, Watch, Watcher,
};

/// Failure of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The request failed; nothing was written.
    Refused(Error),
    /// It may or may not have been executed.
    Unknown(String),
}

/// Result of a request.
pub type Answer<T> = Result<T, Failure>;

/// A client of the store.
#[async_trait::async_trait]
pub trait Client: Send + Sync {
    /// Runs a transaction.
    async fn txn(&self, txn: Txn) -> Answer<TxnResult>;
    /// Reads a range.
    async fn read(&self, read: Read) -> Answer<ReadResult>;
    /// Compacts history before a revision.
    async fn compact(&self, revision: Revision) -> Answer<()>;
    /// Returns the newest revision.
    async fn revision(&self) -> Answer<Revision>;
    /// Opens a watch.
    async fn watch(&self, spec: WatchSpec) -> Answer<Box<dyn WatchStream>>;
}

/// Options of a watch.
#[derive(Clone, Debug)]
pub struct WatchSpec {
    /// The keys.
    pub range: KeyRange,
    /// Condition on their index terms.
    pub filter: Filter,
    /// Start after this revision; `None` for now.
    pub after: Option<Revision>,
    /// Requests superseded values.
    pub previous: bool,
}

/// An open watch.
#[async_trait::async_trait]
pub trait WatchStream: Send {
    /// Returns the next revision's events. Cancel-safe.
    async fn next(&mut self) -> Answer<Batch>;
    /// Returns the revision up to which everything has been delivered.
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
    /// The version written; of a deletion the key and the revision.
    pub kv: KeyValue,
    /// Set for a deletion.
    pub deleted: bool,
    /// Set for a creation.
    pub created: bool,
    /// True if the version and the superseded one match the filter; `None` if not reported.
    pub passes: Option<(bool, bool)>,
    /// The superseded version, if requested.
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
