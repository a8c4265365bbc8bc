//! Times of objects.

use std::time::Duration;

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};

/// Returns the current time in the precision that objects have.
pub(crate) fn now() -> Time {
    Time(seconds(Timestamp::now()))
}

/// Returns a time without its fraction of a second.
pub(crate) fn seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// Returns a time moved by seconds, within what can be represented.
pub(crate) fn plus_seconds(time: Timestamp, seconds: i64) -> Timestamp {
    let moved = time.as_second().saturating_add(seconds);
    Timestamp::from_second(moved).unwrap_or(if seconds < 0 { Timestamp::MIN } else { Timestamp::MAX })
}

/// Returns the time from `now` until a moment, zero if it has passed.
pub(crate) fn until(moment: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(moment.duration_since(now)).unwrap_or_default()
}
