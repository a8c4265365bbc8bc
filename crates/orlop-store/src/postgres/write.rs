//! A batch's changes as arrays, one statement for many rows.

use std::{collections::BTreeMap, task::Poll};

use bytes::Bytes;
use futures_util::future::maybe_done;
use tokio_postgres::{Statement, types::ToSql};

use super::{
    connect::{Parameters, Session},
    fault::Fault,
    schema::VERSION_BYTES,
};
use crate::{
    LeaseId, Terms,
    evaluate::Evaluation,
    event::{Event, VersionId, checksum},
};

/// Bytes of values that one statement carries at the most, one large value excepted. PostgreSQL's own limit
/// for a message is 1 GiB.
const STATEMENT_BYTES: usize = 16 << 20;

const LOG: &str = "
    insert into log (id, revision, key, create_revision, version, lease, previous, terms, value, checksum)
    select * from unnest($1::int8[], $2::int8[], $3::bytea[], $4::int8[], $5::int8[], $6::int8[], $7::int8[],
                         $8::bytea[], $9::bytea[], $10::int8[])";

/// Moves keys to their new versions, notes the batch as this process's last, raises the revision and tells
/// the other processes. The parts touch different tables, so their order does not matter.
const MOVE: &str = "
    with superseded as (
        insert into history (key, superseded_at, id, revision, create_revision, version, lease)
        select * from unnest($1::bytea[], $2::int8[], $3::int8[], $4::int8[], $5::int8[], $6::int8[], $7::int8[])
    ), written as (
        insert into live (key, id, revision, create_revision, version, lease, terms)
        select * from unnest($8::bytea[], $9::int8[], $10::int8[], $11::int8[], $12::int8[], $13::int8[],
                             $14::bytea[])
        on conflict (key) do update set id = excluded.id, revision = excluded.revision,
            create_revision = excluded.create_revision, version = excluded.version, lease = excluded.lease,
            terms = excluded.terms
    ), marked as (
        insert into writer (process, batch, seen) values ($15, $16, now())
        on conflict (process) do update set batch = excluded.batch, seen = excluded.seen
    ), raised as (
        update state set revision = $17, last_id = $18, bytes = bytes + $20
    )
    select pg_notify($19, '')";

const GONE: &str = "delete from live using unnest($1::bytea[]) gone(key) where live.key = gone.key";

const TERMS_GONE: &str = "
    delete from terms t using unnest($1::bytea[], $2::bytea[], $3::bytea[]) gone(field, value, key)
    where t.field = gone.field and t.value = gone.value and t.key = gone.key";
const TERMS_NEW: &str = "
    insert into terms (field, value, key) select * from unnest($1::bytea[], $2::bytea[], $3::bytea[])
    on conflict do nothing";

const REINDEX_LIVE: &str = "
    update live set terms = new.terms from unnest($1::int8[], $2::bytea[], $3::bytea[]) new(id, key, terms)
    where live.key = new.key and live.id = new.id";
const REINDEX_LOG: &str = "
    update log set terms = new.terms from unnest($1::int8[], $2::bytea[]) new(id, terms)
    where log.id = new.id";

const LEASES_GONE: &str = "delete from lease where id = any($1)";
const LEASES_NEW: &str = "
    insert into lease (id, ttl_seconds, deadline_ms) select * from unnest($1::int8[], $2::int8[], $3::int8[])
    on conflict (id) do update set ttl_seconds = excluded.ttl_seconds, deadline_ms = excluded.deadline_ms";

static NO_TERMS: Terms = Terms::none();

/// The statements of the writing connection, prepared when it is made.
#[derive(Debug)]
pub(super) struct Statements {
    log: Statement,
    moved: Statement,
    gone: Statement,
    terms_gone: Statement,
    terms_new: Statement,
    reindex_live: Statement,
    reindex_log: Statement,
    leases_gone: Statement,
    leases_new: Statement,
}

impl Statements {
    pub(super) async fn prepare(session: &Session) -> Result<Self, Fault> {
        Ok(Self {
            log: session.prepare(LOG).await?,
            moved: session.prepare(MOVE).await?,
            gone: session.prepare(GONE).await?,
            terms_gone: session.prepare(TERMS_GONE).await?,
            terms_new: session.prepare(TERMS_NEW).await?,
            reindex_live: session.prepare(REINDEX_LIVE).await?,
            reindex_log: session.prepare(REINDEX_LOG).await?,
            leases_gone: session.prepare(LEASES_GONE).await?,
            leases_new: session.prepare(LEASES_NEW).await?,
        })
    }
}

/// Who commits which batch, and whom to tell.
pub(super) struct Mark<'a> {
    pub(super) process: &'a str,
    pub(super) batch: i64,
    pub(super) channel: &'a str,
}

/// Why a batch is not known to be committed.
pub(super) struct Unsure {
    /// Whether the server was asked to commit.
    pub(super) committing: bool,
    pub(super) fault: Fault,
}

/// A statement and its parameters.
type Sending<'p> = (&'p Statement, Vec<&'p (dyn ToSql + Sync)>);

