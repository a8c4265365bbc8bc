//! Linearizability of reads and writes, with the revisions as the witness.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use orlop_store::{Error, OpResult, Revision, TxnResult};

use crate::{
    History, Model, Operation, Outcome, Request,
    timeline::{Compactions, Timeline},
};

/// Assignments of unknown operations to revisions that are tried before giving up.
const ATTEMPTS_MAX: usize = 200_000;

/// Replays a history on the model. Returns the model at its end, or the first violation.
pub(crate) fn check(history: &History) -> Result<Model, String> {
    let sorted = Operations::new(history)?;
    let reached = Timeline::new(observed_revisions(history), Vec::new());
    let (model, assigned) = sorted.replay(&reached)?;
    real_time(history, &sorted, &assigned, &reached)?;
    compaction(history)?;
    Ok(model)
}

/// Operations by revision.
#[derive(Default)]
struct Operations<'a> {
    /// The write of each revision.
    writes: BTreeMap<Revision, &'a Operation>,
    /// Reads that each revision's state must explain.
    reads: BTreeMap<Revision, Vec<&'a Operation>>,
    /// Operations of unknown outcome.
    unknown: Vec<&'a Operation>,
    /// Changes of each revision, as delivered by watches of everything.
    seen: BTreeMap<Revision, BTreeSet<(bytes::Bytes, Option<bytes::Bytes>)>>,
    /// Values that any watch reported of, now or as the previous ones, by the revision that wrote them.
    reported: BTreeMap<Revision, BTreeMap<bytes::Bytes, bytes::Bytes>>,
    last: Revision,
}

impl<'a> Operations<'a> {
    fn new(history: &'a History) -> Result<Self, String> {
        let mut sorted = Self { last: history.last.max(1), ..Self::default() };
        for operation in &history.operations {
            match (&operation.request, &operation.outcome) {
                (Request::Txn(_), Outcome::Txn(result)) if wrote(result) => {
                    if let Some(other) = sorted.writes.insert(result.revision, operation) {
                        return Err(format!("two writes have one revision: {other:#?} and {operation:#?}"));
                    }
                    sorted.last = sorted.last.max(result.revision);
                }
                (Request::Txn(_), Outcome::Txn(result)) => sorted.add_read(result.revision, operation),
                (Request::Txn(_), Outcome::Unknown) => sorted.unknown.push(operation),
                (Request::Read(read), Outcome::Read(result)) => {
                    sorted.add_read(read.revision.unwrap_or(result.revision), operation);
                    sorted.last = sorted.last.max(result.revision);
                }
                (Request::Txn(_) | Request::Read(_), Outcome::Refused(error)) => refused(operation, error)?,
                (Request::Read(_), Outcome::Unknown) | (Request::Compact(_), _) => {}
                _ => return Err(format!("an answer to another question: {operation:#?}")),
            }
        }
        for watch in &history.watches {
            let everything = watch.spec.range == orlop_store::KeyRange::all() && watch.spec.filter.is_empty();
            for batch in watch.entries.iter().filter(|_| everything).filter_map(|(_, entry)| entry.batch()) {
                let changes = batch.events.iter();
                let changes =
                    changes.map(|e| (e.kv.key.clone(), (!e.deleted).then(|| e.kv.value.clone()))).collect();
                sorted.seen.insert(batch.revision, changes);
            }
            let events = watch.entries.iter().filter_map(|(_, entry)| entry.batch()).flat_map(|b| &b.events);
            for event in events {
                let now = Some(&event.kv).filter(|_| !event.deleted);
                for kv in now.into_iter().chain(&event.previous) {
                    sorted.reported.entry(kv.revision).or_default().insert(kv.key.clone(), kv.value.clone());
                }
            }
        }
        Ok(sorted)
    }

    fn add_read(&mut self, revision: Revision, operation: &'a Operation) {
        self.reads.entry(revision).or_default().push(operation);
        self.last = self.last.max(revision);
    }

