//! Reads filtered by index terms.
//!
//! Of the conditions that the index can answer, the most selective one is scanned in the index, and the others are tested
//! on the rows it finds. If none is selective, the range is scanned. Values are fetched last, of matching rows only. All
//! of it sees one snapshot.

use bytes::Bytes;
use futures_util::future::{try_join, try_join_all};
use tokio_postgres::types::ToSql;

use super::{
    connection::Session,
    db_error::DbError,
    extent::{Extent, check, limit},
    history,
    live::{META_COLUMNS, live, within_range},
    rows::{self, Arena, column},
    values::add_values,
};
use crate::{
    Filter, KeyRange, KeyValue, Limits, Read, ReadResult, Requirement, Revision, Select, engine::Bounds,
    error::Error, event::VersionMeta,
};

/// Counting stops here: past it, a condition is not selective.
const SELECTIVE_MAX: i64 = 2000;
/// Maximum values whose keys are merged; the keys of more are sorted.
const MERGED_MAX: usize = 100;
/// Rows fetched at a time.
const PAGE: usize = 5000;

const BEGIN: &str = "begin isolation level repeatable read read only";
const BOUNDS: &str = "select revision, compacted from head";

/// Source of candidate keys.
#[derive(Clone, Copy)]
enum Source<'a> {
    /// All keys of the range.
    Range,
    /// The keys with one value of a field, in key order.
    Value(&'a str, &'a str),
    /// The keys with one of several values of a field, each value's in key order.
    Values(&'a str, &'a [String]),
    /// The keys with any value of a field.
    Field(&'a str),
}

impl Source<'_> {
    /// Returns whether the index returns the keys in order, or in a few sorted runs.
    fn is_in_order(self) -> bool {
        match self {
            Source::Value(..) => true,
            Source::Values(_, values) => values.len() <= MERGED_MAX,
            Source::Range | Source::Field(_) => false,
        }
    }
}

pub(super) async fn read(
    session: &Session,
    limits: &Limits,
    read: &Read,
    extent: Extent,
) -> Result<ReadResult, DbError> {
    let in_transaction = extent == Extent::Transaction;
    let bounds = session.prepare(BOUNDS).await?;
    let begin = async {
        // The empty statement keeps the pipeline the same within a transaction.
        session.client().batch_execute(if in_transaction { "" } else { BEGIN }).await
    };
    let (_, row) = session.run(try_join(begin, session.client().query_one(&bounds, &[]))).await?;
    let bounds = Bounds { current: column(&row, 0)?, compacted: column(&row, 1)? };
    let result = snapshot(session, limits, read, bounds, extent).await;
    if !in_transaction && matches!(result, Ok(_) | Err(DbError::Rejected(_))) {
        session.batch_execute("commit").await?;
    }
    result
}

async fn snapshot(
    session: &Session,
    limits: &Limits,
    read: &Read,
    bounds: Bounds,
    extent: Extent,
) -> Result<ReadResult, DbError> {
    check(bounds, read.revision).map_err(DbError::Rejected)?;
    // If nothing was written since, live rows answer.
    let past = read.revision.filter(|revision| *revision != bounds.current);
    let source = source(session, read, past).await?;
    let limit = limit(limits, read);
    let mut result = ReadResult { revision: bounds.current, ..ReadResult::default() };
    let mut found: Vec<(Bytes, VersionMeta)> = Vec::new();
    let mut matching = 0_usize;
    let mut rest = read.range.clone();
    let mut arena = Arena::default();
    // If the only condition is scanned in the index, every row matches.
    let exact = read.filter.0.len() == 1 && !matches!(source, Source::Range);
    loop {
        let wanted = limit.saturating_add(1).saturating_sub(matching);
        let size = if exact && !read.count { wanted.min(PAGE) } else { PAGE };
        let rows = page(session, past, source, &rest, size).await?;
        let last = rows.last().map(|row| column::<&[u8]>(row, 0)).transpose()?;
        for row in &rows {
            let (key, current) = rows::keyed(row, &mut arena)?;
            let current = current.map_err(DbError::Rejected)?;
            if read.filter.matches(&current.terms) {
                matching += 1;
                if matching <= limit {
                    found.push((key, current));
                }
            }
        }
        match last {
            Some(last) if rows.len() == size && (read.count || matching <= limit) => rest = rest.after(last),
            _ => break,
        }
    }
    result.more = matching > limit && read.select != Select::Nothing;
    result.count = read.count.then_some(matching as u64);
    result.kvs = match read.select {
        Select::Nothing => Vec::new(),
        Select::Keys => found.into_iter().map(|(key, row)| row.kv(key, Bytes::new())).collect(),
        Select::Values => {
            let (kvs, is_cut) = with_values(session, found, extent).await?;
            result.more |= is_cut;
            kvs
        }
    };
    Ok(result)
}

/// Picks the condition to scan the index for. Past versions are not in the index.
async fn source<'a>(
    session: &Session,
    read: &'a Read,
    past: Option<Revision>,
) -> Result<Source<'a>, DbError> {
    if past.is_some() || read.range.single().is_some() {
        return Ok(Source::Range);
    }
    let candidates = candidates(&read.filter);
    if let [only] = candidates[..]
        && only.is_in_order()
    {
        return Ok(only);
    }
    let counts = try_join_all(candidates.iter().map(|source| count(session, source, &read.range))).await?;
    // Sorted sources can be scanned page by page, however many keys they have.
    let best =
        candidates.into_iter().zip(counts).min_by_key(|(source, count)| (*count, !source.is_in_order()));
    Ok(match best {
        Some((source, count)) if count < SELECTIVE_MAX || source.is_in_order() => source,
        _ => Source::Range,
    })
}

