//! Reads at a past revision, as SQL.
//!
//! A key whose live version is old enough has that one. Of any other key the version is found by walking back in the
//! log, where each row names the one before. So that no such walk is long, some versions are milestones with a row in
//! `history` (`Event::milestone`): it begins at the key's first milestone that was superseded after the revision, or
//! else at the live version.

use super::read::{NARROW, within_range};
use crate::KeyRange;

/// The first keys of a range, sorted, each with its version at the revision that is parameter 3. `limit` is a
/// parameter too.
///
/// Each part is sorted and limited by itself, by walking its index; over their union PostgreSQL would sort the whole
/// range for every page. A version that the log does not have comes as nulls.
pub(super) fn versions(range: &KeyRange, limit: &str) -> String {
    let first = format!("order by key limit {limit}");
    let (old_enough, milestones, too_new) = parts(range);
    let numbers = "id, revision, create_revision, version, lease";
    let older = "log.id, log.revision, log.create_revision, log.version, log.lease";
    format!(
        "(select {NARROW} from {old_enough} {first})
         union all
         (select origin.key, walked.* from (
              (select distinct on (key) key, id from {milestones} order by key, superseded_at limit {limit})
              union all
              (select key, id from {too_new} {first})
          ) origin left join lateral (
              with recursive walk as (
                  select {numbers}, previous from log where id = origin.id
                  union all
                  select {older}, log.previous from walk join log on log.id = walk.previous
                  where walk.revision > $3
              )
              select {numbers} from walk where revision <= $3
          ) walked on true)
         {first}"
    )
}

/// How many keys of a range there were.
pub(super) fn count(range: &KeyRange) -> String {
    let (old_enough, milestones, too_new) = parts(range);
    format!(
        "select (select count(*) from {old_enough}) + (select count(distinct key) from {milestones})
              + (select count(*) from {too_new})"
    )
}

/// Live versions that are the ones looked for, milestones that are or lead to them, and live versions that lead to
/// those that no milestone does. Each key is in one of these, if there was one.
fn parts(range: &KeyRange) -> (String, String, String) {
    let range = within_range(range);
    // Those created by then that were live after it are all of one life of the key.
    let lived = "superseded_at > $3 and create_revision <= $3";
    (
        format!("live where {range} and revision <= $3"),
        format!("history where {range} and {lived}"),
        format!(
            "live where {range} and revision > $3 and create_revision <= $3
             and not exists (select from history where history.key = live.key and {})",
            lived.replace("create_revision", "history.create_revision"),
        ),
    )
}
