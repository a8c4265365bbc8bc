//! The changes of a batch as arrays, and how they are sent to the server.

use std::{collections::BTreeMap, pin::pin, task::Poll};

use bytes::Bytes;
use futures_util::future::maybe_done;

use super::{
    connection::{Parameters, Session},
    db_error::DbError,
    schema::VERSION_BYTES,
    speculation::{Assumptions, LockedWrite, Precondition, insert_log, write_batch},
};
use crate::{
    LeaseId, Terms,
    evaluate::Evaluation,
    event::{Event, VersionId, checksum},
};

/// Maximum bytes of values in one statement, one large value excepted. PostgreSQL limits a message to 1 GiB.
const STATEMENT_BYTES: usize = 16 << 20;

static NO_TERMS: Terms = Terms::none();

/// Failure of a commit.
pub(super) struct CommitError {
    /// Set if the commit was sent to the server.
    pub(super) sent: bool,
    pub(super) error: DbError,
}

/// Changes of one batch, column by column.
#[derive(Default)]
pub(super) struct Changes<'e> {
    /// New versions, divided into parts that each fit one statement.
    pub(super) log: Vec<Versions<'e>>,
    pub(super) history_rows: Versions<'e>,
    /// Revisions that superseded the history rows.
    pub(super) superseded_at: Vec<i64>,
    pub(super) live: LiveChange<'e>,
    pub(super) deleted_terms: TermRows<'e>,
    pub(super) inserted_terms: TermRows<'e>,
    pub(super) reindexed: Versions<'e>,
    pub(super) deleted_leases: Vec<LeaseId>,
    pub(super) upserted_leases: [Vec<i64>; 3],
    /// Bytes of all versions ever written, these included.
    pub(super) written: i64,
}

/// Changes of live rows.
pub(super) enum LiveChange<'e> {
    /// Every key is put once, so live rows are copied from the inserted log rows: new keys (`created`) and existing ones
    /// (`updated`).
    FromLog {
        created: bool,
        updated: bool,
    },
    Explicit(Box<LiveRows<'e>>),
}

/// Live rows to create, update and delete.
#[derive(Default)]
pub(super) struct LiveRows<'e> {
    pub(super) created: Versions<'e>,
    pub(super) updated: Versions<'e>,
    pub(super) deleted: Vec<&'e [u8]>,
}

impl Default for LiveChange<'_> {
    fn default() -> Self {
        Self::FromLog { created: false, updated: false }
    }
}

/// Columns of versions; each table uses a subset.
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

