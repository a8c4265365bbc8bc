//! Writes: evaluates a batch against the tables, then writes and commits it as one transaction.

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;
use rusqlite::{CachedStatement, Connection, OptionalExtension, params};

use super::{
    durability::Durability,
    errors::sql_error,
    read,
    rows::{self, CURRENT},
};
use crate::{
    KeyRange, LeaseId, Limits, Read, ReadResult, Revision,
    engine::{Command, CommittedBatch, Outcome},
    error::{Error, Result},
    evaluate::{Evaluation, LeaseRow, View, ViewError},
    event::{Commit, Event, VersionId, VersionMeta, checksum},
};

/// Conditions of a commit.
pub(super) struct Context<'a> {
    pub(super) limits: &'a Limits,
    /// A key greater than every valid key.
    pub(super) max_key: &'a [u8],
    pub(super) durability: &'a Durability,
    /// The error for commands that put, on a full disk.
    pub(super) refuse_puts: Option<Error>,
}

/// Evaluates and commits a batch on the connection that writes.
pub(super) fn commit(
    connection: &Connection,
    batch: &[Command],
    context: Context<'_>,
) -> Result<CommittedBatch> {
    let durability = context.durability;
    durability.check()?;
    connection
        .prepare_cached("BEGIN IMMEDIATE")
        .and_then(|mut begin| begin.execute([]))
        .map_err(sql_error)?;
    let result = evaluate_and_write(connection, batch, context);
    let end = if result.as_ref().is_ok_and(|evaluated| evaluated.wrote) { "COMMIT" } else { "ROLLBACK" };
    let ended = connection.prepare_cached(end).and_then(|mut end| end.execute([]));
    if let Err(error) = ended {
        // SQLite may have rolled back by itself, as on a full disk.
        if !connection.is_autocommit() {
            connection.execute_batch("ROLLBACK").map_err(sql_error)?;
        }
        if end == "COMMIT" {
            return Err(sql_error(error));
        }
    }
    let Evaluated { outcomes, commits, before, wrote } = result?;
    let after = commits.last().map_or(before, |commit| commit.revision);
    Ok(CommittedBatch { outcomes, commits, sequence: durability.committed(before, after, wrote) })
}

/// Result of a batch.
struct Evaluated {
    outcomes: Vec<Result<Outcome>>,
    commits: Vec<Arc<Commit>>,
    /// The newest revision before the batch.
    before: Revision,
    /// Set if the batch wrote anything.
    wrote: bool,
}

fn evaluate_and_write(connection: &Connection, batch: &[Command], context: Context<'_>) -> Result<Evaluated> {
    let Context { limits, max_key, mut refuse_puts, .. } = context;
    let (bounds, last_id) = rows::bounds(connection)?;
    if limits.database_bytes > 0 && database_bytes(connection)? >= limits.database_bytes {
        let quota = format!("the database is over its quota of {} bytes", limits.database_bytes);
        refuse_puts.get_or_insert(Error::Full(quota));
    }
    let mut view = TableView { connection, now_ms: rows::now_ms(), max_key, cache: HashMap::new() };
    let mut evaluation = Evaluation::new(limits, bounds.current, last_id);
    let mut outcomes = Vec::with_capacity(batch.len());
    for command in batch {
        if let Some(error) = &refuse_puts
            && matches!(command, Command::Txn(txn) if txn.puts())
        {
            outcomes.push(Err(error.clone()));
            continue;
        }
        outcomes.push(match evaluation.evaluate(&mut view, command) {
            Ok(outcome) => Ok(outcome),
            // An error of the database fails the batch; any other fails its command.
            Err(ViewError::Store(error @ (Error::Unavailable(_) | Error::Full(_)))) => return Err(error),
            Err(ViewError::Store(error)) => Err(error),
            Err(ViewError::NotFetched(fetch)) => {
                Err(Error::Unavailable(format!("internal error: unexpected fetch {fetch:?}")))
            }
        });
    }
    let wrote = write(connection, &evaluation).map_err(sql_error)?;
    let commits = evaluation.commits.into_iter().map(Arc::new).collect();
    Ok(Evaluated { outcomes, commits, before: bounds.current, wrote })
}

/// Returns the bytes that hold data. Free pages do not count: they are reused.
pub(super) fn database_bytes(connection: &Connection) -> Result<u64> {
    let pages = pragma(connection, "page_count")? - pragma(connection, "freelist_count")?;
    Ok(pages * pragma(connection, "page_size")?)
}

/// Returns the bytes of all pages: the size of the database file after a checkpoint.
pub(super) fn file_bytes(connection: &Connection) -> Result<u64> {
    Ok(pragma(connection, "page_count")? * pragma(connection, "page_size")?)
}

fn pragma(connection: &Connection, name: &str) -> Result<u64> {
    let number = connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).map_err(sql_error)?;
    Ok(number.unsigned_abs())
}

/// Writes the changes of an evaluation. Returns whether there were any.
fn write(connection: &Connection, evaluation: &Evaluation<'_>) -> rusqlite::Result<bool> {
    let mut writes = VersionWriter::prepare(connection)?;
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

/// The statements that write a version, prepared once a batch.
struct VersionWriter<'c> {
    insert_log: CachedStatement<'c>,
    insert_live: CachedStatement<'c>,
    update_live: CachedStatement<'c>,
    delete_live: CachedStatement<'c>,
    insert_history: CachedStatement<'c>,
    insert_term: CachedStatement<'c>,
    delete_term: CachedStatement<'c>,
}

