//! What callers ask and what they are answered: reads, transactions, leases.

use bytes::Bytes;

use crate::{Filter, KeyRange, LeaseId, Revision, Terms};

/// One version of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyValue {
    /// The key.
    pub key: Bytes,
    /// The value; empty when only keys were asked for.
    pub value: Bytes,
    /// The revision that created the key, since it last did not exist.
    pub create_revision: Revision,
    /// The revision that wrote this version.
    pub revision: Revision,
    /// How many times the key has been written since it was created; 1 at creation.
    pub version: i64,
    /// The lease the key hangs on; 0 for none.
    pub lease: LeaseId,
}

/// How much of each matching key a read brings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Select {
    /// Keys, revisions and values.
    #[default]
    Values,
    /// Keys and revisions; values are left empty and never touched.
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
    /// Which keys.
    pub range: KeyRange,
    /// At which revision; `None` for the newest.
    pub revision: Option<Revision>,
    /// At most this many keys; 0 for no limit.
    pub limit: usize,
    /// Only versions whose terms match.
    pub filter: Filter,
    /// How much of each.
    pub select: Select,
    /// Whether to count every matching key, past the limit too.
    pub count: bool,
}

impl Read {
    /// Everything in a range, at the newest revision.
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

    /// How many keys are in a range, at the newest revision.
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
    /// Whether the limit left some out.
    pub more: bool,
    /// All matching keys, if they were counted.
    pub count: Option<u64>,
}

/// If every compare holds, `then` happens, else `otherwise`: atomically, and at one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Txn {
    /// Conditions on the state before the transaction.
    pub compares: Vec<Compare>,
    /// What happens if all of them hold.
    pub then: Vec<Op>,
    /// What happens if one does not.
    pub otherwise: Vec<Op>,
}

impl Txn {
    /// Operations without a condition.
    pub fn of(then: impl IntoIterator<Item = Op>) -> Self {
        Self { then: then.into_iter().collect(), ..Self::default() }
    }

    /// Operations that happen only if `compare` holds; otherwise `key` is read.
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
    /// Whether it may write a key: what a full database refuses, so that deletes still work.
    pub(crate) fn puts(&self) -> bool {
        self.then.iter().chain(&self.otherwise).any(|op| match op {
            Op::Put(_) => true,
            Op::Txn(inner) => inner.puts(),
            Op::Delete(_) | Op::Read(_) => false,
        })
    }
}

/// One step of a transaction. Steps see the effect of the steps before them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Write a key.
    Put(Put),
    /// Delete a range of keys.
    Delete(Delete),
    /// Read a range.
    Read(Read),
    /// A transaction inside, with compares of its own, at the same revision.
    Txn(Txn),
}

/// A write of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Put {
    /// The key.
    pub key: Bytes,
    /// The new value.
    pub value: Bytes,
    /// The lease to hang the key on; 0 for none.
    pub lease: LeaseId,
    /// What the version is found under.
    pub terms: Terms,
    /// Keep the value (and terms) the key has; it must exist.
    pub keep_value: bool,
    /// Keep the lease the key has; it must exist.
    pub keep_lease: bool,
    /// Answer with the version this replaces.
    pub previous: bool,
}

impl Put {
    /// A plain write.
    pub fn new(key: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        Self { key: key.into(), value: value.into(), ..Self::default() }
    }
}

/// A deletion of every key in a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delete {
    /// Which keys.
    pub range: KeyRange,
    /// Answer with the versions this deletes.
    pub previous: bool,
}

/// A condition that must hold for every key in a range. A key that does not exist compares as zero, except
/// to a value, to which it never compares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compare {
    /// Which keys.
    pub range: KeyRange,
    /// How the key's side compares to the target.
    pub comparison: Comparison,
    /// What is compared, and with what.
    pub target: Target,
}

impl Compare {
    /// `comparison` must hold between the keys of `range` and `target`.
    pub fn new(range: KeyRange, comparison: Comparison, target: Target) -> Self {
        Self { range, comparison, target }
    }
}

/// How two sides compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Comparison {
    Equal,
    NotEqual,
    Greater,
    Less,
}

/// What a compare looks at, and the other side of the comparison.
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
    /// The lease the key hangs on.
    Lease(LeaseId),
}

/// The answer to a [`Txn`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxnResult {
    /// The store's revision after the transaction: its own if it changed anything.
    pub revision: Revision,
    /// Whether every compare held.
    pub succeeded: bool,
    /// One answer for each operation of the branch taken.
    pub results: Vec<OpResult>,
}

impl TxnResult {
    /// The first key that the transaction read: what a guarded write lost against.
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
    /// A put, with what it replaced if that was asked for and existed.
    Put(Option<KeyValue>),
    /// A deletion: how many keys, and what they were if that was asked for.
    Delete {
        /// How many keys were deleted.
        deleted: u64,
        /// What they were, sorted by key; empty unless asked for.
        previous: Vec<KeyValue>,
    },
    /// A read.
    Read(ReadResult),
    /// A transaction inside.
    Txn(TxnResult),
}

/// A lease: keys that hang on it are deleted when it runs out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The id.
    pub id: LeaseId,
    /// The time to live it was granted, in seconds.
    pub ttl_seconds: i64,
    /// What is left of it, in milliseconds; negative once overdue.
    pub remaining_ms: i64,
}
