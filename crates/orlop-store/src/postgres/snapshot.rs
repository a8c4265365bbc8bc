//! A portable copy: a SQLite file that the SQLite engine can open.
//!
//! All tables are read in one snapshot, so the copy is consistent while writers continue. Rows pass through a short queue
//! to the thread that writes the file. The file is renamed when it is complete.

use std::{
    fs::File,
    path::{Path, PathBuf},
    pin::pin,
};

use futures_util::TryStreamExt;
use rusqlite::{Connection, ToSql, params_from_iter, types::ToSqlOutput};
use tokio::sync::mpsc;
use tokio_postgres::{Row, Statement, types::Type};

use super::{connection::Session, db_error::DbError};
use crate::{
    error::{Error, Result},
    sqlite::{self, sql_error},
};

/// Source and target statements of each table, with the same columns in the same order.
const TABLES: [(&str, &str); 7] = [
    (
        "select id, revision, key, create_revision, version, lease, previous, checksum, terms, value
         from log order by id",
        "INSERT INTO log VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    ),
    (
        "select key, id, revision, create_revision, version, lease, terms from live order by key",
        "INSERT INTO live VALUES (?, ?, ?, ?, ?, ?, ?)",
    ),
    (
        "select key, superseded_at, id, revision, create_revision, version, lease
         from history order by key, superseded_at",
        "INSERT INTO history VALUES (?, ?, ?, ?, ?, ?, ?)",
    ),
    (
        "select field, value, key from terms order by field, value, key",
        "INSERT INTO terms VALUES (CAST(? AS TEXT), CAST(? AS TEXT), ?)",
    ),
    ("select id, ttl_seconds, deadline_ms from lease", "INSERT INTO lease VALUES (?, ?, ?)"),
    ("select name, text from note", "INSERT INTO note VALUES (?, ?)"),
    ("select compacted, compacted_done from state", "UPDATE state SET compacted = ?, forgotten_id = ?"),
];

/// Rows sent together, and the length of the queue.
const CHUNK_ROWS: usize = 256;
const QUEUE_CHUNKS: usize = 8;

/// Rows of one table.
type Chunk = (usize, Vec<Row>);

/// Writes one snapshot of the database to a new file.
pub(super) async fn write(session: &Session, path: &Path) -> Result<(), DbError> {
    let refused = |reason: String| DbError::Rejected(Error::Invalid(reason));
    if path.exists() {
        return Err(refused(format!("{} exists already", path.display())));
    }
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    let (pieces, received) = mpsc::channel(QUEUE_CHUNKS);
    let file = tokio::task::spawn_blocking({
        let (partial, path) = (partial.clone(), path.to_owned());
        move || fill(&partial, &path, received)
    });
    let read = read(session, &pieces).await;
    // The end is sent only if everything was read.
    match &read {
        Ok(()) => drop(pieces.send((TABLES.len(), Vec::new())).await),
        Err(_) => drop(pieces),
    }
    let written = file.await.unwrap_or_else(|_| Err(Error::Unavailable("the copy was cancelled".into())));
    if read.is_err() || written.is_err() {
        // A partial copy is of no use.
        let _ = std::fs::remove_file(&partial);
    }
    // If the file could not be written, that is the cause: reading failed only because its queue was closed.
    written.map_err(DbError::Permanent)?;
    read
}

/// Sends every row of one snapshot.
async fn read(session: &Session, pieces: &mpsc::Sender<Chunk>) -> Result<(), DbError> {
    session
        .batch_execute("begin isolation level repeatable read read only; set local statement_timeout = 0")
        .await?;
    for (table, (select, _)) in TABLES.iter().enumerate() {
        let statement = session.prepare(select).await?;
        // Without a timeout: a large table takes long.
        session.run_unbounded(copy(session, &statement, table, pieces)).await?;
    }
    session.batch_execute("commit").await
}

/// Sends every row of one table.
async fn copy(
    session: &Session,
    statement: &Statement,
    table: usize,
    pieces: &mpsc::Sender<Chunk>,
) -> Result<(), DbError> {
    let nothing: [i64; 0] = [];
    let mut rows = pin!(session.client().query_raw(statement, nothing).await?);
    let mut piece = Vec::new();
    loop {
        let row = rows.try_next().await?;
        let ended = row.is_none();
        piece.extend(row);
        if piece.len() == CHUNK_ROWS || ended {
            let sent = pieces.send((table, std::mem::take(&mut piece))).await;
            sent.map_err(|_| DbError::Permanent(Error::Unavailable("the copy was cancelled".into())))?;
        }
        if ended {
            return Ok(());
        }
    }
}

/// Writes the rows of the queue, and renames the file when all have been received.
fn fill(partial: &Path, path: &Path, mut pieces: mpsc::Receiver<Chunk>) -> Result<()> {
    let cannot = |error: std::io::Error| Error::Unavailable(format!("{}: {error}", path.display()));
    // Left over from an earlier attempt.
    let _ = std::fs::remove_file(partial);
    let connection = sqlite::new_file(partial)?;
    connection.execute_batch("BEGIN").map_err(sql_error)?;
    loop {
        match pieces.blocking_recv() {
            Some((TABLES_END, _)) => break,
            Some((table, rows)) => insert(&connection, table, &rows)?,
            None => {
                return Err(Error::Unavailable(
                    "the connection to PostgreSQL was lost during the copy".into(),
                ));
            }
        }
    }
    connection.execute_batch("COMMIT").map_err(sql_error)?;
    connection.close().map_err(|(_, error)| sql_error(error))?;
    File::open(partial).and_then(|file| file.sync_all()).map_err(cannot)?;
    std::fs::rename(partial, path).map_err(cannot)
}

/// Index past the last table, sent after all rows.
const TABLES_END: usize = TABLES.len();

fn insert(connection: &Connection, table: usize, rows: &[Row]) -> Result<()> {
    let Some((_, sql)) = TABLES.get(table) else { return Ok(()) };
    let mut statement = connection.prepare_cached(sql).map_err(sql_error)?;
    for row in rows {
        let values = (0..row.len()).map(|index| Value { row, index });
        statement.execute(params_from_iter(values)).map_err(sql_error)?;
    }
    Ok(())
}

/// A cell, converted from PostgreSQL to SQLite.
struct Value<'r> {
    row: &'r Row,
    index: usize,
}

impl ToSql for Value<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        use rusqlite::types::{Null, ValueRef};
        let (row, index) = (self.row, self.index);
        let failed = |error| rusqlite::Error::ToSqlConversionFailure(Box::new(error));
        let value = match *row.columns()[index].type_() {
            Type::INT8 => row.try_get::<_, Option<i64>>(index).map_err(failed)?.map(ValueRef::Integer),
            Type::TEXT => {
                let text: Option<&str> = row.try_get(index).map_err(failed)?;
                text.map(|text| ValueRef::Text(text.as_bytes()))
            }
            _ => row.try_get::<_, Option<&[u8]>>(index).map_err(failed)?.map(ValueRef::Blob),
        };
        Ok(value.map_or(ToSqlOutput::from(Null), ToSqlOutput::Borrowed))
    }
}
