//! Queries at a past revision.
//!
//! A key whose live version is old enough has that one. For any other key the version is found by walking back in the
//! log, where each row points to the one before. To keep such walks short, `history` is a sparse index of superseded
//! versions (`Event::superseded_history_row`): a walk begins at the key's first history row that was superseded after the
//! revision, or else at the live version.

use super::live::{META_COLUMNS, within_range};
use crate::KeyRange;

/// Condition on live rows: the key existed at revision `$3` and since.
const STILL_LIVE: &str = "live.create_revision <= $3";
/// Condition on history rows: the key existed at revision `$3`. All such rows of a key belong to one creation of it.
const SUPERSEDED: &str = "history.superseded_at > $3 and history.create_revision <= $3";

/// Returns a query of the first keys of a range, sorted, each with its version at revision `$3`. `limit` is a parameter
/// too.
///
/// Each table is scanned in key order up to the limit; over their union PostgreSQL would sort the whole range for every
/// page. A version that is missing in the log is returned as nulls.
pub(super) fn versions(range: &KeyRange, limit: &str) -> String {
    let range = within_range(range);
    let numbers = "id, revision, create_revision, version, lease";
    let older = "log.id, log.revision, log.create_revision, log.version, log.lease";
    format!(
        "with present as (
             select {META_COLUMNS} from live where {range} and {STILL_LIVE} order by key limit {limit}
         ), origin as (
             (select distinct on (key) key, id from history where {range} and {SUPERSEDED}
              order by key, superseded_at limit {limit})
             union all
             select key, id from present where revision > $3
             and not exists (select from history where history.key = present.key and {SUPERSEDED})
         )
         select {META_COLUMNS} from present where revision <= $3
         union all
         select origin.key, walked.* from origin left join lateral (
             with recursive walk as (
                 select {numbers}, previous from log where id = origin.id
                 union all
                 select {older}, log.previous from walk join log on log.id = walk.previous
                 where walk.revision > $3
             )
             select {numbers} from walk where revision <= $3
         ) walked on true
         order by key limit {limit}"
    )
}

/// Returns a query that counts the keys of a range at revision `$3`.
pub(super) fn count(range: &KeyRange) -> String {
    let range = within_range(range);
    format!(
        "select (select count(*) from live where {range} and {STILL_LIVE})
              + (select count(distinct key) from history where {range} and {SUPERSEDED}
                 and not exists (select from live where live.key = history.key and {STILL_LIVE}))"
    )
}
