//! The one statement that writes a batch.
//!
//! It is put together from the parts that the batch needs. The parts touch different rows, so their order does not
//! matter; but all of them wait for the first, which makes sure that the batch may be written, and if it may not,
//! none of them does anything.

use std::fmt::Write;

use tokio_postgres::types::ToSql;

use super::{
    turn::Turn,
    write::{Changes, Live, LiveChanges, Pairs, Versions},
};
use crate::event::VersionId;

/// A statement and its parameters.
#[derive(Default)]
pub(super) struct Composed<'p> {
    pub(super) sql: String,
    pub(super) parameters: Vec<&'p (dyn ToSql + Sync)>,
    /// Whether one version is written.
    single: bool,
}

/// By what right a batch is written.
pub(super) enum Right<'a> {
    /// The lock is held alone.
    Lock(&'a Taken<'a>),
    /// It is still this session's turn, and what was taken for granted is so.
    Turn(&'a TakenForGranted<'a>),
}

/// A turn that a batch takes, or goes on with, while it holds the lock alone.
pub(super) struct Taken<'a> {
    pub(super) process: &'a str,
    pub(super) turn: Turn,
    /// The number of the batch: how it is told later whether it was committed.
    pub(super) batch: i64,
    /// The last version of the turn before, if this one is new.
    pub(super) ends_at: Option<VersionId>,
}

/// What a batch was evaluated from without having been read under the lock.
pub(super) struct TakenForGranted<'g> {
    pub(super) turn: Turn,
    /// The condition on the turn (`WriteLock::if_turn_is`).
    pub(super) if_turn_is: &'g str,
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
    "log (id, revision, key, create_revision, version, lease, previous, terms, value, checksum, written)";

/// The columns of `live`.
const LIVE: &str = "(key, id, revision, create_revision, version, lease, terms)";

/// The live row of one version, of whose columns in the log each is a parameter, from the first on.
const CREATED: &str = "insert into live (key, id, revision, create_revision, version, lease, terms)
    select $3, $1, $2, $4, $5, $6, $8 from sure";
const UPDATED: &str =
    "update live set id = $1, revision = $2, create_revision = $4, version = $5, lease = $6,
    terms = $8 from sure where live.key = $3";

