//! Requests and results: reads, transactions, leases.

use bytes::Bytes;

use crate::{Filter, KeyRange, LeaseId, Revision, Terms};

/// One version of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyValue {
    /// The key.
    pub key: Bytes,
    /// The value; empty if only keys were requested.
    pub value: Bytes,
    /// The revision of the key's last creation.
    pub create_revision: Revision,
    /// The revision that wrote this version.
    pub revision: Revision,
    /// Number of writes since creation; 1 at creation.
    pub version: i64,
    /// The lease the key is attached to; 0 for none.
    pub lease: LeaseId,
    /// Set if the value should be written again, since it would be stored in another form now.
    pub stale: bool,
}

/// Parts of each matching key that a read returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Select {
    /// Keys, revisions and values.
    #[default]
    Values,
    /// Keys and revisions; values are left empty and not read.
    Keys,
    /// Nothing but the count.
    Nothing,
}

/// A read of a range at one revision.
///
/// ```
/// use orlop_store::{KeyRange, Read};
/// let read = Read { limit: 500, ..Read::new(KeyRange::prefix("/registry/pods/")) };
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// The keys.
    pub range: KeyRange,
    /// The revision; `None` for the newest.
    pub revision: Option<Revision>,
    /// Maximum number of keys; 0 for no limit.
    pub limit: usize,
    /// Condition on the index terms.
    pub filter: Filter,
    /// Parts of each key to return.
    pub select: Select,
    /// Counts every matching key, past the limit too.
    pub count: bool,
}

impl Read {
    /// Reads everything in a range at the newest revision.
    pub fn new(range: KeyRange) -> Self {
        Self {
            range,
            revision: None,
            limit: 0,
            filter: Filter::everything(),
            select: Select::Values,
            count: false,
        }
    }

    /// Counts the keys of a range at the newest revision.
    pub fn count(range: KeyRange) -> Self {
        Self { select: Select::Nothing, count: true, ..Self::new(range) }
    }
}

/// The answer to a [`Read`]: one snapshot, sorted by key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadResult {
    /// The store's newest revision when the snapshot was taken. A next page of the same snapshot asks for
    /// the revision of the first one.
    pub revision: Revision,
    /// The matching keys, up to the limit.
    pub kvs: Vec<KeyValue>,
    /// Set if the limit left keys out.
    pub more: bool,
    /// Number of matching keys, if requested.
    pub count: Option<u64>,
}

/// A transaction: if every compare holds, `then` runs, else `otherwise`, atomically and at one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Txn {
    /// Conditions on the state before the transaction.
    pub compares: Vec<Compare>,
    /// Operations if all compares hold.
    pub then: Vec<Op>,
    /// Operations if one does not.
    pub otherwise: Vec<Op>,
}

impl Txn {
    /// Creates a transaction without compares.
    pub fn of(then: impl IntoIterator<Item = Op>) -> Self {
        Self { then: then.into_iter().collect(), ..Self::default() }
    }

    /// Creates a transaction that runs `then` if `compare` holds, and otherwise reads the compared range.
    pub fn guarded(compare: Compare, then: Op) -> Self {
        let otherwise = Op::Read(Read::new(compare.range.clone()));
        Self { compares: vec![compare], then: vec![then], otherwise: vec![otherwise] }
    }

    /// Creates `put.key`, if it does not exist.
    pub fn create(put: Put) -> Self {
        let absent = Compare::new(KeyRange::key(put.key.clone()), Comparison::Equal, Target::Revision(0));
        Self::guarded(absent, Op::Put(put))
    }

    /// Replaces `put.key`, if its version is still the one written at `revision`.
    pub fn replace(put: Put, revision: Revision) -> Self {
        let same =
            Compare::new(KeyRange::key(put.key.clone()), Comparison::Equal, Target::Revision(revision));
        Self::guarded(same, Op::Put(put))
    }

    /// Deletes `key`, if its version is still the one written at `revision`.
    pub fn remove(key: impl Into<Bytes>, revision: Revision) -> Self {
        let range = KeyRange::key(key);
        let same = Compare::new(range.clone(), Comparison::Equal, Target::Revision(revision));
        Self::guarded(same, Op::Delete(Delete { range, previous: true }))
    }
}

