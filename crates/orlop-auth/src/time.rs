//! The clock of credentials.

use std::time::SystemTime;

/// Returns the time in seconds since the epoch.
pub type Clock = fn() -> i64;

/// Returns the operating system's time in seconds since the epoch.
pub fn system_clock() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since.as_secs().cast_signed()
}
