//! A batch's changes as arrays, and how they get to the server.

use std::{collections::BTreeMap, pin::pin, task::Poll};

use bytes::Bytes;
use futures_util::future::maybe_done;

use super::{
    connect::{Parameters, Session},
    fault::Fault,
    schema::VERSION_BYTES,
    statement::{self, Right, Taken, TakenForGranted},
};
use crate::{
    LeaseId, Terms,
    evaluate::Evaluation,
    event::{Event, VersionId, checksum},
};

/// Bytes of values that one statement carries at the most, one large value excepted. PostgreSQL's own limit
/// for a message is 1 GiB.
const STATEMENT_BYTES: usize = 16 << 20;

static NO_TERMS: Terms = Terms::none();

/// Why a batch is not known to be committed.
pub(super) struct Unsure {
    /// Whether the server was asked to commit.
    pub(super) committing: bool,
    pub(super) fault: Fault,
}

/// The changes of one batch, column by column.
#[derive(Default)]
pub(super) struct Changes<'e> {
    /// New versions, as many as one statement carries, and more of them.
    pub(super) log: Vec<Versions<'e>>,
    pub(super) milestones: Versions<'e>,
    /// When the milestones were superseded.
    pub(super) superseded_at: Vec<i64>,
    pub(super) live: Live<'e>,
    pub(super) terms_gone: Pairs<'e>,
    pub(super) terms_new: Pairs<'e>,
    pub(super) reindexed: Versions<'e>,
    pub(super) leases_gone: Vec<LeaseId>,
    pub(super) leases_new: [Vec<i64>; 3],
    /// Bytes that all versions ever took, these included.
    pub(super) written: i64,
}

/// What becomes of the live versions.
pub(super) enum Live<'e> {
    /// Each new version is its key's, whether the key was there (`updated`) or not (`created`).
    AsLogged {
        created: bool,
        updated: bool,
    },
    Changed(Box<LiveChanges<'e>>),
}

/// Keys that were not there before the batch, those that were, and those that are gone.
#[derive(Default)]
pub(super) struct LiveChanges<'e> {
    pub(super) created: Versions<'e>,
    pub(super) updated: Versions<'e>,
    pub(super) gone: Vec<&'e [u8]>,
}

impl Default for Live<'_> {
    fn default() -> Self {
        Self::AsLogged { created: false, updated: false }
    }
}

/// Columns that versions have everywhere; each table uses those it has.
#[derive(Default)]
pub(super) struct Versions<'e> {
    pub(super) key: Vec<&'e [u8]>,
    pub(super) id: Vec<i64>,
    pub(super) revision: Vec<i64>,
    pub(super) create_revision: Vec<i64>,
    pub(super) version: Vec<i64>,
    pub(super) lease: Vec<i64>,
    pub(super) terms: Vec<&'e [u8]>,
    pub(super) previous: Vec<Option<i64>>,
    pub(super) value: Vec<&'e [u8]>,
    pub(super) checksum: Vec<i64>,
    pub(super) written: Vec<i64>,
    bytes: usize,
}

#[derive(Default)]
pub(super) struct Pairs<'e> {
    pub(super) field: Vec<&'e [u8]>,
    pub(super) value: Vec<&'e [u8]>,
    pub(super) key: Vec<&'e [u8]>,
}

impl<'e> Versions<'e> {
    fn push(&mut self, key: &'e [u8], numbers: [i64; 5], terms: &'e Terms) {
        let [id, revision, create_revision, version, lease] = numbers;
        self.key.push(key);
        self.id.push(id);
        self.revision.push(revision);
        self.create_revision.push(create_revision);
        self.version.push(version);
        self.lease.push(lease);
        self.terms.push(terms.encoded());
    }
}

