//! The sequential specification of the key space.
//!
//! It shares no code with the store on purpose: a whole copy of the state for every revision, no indexes, no overlays.

use std::{cmp::Ordering, collections::BTreeMap};

use bytes::Bytes;
use orlop_store::{
    Compare, Comparison, Error, Filter, KeyRange, KeyValue, Op, OpResult, Put, Read, ReadResult, Revision,
    Select, Target, Terms, Txn, TxnResult,
};

/// One version of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Version {
    /// The version that reads return.
    pub kv: KeyValue,
    /// Its index terms.
    pub terms: Terms,
}

type State = BTreeMap<Bytes, Version>;

/// One key's change at one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The key.
    pub key: Bytes,
    /// The version before, if the key existed.
    pub before: Option<Version>,
    /// The version after, unless the key was deleted.
    pub after: Option<Version>,
}

/// Every state of the key space. A new one is empty, at revision 1.
#[derive(Clone, Debug)]
pub struct Model {
    states: Vec<State>,
    commits: Vec<Vec<Change>>,
}

impl Default for Model {
    fn default() -> Self {
        Self { states: vec![State::new()], commits: vec![Vec::new()] }
    }
}

impl Model {
    /// Returns the newest revision.
    pub fn revision(&self) -> Revision {
        self.states.len() as Revision
    }

    /// Returns the changes of a revision.
    pub fn commit(&self, revision: Revision) -> &[Change] {
        self.index(revision).map_or(&[], |at| &self.commits[at])
    }

    /// Reverts everything after a revision.
    pub fn rewind(&mut self, revision: Revision) {
        self.states.truncate(revision as usize);
        self.commits.truncate(revision as usize);
    }

    fn index(&self, revision: Revision) -> Option<usize> {
        usize::try_from(revision - 1).ok().filter(|at| *at < self.states.len())
    }

    /// Runs a transaction on the newest state. A new revision is created if it changes anything.
    pub fn run(&mut self, txn: &Txn) -> Result<TxnResult, Error> {
        let (mut result, state, changes) = self.evaluate(txn, self.revision())?;
        if !changes.is_empty() {
            self.states.push(state);
            self.commits.push(changes);
        }
        set_revision(&mut result, self.revision());
        Ok(result)
    }

    /// Returns what a transaction would change now.
    pub fn would_change(&self, txn: &Txn) -> Vec<Change> {
        self.evaluate(txn, self.revision()).map(|(_, _, changes)| changes).unwrap_or_default()
    }

    /// Returns the result of a transaction at a revision if it changes nothing, else an error.
    pub fn run_at(&self, txn: &Txn, revision: Revision) -> Result<TxnResult, Error> {
        let (mut result, _, changes) = self.evaluate(txn, revision)?;
        if let Some(change) = changes.first() {
            return Err(Error::Invalid(format!("the model changes {:?}", change.key)));
        }
        set_revision(&mut result, revision);
        Ok(result)
    }

    fn evaluate(&self, txn: &Txn, revision: Revision) -> Result<(TxnResult, State, Vec<Change>), Error> {
        let at = self.index(revision).ok_or_else(|| future(revision, self.revision()))?;
        let base = &self.states[at];
        let mut step = Step { model: self, base, revision, state: base.clone(), changes: Vec::new() };
        let path = step.choose_branches(txn);
        let result = step.branch(txn, &mut path.into_iter())?;
        Ok((result, step.state, step.changes))
    }

    /// Reads at a revision, as answered when `newest` was the newest.
    pub fn read(&self, read: &Read, newest: Revision) -> Result<ReadResult, Error> {
        let revision = read.revision.unwrap_or(newest);
        let at = self.index(revision).ok_or_else(|| future(revision, self.revision()))?;
        Ok(ReadResult { revision: newest, ..read_state(&self.states[at], read) })
    }
}

fn future(requested: Revision, current: Revision) -> Error {
    Error::FutureRevision { requested, current }
}

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

fn read_state(state: &State, read: &Read) -> ReadResult {
    let matching: Vec<&Version> = matching(state, &read.range, &read.filter).collect();
    let limit = if read.limit == 0 { usize::MAX } else { read.limit };
    let mut result = ReadResult { count: read.count.then_some(matching.len() as u64), ..Default::default() };
    if read.select != Select::Nothing {
        result.more = matching.len() > limit;
        result.kvs = matching.into_iter().take(limit).map(|version| version.kv.clone()).collect();
    }
    if read.select == Select::Keys {
        result.kvs.iter_mut().for_each(|kv| kv.value = Bytes::new());
    }
    result
}

fn matching<'a>(
    state: &'a State,
    range: &'a KeyRange,
    filter: &'a Filter,
) -> impl Iterator<Item = &'a Version> {
    state.values().filter(|version| range.contains(&version.kv.key) && filter.matches(&version.terms))
}

