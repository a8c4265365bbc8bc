//! Deletes compacted history, a few rows at a time, beside the writers.
//!
//! The log is scanned by id from where the last step stopped. A version below the compacted revision names the one it
//! superseded, which can no longer be read; tombstones are deleted too. No batch locks any of these rows, and the newest
//! version is never among them. The row of `state` is updated last and its commit does not wait for the disk: a lost step
//! is repeated.

use super::{connection::Session, db_error::DbError, rows::column, schema::VERSION_BYTES};
use crate::Revision;

/// Raises the compacted revision.
pub(super) async fn set_compacted(session: &Session, revision: Revision) -> Result<(), DbError> {
    let sql = "update state set compacted = $1 where compacted < $1";
    session.execute(sql, &[&revision]).await.map(drop)
}

/// Deletes what up to `limit` versions superseded. Returns whether more are left.
pub(super) async fn step(session: &Session, limit: usize) -> Result<bool, DbError> {
    const SCAN: &str = "
        select l.id, l.revision, l.key, l.previous, l.version from state s
        join lateral (select * from log where id > s.compacted_done order by id limit $1) l on true
        where l.revision < s.compacted";
    session.batch_execute("begin; set local synchronous_commit = off").await?;
    let rows = session.query(SCAN, &[&(limit as i64)]).await?;
    let (mut versions, mut keys, mut superseded_at): (Vec<i64>, Vec<&[u8]>, Vec<i64>) = Default::default();
    let mut last = 0;
    for row in &rows {
        let id = column(row, 0)?;
        if let Some(previous) = column::<Option<i64>>(row, 3)? {
            versions.push(previous);
            keys.push(column(row, 2)?);
            superseded_at.push(column(row, 1)?);
        }
        if column::<i64>(row, 4)? == 0 {
            versions.push(id);
        }
        last = last.max(id);
    }
    if rows.is_empty() {
        session.batch_execute("rollback").await?;
        return Ok(false);
    }
    let history = "delete from history h using unnest($1::bytea[], $2::int8[]) gone(key, superseded_at)
                   where h.key = gone.key and h.superseded_at = gone.superseded_at";
    session.execute(history, &[&keys, &superseded_at]).await?;
    let log = "delete from log where id = any($1) returning octet_length(key) + octet_length(value)";
    let mut bytes = 0;
    for row in session.query(log, &[&versions]).await? {
        bytes += i64::from(column::<i32>(&row, 0)?) + VERSION_BYTES;
    }
    // Another process may have got further.
    let state = "update state set compacted_done = greatest(compacted_done, $1), bytes = bytes - $2";
    session.execute(state, &[&last, &bytes]).await?;
    session.batch_execute("commit").await?;
    Ok(rows.len() >= limit)
}
