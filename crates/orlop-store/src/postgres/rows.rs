//! From rows to versions.

use bytes::{Bytes, BytesMut};
use tokio_postgres::{Row, types::FromSql};

use super::fault::Fault;
use crate::{
    Terms,
    error::Error,
    event::{Current, VersionId, checksum},
};

/// Bytes are copied out of rows into shared pieces of this size, so that a list of ten thousand keys
/// is a few dozen allocations.
const PIECE_BYTES: usize = 256 << 10;

/// Where the keys and values of an answer live.
#[derive(Debug, Default)]
pub(super) struct Arena {
    piece: BytesMut,
    next: usize,
}

impl Arena {
    /// Keeps a copy.
    pub(super) fn keep(&mut self, bytes: &[u8]) -> Bytes {
        if bytes.is_empty() {
            return Bytes::new();
        }
        if self.piece.capacity() < bytes.len() {
            // The first piece is exact, so that a small answer holds on to no more than itself.
            self.piece = BytesMut::with_capacity(bytes.len().max(self.next));
            self.next = (self.next * 4).clamp(4 << 10, PIECE_BYTES);
        }
        self.piece.extend_from_slice(bytes);
        self.piece.split().freeze()
    }
}

/// A column, as an error if the database has another idea of the schema.
pub(super) fn column<'a, T: FromSql<'a>>(row: &'a Row, index: usize) -> Result<T, Fault> {
    row.try_get(index).map_err(|error| Fault::Final(Error::Unavailable(format!("PostgreSQL: {error}"))))
}

/// Reads `id, revision, create_revision, version, lease` from column `first` on.
pub(super) fn narrow(row: &Row, first: usize, terms: Terms) -> Result<Current, Fault> {
    Ok(Current {
        id: column(row, first)?,
        revision: column(row, first + 1)?,
        create_revision: column(row, first + 2)?,
        version: column(row, first + 3)?,
        lease: column(row, first + 4)?,
        terms,
    })
}

/// Reads encoded terms.
pub(super) fn terms(key: &[u8], encoded: Option<&[u8]>, arena: &mut Arena) -> Result<Terms, Error> {
    let corrupt = || Error::Corrupt { key: Bytes::copy_from_slice(key) };
    Terms::decode(arena.keep(encoded.ok_or_else(corrupt)?)).ok_or_else(corrupt)
}

/// Reads `key, id, revision, create_revision, version, lease, terms` from the first column on.
pub(super) fn keyed(row: &Row, arena: &mut Arena) -> Result<(Bytes, Result<Current, Error>), Fault> {
    let key = arena.keep(column(row, 0)?);
    Ok(match terms(&key, column(row, 6)?, arena) {
        Ok(terms) => (key, Ok(narrow(row, 1, terms)?)),
        Err(error) => (key, Err(error)),
    })
}

/// As [`keyed`], for a transaction. Damaged terms count as none, so that the key can be written over or
/// deleted; what the index still says of it is checked against the row by whoever finds it there.
pub(super) fn keyed_to_replace(row: &Row, arena: &mut Arena) -> Result<(Bytes, Current), Fault> {
    let key = arena.keep(column(row, 0)?);
    let terms = terms(&key, column(row, 6)?, arena).unwrap_or_default();
    Ok((key, narrow(row, 1, terms)?))
}

/// Reads `value, checksum` from column `first` on: of a version's row in the log, which may be missing
/// where it must not.
pub(super) fn checked(
    row: &Row,
    first: usize,
    key: &[u8],
    arena: &mut Arena,
) -> Result<Result<Bytes, Error>, Fault> {
    let (value, sum): (Option<&[u8]>, Option<i64>) = (column(row, first)?, column(row, first + 1)?);
    Ok(match value {
        Some(value) if sum == Some(checksum(key, value)) => Ok(arena.keep(value)),
        _ => Err(Error::Corrupt { key: Bytes::copy_from_slice(key) }),
    })
}

/// The values of versions by id.
pub(super) const VALUES: &str = "select id, key, value, checksum from log where id = any($1)";

/// Reads a row of [`VALUES`].
pub(super) fn value(row: &Row, arena: &mut Arena) -> Result<(VersionId, Result<Bytes, Error>), Fault> {
    Ok((column(row, 0)?, checked(row, 2, column(row, 1)?, arena)?))
}
