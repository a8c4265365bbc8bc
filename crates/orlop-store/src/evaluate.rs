//! What a batch of commands does to the key space.
//!
//! Evaluation is pure: it looks at the database through a [`View`] and collects what changes. Nothing is
//! written until the whole batch is evaluated, so a command that fails leaves no trace and needs no
//! savepoint, and both engines share every rule. Commands see the commands before them through the
//! `overlay`; steps of a transaction see the steps before them through its `Scratch`.
//!
//! A view over a network does not have every row at hand. It answers [`Unseen::Need`]; the caller fetches
//! what is needed and evaluates that command again from its start.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
};

use bytes::Bytes;

use crate::{
    Compare, Comparison, Delete, KeyRange, KeyValue, Lease, LeaseId, Limits, Op, OpResult, Put, Read,
    ReadResult, Revision, Select, Target, Terms, Txn, TxnResult,
    engine::{Command, Outcome},
    error::Error,
    event::{Commit, Current, Event, Previous, VersionId},
    renewals::RECENT,
};

/// A lease as the database keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaseRow {
    pub(crate) id: LeaseId,
    pub(crate) ttl_seconds: i64,
    pub(crate) deadline_ms: i64,
}

impl LeaseRow {
    /// Whether the lease is to be expired: its holder may have been promised a moment more.
    fn is_overdue(&self, now_ms: i64) -> bool {
        self.deadline_ms.saturating_add(RECENT.as_millis() as i64) <= now_ms
    }

    pub(crate) fn lease(&self, now_ms: i64) -> Lease {
        Lease { id: self.id, ttl_seconds: self.ttl_seconds, remaining_ms: self.deadline_ms - now_ms }
    }
}

/// Why a view did not answer.
#[derive(Debug)]
pub(crate) enum Unseen {
    Error(Error),
    Need(Need),
}

impl From<Error> for Unseen {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// What a view has to fetch first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Key(Bytes),
    Value(Bytes, VersionId),
    Range(KeyRange, usize),
    Count(KeyRange),
    Past(Read),
    Lease(LeaseId),
    LeaseKeys(LeaseId),
}

type Seen<T> = Result<T, Unseen>;

/// The database as it was before the batch.
pub(crate) trait View {
    /// The database's clock, in milliseconds since 1970.
    fn now_ms(&self) -> i64;
    fn current(&mut self, key: &Bytes) -> Seen<Option<Current>>;
    fn value(&mut self, key: &Bytes, id: VersionId) -> Seen<Bytes>;
    /// The first `limit` keys of a range, sorted.
    fn range(&mut self, range: &KeyRange, limit: usize) -> Seen<Vec<(Bytes, Current)>>;
    fn count(&mut self, range: &KeyRange) -> Seen<u64>;
    /// A read at a past revision, which no batch can change.
    fn past(&mut self, read: &Read) -> Seen<ReadResult>;
    fn lease(&mut self, id: LeaseId) -> Seen<Option<LeaseRow>>;
    fn lease_keys(&mut self, id: LeaseId) -> Seen<Vec<(Bytes, Current)>>;
}

/// A key that the batch has changed.
#[derive(Clone, Debug)]
struct Changed {
    /// `None` once deleted.
    now: Option<(Current, Bytes)>,
    /// Whether the key existed before the batch.
    existed: bool,
}

/// Everything that evaluating a batch has come to so far.
#[derive(Debug)]
pub(crate) struct Evaluation<'a> {
    limits: &'a Limits,
    pub(crate) revision: Revision,
    pub(crate) last_id: VersionId,
    overlay: BTreeMap<Bytes, Changed>,
    lease_overlay: BTreeMap<LeaseId, Option<LeaseRow>>,
    /// What to write and publish, in order.
    pub(crate) commits: Vec<Commit>,
    /// Terms to replace without a new revision.
    pub(crate) reindexed: Vec<(Bytes, Current, Terms)>,
}

/// What the command being evaluated has changed.
#[derive(Default)]
struct Scratch {
    keys: BTreeMap<Bytes, Changed>,
    events: Vec<Event>,
    bytes: usize,
    /// Bytes of the keys and values to be returned.
    read_bytes: usize,
}

