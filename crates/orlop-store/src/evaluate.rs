//! Evaluation of a batch of commands.
//!
//! Evaluation is pure: it reads the database through a [`View`] and collects changes. Nothing is written until the
//! whole batch is evaluated, so a command that fails leaves no trace and needs no savepoint, and all engines share
//! every rule. Commands see earlier commands of the batch through the `overlay`; operations of a transaction see
//! earlier operations through its [`TxnChanges`].
//!
//! A view over a network has not fetched every row. It fails with [`ViewError::NotFetched`]; the caller fetches the
//! row and evaluates that command again from its start.

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
    event::{Commit, Event, Previous, VersionId, VersionMeta},
    lease_renewals::COALESCE_WINDOW,
};

/// A lease as stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaseRow {
    pub(crate) id: LeaseId,
    pub(crate) ttl_seconds: i64,
    pub(crate) deadline_ms: i64,
}

impl LeaseRow {
    /// Returns whether the lease has expired, including the grace period for coalesced renewals.
    fn is_overdue(&self, now_ms: i64) -> bool {
        self.deadline_ms.saturating_add(COALESCE_WINDOW.as_millis() as i64) <= now_ms
    }

    pub(crate) fn lease(&self, now_ms: i64) -> Lease {
        Lease { id: self.id, ttl_seconds: self.ttl_seconds, remaining_ms: self.deadline_ms - now_ms }
    }
}

/// Failure of a view.
#[derive(Debug)]
pub(crate) enum ViewError {
    Store(Error),
    NotFetched(Fetch),
}

impl From<Error> for ViewError {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

/// Data that a view has to fetch first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fetch {
    Key(Bytes),
    Value(Bytes, VersionId),
    Range(KeyRange, usize),
    Count(KeyRange),
    Past(Read),
    Lease(LeaseId),
    LeaseKeys(LeaseId),
}

type ViewResult<T> = Result<T, ViewError>;

/// The state of the database before the batch.
pub(crate) trait View {
    /// Returns the database's clock, in milliseconds since 1970.
    fn now_ms(&self) -> i64;
    fn current(&mut self, key: &Bytes) -> ViewResult<Option<VersionMeta>>;
    fn value(&mut self, key: &Bytes, id: VersionId) -> ViewResult<Bytes>;
    /// Returns the first `limit` keys of a range, sorted.
    fn range(&mut self, range: &KeyRange, limit: usize) -> ViewResult<Vec<(Bytes, VersionMeta)>>;
    fn count(&mut self, range: &KeyRange) -> ViewResult<u64>;
    /// Reads at a past revision, which no batch can change.
    fn past(&mut self, read: &Read) -> ViewResult<ReadResult>;
    fn lease(&mut self, id: LeaseId) -> ViewResult<Option<LeaseRow>>;
    fn lease_keys(&mut self, id: LeaseId) -> ViewResult<Vec<(Bytes, VersionMeta)>>;
}

/// A key that the batch has changed.
#[derive(Clone, Debug)]
struct PendingChange {
    /// `None` once deleted.
    now: Option<(VersionMeta, Bytes)>,
    /// Set if the key existed before the batch.
    existed: bool,
}

/// State and result of evaluating a batch.
#[derive(Debug)]
pub(crate) struct Evaluation<'a> {
    limits: &'a Limits,
    pub(crate) revision: Revision,
    pub(crate) last_id: VersionId,
    overlay: BTreeMap<Bytes, PendingChange>,
    lease_overlay: BTreeMap<LeaseId, Option<LeaseRow>>,
    /// Commits to write and publish, in order.
    pub(crate) commits: Vec<Commit>,
    /// Index terms to replace without a new revision.
    pub(crate) reindexed: Vec<(Bytes, VersionMeta, Terms)>,
}

/// Changes of the command being evaluated.
#[derive(Default)]
struct TxnChanges {
    keys: BTreeMap<Bytes, PendingChange>,
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

    /// Returns leases to write (`Some`) or to delete (`None`).
    pub(crate) fn lease_changes(&self) -> impl Iterator<Item = (LeaseId, Option<&LeaseRow>)> {
        self.lease_overlay.iter().map(|(id, row)| (*id, row.as_ref()))
    }