impl<'c> VersionWriter<'c> {
    fn prepare(connection: &'c Connection) -> rusqlite::Result<Self> {
        Ok(Self {
            insert_log: connection.prepare_cached("INSERT INTO log VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")?,
            insert_live: connection.prepare_cached("INSERT OR REPLACE INTO live VALUES (?, ?, ?, ?, ?, ?, ?)")?,
            update_live: connection.prepare_cached(
                "UPDATE live SET id = ?2, revision = ?3, create_revision = ?4, version = ?5, lease = ?6, terms = ?7
                 WHERE key = ?1",
            )?,
            delete_live: connection.prepare_cached("DELETE FROM live WHERE key = ?")?,
            insert_history: connection.prepare_cached("INSERT INTO history VALUES (?, ?, ?, ?, ?, ?, ?)")?,
            insert_term: connection.prepare_cached("INSERT OR IGNORE INTO terms VALUES (?, ?, ?)")?,
            delete_term: connection
                .prepare_cached("DELETE FROM terms WHERE field = ? AND value = ? AND key = ?")?,
        })
    }

    fn version(&mut self, event: &Event) -> rusqlite::Result<()> {
        let kv = &event.kv;
        let (key, value, terms) = (&kv.key[..], &kv.value[..], &event.terms.encoded()[..]);
        let previous = event.previous.as_ref().map(|previous| &previous.row);
        self.insert_log.execute(params![
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
        if let Some(row) = event.superseded_history_row() {
            let superseded_at = kv.revision;
            self.insert_history.execute(params![
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
            self.delete_live.execute([key])?;
        } else {
            let live = if previous.is_some() { &mut self.update_live } else { &mut self.insert_live };
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
        let none = crate::Terms::none();
        self.terms(&kv.key, previous.map_or(&none, |row| &row.terms), &event.terms)
    }

    /// Writes only the terms that differ.
    fn terms(&mut self, key: &Bytes, old: &crate::Terms, new: &crate::Terms) -> rusqlite::Result<()> {
        if old == new {
            return Ok(());
        }
        for (field, value) in old.minus(new) {
            self.delete_term.execute(params![field, value, &key[..]])?;
        }
        for (field, value) in new.minus(old) {
            self.insert_term.execute(params![field, value, &key[..]])?;
        }
        Ok(())
    }
}

/// The tables as a view for the evaluation.
struct TableView<'c> {
    connection: &'c Connection,
    now_ms: i64,
    max_key: &'c [u8],
    /// Rows read for this batch: most are compared first and then written, some by many transactions. Nothing is
    /// written during the evaluation.
    cache: HashMap<Bytes, Option<VersionMeta>>,
}

impl TableView<'_> {
    fn currents(&self, sql: &str, params: impl rusqlite::Params) -> Result<Vec<(Bytes, VersionMeta)>> {
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

impl View for TableView<'_> {
    fn now_ms(&self) -> i64 {
        self.now_ms
    }

    fn current(&mut self, key: &Bytes) -> Result<Option<VersionMeta>, ViewError> {
        if let Some(cached) = self.cache.get(key) {
            return Ok(cached.clone());
        }
        const SQL: &str =
            "SELECT id, revision, create_revision, version, lease, terms FROM live WHERE key = ?";
        let mut statement = self.connection.prepare_cached(SQL).map_err(sql_error)?;
        let mut rows = statement.query([&key[..]]).map_err(sql_error)?;
        let row = rows.next().map_err(sql_error)?;
        let current = row.map(|row| rows::current_to_replace(row, key, 0)).transpose()?;
        self.cache.insert(key.clone(), current.clone());
        Ok(current)
    }

    fn value(&mut self, key: &Bytes, id: VersionId) -> Result<Bytes, ViewError> {
        Ok(rows::value(self.connection, key, id)?)
    }

    fn range(&mut self, range: &KeyRange, limit: usize) -> Result<Vec<(Bytes, VersionMeta)>, ViewError> {
        let sql = format!("SELECT key, {CURRENT} FROM live WHERE key >= ? AND key < ? ORDER BY key LIMIT ?");
        let end = range.end().map_or(self.max_key, |end| end);
        Ok(self.currents(&sql, params![&range.start()[..], end, i64::try_from(limit).unwrap_or(i64::MAX)])?)
    }

    fn count(&mut self, range: &KeyRange) -> Result<u64, ViewError> {
        const SQL: &str = "SELECT count(*) FROM live WHERE key >= ? AND key < ?";
        let end = range.end().map_or(self.max_key, |end| end);
        let mut statement = self.connection.prepare_cached(SQL).map_err(sql_error)?;
        let count: i64 =
            statement.query_row(params![&range.start()[..], end], |row| row.get(0)).map_err(sql_error)?;
        Ok(count as u64)
    }

    fn past(&mut self, read: &Read) -> Result<ReadResult, ViewError> {
        let limit = if read.limit == 0 { usize::MAX >> 1 } else { read.limit };
        let read = Read { limit, ..read.clone() };
        Ok(read::within(self.connection, &read, self.max_key, usize::MAX, None)?.page)
    }

    fn lease(&mut self, id: LeaseId) -> Result<Option<LeaseRow>, ViewError> {
        let mut statement =
            self.connection.prepare_cached("SELECT * FROM lease WHERE id = ?").map_err(sql_error)?;
        Ok(statement.query_row([id], rows::lease).optional().map_err(sql_error)?)
    }

    fn lease_keys(&mut self, id: LeaseId) -> Result<Vec<(Bytes, VersionMeta)>, ViewError> {
        let sql = format!("SELECT key, {CURRENT} FROM live WHERE lease = ? AND lease <> 0 ORDER BY key");
        Ok(self.currents(&sql, [id])?)
    }
}