/// Returns the conditions that the index can answer.
fn candidates(filter: &Filter) -> Vec<Source<'_>> {
    let mut candidates = Vec::new();
    for requirement in &filter.0 {
        candidates.push(match requirement {
            Requirement::In(field, values) => match &values[..] {
                [value] => Source::Value(field, value),
                values => Source::Values(field, values),
            },
            Requirement::Exists(field) => Source::Field(field),
            Requirement::NotIn(..) | Requirement::Absent(_) => continue,
        });
    }
    candidates
}

/// Counts the keys of a source, up to a maximum.
async fn count(session: &Session, source: &Source<'_>, range: &KeyRange) -> Result<i64, DbError> {
    let in_range = within_range(range);
    let (start, end) = (&range.start()[..], range.end().map(|end| &end[..]));
    let rows = match source {
        Source::Range => return Ok(i64::MAX),
        // The index is not sorted by key within a field, so only its size counts.
        Source::Field(field) => {
            let sql = "select count(*) from (select 1 from terms where field = $1 limit $2) counted";
            session.query(sql, &[&field.as_bytes(), &SELECTIVE_MAX]).await?
        }
        Source::Value(..) | Source::Values(..) => {
            let (field, values) = match source {
                Source::Values(field, values) => (field.as_bytes(), all_bytes(values)),
                Source::Value(field, value) => (field.as_bytes(), vec![value.as_bytes()]),
                Source::Range | Source::Field(_) => return Ok(i64::MAX),
            };
            let sql = format!(
                "select count(*) from (select 1 from terms
                 where field = $3 and value = any($4) and {in_range} limit $5) counted"
            );
            session.query(&sql, &[&start, &end, &field, &values, &SELECTIVE_MAX]).await?
        }
    };
    rows.first().map_or(Ok(i64::MAX), |row| column(row, 0))
}

/// Returns the next rows, sorted by key.
async fn page(
    session: &Session,
    past: Option<Revision>,
    source: Source<'_>,
    range: &KeyRange,
    size: usize,
) -> Result<Vec<tokio_postgres::Row>, DbError> {
    let (start, end, size) = (&range.start()[..], range.end().map(|end| &end[..]), size as i64);
    let in_range = within_range(range);
    let meta = format!("l.{}", META_COLUMNS.replace(", ", ", l."));
    let by_keys = |keys: &str| {
        format!("select {meta}, l.terms from ({keys}) t join live l on l.key = t.key order by t.key limit $3")
    };
    match source {
        Source::Range => {
            let sql = match past.is_some() {
                // Terms of past versions are only in the log.
                true => format!(
                    "select {meta}, v.terms from ({}) l left join log v on v.id = l.id order by l.key",
                    history::versions(range, "$4")
                ),
                false => format!("{} order by key limit $4", live(range, &format!("{META_COLUMNS}, terms"))),
            };
            session.query(&sql, &[&start, &end, &past, &size]).await
        }
        Source::Value(field, value) => {
            let keys = format!("select key from terms where field = $4 and value = $5 and {in_range}");
            session.query(&by_keys(&keys), &[&start, &end, &size, &field.as_bytes(), &value.as_bytes()]).await
        }
        Source::Values(field, values) if source.is_in_order() && !values.is_empty() => {
            // No more of each run than fits the page.
            let run = |at: usize| {
                format!(
                    "(select key from terms where field = $4 and value = ${at} and {in_range} order by key limit $3)"
                )
            };
            let runs: Vec<String> = (5..).take(values.len()).map(run).collect();
            let keys = format!("select distinct key from ({}) runs", runs.join(" union all "));
            let (field, values) = (field.as_bytes(), all_bytes(values));
            let mut parameters: Vec<&(dyn ToSql + Sync)> = vec![&start, &end, &size, &field];
            parameters.extend(values.iter().map(|value| value as &(dyn ToSql + Sync)));
            session.query(&by_keys(&keys), &parameters).await
        }
        Source::Values(field, values) => {
            let keys =
                format!("select distinct key from terms where field = $4 and value = any($5) and {in_range}");
            session
                .query(&by_keys(&keys), &[&start, &end, &size, &field.as_bytes(), &all_bytes(values)])
                .await
        }
        Source::Field(field) => {
            let keys = format!("select distinct key from terms where field = $4 and {in_range}");
            session.query(&by_keys(&keys), &[&start, &end, &size, &field.as_bytes()]).await
        }
    }
}

fn all_bytes(values: &[String]) -> Vec<&[u8]> {
    values.iter().map(String::as_bytes).collect()
}

/// Returns versions with their values, and true if the page ends before the last of them. Within one snapshot a
/// missing value means damage.
async fn with_values(
    session: &Session,
    found: Vec<(Bytes, VersionMeta)>,
    extent: Extent,
) -> Result<(Vec<KeyValue>, bool), DbError> {
    let mut rows: Vec<_> = found.into_iter().map(|(key, row)| (row.id, row.kv(key, Bytes::new()))).collect();
    match add_values(session, &mut rows, extent).await? {
        Ok(is_cut) => Ok((rows.into_iter().map(|(_, kv)| kv).collect(), is_cut)),
        Err(key) => Err(DbError::Rejected(Error::Corrupt { key })),
    }
}