impl Txn {
    /// Returns whether it may put a key, which a full database refuses while it accepts deletes.
    pub(crate) fn puts(&self) -> bool {
        self.then.iter().chain(&self.otherwise).any(|op| match op {
            Op::Put(_) => true,
            Op::Txn(inner) => inner.puts(),
            Op::Delete(_) | Op::Read(_) => false,
        })
    }

    /// Returns the bytes of all keys and values that it may put.
    pub(crate) fn put_bytes(&self) -> usize {
        let ops = self.then.iter().chain(&self.otherwise);
        ops.map(|op| match op {
            Op::Put(put) => put.key.len() + put.value.len(),
            Op::Txn(inner) => inner.put_bytes(),
            Op::Delete(_) | Op::Read(_) => 0,
        })
        .sum()
    }
}

/// One operation of a transaction. Operations see the effects of those before them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Writes a key.
    Put(Put),
    /// Deletes a range of keys.
    Delete(Delete),
    /// Reads a range.
    Read(Read),
    /// Runs a nested transaction with its own compares, at the same revision.
    Txn(Txn),
}

/// A write of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Put {
    /// The key.
    pub key: Bytes,
    /// The new value.
    pub value: Bytes,
    /// The lease to attach the key to; 0 for none.
    pub lease: LeaseId,
    /// Index terms of the version.
    pub terms: Terms,
    /// Keeps the value and terms of the key, which must exist.
    pub keep_value: bool,
    /// Keeps the lease of the key, which must exist.
    pub keep_lease: bool,
    /// Returns the replaced version.
    pub previous: bool,
}

impl Put {
    /// Creates a put without lease and terms.
    pub fn new(key: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        Self { key: key.into(), value: value.into(), ..Self::default() }
    }
}

/// A deletion of every key in a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delete {
    /// The keys.
    pub range: KeyRange,
    /// Returns the deleted versions.
    pub previous: bool,
}

/// A condition that must hold for every key in a range. A key that does not exist compares as zero, except
/// to a value, to which it never compares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compare {
    /// The keys.
    pub range: KeyRange,
    /// Relation of the key's side to the target.
    pub comparison: Comparison,
    /// The compared property and its operand.
    pub target: Target,
}

impl Compare {
    /// Requires `comparison` between the keys of `range` and `target`.
    pub fn new(range: KeyRange, comparison: Comparison, target: Target) -> Self {
        Self { range, comparison, target }
    }
}

/// Relation of two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Comparison {
    Equal,
    NotEqual,
    Greater,
    Less,
}

/// The compared property of a key, with the operand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The value.
    Value(Bytes),
    /// The number of writes since creation.
    Version(i64),
    /// The revision that created the key.
    CreateRevision(Revision),
    /// The revision that last wrote the key.
    Revision(Revision),
    /// The lease the key is attached to.
    Lease(LeaseId),
}

/// The answer to a [`Txn`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxnResult {
    /// The store's revision after the transaction: its own if it wrote anything.
    pub revision: Revision,
    /// Set if every compare held.
    pub succeeded: bool,
    /// One result for each operation of the branch taken.
    pub results: Vec<OpResult>,
}

impl TxnResult {
    /// Returns the first key that the transaction read: the version that a failed compare found.
    pub fn found(&self) -> Option<&KeyValue> {
        self.results.iter().find_map(|result| match result {
            OpResult::Read(read) => read.kvs.first(),
            _ => None,
        })
    }
}

/// The answer to one [`Op`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpResult {
    /// A put, with the replaced version if requested and present.
    Put(Option<KeyValue>),
    /// A deletion, with the deleted versions if requested.
    Delete {
        /// Number of deleted keys.
        deleted: u64,
        /// The deleted versions, sorted by key; empty unless requested.
        previous: Vec<KeyValue>,
    },
    /// A read.
    Read(ReadResult),
    /// A nested transaction.
    Txn(TxnResult),
}

/// A lease. Keys attached to it are deleted when it expires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The id.
    pub id: LeaseId,
    /// The granted time to live, in seconds.
    pub ttl_seconds: i64,
    /// The remaining time to live, in milliseconds; negative once overdue.
    pub remaining_ms: i64,
}
