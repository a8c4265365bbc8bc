//! Restores a copy that [`Store::snapshot`](crate::Store::snapshot) wrote.
//!
//! The restore is one transaction, so an interrupted one leaves nothing. A database that has ever been written to is
//! refused.

use std::path::{Path, PathBuf};

use bytes::BytesMut;
use futures_util::future::try_join_all;
use rusqlite::{Connection, types::ValueRef};
use tokio::sync::mpsc;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

use super::{
    connection::{Connector, Session},
    db_error::DbError,
    read::bounds,
    rows::column,
    speculation::{START_EPOCH, WriteLock},
};
use crate::{
    Revision,
    engine::Bounds,
    error::{Error, Result},
    sqlite::{open_copy, sql_error},
};

/// Source and target statements of each table, with the same columns in the same order.
const TABLES: [(&str, &str); 6] = [
    (
        "SELECT id, revision, key, create_revision, version, lease, previous, checksum, terms, value
         FROM log ORDER BY id",
        "insert into log (id, revision, key, create_revision, version, lease, previous, checksum, terms, value)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
    ),
    (
        "SELECT key, id, revision, create_revision, version, lease, terms FROM live ORDER BY key",
        "insert into live (key, id, revision, create_revision, version, lease, terms)
         values ($1, $2, $3, $4, $5, $6, $7)",
    ),
    (
        "SELECT key, superseded_at, id, revision, create_revision, version, lease
         FROM history ORDER BY key, superseded_at",
        "insert into history (key, superseded_at, id, revision, create_revision, version, lease)
         values ($1, $2, $3, $4, $5, $6, $7)",
    ),
    (
        "SELECT CAST(field AS BLOB), CAST(value AS BLOB), key FROM terms",
        "insert into terms (field, value, key) values ($1, $2, $3)",
    ),
    // Leases restart their time to live: nobody could renew them meanwhile.
    (
        "SELECT id, ttl_seconds FROM lease",
        "insert into lease (id, ttl_seconds, deadline_ms)
         values ($1, $2::int8, (extract(epoch from clock_timestamp()) * 1000)::int8 + $2::int8 * 1000)",
    ),
    ("SELECT name, text FROM note", "insert into note (name, text) values ($1, $2)"),
];

const STATE: &str = "
    update state set compacted = $1, compacted_done = $2,
        bytes = (select coalesce(sum(octet_length(key) + octet_length(value) + $3::int8), 0)::int8 from log)";

/// Rows sent together, and the length of the queue.
const CHUNK_ROWS: usize = 256;
const QUEUE_CHUNKS: usize = 4;

/// A cell, converted from SQLite to PostgreSQL.
#[derive(Debug)]
enum Cell {
    Null,
    Integer(i64),
    Text(String),
    Bytes(Vec<u8>),
}

impl ToSql for Cell {
    fn to_sql(
        &self,
        kind: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self {
            Self::Null => Ok(IsNull::Yes),
            Self::Integer(number) => number.to_sql(kind, out),
            Self::Text(text) => text.to_sql(kind, out),
            Self::Bytes(bytes) => bytes.to_sql(kind, out),
        }
    }

    fn accepts(kind: &Type) -> bool {
        matches!(*kind, Type::INT8 | Type::TEXT | Type::BYTEA)
    }

    to_sql_checked!();
}

/// Rows of one table, or the compaction marks, which come last.
enum Chunk {
    Rows(usize, Vec<Vec<Cell>>),
    End { compacted: i64, deleted_up_to: i64 },
}

/// Fills an empty database. Returns its revision.
pub(super) async fn restore(connector: &Connector, path: &Path) -> Result<Revision> {
    let session = connector.connect().await.map_err(DbError::into_error)?;
    let (pieces, received) = mpsc::channel(QUEUE_CHUNKS);
    let path = PathBuf::from(path);
    let reading = tokio::task::spawn_blocking(move || read(&path, &pieces));
    let written = write(&session, WriteLock::new(connector.schema()), received).await;
    // An error of the file is the cause: without rows there is nothing to write.
    match reading.await {
        Ok(read) => read?,
        Err(_) => return Err(Error::Unavailable("the restore was cancelled".into())),
    }
    written.map_err(DbError::into_error)
}