/// Inserts versions, for what one statement does not carry.
pub(super) fn log<'p>(versions: &'p Versions<'_>) -> Composed<'p> {
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

/// Everything but the versions after the first of [`Changes::log`].
///
/// It answers with one row, or changes one, but none if something was not as it was taken to be. `channel` is where to
/// tell others, if there are any.
pub(super) fn all_of<'p>(
    changes: &'p Changes<'_>,
    right: &Right<'p>,
    channel: Option<&'p &'p str>,
) -> Composed<'p> {
    let single = changes.log.iter().map(|versions| versions.id.len()).sum::<usize>() == 1;
    let mut composed = Composed { single, ..Composed::default() };
    composed.sql.reserve(1024);
    // Of one version the live row is made of the same parameters, and that is the statement's last part.
    let mut last = None;
    match (right, changes.log.first(), &changes.live) {
        (Right::Turn(taken), Some(version), Live::AsLogged { created, .. }) if single => {
            last = Some(composed.single(taken, version, *created));
        }
        (right, versions, live) => {
            match right {
                Right::Lock(taken) => composed.take(taken),
                Right::Turn(taken) => composed.make_sure_of(taken),
            }
            if let Some(versions) = versions {
                composed.logged(versions, live);
            }
            composed.live(live);
        }
    }
    composed.milestones(changes);
    composed.terms(&changes.terms_gone, &changes.terms_new);
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

    /// What comes after the parts.
    fn end(&mut self, last: &str) {
        self.push(") ");
        self.push(last);
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
        self.columns(columns, single);
        self.push(")");
    }

    fn columns(&mut self, columns: &[&'p dyn Column], single: bool) {
        for (nth, column) in columns.iter().enumerate() {
            self.push(if nth == 0 { "" } else { ", " });
            self.parameter(column.only().filter(|_| single).unwrap_or(column.all()));
            self.push("::");
            self.push(column.kind());
            self.push(if single { "" } else { "[]" });
        }
    }

    /// A part that happens only if the first made sure. Its text ends where a condition may follow.
    fn part(&mut self, name: &str, body: impl FnOnce(&mut Self)) {
        let _ = write!(self.sql, "), {name} as (");
        body(self);
    }

    /// An insert of rows.
    fn insert(&mut self, name: &str, into: &str, columns: &[&'p dyn Column], conflict: &str) {
        self.part(name, |composed| {
            let _ = write!(composed.sql, "insert into {into} select * from ");
            composed.rows(columns);
            composed.push(" rows where exists (select from sure) ");
            composed.push(conflict);
        });
    }

    /// An update or delete of `table` by rows.
    fn change(&mut self, name: &str, change: &str, columns: &[&'p dyn Column], rows_and_condition: &str) {
        self.part(name, |composed| {
            composed.push(change);
            composed.rows(columns);
            composed.push(rows_and_condition);
            composed.push(" and exists (select from sure)");
        });
    }

    /// Writes down whose turn it is. How the turn before ended is kept, for whoever may have lost sight of it.
    fn take(&mut self, taken: &'p Taken<'_>) {
        match &taken.ends_at {
            None => self.with("with sure as (update state set batch = ? returning 1", &[&taken.batch]),
            Some(last_id) => {
                self.with(
                    "with sure as (update state set turn = setval('turn', ?), process = ?, batch = ? returning 1",
                    &[&taken.turn, &taken.process, &taken.batch],
                );
                self.part("kept", |composed| {
                    composed.with(
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

    fn make_sure_of(&mut self, taken: &'p TakenForGranted<'_>) {
        self.push("with sure as materialized (select 1 where ");
        self.granted(taken);
    }

    /// Whether what was taken for granted is so.
    fn granted(&mut self, taken: &'p TakenForGranted<'_>) {
        self.push(taken.if_turn_is);
        self.parameter(&taken.turn);
        if !taken.key.is_empty() {
            self.push(" and not exists (select from ");
            self.rows(&[&taken.key, &taken.id, &taken.terms]);
            self.push(
                " taken(key, id, terms) left join live on live.key = taken.key
                 where live.id is distinct from taken.id or live.terms is distinct from taken.terms)",
            );
        }
        self.push(" end");
    }

    /// Inserts one version if what was taken for granted is so: then it is sure. What makes the live row of the same
    /// parameters.
    fn single(
        &mut self,
        taken: &'p TakenForGranted<'_>,
        version: &'p Versions<'_>,
        created: bool,
    ) -> &'static str {
        self.push("with sure as (insert into ");
        self.push(LOG);
        self.push(" select ");
        self.columns(&log_columns(version), true);
        self.push(" where ");
        self.granted(taken);
        self.push(" returning 1");
        if created { CREATED } else { UPDATED }
    }

    fn logged(&mut self, versions: &'p Versions<'_>, live: &Live<'_>) {
        let returning = match live {
            Live::AsLogged { .. } => "returning key, id, revision, create_revision, version, lease, terms",
            Live::Changed(_) => "",
        };
        self.insert("logged", LOG, &log_columns(versions), returning);
    }

    fn live(&mut self, live: &'p Live<'_>) {
        const UPDATE: &str = "update live set id = new.id, revision = new.revision,
            create_revision = new.create_revision, version = new.version, lease = new.lease, terms = new.terms from ";
        match live {
            Live::AsLogged { created, updated } => {
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
            Live::Changed(changes) => {
                let LiveChanges { created, updated, gone } = &**changes;
                if !created.key.is_empty() {
                    self.insert("created", &format!("live {LIVE}"), &live_columns(created), "");
                }
                if !updated.key.is_empty() {
                    let by_key = format!(" new{LIVE} where live.key = new.key");
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
