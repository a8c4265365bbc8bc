//! Reads of the log in order.

use std::sync::Arc;

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Row};

use super::{errors::sql_error, read::in_snapshot, rows};
use crate::{
    Revision, Terms,
    engine::TailLimit,
    error::{Error, Result},
    event::{Commit, Event, Previous, VersionId, VersionMeta, checksum},
};

/// Returns whole commits after a revision, up to about `limit`.
pub(super) fn tail(connection: &Connection, after: Revision, limit: TailLimit) -> Result<Vec<Arc<Commit>>> {
    const SQL: &str = "
        SELECT l.id, l.revision, l.key, l.create_revision, l.version, l.lease, l.terms, l.value, l.checksum,
               p.id, p.revision, p.create_revision, p.version, p.lease, p.terms
        FROM log AS l LEFT JOIN log AS p ON p.id = l.previous
        WHERE l.id >= ? ORDER BY l.id";
    in_snapshot(connection, || {
        let (bounds, last) = rows::bounds(connection)?;
        if after < bounds.compacted - 1 {
            return Err(Error::Expired { compacted: bounds.compacted });
        }
        if after >= bounds.current {
            return Ok(Vec::new());
        }
        let mut statement = connection.prepare_cached(SQL).map_err(sql_error)?;
        let mut rows = statement.query([first_after(connection, after, last)?]).map_err(sql_error)?;
        let (mut commits, mut events, mut bytes) = (Vec::<Commit>::new(), 0, 0);
        while let Some(row) = rows.next().map_err(sql_error)? {
            let event = event(row)?;
            let size = event.kv.value.len();
            match commits.last_mut() {
                Some(commit) if commit.revision == event.kv.revision => commit.events.push(event),
                _ if events >= limit.events || bytes >= limit.bytes => break,
                _ => commits.push(Commit { revision: event.kv.revision, events: vec![event] }),
            }
            (events, bytes) = (events + 1, bytes + size);
        }
        Ok(commits.into_iter().map(Arc::new).collect())
    })
}

/// Returns the id of the first version after a revision, or one past `last`. Revisions rise with ids, so a binary search
/// finds it; an index over revisions would cost every write a page.
fn first_after(connection: &Connection, revision: Revision, last: VersionId) -> Result<VersionId> {
    let mut at_or_after = connection
        .prepare_cached("SELECT id, revision FROM log WHERE id >= ? ORDER BY id LIMIT 1")
        .map_err(sql_error)?;
    let mut low = 0;
    let mut high = last + 1;
    // Invariant: ids before `low` are not after the revision; ids from `high` on are.
    while low < high {
        let middle = low + (high - low) / 2;
        let found: Option<(VersionId, Revision)> = at_or_after
            .query_row([middle], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()
            .map_err(sql_error)?;
        match found {
            Some((id, found)) if found <= revision => low = id + 1,
            _ => high = middle,
        }
    }
    Ok(low)
}

/// Decodes an event. A damaged one is returned as such: it fails the watches of its key, and no others.
fn event(row: &Row<'_>) -> Result<Event> {
    let key: Vec<u8> = row.get(2).map_err(sql_error)?;
    let (id, revision): (VersionId, Revision) =
        (row.get(0).map_err(sql_error)?, row.get(1).map_err(sql_error)?);
    let read = || -> rusqlite::Result<_> {
        let current = VersionMeta {
            id,
            revision,
            create_revision: row.get(3)?,
            version: row.get(4)?,
            lease: row.get(5)?,
            terms: terms(row, 6)?,
        };
        let previous = match row.get::<_, Option<i64>>(9)? {
            None => None,
            Some(id) => Some(Previous::new(VersionMeta {
                id,
                revision: row.get(10)?,
                create_revision: row.get(11)?,
                version: row.get(12)?,
                lease: row.get(13)?,
                terms: terms(row, 14)?,
            })),
        };
        let value = row.get::<_, Vec<u8>>(7)?;
        if checksum(&key, &value) != row.get::<_, i64>(8)? {
            return Err(rusqlite::Error::InvalidQuery);
        }
        Ok((current, previous, Bytes::from(value)))
    };
    let Ok((current, previous, value)) = read() else {
        return Ok(Event::damaged(id, key.into(), revision));
    };
    let deleted = current.version == 0;
    let kv = current.kv(key.into(), value);
    Ok(Event::new(id, kv, deleted, current.terms, previous))
}

fn terms(row: &Row<'_>, at: usize) -> rusqlite::Result<Terms> {
    Terms::decode(row.get::<_, Vec<u8>>(at)?.into()).ok_or(rusqlite::Error::InvalidQuery)
}

/// Returns the values of versions, `None` where compaction has deleted one.
pub(super) fn values(connection: &Connection, ids: &[VersionId]) -> Result<Vec<Option<Bytes>>> {
    const SQL: &str = "SELECT key, value, checksum FROM log WHERE id = ?";
    let mut statement = connection.prepare_cached(SQL).map_err(sql_error)?;
    let value = |id: &VersionId| {
        let mut rows = statement.query([id]).map_err(sql_error)?;
        let Some(row) = rows.next().map_err(sql_error)? else { return Ok(None) };
        let key: Vec<u8> = row.get(0).map_err(sql_error)?;
        let value: Option<Vec<u8>> = row.get(1).ok();
        match value.filter(|value| row.get(2) == Ok(checksum(&key, value))) {
            Some(value) => Ok(Some(Bytes::from(value))),
            None => Err(Error::Corrupt { key: key.into() }),
        }
    };
    ids.iter().map(value).collect()
}
