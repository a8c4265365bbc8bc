//! The one statement that writes a batch.
//!
//! It is put together from the parts that the batch needs. The parts touch different rows, so their order does not
//! matter; but all of them wait for the state's row to be raised, and if that is not as the batch takes it to be,
//! none of them does anything.

use std::fmt::Write;

use tokio_postgres::types::ToSql;

use super::write::{Changes, Live, LiveChanges, Pairs, Versions};
use crate::{Revision, event::VersionId};

/// A statement and its parameters.
#[derive(Default)]
pub(super) struct Composed<'p> {
    pub(super) sql: String,
    pub(super) parameters: Vec<&'p (dyn ToSql + Sync)>,
    /// Whether one version is written.
    single: bool,
}

/// Who commits which batch, and whom to tell.
pub(super) struct Mark<'a> {
    pub(super) process: &'a str,
    pub(super) batch: i64,
    /// `None` if nobody else listens.
    pub(super) channel: Option<&'a str>,
}

/// What a batch was evaluated from without having been read under a lock.
#[derive(Default)]
pub(super) struct TakenForGranted<'g> {
    pub(super) revision: Revision,
    pub(super) last_id: VersionId,
    /// How many sessions have ever begun to listen.
    pub(super) joined: i64,
    /// Keys with their versions; a key without one does not exist.
    pub(super) key: Vec<&'g [u8]>,
    pub(super) id: Vec<Option<VersionId>>,
    pub(super) terms: Vec<Option<&'g [u8]>>,
}

/// One column of several rows.
trait Column {
    /// The type of its cells.
    fn kind(&self) -> &'static str;
    fn all(&self) -> &(dyn ToSql + Sync);
    /// The cell, if there is one row.
    fn only(&self) -> Option<&(dyn ToSql + Sync)>;
}

/// What a column may consist of.
trait Cell: ToSql + Sync {
    const KIND: &'static str;
}

impl Cell for i64 {
    const KIND: &'static str = "int8";
}

impl Cell for &[u8] {
    const KIND: &'static str = "bytea";
}

impl<T: Cell> Cell for Option<T> {
    const KIND: &'static str = T::KIND;
}

impl<T: Cell> Column for Vec<T> {
    fn kind(&self) -> &'static str {
        T::KIND
    }

    fn all(&self) -> &(dyn ToSql + Sync) {
        self
    }

    fn only(&self) -> Option<&(dyn ToSql + Sync)> {
        match self.as_slice() {
            [only] => Some(only),
            _ => None,
        }
    }
}

const LOG: &str =
    "log (id, revision, key, create_revision, version, lease, previous, terms, value, checksum)";

/// Inserts versions, for what one statement does not carry.
pub(super) fn log<'p>(versions: &'p Versions<'_>) -> Composed<'p> {
    let mut composed = Composed::default();
    let _ = write!(composed.sql, "insert into {LOG} select * from ");
    composed.rows(&log_columns(versions));
    composed
}

fn log_columns<'p>(v: &'p Versions<'_>) -> [&'p dyn Column; 10] {
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
    ]
}

