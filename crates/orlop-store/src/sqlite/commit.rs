//! Writes: a batch is evaluated against the tables, then written and committed as one.

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;
use rusqlite::{CachedStatement, Connection, OptionalExtension, params};

use super::{
    durable::Durable,
    errors::sql_error,
    read,
    rows::{self, CURRENT},
};
use crate::{
    KeyRange, LeaseId, Limits, Read, ReadResult, Revision,
    engine::{Command, Committed, Outcome},
    error::{Error, Result},
    evaluate::{Evaluation, LeaseRow, Unseen, View},
    event::{Commit, Current, Event, VersionId, checksum},
};

/// Evaluates and commits a batch on the connection that writes; what `durable` has to settle is its ticket.
pub(super) fn commit(
    connection: &Connection,
    batch: &[Command],
    limits: &Limits,
    last: &[u8],
    durable: &Durable,
) -> Result<Committed> {
    durable.check()?;
    connection
        .prepare_cached("BEGIN IMMEDIATE")
        .and_then(|mut begin| begin.execute([]))
        .map_err(sql_error)?;
    let result = evaluate_and_write(connection, batch, limits, last);
    let end = if result.as_ref().is_ok_and(|evaluated| evaluated.wrote) { "COMMIT" } else { "ROLLBACK" };
    let ended = connection.prepare_cached(end).and_then(|mut end| end.execute([]));
    if let Err(error) = ended {
        // SQLite may have rolled back by itself, as on a full disk; then there is nothing to end.
        if !connection.is_autocommit() {
            connection.execute_batch("ROLLBACK").map_err(sql_error)?;
        }
        if end == "COMMIT" {
            return Err(sql_error(error));
        }
    }
    let Evaluated { outcomes, commits, before, wrote } = result?;
    let after = commits.last().map_or(before, |commit| commit.revision);
    Ok(Committed { outcomes, commits, ticket: durable.committed(before, after, wrote) })
}

/// What a batch came to.
struct Evaluated {
    outcomes: Vec<Result<Outcome>>,
    commits: Vec<Arc<Commit>>,
    /// The newest revision before it.
    before: Revision,
    /// Whether it wrote anything.
    wrote: bool,
}

fn evaluate_and_write(
    connection: &Connection,
    batch: &[Command],
    limits: &Limits,
    last: &[u8],
) -> Result<Evaluated> {
    let (bounds, last_id) = rows::bounds(connection)?;
    let full = limits.database_bytes > 0 && database_bytes(connection)? >= limits.database_bytes;
    let mut view = Tables { connection, now_ms: rows::now_ms(), last, seen: HashMap::new() };
    let mut evaluation = Evaluation::new(limits, bounds.current, last_id);
    let mut outcomes = Vec::with_capacity(batch.len());
    for command in batch {
        if full && matches!(command, Command::Txn(txn) if txn.puts()) {
            outcomes
                .push(Err(Error::Full(format!("the database is over its {} bytes", limits.database_bytes))));
            continue;
        }
        outcomes.push(match evaluation.run(&mut view, command) {
            Ok(outcome) => Ok(outcome),
            // Trouble with the database itself ends the batch; anything else is the command's own.
            Err(Unseen::Error(error @ (Error::Unavailable(_) | Error::Full(_)))) => return Err(error),
            Err(Unseen::Error(error)) => Err(error),
            Err(Unseen::Need(need)) => {
                Err(Error::Unavailable(format!("internal error: {need:?} is at hand")))
            }
        });
    }
    let wrote = write(connection, &evaluation).map_err(sql_error)?;
    let commits = evaluation.commits.into_iter().map(Arc::new).collect();
    Ok(Evaluated { outcomes, commits, before: bounds.current, wrote })
}

/// Bytes that hold data: free pages are as good as a free disk.
pub(super) fn database_bytes(connection: &Connection) -> Result<u64> {
    let number =
        |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).map_err(sql_error);
    Ok(((number("page_count")? - number("freelist_count")?) * number("page_size")?) as u64)
}

