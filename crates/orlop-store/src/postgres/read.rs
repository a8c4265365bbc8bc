//! Reads of one snapshot.
//!
//! A read without a filter is one statement, whatever it asks for: PostgreSQL gives each statement one
//! snapshot, and the revision is taken from the same one. Filtered reads are in `filter`.

use std::pin::pin;

use futures_util::TryStreamExt;

use super::{
    connect::Session,
    fault::Fault,
    filter,
    rows::{self, Arena, column},
};
use crate::{
    KeyRange, Limits, Read, ReadResult, Revision, Select,
    engine::Bounds,
    error::{Error, Result},
};

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

/// Narrow rows of a range: those of now, or those of the revision that is parameter 3. Each key once.
///
/// With a `limit`, a parameter, they are the first ones, sorted by key. Each half is sorted and limited by
/// itself, by walking its index; over the union PostgreSQL would sort the whole range for every page.
pub(super) fn versions(range: &KeyRange, past: bool, columns: &str, limit: Option<&str>) -> String {
    let range = within_range(range);
    let first = limit.map_or(String::new(), |limit| format!("order by key limit {limit}"));
    if !past {
        return format!("select {columns} from live where {range} and $3::int8 is null {first}");
    }
    format!(
        "(select {columns} from live where {range} and revision <= $3 {first})
         union all
         (select {columns} from history where {range} and revision <= $3 and superseded_at > $3 {first})
         {first}"
    )
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
    let sql = statement(read, read.count && !counted_by_rows);
    let statement = session.prepare(&sql).await?;
    let end = read.range.end().map(|end| &end[..]);
    let fetch = if read.select == Select::Nothing { 0 } else { (limit as i64).saturating_add(1) };
    let parameters: super::connect::Parameters<'_> =
        &[&&read.range.start()[..], &end, &read.revision, &fetch];
    let answer = async {
        let rows = session.client().query_raw(&statement, parameters.iter().copied()).await?;
        collect(rows, read, limit).await
    };
    let (mut result, bounds) = session.run(answer).await?;
    check(bounds, read.revision).map_err(Fault::Answer)?;
    if read.count && counted_by_rows && !result.more {
        result.count = Some(result.kvs.len() as u64);
    } else if read.count && result.count.is_none() {
        let again = Read { select: Select::Nothing, revision: Some(result.revision), ..read.clone() };
        result.count = Box::pin(self::read(session, limits, &again, in_transaction)).await?.count;
    }
    Ok(result)
}

/// The most keys a read brings.
pub(super) fn limit(limits: &Limits, read: &Read) -> usize {
    if read.limit == 0 { limits.read_keys } else { read.limit.min(limits.read_keys) }
}

/// The one statement: the state's row, joined to the versions there are.
fn statement(read: &Read, count: bool) -> String {
    let past = read.revision.is_some();
    let count = match count {
        true => format!("(select count(*) from ({}) counted)", versions(&read.range, past, "1", None)),
        false => "null::int8".to_owned(),
    };
    let versions = versions(&read.range, past, NARROW, Some("$4"));
    let (values, join) = match read.select {
        Select::Values => ("v.value, v.checksum", "left join log v on v.id = l.id"),
        Select::Keys | Select::Nothing => ("null, null", ""),
    };
    format!(
        "select s.revision, s.compacted, {count}, l.key,
                l.id, l.revision, l.create_revision, l.version, l.lease, {values}
         from state s left join lateral ({versions}) l on true {join}"
    )
}

async fn collect(
    rows: tokio_postgres::RowStream,
    read: &Read,
    limit: usize,
) -> Result<(ReadResult, Bounds), Fault> {
    let mut arena = Arena::default();
    let mut result = ReadResult::default();
    let mut bounds = Bounds { current: 0, compacted: 0 };
    let mut rows = pin!(rows);
    while let Some(row) = rows.try_next().await? {
        if bounds.current == 0 {
            bounds = Bounds { current: column(&row, 0)?, compacted: column(&row, 1)? };
            result.revision = bounds.current;
            result.count = column::<Option<i64>>(&row, 2)?.map(|count| count.max(0) as u64);
        }
        let Some(key) = column::<Option<&[u8]>>(&row, 3)? else { continue };
        if result.kvs.len() == limit {
            result.more = true;
            continue;
        }
        let key = arena.keep(key);
        let value = match read.select {
            Select::Values => {
                // What is asked below the watermark may be gone, which is no damage.
                if check(bounds, read.revision).is_err() {
                    continue;
                }
                rows::checked(&row, 9, &key, &mut arena)?.map_err(Fault::Answer)?
            }
            Select::Keys | Select::Nothing => bytes::Bytes::new(),
        };
        result.kvs.push(rows::narrow(&row, 4, crate::Terms::none())?.kv(key, value));
    }
    if bounds.current == 0 {
        return Err(Fault::Final(Error::Unavailable("the table `state` is empty".into())));
    }
    // The plan walks an index in this order; only SQL does not promise it.
    if !result.kvs.is_sorted_by(|a, b| a.key < b.key) {
        result.kvs.sort_by(|a, b| a.key.cmp(&b.key));
    }
    Ok((result, bounds))
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
    let rows = session.query("select revision, compacted from state", &[]).await?;
    let row =
        rows.first().ok_or_else(|| Fault::Final(Error::Unavailable("the table `state` is empty".into())))?;
    Ok(Bounds { current: column(row, 0)?, compacted: column(row, 1)? })
}
