//! The way back: a new database of a copy that [`Store::snapshot`](crate::Store::snapshot) wrote.
//!
//! All of it is one transaction, so that a restore that is cut short has left nothing. A database that has ever
//! been written to is refused.

use std::path::{Path, PathBuf};

use bytes::BytesMut;
use futures_util::future::try_join_all;
use rusqlite::{Connection, types::ValueRef};
use tokio::sync::mpsc;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

use super::{
    connect::{Connector, Session},
    fault::Fault,
    read::bounds,
    rows::column,
    turn::{self, WriteLock},
};
use crate::{
    Revision,
    engine::Bounds,
    error::{Error, Result},
    sqlite::{open_copy, sql_error},
};

/// Each table there and here, with the same columns in the same order.
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
    // Nobody could keep a lease alive meanwhile: each gets its whole time again.
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

/// Rows that are sent together, and how many such pieces may be on the way.
const PIECE_ROWS: usize = 256;
const PIECES: usize = 4;

/// One column of a row, on its way from one database to the other.
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

/// Rows of one table, or the marks of compaction, which come last.
enum Piece {
    Rows(usize, Vec<Vec<Cell>>),
    End { compacted: i64, forgotten: i64 },
}

/// Fills an empty database; the revision it then has.
pub(super) async fn restore(connector: &Connector, path: &Path) -> Result<Revision> {
    let session = connector.connect().await.map_err(Fault::given_up)?;
    let (pieces, received) = mpsc::channel(PIECES);
    let path = PathBuf::from(path);
    let reading = tokio::task::spawn_blocking(move || read(&path, &pieces));
    let written = write(&session, WriteLock::of(connector.schema()), received).await;
    // Trouble with the file is the cause; without it there is nothing to write.
    match reading.await {
        Ok(read) => read?,
        Err(_) => return Err(Error::Unavailable("the restore was cut short".into())),
    }
    written.map_err(Fault::given_up)
}

async fn write(
    session: &Session,
    lock: WriteLock,
    mut pieces: mpsc::Receiver<Piece>,
) -> Result<Revision, Fault> {
    let mut statements = Vec::new();
    for (_, insert) in TABLES {
        statements.push(session.prepare(insert).await?);
    }
    session.simple(&format!("{}; set local statement_timeout = 0", lock.begin())).await?;
    let head = session.query("select revision, last_id from head", &[]).await?;
    let untouched = head.first().map(|row| Ok::<_, Fault>((column(row, 0)?, column(row, 1)?)));
    if untouched.transpose()? != Some((1_i64, 0_i64)) {
        let refused = "the database holds data already: restore into an empty one, or name another schema";
        return Err(Fault::Answer(Error::Invalid(refused.into())));
    }
    session.simple("delete from note").await?;
    while let Some(piece) = pieces.recv().await {
        match piece {
            Piece::Rows(table, rows) => {
                let Some(statement) = statements.get(table) else { continue };
                let inserts = rows.iter().map(|row| session.client().execute_raw(statement, row));
                session.run(try_join_all(inserts)).await?;
            }
            Piece::End { compacted, forgotten } => {
                let parameters: super::connect::Parameters<'_> =
                    &[&compacted, &forgotten, &super::schema::VERSION_BYTES];
                session.execute(STATE, parameters).await?;
                let Bounds { current, .. } = bounds(session).await?;
                session.simple(&format!("{}; commit", turn::END)).await?;
                return Ok(current);
            }
        }
    }
    Err(Fault::Final(Error::Unavailable("the copy could not be read to its end".into())))
}

/// Sends every row of the copy. An error of the other side is told by the other side.
fn read(path: &Path, pieces: &mpsc::Sender<Piece>) -> Result<()> {
    let connection = open_copy(path)?;
    for (table, (select, _)) in TABLES.iter().enumerate() {
        if send(&connection, table, select, pieces).map_err(sql_error)?.is_none() {
            return Ok(());
        }
    }
    let marks = "SELECT compacted, forgotten_id FROM state";
    let (compacted, forgotten) =
        connection.query_row(marks, [], |row| Ok((row.get(0)?, row.get(1)?))).map_err(sql_error)?;
    let _ = pieces.blocking_send(Piece::End { compacted, forgotten });
    Ok(())
}

/// `None` if nobody takes the rows any more.
fn send(
    connection: &Connection,
    table: usize,
    select: &str,
    pieces: &mpsc::Sender<Piece>,
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
        if (ended || piece.len() == PIECE_ROWS)
            && pieces.blocking_send(Piece::Rows(table, std::mem::take(&mut piece))).is_err()
        {
            return Ok(None);
        }
        if ended {
            return Ok(Some(()));
        }
    }
}
