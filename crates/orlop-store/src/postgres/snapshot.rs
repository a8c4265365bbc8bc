//! A portable copy of everything: a SQLite file that the SQLite engine opens as its own.
//!
//! All tables are read in one snapshot, so the copy is of one moment while writers go on. Rows pass through a
//! short queue to the thread that writes the file. The file gets its name when it is complete.

use std::{
    fs::File,
    path::{Path, PathBuf},
    pin::pin,
};

use futures_util::TryStreamExt;
use rusqlite::{Connection, ToSql, params_from_iter, types::ToSqlOutput};
use tokio::sync::mpsc;
use tokio_postgres::{Row, Statement, types::Type};

use super::{connect::Session, fault::Fault};
use crate::{
    error::{Error, Result},
    sqlite::{self, sql_error},
};

/// Each table here and there, with the same columns in the same order.
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

/// Rows that travel together, and how many such pieces may be on the way.
const PIECE_ROWS: usize = 256;
const PIECES: usize = 8;

/// Rows of one table.
type Piece = (usize, Vec<Row>);

/// Writes one snapshot of the database to a new file.
pub(super) async fn write(session: &Session, path: &Path) -> Result<(), Fault> {
    let refused = |reason: String| Fault::Answer(Error::Invalid(reason));
    if path.exists() {
        return Err(refused(format!("{} exists already", path.display())));
    }
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    let (pieces, received) = mpsc::channel(PIECES);
    let file = tokio::task::spawn_blocking({
        let (partial, path) = (partial.clone(), path.to_owned());
        move || fill(&partial, &path, received)
    });
    let read = read(session, &pieces).await;
    // Only a whole copy is told to be whole.
    match &read {
        Ok(()) => drop(pieces.send((TABLES.len(), Vec::new())).await),
        Err(_) => drop(pieces),
    }
    let written = file.await.unwrap_or_else(|_| Err(Error::Unavailable("the copy was cut short".into())));
    if read.is_err() || written.is_err() {
        // It is of no use to anybody, and if it is not there, all the better.
        let _ = std::fs::remove_file(&partial);
    }
    // If the file could not be written, reading failed only because nobody took the rows.
    written.map_err(Fault::Final)?;
    read
}

/// Sends every row of one snapshot.
async fn read(session: &Session, pieces: &mpsc::Sender<Piece>) -> Result<(), Fault> {
    session
        .simple("begin isolation level repeatable read read only; set local statement_timeout = 0")
        .await?;
    for (table, (select, _)) in TABLES.iter().enumerate() {
        let statement = session.prepare(select).await?;
        // However long a large table takes.
        session.driven(copy(session, &statement, table, pieces)).await?;
    }
    session.simple("commit").await
}

/// Sends every row of one table.
async fn copy(
    session: &Session,
    statement: &Statement,
    table: usize,
    pieces: &mpsc::Sender<Piece>,
) -> Result<(), Fault> {
    let nothing: [i64; 0] = [];
    let mut rows = pin!(session.client().query_raw(statement, nothing).await?);
    let mut piece = Vec::new();
    loop {
        let row = rows.try_next().await?;
        let ended = row.is_none();
        piece.extend(row);
        if piece.len() == PIECE_ROWS || ended {
            let sent = pieces.send((table, std::mem::take(&mut piece))).await;
            sent.map_err(|_| Fault::Final(Error::Unavailable("the copy was cut short".into())))?;
        }
        if ended {
            return Ok(());
        }
    }
}

/// Writes the rows that come, and gives the file its name if they come to a good end.
fn fill(partial: &Path, path: &Path, mut pieces: mpsc::Receiver<Piece>) -> Result<()> {
    let cannot = |error: std::io::Error| Error::Unavailable(format!("{}: {error}", path.display()));
    // What an earlier attempt has left.
    let _ = std::fs::remove_file(partial);
    let connection = sqlite::new_file(partial)?;
    connection.execute_batch("BEGIN").map_err(sql_error)?;
    loop {
        match pieces.blocking_recv() {
            Some((TABLES_END, _)) => break,
            Some((table, rows)) => insert(&connection, table, &rows)?,
            None => return Err(Error::Unavailable("PostgreSQL was lost while it was copied".into())),
        }
    }
    connection.execute_batch("COMMIT").map_err(sql_error)?;
    connection.close().map_err(|(_, error)| sql_error(error))?;
    File::open(partial).and_then(|file| file.sync_all()).map_err(cannot)?;
    std::fs::rename(partial, path).map_err(cannot)
}

/// The number of no table, which says that all have been sent.
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

/// One column of a row, on its way from one database to the other.
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