/// The changes of one batch, column by column.
#[derive(Default)]
pub(super) struct Changes<'e> {
    log: Vec<Versions<'e>>,
    superseded: Versions<'e>,
    superseded_at: Vec<i64>,
    live: Versions<'e>,
    gone: Vec<&'e [u8]>,
    terms_gone: Pairs<'e>,
    terms_new: Pairs<'e>,
    reindexed: Versions<'e>,
    leases_gone: Vec<LeaseId>,
    leases_new: [Vec<i64>; 3],
    revision: i64,
    last_id: VersionId,
    /// Bytes that the new versions take.
    bytes: i64,
}

/// Columns that versions have everywhere; each table uses those it has.
#[derive(Default)]
struct Versions<'e> {
    key: Vec<&'e [u8]>,
    id: Vec<i64>,
    revision: Vec<i64>,
    create_revision: Vec<i64>,
    version: Vec<i64>,
    lease: Vec<i64>,
    terms: Vec<&'e [u8]>,
    previous: Vec<Option<i64>>,
    value: Vec<&'e [u8]>,
    checksum: Vec<i64>,
    bytes: usize,
}

#[derive(Default)]
struct Pairs<'e> {
    field: Vec<&'e [u8]>,
    value: Vec<&'e [u8]>,
    key: Vec<&'e [u8]>,
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
    /// `None` if the batch changes nothing.
    pub(super) fn of(evaluation: &'e Evaluation<'_>) -> Option<Self> {
        let mut changes =
            Self { revision: evaluation.revision, last_id: evaluation.last_id, ..Self::default() };
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
        let mut last: BTreeMap<&'e Bytes, &'e Event> = BTreeMap::new();
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
            last.insert(key, event);
            changes.version(event);
        }
        for (key, event) in last {
            match event.deleted {
                true => changes.gone.push(key),
                false => changes.live.push(key, numbers(event), &event.terms),
            }
        }
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

    fn version(&mut self, event: &'e Event) {
        let bytes = event.kv.key.len() + event.kv.value.len() + event.terms.encoded().len();
        if self.log.last().is_none_or(|log| log.bytes + bytes > STATEMENT_BYTES) {
            self.log.push(Versions::default());
        }
        self.bytes += (event.kv.key.len() + event.kv.value.len()) as i64 + VERSION_BYTES;
        let previous = event.previous.as_ref().map(|previous| &previous.row);
        if let Some(log) = self.log.last_mut() {
            log.push(&event.kv.key, numbers(event), &event.terms);
            log.previous.push(previous.map(|row| row.id));
            log.value.push(&event.kv.value);
            log.checksum.push(checksum(&event.kv.key, &event.kv.value));
            log.bytes += bytes;
        }
        if let Some(row) = previous {
            let numbers = [row.id, row.revision, row.create_revision, row.version, row.lease];
            self.superseded.push(&event.kv.key, numbers, &row.terms);
            self.superseded_at.push(event.kv.revision);
        }
    }

    /// Sends all statements and the commit at once, and waits for all answers.
    pub(super) async fn send(
        &self,
        session: &Session,
        statements: &Statements,
        mark: &Mark<'_>,
    ) -> Result<(), Unsure> {
        let client = session.client();
        let pipeline = self.pipeline(statements, mark);
        let mut answers: Vec<_> = pipeline
            .iter()
            .map(|(statement, parameters)| {
                let parameters: Parameters<'_> = parameters;
                Box::pin(maybe_done(client.execute(*statement, parameters)))
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

    /// Every statement with its parameters, in order.
    fn pipeline<'p>(&'p self, statements: &'p Statements, mark: &'p Mark<'_>) -> Vec<Sending<'p>> {
        let Statements { log, moved, gone, terms_gone, terms_new, reindex_live, reindex_log, .. } =
            statements;
        let (old, live, re) = (&self.superseded, &self.live, &self.reindexed);
        let mut pipeline: Vec<Sending<'p>> = Vec::new();
        for v in &self.log {
            pipeline.push((
                log,
                vec![
                    &v.id,
                    &v.revision,
                    &v.key,
                    &v.create_revision,
                    &v.version,
                    &v.lease,
                    &v.previous,
                    &v.terms,
                    &v.value,
                    &v.checksum,
                ],
            ));
        }
        if !self.gone.is_empty() {
            pipeline.push((gone, vec![&self.gone]));
        }
        if !re.key.is_empty() {
            pipeline.push((reindex_live, vec![&re.id, &re.key, &re.terms]));
            pipeline.push((reindex_log, vec![&re.id, &re.terms]));
        }
        for (statement, pairs) in [(terms_gone, &self.terms_gone), (terms_new, &self.terms_new)] {
            if !pairs.key.is_empty() {
                pipeline.push((statement, vec![&pairs.field, &pairs.value, &pairs.key]));
            }
        }
        if !self.leases_gone.is_empty() {
            pipeline.push((&statements.leases_gone, vec![&self.leases_gone]));
        }
        let [ids, ttls, deadlines] = &self.leases_new;
        if !ids.is_empty() {
            pipeline.push((&statements.leases_new, vec![ids, ttls, deadlines]));
        }
        pipeline.push((
            moved,
            vec![
                &old.key,
                &self.superseded_at,
                &old.id,
                &old.revision,
                &old.create_revision,
                &old.version,
                &old.lease,
                &live.key,
                &live.id,
                &live.revision,
                &live.create_revision,
                &live.version,
                &live.lease,
                &live.terms,
                &mark.process,
                &mark.batch,
                &self.revision,
                &self.last_id,
                &mark.channel,
                &self.bytes,
            ],
        ));
        pipeline
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
