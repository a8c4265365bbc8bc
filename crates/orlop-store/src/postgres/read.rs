//! Reads of one snapshot.
//!
//! A read without a filter is one statement, whatever it asks for: PostgreSQL gives each statement one
//! snapshot, and the revision is taken from the same one. Filtered reads are in `filter`.
//!
//! Where most values are at hand (`values`), the statement leaves them out and the rest are fetched by a second
//! one: versions do not change, so it does not matter that it sees another snapshot, unless one is gone by then.

use std::{collections::HashMap, pin::pin};

use bytes::Bytes;
use futures_util::TryStreamExt;

use super::{
    connect::Session,
    fault::Fault,
    filter, past,
    rows::{self, Arena, column},
};
use crate::{
    KeyRange, KeyValue, Limits, Read, ReadResult, Revision, Select,
    engine::Bounds,
    error::{Error, Result},
    event::VersionId,
};

/// Values that are brought at a time.
const VALUES_PAGE: usize = 2000;

/// The columns of a version in `live` and `history`.
pub(super) const NARROW: &str = "key, id, revision, create_revision, version, lease";

/// The condition on `key` for a range whose bounds are parameters 1 and 2.
pub(super) fn within_range(range: &KeyRange) -> &'static str {
    match (range.single(), range.end()) {
        (Some(_), _) => "key = $1 and $2::bytea is not null",
        (None, Some(_)) => "key >= $1 and key < $2",
        (None, None) => "key >= $1 and $2::bytea is null",
    }
}

/// What is asked of a range as it is now. Parameter 3 is for those who ask for a revision (`past.rs`).
pub(super) fn live(range: &KeyRange, columns: &str) -> String {
    format!("select {columns} from live where {} and $3::int8 is null", within_range(range))
}

/// Reads one snapshot. Inside a transaction the snapshot is the transaction's.
pub(super) async fn read(
    session: &Session,
    limits: &Limits,
    read: &Read,
    in_transaction: bool,
) -> Result<ReadResult, Fault> {
    if !read.filter.is_empty() && !read.range.is_empty() {
        return filter::read(session, limits, read, in_transaction).await;
    }
    let limit = limit(limits, read);
    // Without a limit the rows are the count.
    let counted_by_rows = read.select != Select::Nothing && limit >= limits.read_keys;
    let asked = Read { limit, count: read.count && !counted_by_rows, ..read.clone() };
    let mut result = match read.select {
        Select::Values => values(session, &asked).await?,
        Select::Keys | Select::Nothing => page(session, &asked, false).await?.result(),
    };
    if read.count && counted_by_rows && !result.more {
        result.count = Some(result.kvs.len() as u64);
    } else if read.count && result.count.is_none() {
        let again = Read { select: Select::Nothing, revision: Some(result.revision), ..read.clone() };
        result.count = Box::pin(self::read(session, limits, &again, in_transaction)).await?.count;
    }
    Ok(result)
}

/// A page with its values: those that are at hand, or all of them with the one statement.
async fn values(session: &Session, read: &Read) -> Result<ReadResult, Fault> {
    if session.values().is_worth_asking(read.limit) {
        let mut page = page(session, read, false).await?;
        if add_values(session, &mut page.rows).await?.is_ok() {
            return Ok(page.result());
        }
        // A version was compacted away since the statement. The next one tells what there is now.
    }
    let page = page(session, read, true).await?;
    session.values().learn(page.rows.iter().map(|(id, kv)| (*id, &kv.key, &kv.value)));
    Ok(page.result())
}

/// Adds the values of versions, or tells the key of one that is no longer there.
pub(super) async fn add_values(
    session: &Session,
    rows: &mut [(VersionId, KeyValue)],
) -> Result<Result<(), Bytes>, Fault> {
    let found = session.values().get(rows.iter().map(|(id, kv)| (*id, &kv.key)));
    let mut missing = Vec::new();
    for ((id, kv), value) in rows.iter_mut().zip(found) {
        match value {
            Some(value) => kv.value = value,
            None => missing.push((*id, kv)),
        }
    }
    for missing in missing.chunks_mut(VALUES_PAGE) {
        let ids: Vec<VersionId> = missing.iter().map(|(id, _)| *id).collect();
        let mut fetched = HashMap::with_capacity(ids.len());
        let mut arena = Arena::default();
        for row in &session.query(rows::VALUES, &[&ids]).await? {
            let (id, value) = rows::value(row, &mut arena)?;
            fetched.insert(id, value.map_err(Fault::Answer)?);
        }
        for (id, kv) in missing.iter_mut() {
            match fetched.remove(id) {
                Some(value) => kv.value = value,
                None => return Ok(Err(kv.key.clone())),
            }
        }
        session.keep(missing.iter().map(|(id, kv)| (*id, &kv.key, &kv.value)));
    }
    Ok(Ok(()))
}

