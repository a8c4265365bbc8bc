//! Values of versions that a statement left out, from the cache or the log.

use std::collections::HashMap;

use bytes::Bytes;

use super::{
    connection::Session,
    db_error::DbError,
    extent::Extent,
    rows::{self, Arena},
};
use crate::{KeyValue, event::VersionId};

/// Values fetched at first while their size is unknown, and at most.
const FIRST_VALUES: usize = 64;
const VALUES_MAX: usize = 2000;

/// Adds the values of versions, and returns true if the page ends before the last of them; or returns the key of one
/// that no longer exists.
pub(super) async fn add_values(
    session: &Session,
    rows: &mut Vec<(VersionId, KeyValue)>,
    extent: Extent,
) -> Result<Result<bool, Bytes>, DbError> {
    let cached = session.value_cache().get(rows.iter().map(|(id, kv)| (*id, &kv.key)));
    let (mut at, mut bytes, mut fetch) = (0, 0, FIRST_VALUES);
    while at < rows.len() {
        // Up to as many missing values as are fetched at a time, and the cached ones between them.
        let mut missing = Vec::new();
        let mut end = at;
        while end < rows.len() && missing.len() < fetch {
            match &cached[end] {
                Some(value) => rows[end].1.value = value.clone(),
                None => missing.push(end),
            }
            end += 1;
        }
        if let Err(key) = fetch_values(session, rows, &missing).await? {
            return Ok(Err(key));
        }
        for row in at..end {
            bytes += rows[row].1.key.len() + rows[row].1.value.len();
            if bytes >= extent.bytes_max() && row + 1 < rows.len() {
                rows.truncate(row + 1);
                return Ok(Ok(true));
            }
        }
        let each = (bytes / end).max(1);
        fetch = (extent.bytes_max().saturating_sub(bytes) / each).clamp(1, VALUES_MAX);
        at = end;
    }
    Ok(Ok(false))
}

/// Fetches the values of some rows, or returns the key of one that no longer exists.
async fn fetch_values(
    session: &Session,
    rows: &mut [(VersionId, KeyValue)],
    missing: &[usize],
) -> Result<Result<(), Bytes>, DbError> {
    if missing.is_empty() {
        return Ok(Ok(()));
    }
    let ids: Vec<VersionId> = missing.iter().map(|row| rows[*row].0).collect();
    let mut fetched = HashMap::with_capacity(ids.len());
    let mut arena = Arena::default();
    for row in &session.query(rows::VALUES, &[&ids]).await? {
        let (id, value) = rows::value(row, &mut arena)?;
        fetched.insert(id, value.map_err(DbError::Rejected)?);
    }
    for row in missing {
        let (id, kv) = &mut rows[*row];
        match fetched.remove(id) {
            Some(value) => kv.value = value,
            None => return Ok(Err(kv.key.clone())),
        }
    }
    session.cache_values(missing.iter().map(|row| (rows[*row].0, &rows[*row].1.key, &rows[*row].1.value)));
    Ok(Ok(()))
}
