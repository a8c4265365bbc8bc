//! Reads of one snapshot.
//!
//! A read without a filter is one statement: PostgreSQL gives each statement one snapshot, and the revision is read from
//! the same one. Filtered reads are in `filter`.
//!
//! Where most values are cached (`value_cache`), the statement leaves them out and a second one fetches the rest.
//! Versions are immutable, so its newer snapshot does not matter, unless compaction has deleted one by then.

use std::pin::pin;

use bytes::Bytes;
use futures_util::TryStreamExt;

use super::{
    connection::Session,
    db_error::DbError,
    extent::{Extent, check, limit},
    filter, history,
    live::{META_COLUMNS, live},
    rows::{self, Arena, column},
    values::add_values,
};
use crate::{
    KeyValue, Limits, Read, ReadResult, Select,
    engine::Bounds,
    error::{Error, Result},
    event::VersionId,
};

/// Reads one snapshot.
pub(super) async fn read(
    session: &Session,
    limits: &Limits,
    read: &Read,
    extent: Extent,
) -> Result<ReadResult, DbError> {
    if !read.filter.is_empty() && !read.range.is_empty() {
        return filter::read(session, limits, read, extent).await;
    }
    let limit = limit(limits, read);
    // Without a limit, the number of rows is the count.
    let counted_by_rows = read.select != Select::Nothing && limit >= limits.read_keys;
    let asked = Read { limit, count: read.count && !counted_by_rows, ..read.clone() };
    let mut result = match read.select {
        Select::Values => values(session, &asked, extent).await?,
        Select::Keys | Select::Nothing => page(session, &asked, None).await?.result(),
    };
    if read.count && counted_by_rows && !result.more {
        result.count = Some(result.kvs.len() as u64);
    } else if read.count && result.count.is_none() {
        let again = Read { select: Select::Nothing, revision: Some(result.revision), ..read.clone() };
        result.count = Box::pin(self::read(session, limits, &again, extent)).await?.count;
    }
    Ok(result)
}

/// Reads a page with its values, from the cache or with the one statement.
async fn values(session: &Session, read: &Read, extent: Extent) -> Result<ReadResult, DbError> {
    if session.value_cache().is_warm(read.limit) {
        let mut page = page(session, read, None).await?;
        if let Ok(is_cut) = add_values(session, &mut page.rows, extent).await? {
            page.more |= is_cut;
            return Ok(page.result());
        }
        // Compaction has deleted a version since. The next statement returns the current state.
    }
    let page = page(session, read, Some(extent)).await?;
    session.value_cache().insert_page(page.rows.iter().map(|(id, kv)| (*id, &kv.key, &kv.value)));
    Ok(page.result())
}

/// Runs the one statement; with values if there is an extent of them.
async fn page(session: &Session, read: &Read, values: Option<Extent>) -> Result<Page, DbError> {
    let statement = session.prepare(&statement(read, values.is_some())).await?;
    let end = read.range.end().map(|end| &end[..]);
    let fetch = if read.select == Select::Nothing { 0 } else { (read.limit as i64).saturating_add(1) };
    let parameters: super::connection::Parameters<'_> =
        &[&&read.range.start()[..], &end, &read.revision, &fetch];
    let response = pin!(async {
        let rows = session.client().query_raw(&statement, parameters.iter().copied()).await?;
        collect(rows, read, values).await
    });
    let page = session.run(response).await?;
    check(page.bounds, read.revision).map_err(DbError::Rejected)?;
    Ok(page)
}

/// Result of the statement.
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

/// Composes the one statement: the end of the log, joined to the versions.
fn statement(read: &Read, values: bool) -> String {
    let past = read.revision.is_some();
    let count = match (read.count, past) {
        (true, true) => format!("({})", history::count(&read.range)),
        (true, false) => format!("({})", live(&read.range, "count(*)")),
        (false, _) => "null::int8".to_owned(),
    };
    let versions = match past {
        true => history::versions(&read.range, "$4"),
        false => format!("{} order by key limit $4", live(&read.range, META_COLUMNS)),
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

async fn collect(
    rows: tokio_postgres::RowStream,
    read: &Read,
    values: Option<Extent>,
) -> Result<Page, DbError> {
    let mut bytes = 0;
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
        // The rest of the rows is received, and not held.
        let is_long = values.is_some_and(|extent| bytes >= extent.bytes_max());
        if page.rows.len() == read.limit || is_long {
            page.more = true;
            continue;
        }
        let key = arena.copy(key);
        // Below the compacted revision rows may be missing, which is no damage.
        if check(page.bounds, read.revision).is_err() {
            continue;
        }
        if column::<Option<VersionId>>(&row, 4)?.is_none() {
            return Err(DbError::Rejected(Error::Corrupt { key }));
        }
        let mut value = Bytes::new();
        if values.is_some() {
            value = rows::checked(&row, 9, &key, &mut arena)?.map_err(DbError::Rejected)?;
        }
        bytes += key.len() + value.len();
        let current = rows::version_meta(&row, 4, crate::Terms::none())?;
        page.rows.push((current.id, current.kv(key, value)));
    }
    if page.bounds.current == 0 {
        return Err(DbError::Permanent(Error::Unavailable("the table `state` is empty".into())));
    }
    // The plan scans an index in this order, but SQL does not guarantee it.
    if !page.rows.is_sorted_by(|(_, a), (_, b)| a.key < b.key) {
        page.rows.sort_by(|(_, a), (_, b)| a.key.cmp(&b.key));
    }
    Ok(page)
}

/// Returns the newest and the oldest readable revision.
pub(super) async fn bounds(session: &Session) -> Result<Bounds, DbError> {
    let rows = session.query("select revision, compacted from head", &[]).await?;
    let row = rows
        .first()
        .ok_or_else(|| DbError::Permanent(Error::Unavailable("the table `state` is empty".into())))?;
    Ok(Bounds { current: column(row, 0)?, compacted: column(row, 1)? })
}
