//! What happened, as the clients saw it.

use std::sync::atomic::{AtomicU64, Ordering};

use orlop_store::{Error, Read, ReadResult, Revision, Txn, TxnResult};

use crate::{Batch, Failure, WatchSpec};

/// Numbers moments: a moment that is over before another begins has the smaller number.
#[derive(Debug, Default)]
pub struct Clock(AtomicU64);

impl Clock {
    /// Now.
    pub fn tick(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst)
    }
}

/// What a client asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Run a transaction.
    Txn(Txn),
    /// Read a range.
    Read(Read),
    /// Forget history.
    Compact(Revision),
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A transaction's result.
    Txn(TxnResult),
    /// A read's result.
    Read(ReadResult),
    /// A compaction is done.
    Compacted,
    /// It was turned down.
    Refused(Error),
    /// Nobody knows.
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
    /// Who asked.
    pub client: u64,
    /// When it was asked.
    pub invoked: u64,
    /// When it was answered; without meaning where the outcome is unknown.
    pub returned: u64,
    /// What was asked.
    pub request: Request,
    /// What came of it.
    pub outcome: Outcome,
}

/// One thing that a watch told its client.
#[derive(Clone, Debug)]
pub enum Entry {
    /// Events.
    Batch(Batch),
    /// Everything up to here has been delivered.
    Progress(Revision),
    /// The watch is over.
    Ended(Failure),
}

impl Entry {
    /// The events, if this is some.
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
    /// What was watched.
    pub spec: WatchSpec,
    /// When it was asked for.
    pub invoked: u64,
    /// When it was open (or refused: then the only entry says so).
    pub opened: u64,
    /// What it told, and when that had arrived.
    pub entries: Vec<(u64, Entry)>,
    /// Whether it was read until nothing could be missing.
    pub drained: bool,
}

/// Everything that happened.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// All operations, in any order.
    pub operations: Vec<Operation>,
    /// All watches.
    pub watches: Vec<WatchRecord>,
    /// The newest revision once everyone was done.
    pub last: Revision,
}