/// Columns of index terms.
#[derive(Default)]
pub(super) struct TermRows<'e> {
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
    /// Collects the changes of a batch; `None` if there are none. `written` is the bytes of all versions before it.
    pub(super) fn collect(evaluation: &'e Evaluation<'_>, written: i64) -> Option<Self> {
        let mut changes = Self { written, ..Self::default() };
        for (id, row) in evaluation.lease_changes() {
            match row {
                Some(row) => {
                    for (column, number) in
                        changes.upserted_leases.iter_mut().zip([id, row.ttl_seconds, row.deadline_ms])
                    {
                        column.push(number);
                    }
                }
                None => changes.deleted_leases.push(id),
            }
        }
        // Per key the indexed terms before and after the batch.
        let mut terms: BTreeMap<&'e Bytes, (&'e Terms, &'e Terms)> = BTreeMap::new();
        // Per key the last event, and whether the key existed before the batch.
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
            changes.push_version(event);
        }
        changes.live = changes.live_change(&last);
        for (key, (old, new)) in terms {
            if old != new {
                changes.deleted_terms.extend(old.minus(new), key);
                changes.inserted_terms.extend(new.minus(old), key);
            }
        }
        let unchanged = changes.log.is_empty()
            && changes.reindexed.key.is_empty()
            && changes.deleted_leases.is_empty()
            && changes.upserted_leases[0].is_empty();
        (!unchanged).then_some(changes)
    }

    /// Returns the changes of live rows, from each key's last event and whether the key existed before the batch.
    fn live_change(&self, last: &BTreeMap<&'e Bytes, (&'e Event, bool)>) -> LiveChange<'e> {
        let once = self.log.len() == 1 && self.log.iter().all(|log| log.id.len() == last.len());
        if once && last.values().all(|(event, existed)| !event.deleted && event.created() != *existed) {
            return LiveChange::FromLog {
                created: last.values().any(|(_, existed)| !existed),
                updated: last.values().any(|(_, existed)| *existed),
            };
        }
        let mut rows = LiveRows::default();
        for (key, (event, existed)) in last {
            match (event.deleted, existed) {
                (true, true) => rows.deleted.push(&key[..]),
                (true, false) => {}
                (false, true) => rows.updated.push(key, numbers(event), &event.terms),
                (false, false) => rows.created.push(key, numbers(event), &event.terms),
            }
        }
        LiveChange::Explicit(Box::new(rows))
    }

    fn push_version(&mut self, event: &'e Event) {
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
        if let Some(row) = event.superseded_history_row() {
            let numbers = [row.id, row.revision, row.create_revision, row.version, row.lease];
            self.history_rows.push(&event.kv.key, numbers, &row.terms);
            self.superseded_at.push(event.kv.revision);
        }
    }

    /// Sends all statements and the commit as one pipeline, within a transaction that holds the lock exclusively.
    pub(super) async fn commit_locked(
        &self,
        session: &Session,
        write: &LockedWrite<'_>,
        channel: Option<&str>,
    ) -> Result<(), CommitError> {
        let composed = write_batch(self, &Precondition::Locked(write), channel.as_ref());
        let mut pipeline = Vec::new();
        for statement in self.log.iter().skip(1).map(insert_log).chain([composed]) {
            let prepared = session.prepare(&statement.sql).await;
            let prepared = prepared.map_err(|error| CommitError { sent: false, error })?;
            pipeline.push((prepared, statement.parameters));
        }
        let client = session.client();
        let mut responses: Vec<_> = pipeline
            .iter()
            .map(|(statement, parameters)| {
                let parameters: Parameters<'_> = parameters;
                Box::pin(maybe_done(client.execute(statement, parameters)))
            })
            .collect();
        // A future sends its statement when it is first polled. One that fails right then has sent nothing, and a commit
        // without it would write a part of the batch.
        let unsent = std::future::poll_fn(|context| {
            Poll::Ready(responses.iter_mut().find_map(|response| {
                let _ = response.as_mut().poll(context);
                response.as_mut().output_mut().and_then(|done| done.as_ref().err()).map(|_| ())
            }))
        });
        let error_of = |result: Option<Result<u64, tokio_postgres::Error>>| {
            result.and_then(Result::err).map(DbError::from)
        };
        if unsent.await.is_some() {
            let first = responses.iter_mut().find_map(|response| error_of(response.as_mut().take_output()));
            let error = first.unwrap_or(DbError::ConnectionLost(String::new()));
            return Err(CommitError { sent: false, error });
        }
        let all = async {
            let written = async {
                for response in &mut responses {
                    response.as_mut().await;
                }
            };
            futures_util::future::join(written, client.batch_execute("commit")).await.1
        };
        let committed = session.run(all).await;
        // The first error is the cause; later ones only say that the transaction is aborted.
        let written = responses.iter_mut().find_map(|response| error_of(response.as_mut().take_output()));
        match (written, committed) {
            (None, Ok(())) => Ok(()),
            (Some(error), _) | (None, Err(error)) => Err(CommitError { sent: true, error }),
        }
    }

    /// Writes and commits everything with one statement, if the assumptions hold. Returns whether they did. `meanwhile`
    /// runs while the server executes it.
    pub(super) async fn commit_speculatively(
        &self,
        session: &Session,
        assumptions: &Assumptions<'_>,
        channel: Option<&str>,
        meanwhile: impl FnOnce(),
    ) -> Result<bool, CommitError> {
        let composed = write_batch(self, &Precondition::Speculative(assumptions), channel.as_ref());
        let prepared = session.prepare(&composed.sql).await;
        let prepared = prepared.map_err(|error| CommitError { sent: false, error })?;
        let execute = pin!(session.client().execute(&prepared, &composed.parameters));
        let response = session.run_and(execute, meanwhile).await;
        match response {
            Ok(rows) => Ok(rows > 0),
            Err(DbError::UniqueViolation(_)) => Ok(false),
            Err(error) => Err(CommitError { sent: true, error }),
        }
    }
}

impl<'e> TermRows<'e> {
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
