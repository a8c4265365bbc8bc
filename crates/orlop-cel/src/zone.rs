//! Time zones: UTC, offsets such as `+01:00`, and the names of the IANA database.
//!
//! The database is part of the program, so that a rule means the same on every machine and nothing is read from
//! files. Zones are loaded on first use and cached by the library.

use jiff::Timestamp;
use jiff::tz::TimeZoneDatabase;
use orlop_regex::go_quote::quote;

use crate::error::EvalError;

/// Seconds east of UTC that clocks in a zone are at a moment.
pub(crate) fn offset_s(zone: &str, unix_seconds: i64) -> Result<i64, EvalError> {
    match (zone, zone.split_once(':')) {
        // A server's local time is UTC.
        ("" | "UTC" | "Local", _) => Ok(0),
        (_, Some((hours, minutes))) => fixed(zone, hours, minutes),
        (_, None) => named(zone, unix_seconds),
    }
}

/// An offset goes by the sign of its hours. Numbers too large for a clock wrap, as they do in Go.
fn fixed(zone: &str, hours: &str, minutes: &str) -> Result<i64, EvalError> {
    const NANOS_PER_MINUTE: i64 = 60_000_000_000;
    const NANOS_PER_SECOND: i64 = 1_000_000_000;
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    if !(0..=59).contains(&minutes) {
        return Err(EvalError::Failed(format!("timezone offset minutes out of range [0, 59]: {zone}")));
    }
    let minutes = if zone.starts_with('-') { -minutes } else { minutes };
    let total = hours.wrapping_mul(60).wrapping_add(minutes);
    Ok(total.wrapping_mul(NANOS_PER_MINUTE) / NANOS_PER_SECOND)
}

fn number(text: &str) -> Result<i64, EvalError> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let wrong = if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        "invalid syntax"
    } else {
        "value out of range"
    };
    text.parse()
        .map_err(|_| EvalError::Failed(format!("strconv.Atoi: parsing {text}: {wrong}", text = quote(text))))
}

/// Returns whether Go's time package knows a time zone of this name.
pub fn is_time_zone(name: &str) -> bool {
    name == "UTC" || named(name, 0).is_ok()
}

fn named(name: &str, unix_seconds: i64) -> Result<i64, EvalError> {
    if name.contains("..") || name.starts_with(['/', '\\']) {
        return Err(EvalError::failed("time: invalid location name"));
    }
    let unknown = || EvalError::Failed(format!("unknown time zone {name}"));
    let zone = TimeZoneDatabase::bundled().get(name).map_err(|_| unknown())?;
    // The library takes names in any case; Go does not.
    if zone.iana_name() != Some(name) {
        return Err(unknown());
    }
    // The library's range ends two days before CEL's; offsets are constant there.
    let moment = Timestamp::from_second(unix_seconds).unwrap_or(if unix_seconds < 0 {
        Timestamp::MIN
    } else {
        Timestamp::MAX
    });
    Ok(i64::from(zone.to_offset(moment).seconds()))
}
