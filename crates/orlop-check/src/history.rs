//! Recorded histories.

use std::sync::atomic::{AtomicU64, Ordering};

use orlop_store::{Error, Read, ReadResult, Revision, Txn, TxnResult};

use crate::{Batch, Failure, WatchSpec};

/// A logical clock.
#[derive(Debug, Default)]
pub struct Clock(AtomicU64);

impl Clock {
    /// Returns the next time.
    pub fn tick(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst)
    }
}

/// A client's request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// A transaction.
    Txn(Txn),
    /// A read.
    Read(Read),
    /// A compaction.
    Compact(Revision),
}

/// Outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A transaction's result.
    Txn(TxnResult),
    /// A read's result.
    Read(ReadResult),
    /// A completed compaction.
    Compacted,
    /// An error; nothing was written.
    Refused(Error),
    /// Unknown: it may or may not have been executed.
    Unknown,
}

impl From<Failure> for Outcome {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused(error) => Self::Refused(error),
            Failure::Unknown(_) => Self::Unknown,
        }
    }
}

/// One request and its outcome.
#[derive(Clone, Debug)]
pub struct Operation {
    /// The client.
    pub client: u64,
    /// Time of the invocation.
    pub invoked: u64,
    /// Time of the response; meaningless if the outcome is unknown.
    pub returned: u64,
    /// The request.
    pub request: Request,
    /// The outcome.
    pub outcome: Outcome,
}

/// One message of a watch.
#[derive(Clone, Debug)]
pub enum Entry {
    /// Events.
    Batch(Batch),
    /// Everything up to here has been delivered.
    Progress(Revision),
    /// The watch has ended.
    Ended(Failure),
}

impl Entry {
    /// Returns the events of a batch.
    pub fn batch(&self) -> Option<&Batch> {
        match self {
            Self::Batch(batch) => Some(batch),
            Self::Progress(_) | Self::Ended(_) => None,
        }
    }
}

/// One watch, from its opening to its end.
#[derive(Clone, Debug)]
pub struct WatchRecord {
    /// The options.
    pub spec: WatchSpec,
    /// Time of the invocation.
    pub invoked: u64,
    /// Time at which it was open, or refused: then that is the only entry.
    pub opened: u64,
    /// Its messages with the times of their arrival.
    pub entries: Vec<(u64, Entry)>,
    /// Set if it was read to the end of the history.
    pub drained: bool,
}

/// A recorded history.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// All operations, in any order.
    pub operations: Vec<Operation>,
    /// All watches.
    pub watches: Vec<WatchRecord>,
    /// The newest revision after all operations.
    pub last: Revision,
}