impl<'a> Evaluation<'a> {
    /// Starts from the state after `revision`, whose last version has the id `last_id`.
    pub(crate) fn new(limits: &'a Limits, revision: Revision, last_id: VersionId) -> Self {
        Self {
            limits,
            revision,
            last_id,
            overlay: BTreeMap::new(),
            lease_overlay: BTreeMap::new(),
            commits: Vec::new(),
            reindexed: Vec::new(),
        }
    }

    /// Leases to write (`Some`) or to remove (`None`).
    pub(crate) fn lease_changes(&self) -> impl Iterator<Item = (LeaseId, Option<&LeaseRow>)> {
        self.lease_overlay.iter().map(|(id, row)| (*id, row.as_ref()))
    }

    /// Evaluates one command. An error, or a need, leaves the evaluation as it was.
    pub(crate) fn run(&mut self, view: &mut impl View, command: &Command) -> Seen<Outcome> {
        match command {
            Command::Txn(txn) => self.txn(view, txn),
            Command::Grant { id, ttl_seconds } => self.grant(view, *id, *ttl_seconds),
            Command::Renew(id) => self.renew(view, *id),
            Command::Revoke(id) => {
                self.lease_row(view, *id)?;
                self.revoke(view, *id)
            }
            Command::Expire(id) => match self.lease_row(view, *id) {
                Ok(row) if row.is_overdue(view.now_ms()) => self.revoke(view, *id),
                Ok(_) | Err(Unseen::Error(Error::LeaseNotFound { .. })) => Ok(Outcome::Done(self.revision)),
                Err(unseen) => Err(unseen),
            },
            Command::Reindex(keys) => self.reindex(view, keys),
        }
    }

    // --- transactions ---

    fn txn(&mut self, view: &mut impl View, txn: &Txn) -> Seen<Outcome> {
        let path = self.decide(view, txn)?;
        let mut scratch = Scratch::default();
        let mut decisions = path.into_iter();
        let mut result = self.branch(view, txn, &mut decisions, &mut scratch)?;
        self.finish(scratch);
        set_revision(&mut result, self.revision);
        Ok(Outcome::Txn(result))
    }

    /// Which branch each transaction takes, nested ones in the order they will run. All compares look at
    /// the state before the whole transaction.
    fn decide(&self, view: &mut impl View, txn: &Txn) -> Seen<Vec<bool>> {
        let mut succeeded = true;
        for compare in &txn.compares {
            if !self.holds(view, compare)? {
                succeeded = false;
                break;
            }
        }
        let mut path = vec![succeeded];
        for op in if succeeded { &txn.then } else { &txn.otherwise } {
            if let Op::Txn(inner) = op {
                path.extend(self.decide(view, inner)?);
            }
        }
        Ok(path)
    }

    fn branch(
        &self,
        view: &mut impl View,
        txn: &Txn,
        decisions: &mut impl Iterator<Item = bool>,
        scratch: &mut Scratch,
    ) -> Seen<TxnResult> {
        let succeeded = decisions.next().unwrap_or(false);
        let mut results = Vec::new();
        for op in if succeeded { &txn.then } else { &txn.otherwise } {
            results.push(match op {
                Op::Put(put) => OpResult::Put(self.put(view, put, scratch)?),
                Op::Delete(delete) => self.delete(view, delete, scratch)?,
                Op::Read(read) => OpResult::Read(self.read(view, read, scratch)?),
                Op::Txn(inner) => OpResult::Txn(self.branch(view, inner, decisions, scratch)?),
            });
        }
        Ok(TxnResult { revision: 0, succeeded, results })
    }