    /// Replays revision by revision. Returns the model, and the unknown operations by the revisions they created.
    fn replay(&self, reached: &Timeline) -> Result<(Model, BTreeMap<Revision, usize>), String> {
        let mut model = Model::default();
        let mut assignments = Vec::new();
        let mut problems = 0;
        let mut first_problem = String::new();
        self.explain(&model)?;
        while model.revision() < self.last {
            let Err(problem) = self.step(&mut model, &mut assignments, reached) else { continue };
            if problems == 0 {
                first_problem = problem;
            }
            problems += 1;
            if problems > ATTEMPTS_MAX || !backtrack(&mut model, &mut assignments) {
                return Err(format!("no explanation after {problems} attempts; {first_problem}"));
            }
        }
        let assigned =
            assignments.into_iter().map(|assignment| (assignment.revision, assignment.index)).collect();
        Ok((model, assigned))
    }

    /// Advances by one revision. If no known write created it, an operation of unknown outcome did.
    fn step(
        &self,
        model: &mut Model,
        assignments: &mut Vec<Assignment>,
        reached: &Timeline,
    ) -> Result<(), String> {
        let next = model.revision() + 1;
        if let Some(operation) = self.writes.get(&next) {
            let (Request::Txn(txn), Outcome::Txn(result)) = (&operation.request, &operation.outcome) else {
                return Err(format!("not a write: {operation:#?}"));
            };
            match model.run(txn) {
                Ok(expected) if expected == *result => {}
                other => return Err(format!("the model answers {other:#?} to {operation:#?}")),
            }
        } else {
            if assignments.last().is_none_or(|assignment| assignment.revision != next) {
                let used: HashSet<usize> = assignments.iter().map(|assignment| assignment.index).collect();
                let mut others = self.candidates(model, &used, reached);
                let Some(index) = others.pop() else {
                    let seen = self.seen.get(&next);
                    return Err(format!(
                        "nothing asked for made revision {next}; watches saw {seen:?} there"
                    ));
                };
                assignments.push(Assignment { revision: next, index, others });
            }
            let assigned = assignments.last().map(|assignment| &self.unknown[assignment.index].request);
            if let Some(Request::Txn(txn)) = assigned {
                model.run(txn).map_err(|error| format!("an assignment failed: {error}"))?;
            }
        }
        self.explain(model)
    }

    /// Returns the unknown operations that can have created the next revision.
    fn candidates(&self, model: &Model, used: &HashSet<usize>, reached: &Timeline) -> Vec<usize> {
        let next = model.revision() + 1;
        let possible = self.unknown.iter().enumerate().filter(|(index, operation)| {
            let Request::Txn(txn) = &operation.request else { return false };
            if used.contains(index) || reached.at_least(operation.invoked) >= next {
                return false;
            }
            let changes = model.would_change(txn);
            let seen = self.seen.get(&next);
            let same =
                || changes.iter().map(|c| (c.key.clone(), c.after.as_ref().map(|v| v.kv.value.clone())));
            let reported = self.reported.get(&next).into_iter().flatten();
            !changes.is_empty()
                && seen.is_none_or(|seen| *seen == same().collect())
                && reported
                    .into_iter()
                    .all(|(key, value)| same().any(|c| c == (key.clone(), Some(value.clone()))))
        });
        possible.map(|(index, _)| index).collect()
    }

    /// Checks every read of the newest revision.
    fn explain(&self, model: &Model) -> Result<(), String> {
        let revision = model.revision();
        for operation in self.reads.get(&revision).into_iter().flatten() {
            let explained = match (&operation.request, &operation.outcome) {
                (Request::Txn(txn), Outcome::Txn(result)) => {
                    model.run_at(txn, revision).as_ref() == Ok(result)
                }
                (Request::Read(read), Outcome::Read(result)) => {
                    result.revision >= revision && model.read(read, result.revision).as_ref() == Ok(result)
                }
                _ => false,
            };
            if !explained {
                let answer = match &operation.request {
                    Request::Read(read) => format!("{:#?}", model.read(read, revision)),
                    Request::Txn(txn) => format!("{:#?}", model.run_at(txn, revision)),
                    Request::Compact(_) => String::new(),
                };
                return Err(format!("at revision {revision} the model answers {answer} to {operation:#?}"));
            }
        }
        Ok(())
    }
}

/// An assignment at which operation made a revision, and what else could have.
struct Assignment {
    revision: Revision,
    index: usize,
    others: Vec<usize>,
}

/// Changes the last assignment that has an alternative. Returns whether there was one.
fn backtrack(model: &mut Model, assignments: &mut Vec<Assignment>) -> bool {
    while let Some(mut assignment) = assignments.pop() {
        if let Some(index) = assignment.others.pop() {
            model.rewind(assignment.revision - 1);
            assignments.push(Assignment { index, ..assignment });
            return true;
        }
    }
    false
}

