//! Reads at a past revision, as SQL.
//!
//! A key whose live version is old enough has that one. Of any other key the version is found by walking back in the
//! log, where each row names the one before. So that no such walk is long, some versions are milestones with a row in
//! `history` (`Event::milestone`): it begins at the key's first milestone that was superseded after the revision, or
//! else at the live version.

use super::read::{NARROW, within_range};
use crate::KeyRange;

/// What leads to a version of parameter 3 in `live`: keys that have lived since then.
const LIVED_ON: &str = "live.create_revision <= $3";
/// What leads there in `history`. All such milestones of a key are of one life.
const LIVED: &str = "history.superseded_at > $3 and history.create_revision <= $3";

/// The first keys of a range, sorted, each with its version at the revision that is parameter 3. `limit` is a
/// parameter too.
///
/// Each table is read in key order and no further than the limit; over their union PostgreSQL would sort the whole
/// range for every page. A version that the log does not have comes as nulls.
pub(super) fn versions(range: &KeyRange, limit: &str) -> String {
    let range = within_range(range);
    let numbers = "id, revision, create_revision, version, lease";
    let older = "log.id, log.revision, log.create_revision, log.version, log.lease";
    format!(
        "with present as (
             select {NARROW} from live where {range} and {LIVED_ON} order by key limit {limit}
         ), origin as (
             (select distinct on (key) key, id from history where {range} and {LIVED}
              order by key, superseded_at limit {limit})
             union all
             select key, id from present where revision > $3
             and not exists (select from history where history.key = present.key and {LIVED})
         )
         select {NARROW} from present where revision <= $3
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

/// How many keys of a range there were.
pub(super) fn count(range: &KeyRange) -> String {
    let range = within_range(range);
    format!(
        "select (select count(*) from live where {range} and {LIVED_ON})
              + (select count(distinct key) from history where {range} and {LIVED}
                 and not exists (select from live where live.key = history.key and {LIVED_ON}))"
    )
}