/// Everything but the versions after the first of [`Changes::log`].
///
/// It answers with one row, or with none if something was not as it was taken to be. Without anything taken for
/// granted the state's row must be locked.
pub(super) fn all_of<'p>(
    changes: &'p Changes<'_>,
    mark: &'p Mark<'_>,
    taken: Option<&'p TakenForGranted<'_>>,
) -> Composed<'p> {
    let single = changes.log.iter().map(|versions| versions.id.len()).sum::<usize>() == 1;
    let mut composed = Composed { single, ..Composed::default() };
    composed.raise(changes, mark, taken);
    if taken.is_none() {
        composed.keep_mark_of_another(mark);
    }
    if let Some(versions) = changes.log.first() {
        let returning = if matches!(changes.live, Live::AsLogged { .. }) {
            "returning key, id, revision, create_revision, version, lease, terms"
        } else {
            ""
        };
        composed.insert("logged", LOG, &log_columns(versions), returning);
    }
    composed.live(&changes.live);
    composed.milestones(changes);
    composed.terms(&changes.terms_gone, &changes.terms_new);
    composed.reindexed(&changes.reindexed);
    composed.leases(changes);
    match &mark.channel {
        Some(channel) => {
            composed.push(") select pg_notify(");
            composed.parameter(channel);
            composed.push(", '') from raised");
        }
        None => composed.push(") select 1 from raised"),
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

    /// `text` with a parameter for each `?`.
    fn with(&mut self, text: &str, parameters: &[&'p (dyn ToSql + Sync)]) {
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

    /// Rows made of columns. Of a single version they are simply a row: to unpack arrays takes the server longer than
    /// to insert it. Otherwise it is always arrays, so that there are not too many statements.
    fn rows(&mut self, columns: &[&'p dyn Column]) {
        let single = self.single && columns.iter().all(|column| column.only().is_some());
        self.push(if single { "(select " } else { "unnest(" });
        for (nth, column) in columns.iter().enumerate() {
            self.push(if nth == 0 { "" } else { ", " });
            self.parameter(column.only().filter(|_| single).unwrap_or(column.all()));
            let _ = write!(self.sql, "::{}{}", column.kind(), if single { "" } else { "[]" });
        }
        self.push(")");
    }

    /// A part that happens only if the state's row is raised. Its text ends where a condition may follow.
    fn part(&mut self, name: &str, body: impl FnOnce(&mut Self)) {
        let _ = write!(self.sql, "), {name} as (");
        body(self);
    }

    /// An insert of rows, if the state's row is raised.
    fn insert(&mut self, name: &str, into: &str, columns: &[&'p dyn Column], conflict: &str) {
        self.part(name, |composed| {
            let _ = write!(composed.sql, "insert into {into} select * from ");
            composed.rows(columns);
            composed.push(" rows where exists (select from raised) ");
            composed.push(conflict);
        });
    }

    /// An update or delete of `table` by rows, if the state's row is raised.
    fn change(&mut self, name: &str, change: &str, columns: &[&'p dyn Column], rows_and_condition: &str) {
        self.part(name, |composed| {
            composed.push(change);
            composed.rows(columns);
            composed.push(rows_and_condition);
            composed.push(" and exists (select from raised)");
        });
    }

    fn raise(
        &mut self,
        changes: &'p Changes<'_>,
        mark: &'p Mark<'_>,
        taken: Option<&'p TakenForGranted<'_>>,
    ) {
        self.with(
            "with raised as (update state set revision = ?, last_id = ?, bytes = bytes + ?, process = ?, batch = ?",
            &[&changes.revision, &changes.last_id, &changes.bytes, &mark.process, &mark.batch],
        );
        if let Some(taken) = taken {
            self.with(
                " where revision = ? and last_id = ? and joined = ? and process = ?",
                &[&taken.revision, &taken.last_id, &taken.joined, &mark.process],
            );
        }
        if let Some(taken) = taken.filter(|taken| !taken.key.is_empty()) {
            self.push(" and not exists (select from ");
            self.rows(&[&taken.key, &taken.id, &taken.terms]);
            self.push(
                " taken(key, id, terms) left join live on live.key = taken.key
                 where live.id is distinct from taken.id or live.terms is distinct from taken.terms)",
            );
        }
        self.push(" returning 1");
    }

    /// The state's row says which batch of its last writer was its last. Another writer's is kept aside.
    fn keep_mark_of_another(&mut self, mark: &'p Mark<'_>) {
        self.part("kept", |composed| {
            composed.with(
                "insert into writer (process, batch, seen)
                 select process, batch, now() from state where process <> ? and process <> ''
                 on conflict (process) do update set batch = excluded.batch, seen = excluded.seen",
                &[&mark.process],
            );
        });
    }

    fn live(&mut self, live: &'p Live<'_>) {
        const COLUMNS: &str = "(key, id, revision, create_revision, version, lease, terms)";
        const UPDATE: &str = "update live set id = new.id, revision = new.revision,
            create_revision = new.create_revision, version = new.version, lease = new.lease, terms = new.terms from ";
        match live {
            Live::AsLogged { created, updated } => {
                if *created {
                    let rows = "select * from logged where version = 1";
                    self.part("created", |composed| {
                        composed.push(&format!("insert into live {COLUMNS} {rows}"));
                    });
                }
                if *updated {
                    let rows = "logged new where live.key = new.key and new.version > 1";
                    self.part("updated", |composed| composed.push(&format!("{UPDATE} {rows}")));
                }
            }
            Live::Changed(changes) => {
                let LiveChanges { created, updated, gone } = &**changes;
                if !created.key.is_empty() {
                    self.insert("created", &format!("live {COLUMNS}"), &live_columns(created), "");
                }
                if !updated.key.is_empty() {
                    let by_key = format!(" new{COLUMNS} where live.key = new.key");
                    self.change("updated", UPDATE, &live_columns(updated), &by_key);
                }
                if !gone.is_empty() {
                    let by_key = " gone(key) where live.key = gone.key";
                    self.change("gone", "delete from live using ", &[gone], by_key);
                }
            }
        }
    }

    fn milestones(&mut self, changes: &'p Changes<'_>) {
        let old = &changes.milestones;
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
        self.insert("milestones", history, &columns, "");
    }

    fn terms(&mut self, gone: &'p Pairs<'_>, new: &'p Pairs<'_>) {
        if !gone.key.is_empty() {
            self.change(
                "terms_gone",
                "delete from terms using ",
                &term_columns(gone),
                " gone(field, value, key)
                 where terms.field = gone.field and terms.value = gone.value and terms.key = gone.key",
            );
        }
        if !new.key.is_empty() {
            let into = "terms (field, value, key)";
            self.insert("terms_new", into, &term_columns(new), "on conflict do nothing");
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
        if !changes.leases_gone.is_empty() {
            let gone = " gone(id) where lease.id = gone.id";
            self.change("leases_gone", "delete from lease using ", &[&changes.leases_gone], gone);
        }
        let [ids, ttls, deadlines] = &changes.leases_new;
        if !ids.is_empty() {
            self.insert(
                "leases_new",
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

fn term_columns<'p>(pairs: &'p Pairs<'_>) -> [&'p dyn Column; 3] {
    [&pairs.field, &pairs.value, &pairs.key]
}