/// Writes what the evaluation came to; whether there was anything.
fn write(connection: &Connection, evaluation: &Evaluation<'_>) -> rusqlite::Result<bool> {
    let mut writes = Writes::prepare(connection)?;
    let mut wrote = false;
    for event in evaluation.commits.iter().flat_map(|commit| &commit.events) {
        wrote = true;
        writes.version(event)?;
    }
    for (id, row) in evaluation.lease_changes() {
        wrote = true;
        match row {
            Some(row) => connection
                .prepare_cached("INSERT OR REPLACE INTO lease VALUES (?, ?, ?)")?
                .execute(params![id, row.ttl_seconds, row.deadline_ms])?,
            None => connection.prepare_cached("DELETE FROM lease WHERE id = ?")?.execute([id])?,
        };
    }
    for (key, row, terms) in &evaluation.reindexed {
        wrote = true;
        writes.terms(key, &row.terms, terms)?;
        let encoded = &terms.encoded()[..];
        connection
            .prepare_cached("UPDATE live SET terms = ? WHERE key = ?")?
            .execute(params![encoded, &key[..]])?;
        connection
            .prepare_cached("UPDATE log SET terms = ? WHERE id = ?")?
            .execute(params![encoded, row.id])?;
    }
    Ok(wrote)
}

/// The statements that every version needs, prepared once a batch.
struct Writes<'c> {
    log: CachedStatement<'c>,
    live: CachedStatement<'c>,
    moved: CachedStatement<'c>,
    gone: CachedStatement<'c>,
    history: CachedStatement<'c>,
    term: CachedStatement<'c>,
    term_gone: CachedStatement<'c>,
}

impl<'c> Writes<'c> {
    fn prepare(connection: &'c Connection) -> rusqlite::Result<Self> {
        Ok(Self {
            log: connection.prepare_cached("INSERT INTO log VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")?,
            live: connection.prepare_cached("INSERT OR REPLACE INTO live VALUES (?, ?, ?, ?, ?, ?, ?)")?,
            moved: connection.prepare_cached(
                "UPDATE live SET id = ?2, revision = ?3, create_revision = ?4, version = ?5, lease = ?6, terms = ?7
                 WHERE key = ?1",
            )?,
            gone: connection.prepare_cached("DELETE FROM live WHERE key = ?")?,
            history: connection.prepare_cached("INSERT INTO history VALUES (?, ?, ?, ?, ?, ?, ?)")?,
            term: connection.prepare_cached("INSERT OR IGNORE INTO terms VALUES (?, ?, ?)")?,
            term_gone: connection
                .prepare_cached("DELETE FROM terms WHERE field = ? AND value = ? AND key = ?")?,
        })
    }

    fn version(&mut self, event: &Event) -> rusqlite::Result<()> {
        let kv = &event.kv;
        let (key, value, terms) = (&kv.key[..], &kv.value[..], &event.terms.encoded()[..]);
        let previous = event.previous.as_ref().map(|previous| &previous.row);
        self.log.execute(params![
            event.id,
            kv.revision,
            key,
            kv.create_revision,
            kv.version,
            kv.lease,
            previous.map(|row| row.id),
            checksum(key, value),
            terms,
            value,
        ])?;
        if let Some(row) = event.milestone() {
            let superseded_at = kv.revision;
            self.history.execute(params![
                key,
                superseded_at,
                row.id,
                row.revision,
                row.create_revision,
                row.version,
                row.lease,
            ])?;
        }
        if event.deleted {
            self.gone.execute([key])?;
        } else {
            let live = if previous.is_some() { &mut self.moved } else { &mut self.live };
            live.execute(params![
                key,
                event.id,
                kv.revision,
                kv.create_revision,
                kv.version,
                kv.lease,
                terms
            ])?;
        }
        let nothing = crate::Terms::none();
        self.terms(&kv.key, previous.map_or(&nothing, |row| &row.terms), &event.terms)
    }

