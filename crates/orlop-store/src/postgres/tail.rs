//! Reads of the log in order.

use std::sync::Arc;

use bytes::Bytes;

use super::{
    connection::Session,
    db_error::DbError,
    rows::{self, Arena, column},
};
use crate::{
    Revision, Terms,
    engine::TailLimit,
    error::Error,
    event::{Commit, Event, Previous, VersionId},
};

/// Selects the end of the log joined to the events, so that both are of one snapshot. Revisions are returned whole; the
/// last is the one that reaches either limit.
///
/// Ids and revisions rise together, so a binary search finds the first version after a revision: an index by revision
/// would have to be written with every version. Most requests are near the end, so the first probe is twice as many ids
/// before the end as there are revisions to return. A probe of an id finds the next existing version, since compaction
/// leaves gaps.
const TAIL: &str = "
    with recursive search(low, high, look) as (
        select 0::int8, last_id + 1, least(greatest(last_id - 2 * (revision - $1) - 16, 1), last_id) from head
        union all
        select low, high, (low + high) / 2 from (
            select case when found.revision <= $1 then found.id else low end as low,
                   case when found.revision <= $1 then high else look end as high
            from search left join lateral (
                select id, revision from log where id >= look and id < high order by id limit 1
            ) found on true
            where high - low > 1
        ) halved
    )
    select s.compacted, e.key, e.id, e.revision, e.create_revision, e.version, e.lease, e.terms,
           e.value, e.checksum,
           p.id, p.revision, p.create_revision, p.version, p.lease, p.terms
    from head s cross join (select max(low) as id from search) before
    cross join lateral (
        select max(id) as id, max(revision) as revision from (
            select id, revision, sum(bytes) over (order by id) - bytes as bytes_before from (
                select id, revision, octet_length(value) as bytes from log
                where id > before.id order by id limit $2
            ) first
        ) fitting where bytes_before < $3
    ) last
    left join lateral (
        select * from log where id > before.id and id < coalesce(
            (select id from log where id > last.id and revision > last.revision order by id limit 1),
            s.last_id + 1
        ) order by id
    ) e on true left join log p on p.id = e.previous";

/// Returns whole commits after a revision, up to about `limit`.
pub(super) async fn tail(
    session: &Session,
    after: Revision,
    limit: TailLimit,
) -> Result<Vec<Arc<Commit>>, DbError> {
    let rows = session.query(TAIL, &[&after, &(limit.events.max(1) as i64), &(limit.bytes as i64)]).await?;
    let mut commits: Vec<Commit> = Vec::new();
    for row in &rows {
        // An arena per event: watchers hold single commits, and must not pin their neighbours.
        let mut arena = Arena::default();
        let compacted: Revision = column(row, 0)?;
        if after < compacted - 1 {
            return Err(DbError::Rejected(Error::Expired { compacted }));
        }
        let Some(key) = column::<Option<&[u8]>>(row, 1)? else { continue };
        let event = event(row, arena.copy(key), &mut arena)?;
        match commits.last_mut() {
            Some(commit) if commit.revision == event.kv.revision => commit.events.push(event),
            _ => commits.push(Commit { revision: event.kv.revision, events: vec![event] }),
        }
    }
    // The plan scans an index in this order, but SQL does not guarantee it.
    if !commits.is_sorted_by(|a, b| a.revision < b.revision) {
        return Err(DbError::Permanent(Error::Unavailable("the log was returned out of order".into())));
    }
    Ok(commits.into_iter().map(Arc::new).collect())
}

/// Decodes an event. Damage affects its key alone.
fn event(row: &tokio_postgres::Row, key: Bytes, arena: &mut Arena) -> Result<Event, DbError> {
    match undamaged_event(row, &key, arena) {
        Err(DbError::Rejected(Error::Corrupt { .. })) => {
            Ok(Event::damaged(column(row, 2)?, key, column(row, 3)?))
        }
        event => event,
    }
}

fn undamaged_event(row: &tokio_postgres::Row, key: &Bytes, arena: &mut Arena) -> Result<Event, DbError> {
    let terms_at = |at, arena: &mut Arena| -> Result<Terms, DbError> {
        rows::terms(key, column(row, at)?, arena).map_err(DbError::Rejected)
    };
    let current = rows::version_meta(row, 2, terms_at(7, arena)?)?;
    let previous = match column::<Option<VersionId>>(row, 10)? {
        Some(_) => Some(Previous::new(rows::version_meta(row, 10, terms_at(15, arena)?)?)),
        None => None,
    };
    let value = rows::checked(row, 8, key, arena)?.map_err(DbError::Rejected)?;
    let deleted = current.version == 0;
    let kv = current.kv(key.clone(), value);
    Ok(Event::new(current.id, kv, deleted, current.terms, previous))
}

/// Returns the values of versions, in the order of `ids`.
pub(super) async fn values(session: &Session, ids: &[VersionId]) -> Result<Vec<Option<Bytes>>, DbError> {
    let rows = session.query(rows::VALUES, &[&ids]).await?;
    let mut arena = Arena::default();
    let mut found = std::collections::HashMap::with_capacity(rows.len());
    for row in &rows {
        let (id, value) = rows::value(row, &mut arena)?;
        found.insert(id, value.map_err(DbError::Rejected)?);
    }
    Ok(ids.iter().map(|id| found.get(id).cloned()).collect())
}
