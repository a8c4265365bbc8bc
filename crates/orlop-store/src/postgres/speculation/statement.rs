//! Composes the statement that writes a batch.
//!
//! It consists of the common table expressions that the batch needs. They change different rows, so their order does not
//! matter. All of them depend on the first, `sure`, which checks the precondition: if it returns no row, nothing is
//! written.

use std::fmt::Write;

use tokio_postgres::types::ToSql;

use super::Epoch;
use crate::{
    event::VersionId,
    postgres::changes::{Changes, LiveChange, LiveRows, TermRows, Versions},
};

/// A statement and its parameters.
#[derive(Default)]
pub(in crate::postgres) struct Composed<'p> {
    pub(in crate::postgres) sql: String,
    pub(in crate::postgres) parameters: Vec<&'p (dyn ToSql + Sync)>,
    /// Set if one version is written.
    single: bool,
}

/// Condition under which a batch is written.
pub(in crate::postgres) enum Precondition<'a> {
    /// The write lock is held exclusively.
    Locked(&'a LockedWrite<'a>),
    /// The statement verifies the epoch and the assumptions.
    Speculative(&'a Assumptions<'a>),
}

/// A batch under the exclusive lock, which begins an epoch or continues one.
pub(in crate::postgres) struct LockedWrite<'a> {
    pub(in crate::postgres) process: &'a str,
    pub(in crate::postgres) epoch: Epoch,
    /// Number of the batch, by which an ambiguous commit is resolved.
    pub(in crate::postgres) batch: i64,
    /// The last version of the epoch before, if this one begins.
    pub(in crate::postgres) previous_end: Option<VersionId>,
}

/// Assumptions of a speculative batch.
pub(in crate::postgres) struct Assumptions<'g> {
    pub(in crate::postgres) epoch: Epoch,
    /// The condition on the epoch (`WriteLock::shared_epoch_check`).
    pub(in crate::postgres) epoch_check: &'g str,
    /// Keys with their versions; a key without one does not exist.
    pub(in crate::postgres) key: Vec<&'g [u8]>,
    pub(in crate::postgres) id: Vec<Option<VersionId>>,
    pub(in crate::postgres) terms: Vec<Option<&'g [u8]>>,
}

/// A column of several rows.
trait Column {
    /// Returns the SQL type of its cells.
    fn sql_type(&self) -> &'static str;
    fn all(&self) -> &(dyn ToSql + Sync);
    /// Returns the cell of a single row.
    fn single(&self) -> Option<&(dyn ToSql + Sync)>;
}

/// A cell of a column.
trait Cell: ToSql + Sync {
    const SQL_TYPE: &'static str;
}

impl Cell for i64 {
    const SQL_TYPE: &'static str = "int8";
}

impl Cell for &[u8] {
    const SQL_TYPE: &'static str = "bytea";
}

impl<T: Cell> Cell for Option<T> {
    const SQL_TYPE: &'static str = T::SQL_TYPE;
}

impl<T: Cell> Column for Vec<T> {
    fn sql_type(&self) -> &'static str {
        T::SQL_TYPE
    }

    fn all(&self) -> &(dyn ToSql + Sync) {
        self
    }

    fn single(&self) -> Option<&(dyn ToSql + Sync)> {
        match self.as_slice() {
            [single] => Some(single),
            _ => None,
        }
    }
}

const LOG: &str =
    "log (id, revision, key, create_revision, version, lease, previous, terms, value, checksum, written)";

/// The columns of `live`.
const LIVE: &str = "(key, id, revision, create_revision, version, lease, terms)";

/// Writes the live row of a single version, whose log columns are the first parameters.
const CREATED: &str = "insert into live (key, id, revision, create_revision, version, lease, terms)
    select $3, $1, $2, $4, $5, $6, $8 from sure";
const UPDATED: &str =
    "update live set id = $1, revision = $2, create_revision = $4, version = $5, lease = $6,
    terms = $8 from sure where live.key = $3";