    /// Evaluates one command. An error leaves the evaluation unchanged.
    pub(crate) fn evaluate(&mut self, view: &mut impl View, command: &Command) -> ViewResult<Outcome> {
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
                Ok(_) | Err(ViewError::Store(Error::LeaseNotFound { .. })) => {
                    Ok(Outcome::Done(self.revision))
                }
                Err(unseen) => Err(unseen),
            },
            Command::Reindex(keys) => self.reindex(view, keys),
        }
    }

    // --- transactions ---

    fn txn(&mut self, view: &mut impl View, txn: &Txn) -> ViewResult<Outcome> {
        let branches = self.choose_branches(view, txn)?;
        let mut changes = TxnChanges::default();
        let mut branches = branches.into_iter();
        let mut result = self.run_branch(view, txn, &mut branches, &mut changes)?;
        self.apply(changes);
        set_revision(&mut result, self.revision);
        Ok(Outcome::Txn(result))
    }

    /// Chooses the branch of each transaction, nested ones in the order they will run. All compares see the state before
    /// the whole transaction.
    fn choose_branches(&self, view: &mut impl View, txn: &Txn) -> ViewResult<Vec<bool>> {
        let mut succeeded = true;
        for compare in &txn.compares {
            if !self.compare_holds(view, compare)? {
                succeeded = false;
                break;
            }
        }
        let mut branches = vec![succeeded];
        for op in if succeeded { &txn.then } else { &txn.otherwise } {
            if let Op::Txn(inner) = op {
                branches.extend(self.choose_branches(view, inner)?);
            }
        }
        Ok(branches)
    }

    fn run_branch(
        &self,
        view: &mut impl View,
        txn: &Txn,
        branches: &mut impl Iterator<Item = bool>,
        changes: &mut TxnChanges,
    ) -> ViewResult<TxnResult> {
        let succeeded = branches.next().unwrap_or(false);
        let mut results = Vec::new();
        for op in if succeeded { &txn.then } else { &txn.otherwise } {
            results.push(match op {
                Op::Put(put) => OpResult::Put(self.put(view, put, changes)?),
                Op::Delete(delete) => self.delete(view, delete, changes)?,
                Op::Read(read) => OpResult::Read(self.read(view, read, changes)?),
                Op::Txn(inner) => OpResult::Txn(self.run_branch(view, inner, branches, changes)?),
            });
        }
        Ok(TxnResult { revision: 0, succeeded, results })
    }

    fn compare_holds(&self, view: &mut impl View, compare: &Compare) -> ViewResult<bool> {
        let unchanged = TxnChanges::default();
        let found = match compare.range.single() {
            Some(key) => {
                self.current(view, &unchanged, key)?.map(|row| (key.clone(), row)).into_iter().collect()
            }
            // One more than the limit, to detect an excess: the rest might not hold.
            None => self.range(view, &unchanged, &compare.range, self.limits.txn_changes + 1)?,
        };
        if found.len() > self.limits.txn_changes {
            let (size, limit) = (found.len() as u64, self.limits.txn_changes as u64);
            return Err(Error::TooLarge { what: "the set of keys of a compare", size, limit }.into());
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
                Target::Value(value) => self.value(view, &unchanged, key, row)?.cmp(value),
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

    fn put(&self, view: &mut impl View, put: &Put, changes: &mut TxnChanges) -> ViewResult<Option<KeyValue>> {
        if put.lease != 0 {
            self.lease_row(view, put.lease)?;
        }
        let current = self.current(view, changes, &put.key)?;
        let (mut value, mut terms, mut lease) = (put.value.clone(), put.terms.clone(), put.lease);
        if put.keep_value || put.keep_lease {
            let Some(row) = &current else {
                return Err(Error::NotFound { key: put.key.clone() }.into());
            };
            if put.keep_value {
                value = self.value(view, changes, &put.key, row)?;
                terms = row.terms.clone();
            }
            if put.keep_lease {
                lease = row.lease;
            }
        }
        let previous = match &current {
            Some(row) if put.previous => {
                let kv = row.kv(put.key.clone(), self.value(view, changes, &put.key, row)?);
                self.charge_read(changes, &kv)?;
                Some(kv)
            }
            _ => None,
        };
        self.record(changes, &put.key, current, Some((value, terms, lease)))?;
        Ok(previous)
    }

    fn delete(
        &self,
        view: &mut impl View,
        delete: &Delete,
        changes: &mut TxnChanges,
    ) -> ViewResult<OpResult> {
        let found = match delete.range.single() {
            Some(key) => {
                self.current(view, changes, key)?.map(|row| (key.clone(), row)).into_iter().collect()
            }
            // One more than the limit, to detect an excess.
            None => self.range(view, changes, &delete.range, self.limits.txn_changes + 1)?,
        };
        let mut previous = Vec::new();
        let deleted = found.len() as u64;
        for (key, row) in found {
            if delete.previous {
                let kv = row.kv(key.clone(), self.value(view, changes, &key, &row)?);
                self.charge_read(changes, &kv)?;
                previous.push(kv);
            }
            self.record(changes, &key, Some(row), None)?;
        }
        Ok(OpResult::Delete { deleted, previous })
    }

    fn read(&self, view: &mut impl View, read: &Read, changes: &mut TxnChanges) -> ViewResult<ReadResult> {
        let upcoming = self.revision + i64::from(!changes.events.is_empty());
        match read.revision {
            // A transaction's own revision is in the future until it has committed.
            Some(revision) if revision > self.revision => {
                return Err(Error::FutureRevision { requested: revision, current: self.revision }.into());
            }
            Some(revision) if revision < upcoming => {
                let result = view.past(read)?;
                for kv in &result.kvs {
                    self.charge_read(changes, kv)?;
                }
                return Ok(result);
            }
            _ => {}
        }
        let limit = if read.limit == 0 { self.limits.read_keys } else { read.limit };
        let mut result = ReadResult::default();
        if read.filter.is_empty() {
            if read.count {
                result.count = Some(self.count(view, changes, &read.range)?);
            }
            if read.select == Select::Nothing {
                return Ok(result);
            }
        }
        let mut rows = if let Some(key) = read.range.single() {
            self.current(view, changes, key)?.map(|row| (key.clone(), row)).into_iter().collect()
        } else if read.filter.is_empty() {
            self.range(view, changes, &read.range, limit.saturating_add(1))?
        } else {
            self.range(view, changes, &read.range, self.limits.read_keys)?
        };
        rows.retain(|(_, row)| read.filter.matches(&row.terms));
        if read.count {
            result.count.get_or_insert(rows.len() as u64);
        }
        result.more = rows.len() > limit;
        rows.truncate(limit);
        for (key, row) in rows {
            let value = match read.select {
                Select::Values => self.value(view, changes, &key, &row)?,
                Select::Keys => Bytes::new(),
                Select::Nothing => continue,
            };
            let kv = row.kv(key, value);
            self.charge_read(changes, &kv)?;
            result.kvs.push(kv);
        }
        Ok(result)
    }

    /// Counts a version that the transaction returns towards its limit.
    fn charge_read(&self, changes: &mut TxnChanges, kv: &KeyValue) -> ViewResult<()> {
        changes.read_bytes += size_of::<KeyValue>() + kv.key.len() + kv.value.len();
        if changes.read_bytes > self.limits.txn_read_bytes {
            let (size, limit) = (changes.read_bytes as u64, self.limits.txn_read_bytes as u64);
            return Err(Error::ResponseTooLarge { size, limit }.into());
        }
        Ok(())
    }

    /// Records a new version of a key, or with `None` its deletion.
    fn record(
        &self,
        changes: &mut TxnChanges,
        key: &Bytes,
        current: Option<VersionMeta>,
        next: Option<(Bytes, Terms, LeaseId)>,
    ) -> ViewResult<()> {
        if changes.keys.contains_key(key) {
            return Err(Error::DuplicateKey { key: key.clone() }.into());
        }
        if changes.events.len() >= self.limits.txn_changes {
            let (size, limit) = (changes.events.len() as u64 + 1, self.limits.txn_changes as u64);
            return Err(Error::TooLarge { what: "the set of keys a transaction changes", size, limit }.into());
        }
        changes.bytes += key.len() + next.as_ref().map_or(0, |(value, ..)| value.len());
        if changes.bytes > self.limits.txn_bytes {
            let (size, limit) = (changes.bytes as u64, self.limits.txn_bytes as u64);
            return Err(Error::TooLarge { what: "the transaction", size, limit }.into());
        }
        let revision = self.revision + 1;
        let id = self.last_id + 1 + changes.events.len() as i64;
        let deleted = next.is_none();
        let (value, terms, lease) = next.unwrap_or_default();
        let mut row =
            VersionMeta { id, revision, create_revision: 0, version: 0, lease, terms: terms.clone() };
        if !deleted {
            row.create_revision = current.as_ref().map_or(revision, |row| row.create_revision);
            row.version = current.as_ref().map_or(1, |row| row.version + 1);
        }
        let existed = self.overlay.get(key).map_or(current.is_some(), |changed| changed.existed);
        let kv = row.kv(key.clone(), value.clone());
        let now = (!deleted).then_some((row, value));
        changes.keys.insert(key.clone(), PendingChange { now, existed });
        // Most transactions change one key, and recent ones stay in the ring buffer: no spare capacity is kept.
        if changes.events.is_empty() {
            changes.events.reserve_exact(1);
        }
        changes.events.push(Event::new(id, kv, deleted, terms, current.map(Previous::new)));
        Ok(())
    }

    /// Makes the changes of a command visible to the commands after it.
    fn apply(&mut self, changes: TxnChanges) {
        if changes.events.is_empty() {
            return;
        }
        self.revision += 1;
        self.last_id += changes.events.len() as i64;
        // A new version has terms of its own, which those for the superseded version must not replace.
        self.reindexed.retain(|(key, ..)| !changes.keys.contains_key(key));
        self.overlay.extend(changes.keys);
        self.commits.push(Commit { revision: self.revision, events: changes.events });
    }

    // --- leases ---

    fn lease_row(&self, view: &mut impl View, id: LeaseId) -> ViewResult<LeaseRow> {
        let row = match self.lease_overlay.get(&id) {
            Some(row) => *row,
            None => view.lease(id)?,
        };
        row.ok_or(ViewError::Store(Error::LeaseNotFound { lease: id }))
    }

    fn grant(&mut self, view: &mut impl View, id: Option<LeaseId>, ttl_seconds: i64) -> ViewResult<Outcome> {
        let id = id.unwrap_or_else(random_lease_id);
        match self.lease_row(view, id) {
            Ok(_) => return Err(Error::LeaseExists { lease: id }.into()),
            Err(ViewError::Store(Error::LeaseNotFound { .. })) => {}
            Err(unseen) => return Err(unseen),
        }
        self.set_deadline(view.now_ms(), id, ttl_seconds)
    }

    fn renew(&mut self, view: &mut impl View, id: LeaseId) -> ViewResult<Outcome> {
        let row = self.lease_row(view, id)?;
        self.set_deadline(view.now_ms(), id, row.ttl_seconds)
    }

    fn set_deadline(&mut self, now_ms: i64, id: LeaseId, ttl_seconds: i64) -> ViewResult<Outcome> {
        let row = LeaseRow {
            id,
            ttl_seconds,
            deadline_ms: now_ms.saturating_add(ttl_seconds.saturating_mul(1000)),
        };
        self.lease_overlay.insert(id, Some(row));
        Ok(Outcome::Lease(row.lease(now_ms)))
    }

    fn revoke(&mut self, view: &mut impl View, id: LeaseId) -> ViewResult<Outcome> {
        let mut attached: BTreeMap<Bytes, VersionMeta> = view.lease_keys(id)?.into_iter().collect();
        for (key, changed) in &self.overlay {
            match &changed.now {
                Some((row, _)) if row.lease == id => attached.insert(key.clone(), row.clone()),
                _ => attached.remove(key),
            };
        }
        let mut changes = TxnChanges::default();
        for (key, row) in attached {
            self.record(&mut changes, &key, Some(row), None)?;
        }
        self.apply(changes);
        self.lease_overlay.insert(id, None);
        Ok(Outcome::Done(self.revision))
    }

    // --- index ---

    fn reindex(&mut self, view: &mut impl View, keys: &[(Bytes, Revision, Terms)]) -> ViewResult<Outcome> {
        let mut replaced = Vec::new();
        for (key, revision, terms) in keys {
            // A key that this batch or another writer has changed has its own, newer terms.
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

    // --- reads through changes, overlay and view ---

    fn changed<'s>(&'s self, changes: &'s TxnChanges, key: &Bytes) -> Option<&'s PendingChange> {
        changes.keys.get(key).or_else(|| self.overlay.get(key))
    }

    fn current(
        &self,
        view: &mut impl View,
        changes: &TxnChanges,
        key: &Bytes,
    ) -> ViewResult<Option<VersionMeta>> {
        match self.changed(changes, key) {
            Some(changed) => Ok(changed.now.as_ref().map(|(row, _)| row.clone())),
            None => view.current(key),
        }
    }

    fn value(
        &self,
        view: &mut impl View,
        changes: &TxnChanges,
        key: &Bytes,
        row: &VersionMeta,
    ) -> ViewResult<Bytes> {
        match self.changed(changes, key) {
            Some(PendingChange { now: Some((_, value)), .. }) => Ok(value.clone()),
            _ => view.value(key, row.id),
        }
    }

    fn range(
        &self,
        view: &mut impl View,
        changes: &TxnChanges,
        range: &KeyRange,
        limit: usize,
    ) -> ViewResult<Vec<(Bytes, VersionMeta)>> {
        if range.is_empty() {
            return Ok(Vec::new());
        }
        let changed = self.changed_keys(changes, range);
        if changed.is_empty() {
            return view.range(range, limit);
        }
        // Each changed key hides at most one row of the database.
        let mut rows: BTreeMap<Bytes, VersionMeta> =
            view.range(range, limit.saturating_add(changed.len()))?.into_iter().collect();
        for key in changed {
            match self.changed(changes, &key).and_then(|changed| changed.now.as_ref()) {
                Some((row, _)) => rows.insert(key, row.clone()),
                None => rows.remove(&key),
            };
        }
        Ok(rows.into_iter().take(limit).collect())
    }

    fn count(&self, view: &mut impl View, changes: &TxnChanges, range: &KeyRange) -> ViewResult<u64> {
        if range.is_empty() {
            return Ok(0);
        }
        let mut count = view.count(range)? as i64;
        for key in self.changed_keys(changes, range) {
            if let Some(changed) = self.changed(changes, &key) {
                count += i64::from(changed.now.is_some()) - i64::from(changed.existed);
            }
        }
        Ok(count.max(0) as u64)
    }

    fn changed_keys(&self, changes: &TxnChanges, range: &KeyRange) -> BTreeSet<Bytes> {
        let bounds = (
            Bound::Included(range.start().clone()),
            range.end().map_or(Bound::Unbounded, |end| Bound::Excluded(end.clone())),
        );
        let in_overlay = self.overlay.range(bounds.clone());
        in_overlay.chain(changes.keys.range(bounds)).map(|(key, _)| key.clone()).collect()
    }
}

/// Sets the revision, which is known only once the whole transaction is evaluated.
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

/// Returns an unpredictable positive id. A collision fails with `LeaseExists`.
pub(crate) fn random_lease_id() -> LeaseId {
    use std::hash::{BuildHasher, Hasher};
    let random = std::collections::hash_map::RandomState::new().build_hasher().finish();
    ((random >> 1) as i64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A database of live keys alone.
    struct LiveKeys(BTreeMap<Bytes, VersionMeta>);

    impl View for LiveKeys {
        fn now_ms(&self) -> i64 {
            0
        }

        fn current(&mut self, key: &Bytes) -> ViewResult<Option<VersionMeta>> {
            Ok(self.0.get(key).cloned())
        }

        fn value(&mut self, key: &Bytes, _: VersionId) -> ViewResult<Bytes> {
            Err(Error::NotFound { key: key.clone() }.into())
        }

        fn range(&mut self, range: &KeyRange, limit: usize) -> ViewResult<Vec<(Bytes, VersionMeta)>> {
            let found = self.0.iter().filter(|(key, _)| range.contains(key)).take(limit);
            Ok(found.map(|(key, row)| (key.clone(), row.clone())).collect())
        }

        fn count(&mut self, range: &KeyRange) -> ViewResult<u64> {
            Ok(self.range(range, usize::MAX)?.len() as u64)
        }

        fn past(&mut self, _: &Read) -> ViewResult<ReadResult> {
            Ok(ReadResult::default())
        }

        fn lease(&mut self, _: LeaseId) -> ViewResult<Option<LeaseRow>> {
            Ok(None)
        }

        fn lease_keys(&mut self, _: LeaseId) -> ViewResult<Vec<(Bytes, VersionMeta)>> {
            Ok(Vec::new())
        }
    }

    #[test]
    fn put_after_reindex_in_one_batch_keeps_the_terms_of_the_put() {
        let row = VersionMeta {
            id: 5,
            revision: 7,
            create_revision: 7,
            version: 1,
            lease: 0,
            terms: Terms::none(),
        };
        let mut view =
            LiveKeys([("moved", &row), ("stayed", &row)].map(|(k, r)| (k.into(), r.clone())).into());
        let limits = Limits::default();
        let mut evaluation = Evaluation::new(&limits, 7, 5);
        let declared = Terms::new([("f", "declared")]);
        let keys = ["moved", "stayed"].map(|key| (Bytes::from(key), 7, declared.clone())).to_vec();
        evaluation.evaluate(&mut view, &Command::Reindex(keys)).unwrap();
        let put = Put { terms: Terms::new([("f", "own")]), ..Put::new("moved", "") };
        evaluation.evaluate(&mut view, &Command::Txn(Txn::of([Op::Put(put)]))).unwrap();
        let reindexed: Vec<_> = evaluation.reindexed.iter().map(|(key, ..)| &key[..]).collect();
        assert_eq!(reindexed, [b"stayed"]);
        assert_eq!(evaluation.commits[0].events[0].terms, Terms::new([("f", "own")]));
    }
}
