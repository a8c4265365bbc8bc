//! Queries of live rows.

use crate::KeyRange;

/// Columns of a version in `live` and `history`.
pub(super) const META_COLUMNS: &str = "key, id, revision, create_revision, version, lease";

/// Returns the condition on `key` for a range whose bounds are parameters 1 and 2.
pub(super) fn within_range(range: &KeyRange) -> &'static str {
    match (range.single(), range.end()) {
        (Some(_), _) => "key = $1 and $2::bytea is not null",
        (None, Some(_)) => "key >= $1 and key < $2",
        (None, None) => "key >= $1 and $2::bytea is null",
    }
}

/// Returns a query of live rows in a range. Parameter 3 is used only by reads at a revision (`history.rs`).
pub(super) fn live(range: &KeyRange, columns: &str) -> String {
    format!("select {columns} from live where {} and $3::int8 is null", within_range(range))
}