/// Composes an insert of versions that do not fit the main statement.
pub(in crate::postgres) fn insert_log<'p>(versions: &'p Versions<'_>) -> Composed<'p> {
    let mut composed = Composed::default();
    let _ = write!(composed.sql, "insert into {LOG} select * from ");
    composed.rows(&log_columns(versions));
    composed
}

fn log_columns<'p>(v: &'p Versions<'_>) -> [&'p dyn Column; 11] {
    [
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
        &v.written,
    ]
}

/// Composes the main statement: everything but the later parts of [`Changes::log`].
///
/// It returns or changes one row, or none if the precondition fails. Listeners on `channel` are notified, if there is one.
pub(in crate::postgres) fn write_batch<'p>(
    changes: &'p Changes<'_>,
    precondition: &Precondition<'p>,
    channel: Option<&'p &'p str>,
) -> Composed<'p> {
    let single = changes.log.iter().map(|versions| versions.id.len()).sum::<usize>() == 1;
    let mut composed = Composed { single, ..Composed::default() };
    composed.sql.reserve(1024);
    // The live row of a single version uses the same parameters, and is the last part of the statement.
    let mut last = None;
    match (precondition, changes.log.first(), &changes.live) {
        (Precondition::Speculative(assumptions), Some(version), LiveChange::FromLog { created, .. })
            if single =>
        {
            last = Some(composed.single_version(assumptions, version, *created));
        }
        (precondition, versions, live) => {
            match precondition {
                Precondition::Locked(write) => composed.record_epoch(write),
                Precondition::Speculative(assumptions) => composed.verify(assumptions),
            }
            if let Some(versions) = versions {
                composed.logged(versions, live);
            }
            composed.live(live);
        }
    }
    composed.history_rows(changes);
    composed.terms(&changes.deleted_terms, &changes.inserted_terms);
    composed.reindexed(&changes.reindexed);
    composed.leases(changes);
    match (channel, last) {
        (None, Some(last)) => composed.end(last),
        (None, None) => composed.end("select 1 from sure"),
        (Some(channel), last) => {
            if let Some(last) = last {
                composed.part("lives", |composed| composed.push(last));
            }
            composed.end("select pg_notify(");
            composed.parameter(channel);
            composed.push(", '') from sure");
        }
    }
    composed
}

impl<'p> Composed<'p> {
    fn push(&mut self, text: &str) {
        self.sql.push_str(text);
    }

    fn parameter(&mut self, parameter: &'p (dyn ToSql + Sync)) {
        self.parameters.push(parameter);
        let _ = write!(self.sql, "${}", self.parameters.len());
    }

    /// Appends the main query.
    fn end(&mut self, last: &str) {
        self.push(") ");
        self.push(last);
    }

