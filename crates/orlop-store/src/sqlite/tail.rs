//! The log, read in order.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Row};

use super::{errors::sql_error, read::in_snapshot, rows};
use crate::{
    Revision, Terms,
    error::{Error, Result},
    event::{Commit, Current, Event, Previous, VersionId, checksum},
};

/// Whole commits after a revision: about `limit` events.
pub(super) fn tail(connection: &Connection, after: Revision, limit: usize) -> Result<Vec<Arc<Commit>>> {
    const SQL: &str = "
        SELECT l.id, l.revision, l.key, l.create_revision, l.version, l.lease, l.terms, l.value, l.checksum,
               p.id, p.revision, p.create_revision, p.version, p.lease, p.terms
        FROM log AS l LEFT JOIN log AS p ON p.id = l.previous
        WHERE l.revision > ? ORDER BY l.revision, l.id";
    in_snapshot(connection, || {
        let (bounds, _) = rows::bounds(connection)?;
        if after < bounds.compacted - 1 {
            return Err(Error::Expired { compacted: bounds.compacted });
        }
        let mut statement = connection.prepare_cached(SQL).map_err(sql_error)?;
        let mut rows = statement.query([after]).map_err(sql_error)?;
        let (mut commits, mut events) = (Vec::<Commit>::new(), 0);
        while let Some(row) = rows.next().map_err(sql_error)? {
            let event = event(row)?;
            match commits.last_mut() {
                Some(commit) if commit.revision == event.kv.revision => commit.events.push(event),
                _ if events >= limit => break,
                _ => commits.push(Commit { revision: event.kv.revision, events: vec![event] }),
            }
            events += 1;
        }
        Ok(commits.into_iter().map(Arc::new).collect())
    })
}

fn event(row: &Row<'_>) -> Result<Event> {
    let key: Vec<u8> = row.get(2).map_err(sql_error)?;
    let damaged = |_| Error::Corrupt { key: Bytes::copy_from_slice(&key) };
    let read = || -> rusqlite::Result<_> {
        let current = Current {
            id: row.get(0)?,
            revision: row.get(1)?,
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
        Ok((current, previous, Bytes::from(row.get::<_, Vec<u8>>(7)?), row.get::<_, i64>(8)?))
    };
    let (current, previous, value, expected) = read().map_err(damaged)?;
    if checksum(&key, &value) != expected {
        return Err(damaged(rusqlite::Error::InvalidQuery));
    }
    let deleted = current.version == 0;
    let kv = current.kv(key.into(), value);
    Ok(Event { id: current.id, kv, deleted, terms: current.terms, previous, sent_as: OnceLock::new() })
}

fn terms(row: &Row<'_>, at: usize) -> rusqlite::Result<Terms> {
    Terms::decode(row.get::<_, Vec<u8>>(at)?.into()).ok_or(rusqlite::Error::InvalidQuery)
}

/// The values of versions, `None` where there is no such version any more.
pub(super) fn values(connection: &Connection, ids: &[VersionId]) -> Result<Vec<Option<Bytes>>> {
    let mut statement = connection.prepare_cached("SELECT value FROM log WHERE id = ?").map_err(sql_error)?;
    let value = |id: &VersionId| {
        let value: Option<Vec<u8>> =
            statement.query_row([id], |row| row.get(0)).optional().map_err(sql_error)?;
        Ok(value.map(Bytes::from))
    };
    ids.iter().map(value).collect()
}