    /// Writes only the terms that differ.
    fn terms(&mut self, key: &Bytes, old: &crate::Terms, new: &crate::Terms) -> rusqlite::Result<()> {
        if old == new {
            return Ok(());
        }
        for (field, value) in old.minus(new) {
            self.term_gone.execute(params![field, value, &key[..]])?;
        }
        for (field, value) in new.minus(old) {
            self.term.execute(params![field, value, &key[..]])?;
        }
        Ok(())
    }
}

/// The tables, as the evaluation looks at them.
struct Tables<'c> {
    connection: &'c Connection,
    now_ms: i64,
    last: &'c [u8],
    /// Keys that were looked at: most are compared first and then written, some by many transactions. Nothing is
    /// written while they are looked at.
    seen: HashMap<Bytes, Option<Current>>,
}

impl Tables<'_> {
    fn currents(&self, sql: &str, params: impl rusqlite::Params) -> Result<Vec<(Bytes, Current)>> {
        let mut statement = self.connection.prepare_cached(sql).map_err(sql_error)?;
        let mut rows = statement.query(params).map_err(sql_error)?;
        let mut found = Vec::new();
        while let Some(row) = rows.next().map_err(sql_error)? {
            let key: Vec<u8> = row.get(0).map_err(sql_error)?;
            let current = rows::current_to_replace(row, &key, 1)?;
            found.push((key.into(), current));
        }
        Ok(found)
    }
}

impl View for Tables<'_> {
    fn now_ms(&self) -> i64 {
        self.now_ms
    }

    fn current(&mut self, key: &Bytes) -> Result<Option<Current>, Unseen> {
        if let Some(seen) = self.seen.get(key) {
            return Ok(seen.clone());
        }
        const SQL: &str =
            "SELECT id, revision, create_revision, version, lease, terms FROM live WHERE key = ?";
        let mut statement = self.connection.prepare_cached(SQL).map_err(sql_error)?;
        let mut rows = statement.query([&key[..]]).map_err(sql_error)?;
        let row = rows.next().map_err(sql_error)?;
        let current = row.map(|row| rows::current_to_replace(row, key, 0)).transpose()?;
        self.seen.insert(key.clone(), current.clone());
        Ok(current)
    }

    fn value(&mut self, key: &Bytes, id: VersionId) -> Result<Bytes, Unseen> {
        Ok(rows::value(self.connection, key, id)?)
    }

    fn range(&mut self, range: &KeyRange, limit: usize) -> Result<Vec<(Bytes, Current)>, Unseen> {
        let sql = format!("SELECT key, {CURRENT} FROM live WHERE key >= ? AND key < ? ORDER BY key LIMIT ?");
        let end = range.end().map_or(self.last, |end| end);
        Ok(self.currents(&sql, params![&range.start()[..], end, i64::try_from(limit).unwrap_or(i64::MAX)])?)
    }

    fn count(&mut self, range: &KeyRange) -> Result<u64, Unseen> {
        const SQL: &str = "SELECT count(*) FROM live WHERE key >= ? AND key < ?";
        let end = range.end().map_or(self.last, |end| end);
        let mut statement = self.connection.prepare_cached(SQL).map_err(sql_error)?;
        let count: i64 =
            statement.query_row(params![&range.start()[..], end], |row| row.get(0)).map_err(sql_error)?;
        Ok(count as u64)
    }

    fn past(&mut self, read: &Read) -> Result<ReadResult, Unseen> {
        let limit = if read.limit == 0 { usize::MAX >> 1 } else { read.limit };
        Ok(read::within(self.connection, &Read { limit, ..read.clone() }, self.last, None)?.page)
    }

    fn lease(&mut self, id: LeaseId) -> Result<Option<LeaseRow>, Unseen> {
        let mut statement =
            self.connection.prepare_cached("SELECT * FROM lease WHERE id = ?").map_err(sql_error)?;
        Ok(statement.query_row([id], rows::lease).optional().map_err(sql_error)?)
    }

    fn lease_keys(&mut self, id: LeaseId) -> Result<Vec<(Bytes, Current)>, Unseen> {
        let sql = format!("SELECT key, {CURRENT} FROM live WHERE lease = ? AND lease <> 0 ORDER BY key");
        Ok(self.currents(&sql, [id])?)
    }
}
