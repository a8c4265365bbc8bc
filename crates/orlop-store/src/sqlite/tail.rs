//! The log, read in order.

use std::sync::Arc;

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Row};

use super::{errors::sql_error, read::in_snapshot, rows};
use crate::{
    Revision, Terms,
    error::{Error, Result},
    event::{Commit, Current, Event, Previous, VersionId, checksum},
};

/// Bytes of values after which a stretch of the log is long enough, however few its events.
const TAIL_BYTES: usize = 4 << 20;

/// Whole commits after a revision: about `limit` events.
pub(super) fn tail(connection: &Connection, after: Revision, limit: usize) -> Result<Vec<Arc<Commit>>> {
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
                _ if events >= limit || bytes >= TAIL_BYTES => break,
                _ => commits.push(Commit { revision: event.kv.revision, events: vec![event] }),
            }
            (events, bytes) = (events + 1, bytes + size);
        }
        Ok(commits.into_iter().map(Arc::new).collect())
    })
}

/// The first version after a revision, or one past the `last`. Revisions rise with ids, so the log is its own
/// index: an index over revisions would cost every write a page, to save a few looks here.
fn first_after(connection: &Connection, revision: Revision, last: VersionId) -> Result<VersionId> {
    let mut at_or_after = connection
        .prepare_cached("SELECT id, revision FROM log WHERE id >= ? ORDER BY id LIMIT 1")
        .map_err(sql_error)?;
    let mut low = 0;
    let mut high = last + 1;
    // Everything before `low` is not after the revision; everything from `high` on is.
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

/// Reads an event. One whose bytes are damaged is passed on as such: it fails those who watch its key, and
/// nobody else.
fn event(row: &Row<'_>) -> Result<Event> {
    let key: Vec<u8> = row.get(2).map_err(sql_error)?;
    let (id, revision): (VersionId, Revision) =
        (row.get(0).map_err(sql_error)?, row.get(1).map_err(sql_error)?);
    let read = || -> rusqlite::Result<_> {
        let current = Current {
            id,
            revision,
            create_revision: row.get(3)?,
            version: row.get(4)?,
            lease: row.get(5)?,
            terms: terms(row, 6)?,
        };
        let previous = match row.get::<_, Option<i64>>(9)? {
            None => None,
            Some(id) => Some(Previous::new(Current {
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

/// The values of versions, `None` where there is no such version any more.
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