    /// Appends `text` with a parameter for each `?`.
    fn push_with(&mut self, text: &str, parameters: &[&'p (dyn ToSql + Sync)]) {
        let mut parameters = parameters.iter();
        for piece in text.split_inclusive('?') {
            match (piece.strip_suffix('?'), parameters.next()) {
                (Some(before), Some(parameter)) => {
                    self.push(before);
                    self.parameter(*parameter);
                }
                _ => self.push(piece),
            }
        }
    }

    /// Appends rows made of columns. A single version is a plain row: unpacking arrays takes the server longer than
    /// inserting it. Otherwise columns are arrays, so that there are few distinct statements.
    fn rows(&mut self, columns: &[&'p dyn Column]) {
        let single = self.single && columns.iter().all(|column| column.single().is_some());
        self.push(if single { "(select " } else { "unnest(" });
        self.columns(columns, single);
        self.push(")");
    }

    fn columns(&mut self, columns: &[&'p dyn Column], single: bool) {
        for (nth, column) in columns.iter().enumerate() {
            self.push(if nth == 0 { "" } else { ", " });
            self.parameter(column.single().filter(|_| single).unwrap_or(column.all()));
            self.push("::");
            self.push(column.sql_type());
            self.push(if single { "" } else { "[]" });
        }
    }

    /// Appends a common table expression.
    fn part(&mut self, name: &str, body: impl FnOnce(&mut Self)) {
        let _ = write!(self.sql, "), {name} as (");
        body(self);
    }

    /// Appends an insert of rows, if the precondition holds.
    fn insert(&mut self, name: &str, into: &str, columns: &[&'p dyn Column], conflict: &str) {
        self.part(name, |composed| {
            let _ = write!(composed.sql, "insert into {into} select * from ");
            composed.rows(columns);
            composed.push(" rows where exists (select from sure) ");
            composed.push(conflict);
        });
    }

    /// Appends an update or delete by rows, if the precondition holds.
    fn change(&mut self, name: &str, change: &str, columns: &[&'p dyn Column], rows_and_condition: &str) {
        self.part(name, |composed| {
            composed.push(change);
            composed.rows(columns);
            composed.push(rows_and_condition);
            composed.push(" and exists (select from sure)");
        });
    }

    /// Records the epoch and the batch. The end of the epoch before is kept for its owner, which may have to resolve an
    /// ambiguous commit.
    fn record_epoch(&mut self, write: &'p LockedWrite<'_>) {
        match &write.previous_end {
            None => self.push_with("with sure as (update state set batch = ? returning 1", &[&write.batch]),
            Some(last_id) => {
                self.push_with(
                    "with sure as (update state set turn = setval('turn', ?), process = ?, batch = ? returning 1",
                    &[&write.epoch, &write.process, &write.batch],
                );
                self.part("previous_epoch", |composed| {
                    composed.push_with(
                        "insert into writer (process, turn, last_id, batch, seen)
                         select process, turn, ?, batch, now() from state
                         on conflict (process) do update set turn = excluded.turn, last_id = excluded.last_id,
                            batch = excluded.batch, seen = excluded.seen",
                        &[last_id],
                    );
                });
            }
        }
    }

    fn verify(&mut self, assumptions: &'p Assumptions<'_>) {
        self.push("with sure as materialized (select 1 where ");
        self.assumptions_hold(assumptions);
    }

    /// Appends a condition: the epoch is current and the assumptions hold.
    fn assumptions_hold(&mut self, assumptions: &'p Assumptions<'_>) {
        self.push(assumptions.epoch_check);
        self.parameter(&assumptions.epoch);
        if !assumptions.key.is_empty() {
            self.push(" and not exists (select from ");
            self.rows(&[&assumptions.key, &assumptions.id, &assumptions.terms]);
            self.push(
                " assumed(key, id, terms) left join live on live.key = assumed.key
                 where live.id is distinct from assumed.id or live.terms is distinct from assumed.terms)",
            );
        }
        self.push(" end");
    }

    /// Appends the insert of a single version if the assumptions hold. Returns the statement that writes its live row from
    /// the same parameters.
    fn single_version(
        &mut self,
        assumptions: &'p Assumptions<'_>,
        version: &'p Versions<'_>,
        created: bool,
    ) -> &'static str {
        self.push("with sure as (insert into ");
        self.push(LOG);
        self.push(" select ");
        self.columns(&log_columns(version), true);
        self.push(" where ");
        self.assumptions_hold(assumptions);
        self.push(" returning 1");
        if created { CREATED } else { UPDATED }
    }

    fn logged(&mut self, versions: &'p Versions<'_>, live: &LiveChange<'_>) {
        let returning = match live {
            LiveChange::FromLog { .. } => {
                "returning key, id, revision, create_revision, version, lease, terms"
            }
            LiveChange::Explicit(_) => "",
        };
        self.insert("logged", LOG, &log_columns(versions), returning);
    }

    fn live(&mut self, live: &'p LiveChange<'_>) {
        const UPDATE: &str = "update live set id = new.id, revision = new.revision,
            create_revision = new.create_revision, version = new.version, lease = new.lease, terms = new.terms from ";
        match live {
            LiveChange::FromLog { created, updated } => {
                if *created {
                    let rows = "select * from logged where version = 1";
                    self.part("created", |composed| {
                        composed.push(&format!("insert into live {LIVE} {rows}"));
                    });
                }
                if *updated {
                    let rows = "logged new where live.key = new.key and new.version > 1";
                    self.part("updated", |composed| composed.push(&format!("{UPDATE} {rows}")));
                }
            }
            LiveChange::Explicit(rows) => {
                let LiveRows { created, updated, deleted } = &**rows;
                if !created.key.is_empty() {
                    self.insert("created", &format!("live {LIVE}"), &live_columns(created), "");
                }
                if !updated.key.is_empty() {
                    let by_key = format!(" new{LIVE} where live.key = new.key");
                    self.change("updated", UPDATE, &live_columns(updated), &by_key);
                }
                if !deleted.is_empty() {
                    let by_key = " gone(key) where live.key = gone.key";
                    self.change("deleted", "delete from live using ", &[deleted], by_key);
                }
            }
        }
    }

    fn history_rows(&mut self, changes: &'p Changes<'_>) {
        let old = &changes.history_rows;
        if old.key.is_empty() {
            return;
        }
        let columns: [&'p dyn Column; 7] = [
            &old.key,
            &changes.superseded_at,
            &old.id,
            &old.revision,
            &old.create_revision,
            &old.version,
            &old.lease,
        ];
        let history = "history (key, superseded_at, id, revision, create_revision, version, lease)";
        self.insert("history_rows", history, &columns, "");
    }

    fn terms(&mut self, deleted: &'p TermRows<'_>, inserted: &'p TermRows<'_>) {
        if !deleted.key.is_empty() {
            self.change(
                "deleted_terms",
                "delete from terms using ",
                &term_columns(deleted),
                " gone(field, value, key)
                 where terms.field = gone.field and terms.value = gone.value and terms.key = gone.key",
            );
        }
        if !inserted.key.is_empty() {
            let into = "terms (field, value, key)";
            self.insert("inserted_terms", into, &term_columns(inserted), "on conflict do nothing");
        }
    }

    fn reindexed(&mut self, new: &'p Versions<'_>) {
        if new.key.is_empty() {
            return;
        }
        self.change(
            "reindexed_live",
            "update live set terms = new.terms from ",
            &[&new.id, &new.key, &new.terms],
            " new(id, key, terms) where live.key = new.key and live.id = new.id",
        );
        self.change(
            "reindexed_log",
            "update log set terms = new.terms from ",
            &[&new.id, &new.terms],
            " new(id, terms) where log.id = new.id",
        );
    }

    fn leases(&mut self, changes: &'p Changes<'_>) {
        if !changes.deleted_leases.is_empty() {
            let gone = " gone(id) where lease.id = gone.id";
            self.change("deleted_leases", "delete from lease using ", &[&changes.deleted_leases], gone);
        }
        let [ids, ttls, deadlines] = &changes.upserted_leases;
        if !ids.is_empty() {
            self.insert(
                "upserted_leases",
                "lease (id, ttl_seconds, deadline_ms)",
                &[ids, ttls, deadlines],
                "on conflict (id) do update set ttl_seconds = excluded.ttl_seconds, deadline_ms = excluded.deadline_ms",
            );
        }
    }
}

fn live_columns<'p>(v: &'p Versions<'_>) -> [&'p dyn Column; 7] {
    [&v.key, &v.id, &v.revision, &v.create_revision, &v.version, &v.lease, &v.terms]
}

fn term_columns<'p>(rows: &'p TermRows<'_>) -> [&'p dyn Column; 3] {
    [&rows.field, &rows.value, &rows.key]
}