/// Runs the one statement, with or without values.
async fn page(session: &Session, read: &Read, values: bool) -> Result<Page, Fault> {
    let statement = session.prepare(&statement(read, values)).await?;
    let end = read.range.end().map(|end| &end[..]);
    let fetch = if read.select == Select::Nothing { 0 } else { (read.limit as i64).saturating_add(1) };
    let parameters: super::connect::Parameters<'_> =
        &[&&read.range.start()[..], &end, &read.revision, &fetch];
    let answer = pin!(async {
        let rows = session.client().query_raw(&statement, parameters.iter().copied()).await?;
        collect(rows, read, values).await
    });
    let page = session.run(answer).await?;
    check(page.bounds, read.revision).map_err(Fault::Answer)?;
    Ok(page)
}

/// What the statement brought.
struct Page {
    bounds: Bounds,
    count: Option<u64>,
    /// Versions by their ids, sorted by key.
    rows: Vec<(VersionId, KeyValue)>,
    more: bool,
}

impl Page {
    fn result(self) -> ReadResult {
        ReadResult {
            revision: self.bounds.current,
            kvs: self.rows.into_iter().map(|(_, kv)| kv).collect(),
            more: self.more,
            count: self.count,
        }
    }
}

/// The most keys a read brings.
pub(super) fn limit(limits: &Limits, read: &Read) -> usize {
    if read.limit == 0 { limits.read_keys } else { read.limit.min(limits.read_keys) }
}

/// The one statement: where the log ends, joined to the versions there are.
fn statement(read: &Read, values: bool) -> String {
    let past = read.revision.is_some();
    let count = match (read.count, past) {
        (true, true) => format!("({})", past::count(&read.range)),
        (true, false) => format!("({})", live(&read.range, "count(*)")),
        (false, _) => "null::int8".to_owned(),
    };
    let versions = match past {
        true => past::versions(&read.range, "$4"),
        false => format!("{} order by key limit $4", live(&read.range, NARROW)),
    };
    let (values, join) = match values {
        true => (", v.value, v.checksum", "left join log v on v.id = l.id"),
        false => ("", ""),
    };
    format!(
        "select s.revision, s.compacted, {count}, l.key,
                l.id, l.revision, l.create_revision, l.version, l.lease{values}
         from head s left join lateral ({versions}) l on true {join}"
    )
}

async fn collect(rows: tokio_postgres::RowStream, read: &Read, values: bool) -> Result<Page, Fault> {
    let mut arena = Arena::default();
    let mut page =
        Page { bounds: Bounds { current: 0, compacted: 0 }, count: None, rows: Vec::new(), more: false };
    let mut rows = pin!(rows);
    while let Some(row) = rows.try_next().await? {
        if page.bounds.current == 0 {
            page.bounds = Bounds { current: column(&row, 0)?, compacted: column(&row, 1)? };
            page.count = column::<Option<i64>>(&row, 2)?.map(|count| count.max(0) as u64);
        }
        let Some(key) = column::<Option<&[u8]>>(&row, 3)? else { continue };
        if page.rows.len() == read.limit {
            page.more = true;
            continue;
        }
        let key = arena.keep(key);
        // What is asked below the watermark may be gone, which is no damage.
        if check(page.bounds, read.revision).is_err() {
            continue;
        }
        if column::<Option<VersionId>>(&row, 4)?.is_none() {
            return Err(Fault::Answer(Error::Corrupt { key }));
        }
        let mut value = Bytes::new();
        if values {
            value = rows::checked(&row, 9, &key, &mut arena)?.map_err(Fault::Answer)?;
        }
        let current = rows::narrow(&row, 4, crate::Terms::none())?;
        page.rows.push((current.id, current.kv(key, value)));
    }
    if page.bounds.current == 0 {
        return Err(Fault::Final(Error::Unavailable("the table `state` is empty".into())));
    }
    // The plan walks an index in this order; only SQL does not promise it.
    if !page.rows.is_sorted_by(|(_, a), (_, b)| a.key < b.key) {
        page.rows.sort_by(|(_, a), (_, b)| a.key.cmp(&b.key));
    }
    Ok(page)
}

/// Whether a revision can be read.
pub(super) fn check(bounds: Bounds, revision: Option<Revision>) -> Result<()> {
    match revision {
        Some(requested) if requested > bounds.current => {
            Err(Error::FutureRevision { requested, current: bounds.current })
        }
        Some(requested) if requested < bounds.compacted => {
            Err(Error::Expired { compacted: bounds.compacted })
        }
        _ => Ok(()),
    }
}

/// The newest and the oldest readable revision.
pub(super) async fn bounds(session: &Session) -> Result<Bounds, Fault> {
    let rows = session.query("select revision, compacted from head", &[]).await?;
    let row =
        rows.first().ok_or_else(|| Fault::Final(Error::Unavailable("the table `state` is empty".into())))?;
    Ok(Bounds { current: column(row, 0)?, compacted: column(row, 1)? })
}