    fn holds(&self, view: &mut impl View, compare: &Compare) -> Seen<bool> {
        let nothing = Scratch::default();
        let found = match compare.range.single() {
            Some(key) => self.look(view, &nothing, key)?.map(|row| (key.clone(), row)).into_iter().collect(),
            // One more than may be looked at, so that too many are noticed: the rest might not hold.
            None => self.look_range(view, &nothing, &compare.range, self.limits.txn_changes + 1)?,
        };
        if found.len() > self.limits.txn_changes {
            let (size, limit) = (found.len() as u64, self.limits.txn_changes as u64);
            return Err(Error::TooLarge { what: "the set of keys a compare looks at", size, limit }.into());
        }
        let holds = |ordering: Ordering| match compare.comparison {
            Comparison::Equal => ordering.is_eq(),
            Comparison::NotEqual => ordering.is_ne(),
            Comparison::Greater => ordering.is_gt(),
            Comparison::Less => ordering.is_lt(),
        };
        if found.is_empty() {
            return Ok(match compare.target {
                Target::Value(_) => false,
                Target::Version(n) | Target::CreateRevision(n) | Target::Revision(n) | Target::Lease(n) => {
                    holds(0.cmp(&n))
                }
            });
        }
        for (key, row) in &found {
            let ordering = match &compare.target {
                Target::Value(value) => self.value(view, &nothing, key, row)?.cmp(value),
                Target::Version(n) => row.version.cmp(n),
                Target::CreateRevision(n) => row.create_revision.cmp(n),
                Target::Revision(n) => row.revision.cmp(n),
                Target::Lease(n) => row.lease.cmp(n),
            };
            if !holds(ordering) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn put(&self, view: &mut impl View, put: &Put, scratch: &mut Scratch) -> Seen<Option<KeyValue>> {
        if put.lease != 0 {
            self.lease_row(view, put.lease)?;
        }
        let current = self.look(view, scratch, &put.key)?;
        let (mut value, mut terms, mut lease) = (put.value.clone(), put.terms.clone(), put.lease);
        if put.keep_value || put.keep_lease {
            let Some(row) = &current else {
                return Err(Error::NotFound { key: put.key.clone() }.into());
            };
            if put.keep_value {
                value = self.value(view, scratch, &put.key, row)?;
                terms = row.terms.clone();
            }
            if put.keep_lease {
                lease = row.lease;
            }
        }
        let previous = match &current {
            Some(row) if put.previous => {
                let kv = row.kv(put.key.clone(), self.value(view, scratch, &put.key, row)?);
                self.charge_read(scratch, &kv)?;
                Some(kv)
            }
            _ => None,
        };
        self.change(scratch, &put.key, current, Some((value, terms, lease)))?;
        Ok(previous)
    }

    fn delete(&self, view: &mut impl View, delete: &Delete, scratch: &mut Scratch) -> Seen<OpResult> {
        let found = match delete.range.single() {
            Some(key) => self.look(view, scratch, key)?.map(|row| (key.clone(), row)).into_iter().collect(),
            // One more than may change, so that too many are noticed and never cut short.
            None => self.look_range(view, scratch, &delete.range, self.limits.txn_changes + 1)?,
        };
        let mut previous = Vec::new();
        let deleted = found.len() as u64;
        for (key, row) in found {
            if delete.previous {
                let kv = row.kv(key.clone(), self.value(view, scratch, &key, &row)?);
                self.charge_read(scratch, &kv)?;
                previous.push(kv);
            }
            self.change(scratch, &key, Some(row), None)?;
        }
        Ok(OpResult::Delete { deleted, previous })
    }

    fn read(&self, view: &mut impl View, read: &Read, scratch: &mut Scratch) -> Seen<ReadResult> {
        let upcoming = self.revision + i64::from(!scratch.events.is_empty());
        match read.revision {
            // A transaction's own revision is in the future until all of it has happened.
            Some(revision) if revision > self.revision => {
                return Err(Error::FutureRevision { requested: revision, current: self.revision }.into());
            }
            Some(revision) if revision < upcoming => {
                let result = view.past(read)?;
                for kv in &result.kvs {
                    self.charge_read(scratch, kv)?;
                }
                return Ok(result);
            }
            _ => {}
        }
        let limit = if read.limit == 0 { self.limits.read_keys } else { read.limit };
        let mut result = ReadResult::default();
        if read.filter.is_empty() {
            if read.count {
                result.count = Some(self.count(view, scratch, &read.range)?);
            }
            if read.select == Select::Nothing {
                return Ok(result);
            }
        }
        let mut rows = if let Some(key) = read.range.single() {
            self.look(view, scratch, key)?.map(|row| (key.clone(), row)).into_iter().collect()
        } else if read.filter.is_empty() {
            self.look_range(view, scratch, &read.range, limit.saturating_add(1))?
        } else {
            self.look_range(view, scratch, &read.range, self.limits.read_keys)?
        };
        rows.retain(|(_, row)| read.filter.matches(&row.terms));
        if read.count {
            result.count.get_or_insert(rows.len() as u64);
        }
        result.more = rows.len() > limit;
        rows.truncate(limit);
        for (key, row) in rows {
            let value = match read.select {
                Select::Values => self.value(view, scratch, &key, &row)?,
                Select::Keys => Bytes::new(),
                Select::Nothing => continue,
            };
            let kv = row.kv(key, value);
            self.charge_read(scratch, &kv)?;
            result.kvs.push(kv);
        }
        Ok(result)
    }

    /// Counts a version that the transaction returns towards its limit.
    fn charge_read(&self, scratch: &mut Scratch, kv: &KeyValue) -> Seen<()> {
        scratch.read_bytes += size_of::<KeyValue>() + kv.key.len() + kv.value.len();
        if scratch.read_bytes > self.limits.txn_read_bytes {
            let (size, limit) = (scratch.read_bytes as u64, self.limits.txn_read_bytes as u64);
            return Err(Error::ResponseTooLarge { size, limit }.into());
        }
        Ok(())
    }

    /// Notes that a key gets a new version, or with `None` that it is deleted.
    fn change(
        &self,
        scratch: &mut Scratch,
        key: &Bytes,
        current: Option<Current>,
        next: Option<(Bytes, Terms, LeaseId)>,
    ) -> Seen<()> {
        if scratch.keys.contains_key(key) {
            return Err(Error::DuplicateKey { key: key.clone() }.into());
        }
        if scratch.events.len() >= self.limits.txn_changes {
            let (size, limit) = (scratch.events.len() as u64 + 1, self.limits.txn_changes as u64);
            return Err(Error::TooLarge { what: "the set of keys a transaction changes", size, limit }.into());
        }
        scratch.bytes += key.len() + next.as_ref().map_or(0, |(value, ..)| value.len());
        if scratch.bytes > self.limits.txn_bytes {
            let (size, limit) = (scratch.bytes as u64, self.limits.txn_bytes as u64);
            return Err(Error::TooLarge { what: "the transaction", size, limit }.into());
        }
        let revision = self.revision + 1;
        let id = self.last_id + 1 + scratch.events.len() as i64;
        let deleted = next.is_none();
        let (value, terms, lease) = next.unwrap_or_default();
        let mut row = Current { id, revision, create_revision: 0, version: 0, lease, terms: terms.clone() };
        if !deleted {
            row.create_revision = current.as_ref().map_or(revision, |row| row.create_revision);
            row.version = current.as_ref().map_or(1, |row| row.version + 1);
        }
        let existed = self.overlay.get(key).map_or(current.is_some(), |changed| changed.existed);
        let kv = row.kv(key.clone(), value.clone());
        let now = (!deleted).then_some((row, value));
        scratch.keys.insert(key.clone(), Changed { now, existed });
        // Most transactions change one key, and recent ones stay in memory: no room is kept for more.
        if scratch.events.is_empty() {
            scratch.events.reserve_exact(1);
        }
        scratch.events.push(Event::new(id, kv, deleted, terms, current.map(Previous::new)));
        Ok(())
    }

    /// Makes what a command changed visible to the commands after it.
    fn finish(&mut self, scratch: Scratch) {
        if scratch.events.is_empty() {
            return;
        }
        self.revision += 1;
        self.last_id += scratch.events.len() as i64;
        // A new version brings terms of its own; those meant for the one it supersedes must not replace them.
        self.reindexed.retain(|(key, ..)| !scratch.keys.contains_key(key));
        self.overlay.extend(scratch.keys);
        self.commits.push(Commit { revision: self.revision, events: scratch.events });
    }

    // --- leases ---

    fn lease_row(&self, view: &mut impl View, id: LeaseId) -> Seen<LeaseRow> {
        let row = match self.lease_overlay.get(&id) {
            Some(row) => *row,
            None => view.lease(id)?,
        };
        row.ok_or(Unseen::Error(Error::LeaseNotFound { lease: id }))
    }

    fn grant(&mut self, view: &mut impl View, id: Option<LeaseId>, ttl_seconds: i64) -> Seen<Outcome> {
        let id = id.unwrap_or_else(random_lease_id);
        match self.lease_row(view, id) {
            Ok(_) => return Err(Error::LeaseExists { lease: id }.into()),
            Err(Unseen::Error(Error::LeaseNotFound { .. })) => {}
            Err(unseen) => return Err(unseen),
        }
        self.set_deadline(view.now_ms(), id, ttl_seconds)
    }

    fn renew(&mut self, view: &mut impl View, id: LeaseId) -> Seen<Outcome> {
        let row = self.lease_row(view, id)?;
        self.set_deadline(view.now_ms(), id, row.ttl_seconds)
    }

    fn set_deadline(&mut self, now_ms: i64, id: LeaseId, ttl_seconds: i64) -> Seen<Outcome> {
        let row = LeaseRow {
            id,
            ttl_seconds,
            deadline_ms: now_ms.saturating_add(ttl_seconds.saturating_mul(1000)),
        };
        self.lease_overlay.insert(id, Some(row));
        Ok(Outcome::Lease(row.lease(now_ms)))
    }

    fn revoke(&mut self, view: &mut impl View, id: LeaseId) -> Seen<Outcome> {
        let mut attached: BTreeMap<Bytes, Current> = view.lease_keys(id)?.into_iter().collect();
        for (key, changed) in &self.overlay {
            match &changed.now {
                Some((row, _)) if row.lease == id => attached.insert(key.clone(), row.clone()),
                _ => attached.remove(key),
            };
        }
        let mut scratch = Scratch::default();
        for (key, row) in attached {
            self.change(&mut scratch, &key, Some(row), None)?;
        }
        self.finish(scratch);
        self.lease_overlay.insert(id, None);
        Ok(Outcome::Done(self.revision))
    }

    // --- index ---

    fn reindex(&mut self, view: &mut impl View, keys: &[(Bytes, Revision, Terms)]) -> Seen<Outcome> {
        let mut replaced = Vec::new();
        for (key, revision, terms) in keys {
            // A key that this batch or another writer has changed carries its own, newer terms.
            if !self.overlay.contains_key(key)
                && let Some(row) = view.current(key)?
                && row.revision == *revision
                && row.terms != *terms
            {
                replaced.push((key.clone(), row, terms.clone()));
            }
        }
        self.reindexed.extend(replaced);
        Ok(Outcome::Done(self.revision))
    }

    // --- looking through scratch, overlay and view ---

    fn changed<'s>(&'s self, scratch: &'s Scratch, key: &Bytes) -> Option<&'s Changed> {
        scratch.keys.get(key).or_else(|| self.overlay.get(key))
    }

    fn look(&self, view: &mut impl View, scratch: &Scratch, key: &Bytes) -> Seen<Option<Current>> {
        match self.changed(scratch, key) {
            Some(changed) => Ok(changed.now.as_ref().map(|(row, _)| row.clone())),
            None => view.current(key),
        }
    }

    fn value(&self, view: &mut impl View, scratch: &Scratch, key: &Bytes, row: &Current) -> Seen<Bytes> {
        match self.changed(scratch, key) {
            Some(Changed { now: Some((_, value)), .. }) => Ok(value.clone()),
            _ => view.value(key, row.id),
        }
    }

    fn look_range(
        &self,
        view: &mut impl View,
        scratch: &Scratch,
        range: &KeyRange,
        limit: usize,
    ) -> Seen<Vec<(Bytes, Current)>> {
        if range.is_empty() {
            return Ok(Vec::new());
        }
        let changed = self.changed_keys(scratch, range);
        if changed.is_empty() {
            return view.range(range, limit);
        }
        // Each changed key can hide at most one row of the database.
        let mut rows: BTreeMap<Bytes, Current> =
            view.range(range, limit.saturating_add(changed.len()))?.into_iter().collect();
        for key in changed {
            match self.changed(scratch, &key).and_then(|changed| changed.now.as_ref()) {
                Some((row, _)) => rows.insert(key, row.clone()),
                None => rows.remove(&key),
            };
        }
        Ok(rows.into_iter().take(limit).collect())
    }

    fn count(&self, view: &mut impl View, scratch: &Scratch, range: &KeyRange) -> Seen<u64> {
        if range.is_empty() {
            return Ok(0);
        }
        let mut count = view.count(range)? as i64;
        for key in self.changed_keys(scratch, range) {
            if let Some(changed) = self.changed(scratch, &key) {
                count += i64::from(changed.now.is_some()) - i64::from(changed.existed);
            }
        }
        Ok(count.max(0) as u64)
    }

    fn changed_keys(&self, scratch: &Scratch, range: &KeyRange) -> BTreeSet<Bytes> {
        let bounds = (
            Bound::Included(range.start().clone()),
            range.end().map_or(Bound::Unbounded, |end| Bound::Excluded(end.clone())),
        );
        let in_overlay = self.overlay.range(bounds.clone());
        in_overlay.chain(scratch.keys.range(bounds)).map(|(key, _)| key.clone()).collect()
    }
}

/// The store's revision is known only once all of a transaction is evaluated.
fn set_revision(result: &mut TxnResult, revision: Revision) {
    result.revision = revision;
    for inner in &mut result.results {
        match inner {
            OpResult::Read(read) => read.revision = revision,
            OpResult::Txn(txn) => set_revision(txn, revision),
            OpResult::Put(_) | OpResult::Delete { .. } => {}
        }
    }
}

/// A positive id that nobody can guess; a clash is answered as `LeaseExists`.
pub(crate) fn random_lease_id() -> LeaseId {
    use std::hash::{BuildHasher, Hasher};
    let random = std::collections::hash_map::RandomState::new().build_hasher().finish();
    ((random >> 1) as i64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A database with nothing in it but live keys.
    struct Live(BTreeMap<Bytes, Current>);

    impl View for Live {
        fn now_ms(&self) -> i64 {
            0
        }

        fn current(&mut self, key: &Bytes) -> Seen<Option<Current>> {
            Ok(self.0.get(key).cloned())
        }

        fn value(&mut self, key: &Bytes, _: VersionId) -> Seen<Bytes> {
            Err(Error::NotFound { key: key.clone() }.into())
        }

        fn range(&mut self, range: &KeyRange, limit: usize) -> Seen<Vec<(Bytes, Current)>> {
            let found = self.0.iter().filter(|(key, _)| range.contains(key)).take(limit);
            Ok(found.map(|(key, row)| (key.clone(), row.clone())).collect())
        }

        fn count(&mut self, range: &KeyRange) -> Seen<u64> {
            Ok(self.range(range, usize::MAX)?.len() as u64)
        }

        fn past(&mut self, _: &Read) -> Seen<ReadResult> {
            Ok(ReadResult::default())
        }

        fn lease(&mut self, _: LeaseId) -> Seen<Option<LeaseRow>> {
            Ok(None)
        }

        fn lease_keys(&mut self, _: LeaseId) -> Seen<Vec<(Bytes, Current)>> {
            Ok(Vec::new())
        }
    }

    #[test]
    fn a_key_written_after_it_was_reindexed_in_one_batch_keeps_its_own_terms() {
        let row =
            Current { id: 5, revision: 7, create_revision: 7, version: 1, lease: 0, terms: Terms::none() };
        let mut view = Live([("moved", &row), ("stayed", &row)].map(|(k, r)| (k.into(), r.clone())).into());
        let limits = Limits::default();
        let mut evaluation = Evaluation::new(&limits, 7, 5);
        let declared = Terms::new([("f", "declared")]);
        let keys = ["moved", "stayed"].map(|key| (Bytes::from(key), 7, declared.clone())).to_vec();
        evaluation.run(&mut view, &Command::Reindex(keys)).unwrap();
        let put = Put { terms: Terms::new([("f", "own")]), ..Put::new("moved", "") };
        evaluation.run(&mut view, &Command::Txn(Txn::of([Op::Put(put)]))).unwrap();
        let reindexed: Vec<_> = evaluation.reindexed.iter().map(|(key, ..)| &key[..]).collect();
        assert_eq!(reindexed, [b"stayed"]);
        assert_eq!(evaluation.commits[0].events[0].terms, Terms::new([("f", "own")]));
    }
}