async fn write(
    session: &Session,
    lock: WriteLock,
    mut pieces: mpsc::Receiver<Chunk>,
) -> Result<Revision, DbError> {
    let mut statements = Vec::new();
    for (_, insert) in TABLES {
        statements.push(session.prepare(insert).await?);
    }
    session.batch_execute(&format!("{}; set local statement_timeout = 0", lock.begin_exclusive())).await?;
    let head = session.query("select revision, last_id from head", &[]).await?;
    let untouched = head.first().map(|row| Ok::<_, DbError>((column(row, 0)?, column(row, 1)?)));
    if untouched.transpose()? != Some((1_i64, 0_i64)) {
        let refused = "the database holds data already: restore into an empty one, or name another schema";
        return Err(DbError::Rejected(Error::Invalid(refused.into())));
    }
    session.batch_execute("delete from note").await?;
    while let Some(piece) = pieces.recv().await {
        match piece {
            Chunk::Rows(table, rows) => {
                let Some(statement) = statements.get(table) else { continue };
                let inserts = rows.iter().map(|row| session.client().execute_raw(statement, row));
                session.run(try_join_all(inserts)).await?;
            }
            Chunk::End { compacted, deleted_up_to } => {
                let parameters: super::connection::Parameters<'_> =
                    &[&compacted, &deleted_up_to, &super::schema::VERSION_BYTES];
                session.execute(STATE, parameters).await?;
                let Bounds { current, .. } = bounds(session).await?;
                session.batch_execute(&format!("{START_EPOCH}; commit")).await?;
                return Ok(current);
            }
        }
    }
    Err(DbError::Permanent(Error::Unavailable("the copy is incomplete".into())))
}

/// Sends every row of the copy. Errors of the receiver are reported by the receiver.
fn read(path: &Path, pieces: &mpsc::Sender<Chunk>) -> Result<()> {
    let connection = open_copy(path)?;
    for (table, (select, _)) in TABLES.iter().enumerate() {
        if send(&connection, table, select, pieces).map_err(sql_error)?.is_none() {
            return Ok(());
        }
    }
    let marks = "SELECT compacted, forgotten_id FROM state";
    let (compacted, deleted_up_to) =
        connection.query_row(marks, [], |row| Ok((row.get(0)?, row.get(1)?))).map_err(sql_error)?;
    let _ = pieces.blocking_send(Chunk::End { compacted, deleted_up_to });
    Ok(())
}

/// Sends the rows of one table; `None` if the receiver is gone.
fn send(
    connection: &Connection,
    table: usize,
    select: &str,
    pieces: &mpsc::Sender<Chunk>,
) -> rusqlite::Result<Option<()>> {
    let mut statement = connection.prepare(select)?;
    let columns = statement.column_count();
    let mut rows = statement.query([])?;
    let mut piece = Vec::new();
    loop {
        let row = rows.next()?;
        let ended = row.is_none();
        if let Some(row) = row {
            let cell = |index| {
                Ok(match row.get_ref(index)? {
                    ValueRef::Integer(number) => Cell::Integer(number),
                    ValueRef::Text(text) => Cell::Text(String::from_utf8_lossy(text).into_owned()),
                    ValueRef::Blob(bytes) => Cell::Bytes(bytes.to_vec()),
                    ValueRef::Null | ValueRef::Real(_) => Cell::Null,
                })
            };
            piece.push((0..columns).map(cell).collect::<rusqlite::Result<Vec<_>>>()?);
        }
        if (ended || piece.len() == CHUNK_ROWS)
            && pieces.blocking_send(Chunk::Rows(table, std::mem::take(&mut piece))).is_err()
        {
            return Ok(None);
        }
        if ended {
            return Ok(Some(()));
        }
    }
}