impl<'e> Changes<'e> {
    /// `None` if the batch changes nothing. `written` is what the versions before it took.
    pub(super) fn of(evaluation: &'e Evaluation<'_>, written: i64) -> Option<Self> {
        let mut changes = Self { written, ..Self::default() };
        for (id, row) in evaluation.lease_changes() {
            match row {
                Some(row) => {
                    for (column, number) in
                        changes.leases_new.iter_mut().zip([id, row.ttl_seconds, row.deadline_ms])
                    {
                        column.push(number);
                    }
                }
                None => changes.leases_gone.push(id),
            }
        }
        // For each key the terms that the index has and those it shall have, over all of the batch.
        let mut terms: BTreeMap<&'e Bytes, (&'e Terms, &'e Terms)> = BTreeMap::new();
        // Each key's last event, and whether the key existed before its first.
        let mut last: BTreeMap<&'e Bytes, (&'e Event, bool)> = BTreeMap::new();
        let mut reindexed: BTreeMap<&'e Bytes, (VersionId, &'e Terms)> = BTreeMap::new();
        for (key, row, new) in &evaluation.reindexed {
            terms.entry(key).or_insert((&row.terms, new)).1 = new;
            reindexed.insert(key, (row.id, new));
        }
        for (key, (id, new)) in reindexed {
            changes.reindexed.push(key, [id, 0, 0, 0, 0], new);
        }
        for event in evaluation.commits.iter().flat_map(|commit| &commit.events) {
            let key = &event.kv.key;
            let old = event.previous.as_ref().map_or(&NO_TERMS, |previous| previous.terms());
            terms.entry(key).or_insert((old, &event.terms)).1 = &event.terms;
            last.entry(key).or_insert((event, event.previous.is_some())).0 = event;
            changes.version(event);
        }
        changes.live = changes.live(&last);
        for (key, (old, new)) in terms {
            if old != new {
                changes.terms_gone.extend(old.minus(new), key);
                changes.terms_new.extend(new.minus(old), key);
            }
        }
        let nothing = changes.log.is_empty()
            && changes.reindexed.key.is_empty()
            && changes.leases_gone.is_empty()
            && changes.leases_new[0].is_empty();
        (!nothing).then_some(changes)
    }

    /// `last` has each key's last event, and whether the key was there before its first.
    fn live(&self, last: &BTreeMap<&'e Bytes, (&'e Event, bool)>) -> Live<'e> {
        let once = self.log.len() == 1 && self.log.iter().all(|log| log.id.len() == last.len());
        if once && last.values().all(|(event, existed)| !event.deleted && event.created() != *existed) {
            return Live::AsLogged {
                created: last.values().any(|(_, existed)| !existed),
                updated: last.values().any(|(_, existed)| *existed),
            };
        }
        let mut changes = LiveChanges::default();
        for (key, (event, existed)) in last {
            match (event.deleted, existed) {
                (true, true) => changes.gone.push(&key[..]),
                (true, false) => {}
                (false, true) => changes.updated.push(key, numbers(event), &event.terms),
                (false, false) => changes.created.push(key, numbers(event), &event.terms),
            }
        }
        Live::Changed(Box::new(changes))
    }

    fn version(&mut self, event: &'e Event) {
        let bytes = event.kv.key.len() + event.kv.value.len() + event.terms.encoded().len();
        if self.log.last().is_none_or(|log| log.bytes + bytes > STATEMENT_BYTES) {
            self.log.push(Versions::default());
        }
        self.written += (event.kv.key.len() + event.kv.value.len()) as i64 + VERSION_BYTES;
        let previous = event.previous.as_ref().map(|previous| &previous.row);
        if let Some(log) = self.log.last_mut() {
            log.push(&event.kv.key, numbers(event), &event.terms);
            log.previous.push(previous.map(|row| row.id));
            log.value.push(&event.kv.value);
            log.checksum.push(checksum(&event.kv.key, &event.kv.value));
            log.written.push(self.written);
            log.bytes += bytes;
        }
        if let Some(row) = event.milestone() {
            let numbers = [row.id, row.revision, row.create_revision, row.version, row.lease];
            self.milestones.push(&event.kv.key, numbers, &row.terms);
            self.superseded_at.push(event.kv.revision);
        }
    }

    /// Sends everything and the commit at once, within a transaction that holds the lock alone, and waits for all
    /// answers.
    pub(super) async fn commit(
        &self,
        session: &Session,
        taken: &Taken<'_>,
        channel: Option<&str>,
    ) -> Result<(), Unsure> {
        let composed = statement::all_of(self, &Right::Lock(taken), channel.as_ref());
        let mut pipeline = Vec::new();
        for more in self.log.iter().skip(1).map(statement::log).chain([composed]) {
            let prepared = session.prepare(&more.sql).await;
            let prepared = prepared.map_err(|fault| Unsure { committing: false, fault })?;
            pipeline.push((prepared, more.parameters));
        }
        let client = session.client();
        let mut answers: Vec<_> = pipeline
            .iter()
            .map(|(statement, parameters)| {
                let parameters: Parameters<'_> = parameters;
                Box::pin(maybe_done(client.execute(statement, parameters)))
            })
            .collect();
        // A future sends its statement when it is first polled. One that fails by itself then has sent
        // nothing, and a commit without it would tear the batch.
        let unsent = std::future::poll_fn(|context| {
            Poll::Ready(answers.iter_mut().find_map(|answer| {
                let _ = answer.as_mut().poll(context);
                answer.as_mut().output_mut().and_then(|done| done.as_ref().err()).map(|_| ())
            }))
        });
        let fault = |result: Option<Result<u64, tokio_postgres::Error>>| {
            result.and_then(Result::err).map(Fault::from)
        };
        if unsent.await.is_some() {
            let first = answers.iter_mut().find_map(|answer| fault(answer.as_mut().take_output()));
            return Err(Unsure { committing: false, fault: first.unwrap_or(Fault::Lost(String::new())) });
        }
        let all = async {
            let written = async {
                for answer in &mut answers {
                    answer.as_mut().await;
                }
            };
            futures_util::future::join(written, client.batch_execute("commit")).await.1
        };
        let committed = session.run(all).await;
        // The first error is the cause; those after it only say that the transaction is over.
        let written = answers.iter_mut().find_map(|answer| fault(answer.as_mut().take_output()));
        match (written, committed) {
            (None, Ok(())) => Ok(()),
            (Some(fault), _) | (None, Err(fault)) => Err(Unsure { committing: true, fault }),
        }
    }

    /// Writes and commits everything with one statement, if what was taken for granted is so; whether it was. While
    /// the server is at it, there is time for something else.
    pub(super) async fn commit_if(
        &self,
        session: &Session,
        taken: &TakenForGranted<'_>,
        channel: Option<&str>,
        something_else: impl FnOnce(),
    ) -> Result<bool, Unsure> {
        let composed = statement::all_of(self, &Right::Turn(taken), channel.as_ref());
        let prepared = session.prepare(&composed.sql).await;
        let prepared = prepared.map_err(|fault| Unsure { committing: false, fault })?;
        let execute = pin!(session.client().execute(&prepared, &composed.parameters));
        let answer = session.run_while(execute, something_else).await;
        match answer {
            Ok(rows) => Ok(rows > 0),
            Err(Fault::Taken(_)) => Ok(false),
            Err(fault) => Err(Unsure { committing: true, fault }),
        }
    }
}

impl<'e> Pairs<'e> {
    fn extend(&mut self, pairs: impl Iterator<Item = (&'e str, &'e str)>, key: &'e Bytes) {
        for (field, value) in pairs {
            self.field.push(field.as_bytes());
            self.value.push(value.as_bytes());
            self.key.push(key);
        }
    }
}

fn numbers(event: &Event) -> [i64; 5] {
    let kv = &event.kv;
    [event.id, kv.revision, kv.create_revision, kv.version, kv.lease]
}