/// A transaction under way.
struct Step<'a> {
    model: &'a Model,
    /// The state and the revision before it.
    base: &'a State,
    revision: Revision,
    state: State,
    changes: Vec<Change>,
}

impl Step<'_> {
    /// Chooses the branches: every compare sees the state before the whole transaction.
    fn choose_branches(&self, txn: &Txn) -> Vec<bool> {
        let succeeded = txn.compares.iter().all(|compare| self.compare_holds(compare));
        let mut path = vec![succeeded];
        for op in if succeeded { &txn.then } else { &txn.otherwise } {
            if let Op::Txn(inner) = op {
                path.extend(self.choose_branches(inner));
            }
        }
        path
    }

    fn compare_holds(&self, compare: &Compare) -> bool {
        let holds = |ordering: Ordering| match compare.comparison {
            Comparison::Equal => ordering == Ordering::Equal,
            Comparison::NotEqual => ordering != Ordering::Equal,
            Comparison::Greater => ordering == Ordering::Greater,
            Comparison::Less => ordering == Ordering::Less,
        };
        let against = |kv: &KeyValue| match &compare.target {
            Target::Value(value) => holds(kv.value.cmp(value)),
            Target::Version(version) => holds(kv.version.cmp(version)),
            Target::CreateRevision(revision) => holds(kv.create_revision.cmp(revision)),
            Target::Revision(revision) => holds(kv.revision.cmp(revision)),
            Target::Lease(lease) => holds(kv.lease.cmp(lease)),
        };
        let everything = Filter::everything();
        let found: Vec<_> = matching(self.base, &compare.range, &everything).collect();
        if found.is_empty() {
            return !matches!(compare.target, Target::Value(_)) && against(&KeyValue::default());
        }
        found.into_iter().all(|version| against(&version.kv))
    }

    fn branch(&mut self, txn: &Txn, path: &mut impl Iterator<Item = bool>) -> Result<TxnResult, Error> {
        let succeeded = path.next().unwrap_or_default();
        let mut results = Vec::new();
        for op in if succeeded { &txn.then } else { &txn.otherwise } {
            results.push(match op {
                Op::Put(put) => OpResult::Put(self.put(put)?),
                Op::Delete(delete) => {
                    let everything = Filter::everything();
                    let found: Vec<KeyValue> = matching(&self.state, &delete.range, &everything)
                        .map(|version| version.kv.clone())
                        .collect();
                    for kv in &found {
                        self.change(&kv.key, None)?;
                    }
                    let deleted = found.len() as u64;
                    OpResult::Delete { deleted, previous: if delete.previous { found } else { Vec::new() } }
                }
                Op::Read(read) => OpResult::Read(self.read(read)?),
                Op::Txn(inner) => OpResult::Txn(self.branch(inner, path)?),
            });
        }
        Ok(TxnResult { revision: 0, succeeded, results })
    }

    fn read(&self, read: &Read) -> Result<ReadResult, Error> {
        let upcoming = self.revision + Revision::from(!self.changes.is_empty());
        match read.revision {
            Some(revision) if revision > upcoming => Err(future(revision, upcoming)),
            Some(revision) if revision < upcoming => self.model.read(read, 0),
            _ => Ok(read_state(&self.state, read)),
        }
    }

    fn put(&mut self, put: &Put) -> Result<Option<KeyValue>, Error> {
        let current = self.state.get(&put.key).cloned();
        let (mut value, mut terms, mut lease) = (put.value.clone(), put.terms.clone(), put.lease);
        if put.keep_value || put.keep_lease {
            let kept = current.clone().ok_or_else(|| Error::NotFound { key: put.key.clone() })?;
            if put.keep_value {
                (value, terms) = (kept.kv.value, kept.terms);
            }
            if put.keep_lease {
                lease = kept.kv.lease;
            }
        }
        let revision = self.revision + 1;
        let kv = KeyValue {
            key: put.key.clone(),
            value,
            create_revision: current.as_ref().map_or(revision, |version| version.kv.create_revision),
            revision,
            version: current.as_ref().map_or(1, |version| version.kv.version + 1),
            lease,
            stale: false,
        };
        self.change(&put.key, Some(Version { kv, terms }))?;
        Ok(current.map(|version| version.kv).filter(|_| put.previous))
    }

    fn change(&mut self, key: &Bytes, after: Option<Version>) -> Result<(), Error> {
        if self.changes.iter().any(|change| change.key == *key) {
            return Err(Error::DuplicateKey { key: key.clone() });
        }
        let before = match after.clone() {
            Some(version) => self.state.insert(key.clone(), version),
            None => self.state.remove(key),
        };
        self.changes.push(Change { key: key.clone(), before, after });
        Ok(())
    }
}
