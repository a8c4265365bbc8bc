//! Decoding of rows.

use bytes::{Bytes, BytesMut};
use tokio_postgres::{Row, types::FromSql};

use super::db_error::DbError;
use crate::{
    Terms,
    error::Error,
    event::{VersionId, VersionMeta, checksum},
};

/// Bytes are copied out of rows into shared chunks of this size, so that a list of ten thousand keys is a few dozen
/// allocations.
const CHUNK_BYTES: usize = 256 << 10;

/// Memory of the keys and values of a result.
#[derive(Debug, Default)]
pub(super) struct Arena {
    chunk: BytesMut,
    next_size: usize,
}

impl Arena {
    /// Copies bytes into the arena.
    pub(super) fn copy(&mut self, bytes: &[u8]) -> Bytes {
        if bytes.is_empty() {
            return Bytes::new();
        }
        if self.chunk.capacity() < bytes.len() {
            // The first chunk is exact, so that a small result holds no more memory than it needs.
            self.chunk = BytesMut::with_capacity(bytes.len().max(self.next_size));
            self.next_size = (self.next_size * 4).clamp(4 << 10, CHUNK_BYTES);
        }
        self.chunk.extend_from_slice(bytes);
        self.chunk.split().freeze()
    }
}

/// Decodes a column. Fails if its type differs from the schema.
pub(super) fn column<'a, T: FromSql<'a>>(row: &'a Row, index: usize) -> Result<T, DbError> {
    row.try_get(index).map_err(|error| DbError::Permanent(Error::Unavailable(format!("PostgreSQL: {error}"))))
}

/// Decodes `id, revision, create_revision, version, lease` from column `first` on.
pub(super) fn version_meta(row: &Row, first: usize, terms: Terms) -> Result<VersionMeta, DbError> {
    Ok(VersionMeta {
        id: column(row, first)?,
        revision: column(row, first + 1)?,
        create_revision: column(row, first + 2)?,
        version: column(row, first + 3)?,
        lease: column(row, first + 4)?,
        terms,
    })
}

/// Decodes terms.
pub(super) fn terms(key: &[u8], encoded: Option<&[u8]>, arena: &mut Arena) -> Result<Terms, Error> {
    let corrupt = || Error::Corrupt { key: Bytes::copy_from_slice(key) };
    Terms::decode(arena.copy(encoded.ok_or_else(corrupt)?)).ok_or_else(corrupt)
}

/// Decodes `key, id, revision, create_revision, version, lease, terms` from the first column on.
pub(super) fn keyed(row: &Row, arena: &mut Arena) -> Result<(Bytes, Result<VersionMeta, Error>), DbError> {
    let key = arena.copy(column(row, 0)?);
    Ok(match terms(&key, column(row, 6)?, arena) {
        Ok(terms) => (key, Ok(version_meta(row, 1, terms)?)),
        Err(error) => (key, Err(error)),
    })
}

/// As [`keyed`], for a transaction. Damaged terms count as none, so that the key can be overwritten or deleted. Reads
/// check entries of the index against the row.
pub(super) fn keyed_to_replace(row: &Row, arena: &mut Arena) -> Result<(Bytes, VersionMeta), DbError> {
    let key = arena.copy(column(row, 0)?);
    let terms = terms(&key, column(row, 6)?, arena).unwrap_or_default();
    Ok((key, version_meta(row, 1, terms)?))
}

/// Decodes and verifies `value, checksum` from column `first` on, of a log row that may be missing.
pub(super) fn checked(
    row: &Row,
    first: usize,
    key: &[u8],
    arena: &mut Arena,
) -> Result<Result<Bytes, Error>, DbError> {
    let (value, sum): (Option<&[u8]>, Option<i64>) = (column(row, first)?, column(row, first + 1)?);
    Ok(match value {
        Some(value) if sum == Some(checksum(key, value)) => Ok(arena.copy(value)),
        _ => Err(Error::Corrupt { key: Bytes::copy_from_slice(key) }),
    })
}

/// Selects values of versions by id.
pub(super) const VALUES: &str = "select id, key, value, checksum from log where id = any($1)";

/// Decodes a row of [`VALUES`].
pub(super) fn value(row: &Row, arena: &mut Arena) -> Result<(VersionId, Result<Bytes, Error>), DbError> {
    Ok((column(row, 0)?, checked(row, 2, column(row, 1)?, arena)?))
}