/// Returns whether a transaction wrote anything.
fn wrote(result: &TxnResult) -> bool {
    result.results.iter().any(|result| match result {
        OpResult::Put(_) => true,
        OpResult::Delete { deleted, .. } => *deleted > 0,
        OpResult::Read(_) => false,
        OpResult::Txn(inner) => wrote(inner),
    })
}

/// Checks that an error was justified.
fn refused(operation: &Operation, error: &Error) -> Result<(), String> {
    let justified = match (&operation.request, error) {
        (Request::Read(read), Error::FutureRevision { requested, current }) => {
            read.revision == Some(*requested) && requested > current
        }
        (Request::Read(read), Error::Expired { compacted }) => read.revision.is_some_and(|r| r < *compacted),
        (Request::Txn(txn), Error::DuplicateKey { .. }) => Model::default().run(txn).as_ref() == Err(error),
        _ => false,
    };
    if justified { Ok(()) } else { Err(format!("refused without reason: {operation:#?}")) }
}

/// Returns the revision in a response.
fn position(operation: &Operation) -> Option<Revision> {
    match &operation.outcome {
        Outcome::Txn(result) => Some(result.revision),
        Outcome::Read(result) => Some(result.revision),
        Outcome::Refused(Error::FutureRevision { current, .. }) => Some(*current),
        Outcome::Refused(_) | Outcome::Compacted | Outcome::Unknown => None,
    }
}

/// Returns the revisions in responses, with their times.
pub(crate) fn observed_revisions(history: &History) -> Vec<(u64, Revision)> {
    let operations = history.operations.iter();
    operations.filter_map(|operation| Some((operation.returned, position(operation)?))).collect()
}

/// Checks that the order of revisions respects real time.
fn real_time(
    history: &History,
    sorted: &Operations<'_>,
    assigned: &BTreeMap<Revision, usize>,
    reached: &Timeline,
) -> Result<(), String> {
    let assigned = assigned.iter().map(|(revision, index)| (*revision, sorted.unknown[*index]));
    for (revision, operation) in sorted.writes.iter().map(|(revision, op)| (*revision, *op)).chain(assigned) {
        let before = reached.at_least(operation.invoked);
        if revision <= before {
            return Err(format!(
                "a write went back in time: {before} had been reached before {operation:#?}"
            ));
        }
    }
    for operation in &history.operations {
        let before = reached.at_least(operation.invoked);
        if position(operation).is_some_and(|position| position < before) {
            return Err(format!("a stale answer: {before} had been reached before {operation:#?}"));
        }
    }
    Ok(())
}

/// Every compaction that was asked for.
pub(crate) fn compactions(history: &History) -> Compactions {
    let asked = history.operations.iter().filter_map(|operation| {
        let Request::Compact(revision) = operation.request else { return None };
        let done = (operation.outcome == Outcome::Compacted).then_some(operation.returned);
        (!matches!(operation.outcome, Outcome::Refused(_))).then_some((operation.invoked, done, revision))
    });
    Compactions::new(&asked.collect::<Vec<_>>())
}

/// Checks that compacted revisions fail and others do not.
fn compaction(history: &History) -> Result<(), String> {
    let compactions = compactions(history);
    for operation in &history.operations {
        let asked = match &operation.request {
            Request::Read(read) => read.revision,
            Request::Compact(revision) => Some(*revision),
            Request::Txn(_) => None,
        };
        let Some(asked) = asked else { continue };
        let fine = match (&operation.request, &operation.outcome) {
            (Request::Read(_), Outcome::Read(_)) => asked >= compactions.at_least(operation.invoked),
            (_, Outcome::Refused(Error::Expired { compacted })) => {
                asked <= *compacted && *compacted <= compactions.at_most(operation.returned)
            }
            (Request::Compact(_), Outcome::Compacted) => {
                asked > compactions.at_least(operation.invoked) || asked == 1
            }
            (Request::Compact(_), Outcome::Refused(Error::FutureRevision { requested, current })) => {
                requested == &asked && asked > *current
            }
            (Request::Compact(_), Outcome::Refused(_)) => false,
            _ => true,
        };
        if !fine {
            return Err(format!("compaction and {operation:#?} contradict each other"));
        }
    }
    Ok(())
}
