//! The log, from a revision on.

use std::sync::Arc;

use bytes::Bytes;

use super::{
    connect::Session,
    fault::Fault,
    rows::{self, Arena, column},
};
use crate::{
    Revision, Terms,
    error::Error,
    event::{Commit, Event, Previous, VersionId},
};

/// Bytes of values after which a stretch of the log is long enough, however few its events.
const TAIL_BYTES: i64 = 4 << 20;

/// Where the log ends, joined to the events, so that both are of one snapshot. A revision is taken whole; the
/// last is the one that reaches either limit.
///
/// Ids and revisions rise together, so the first version after a revision is found by halving: an index by revision
/// would have to be written with every version. What is asked for is mostly near the end, so the first look is as far
/// from the end as there are revisions to come, twice over. A look at an id finds the next version there is, since
/// compaction leaves gaps.
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

/// Whole commits after a revision.
pub(super) async fn tail(
    session: &Session,
    after: Revision,
    limit: usize,
) -> Result<Vec<Arc<Commit>>, Fault> {
    let rows = session.query(TAIL, &[&after, &(limit.max(1) as i64), &TAIL_BYTES]).await?;
    let mut commits: Vec<Commit> = Vec::new();
    let mut arena = Arena::default();
    for row in &rows {
        let compacted: Revision = column(row, 0)?;
        if after < compacted - 1 {
            return Err(Fault::Answer(Error::Expired { compacted }));
        }
        let Some(key) = column::<Option<&[u8]>>(row, 1)? else { continue };
        let event = event(row, arena.keep(key), &mut arena)?;
        match commits.last_mut() {
            Some(commit) if commit.revision == event.kv.revision => commit.events.push(event),
            _ => commits.push(Commit { revision: event.kv.revision, events: vec![event] }),
        }
    }
    // The plan walks an index in this order; only SQL does not promise it.
    if !commits.is_sorted_by(|a, b| a.revision < b.revision) {
        return Err(Fault::Final(Error::Unavailable("the log came out of order".into())));
    }
    Ok(commits.into_iter().map(Arc::new).collect())
}

/// Reads one event. Damage concerns its key alone: the events around it are as good as ever.
fn event(row: &tokio_postgres::Row, key: Bytes, arena: &mut Arena) -> Result<Event, Fault> {
    match whole_event(row, &key, arena) {
        Err(Fault::Answer(Error::Corrupt { .. })) => {
            Ok(Event::damaged(column(row, 2)?, key, column(row, 3)?))
        }
        event => event,
    }
}

fn whole_event(row: &tokio_postgres::Row, key: &Bytes, arena: &mut Arena) -> Result<Event, Fault> {
    let terms_at = |at, arena: &mut Arena| -> Result<Terms, Fault> {
        rows::terms(key, column(row, at)?, arena).map_err(Fault::Answer)
    };
    let current = rows::narrow(row, 2, terms_at(7, arena)?)?;
    let previous = match column::<Option<VersionId>>(row, 10)? {
        Some(_) => Some(Previous::new(rows::narrow(row, 10, terms_at(15, arena)?)?)),
        None => None,
    };
    let value = rows::checked(row, 8, key, arena)?.map_err(Fault::Answer)?;
    let deleted = current.version == 0;
    let kv = current.kv(key.clone(), value);
    Ok(Event::new(current.id, kv, deleted, current.terms, previous))
}

/// The values of versions, in the order asked for.
pub(super) async fn values(session: &Session, ids: &[VersionId]) -> Result<Vec<Option<Bytes>>, Fault> {
    let rows = session.query(rows::VALUES, &[&ids]).await?;
    let mut arena = Arena::default();
    let mut found = std::collections::HashMap::with_capacity(rows.len());
    for row in &rows {
        let (id, value) = rows::value(row, &mut arena)?;
        found.insert(id, value.map_err(Fault::Answer)?);
    }
    Ok(ids.iter().map(|id| found.get(id).cloned()).collect())
}
