//! Points and spans of time, without a clock.
//!
//! Timestamps are seconds and nanoseconds since 1970 in the years 1 to 9999, with the offset they were written with
//! (only for printing them back). Durations are nanoseconds in 64 bits.

use std::cmp::Ordering;
use std::fmt;

use crate::error::EvalError;

const NANOS_PER_SECOND: i64 = 1_000_000_000;
const SECONDS_PER_DAY: i64 = 86_400;
/// 0001-01-01T00:00:00Z
const SECONDS_MIN: i64 = -62_135_596_800;
/// 9999-12-31T23:59:59Z
const SECONDS_MAX: i64 = 253_402_300_799;

/// A point in time.
#[derive(Clone, Copy, Debug)]
pub struct Timestamp {
    /// Seconds since 1970, rounded down.
    pub seconds: i64,
    /// Nanoseconds beyond them.
    pub nanos: u32,
    /// Seconds east of UTC that it prints with.
    pub offset_s: i32,
}

/// A span of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Duration {
    /// Its length, negative if it goes back.
    pub nanos: i64,
}

/// A timestamp taken apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Civil {
    pub(crate) year: i64,
    /// From 1.
    pub(crate) month: i64,
    /// From 1.
    pub(crate) day: i64,
    /// From 0.
    pub(crate) day_of_year: i64,
    /// From 0, a Sunday.
    pub(crate) weekday: i64,
    pub(crate) second_of_day: i64,
}

impl PartialEq for Timestamp {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Timestamp {}

impl PartialOrd for Timestamp {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timestamp {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.seconds, self.nanos).cmp(&(other.seconds, other.nanos))
    }
}

impl Timestamp {
    /// The point `seconds` and `nanos` after 1970, unless it is outside the years 1 to 9999.
    pub fn new(seconds: i64, nanos: u32) -> Result<Self, EvalError> {
        if !(SECONDS_MIN..=SECONDS_MAX).contains(&seconds) {
            return Err(overflow());
        }
        Ok(Self { seconds, nanos, offset_s: 0 })
    }

    pub(crate) fn is_zero(self) -> bool {
        self.seconds == SECONDS_MIN && self.nanos == 0
    }

    pub(crate) fn add(self, duration: Duration) -> Result<Self, EvalError> {
        let nanos = i128::from(self.nanos) + i128::from(duration.nanos);
        let per_second = i128::from(NANOS_PER_SECOND);
        let carried = i64::try_from(nanos.div_euclid(per_second)).map_err(|_| overflow())?;
        let seconds = self.seconds.checked_add(carried).ok_or_else(overflow)?;
        let moved = Self::new(seconds, nanos.rem_euclid(per_second) as u32)?;
        Ok(Self { offset_s: self.offset_s, ..moved })
    }

    pub(crate) fn since(self, other: Self) -> Result<Duration, EvalError> {
        let seconds = i128::from(self.seconds) - i128::from(other.seconds);
        let nanos = seconds * i128::from(NANOS_PER_SECOND) + i128::from(self.nanos) - i128::from(other.nanos);
        i64::try_from(nanos)
            .map(|nanos| Duration { nanos })
            .map_err(|_| EvalError::failed("integer overflow"))
    }

    /// The parts of the timestamp as clocks at this offset show it.
    pub(crate) fn civil(self, offset_s: i64) -> Civil {
        let local = self.seconds + offset_s;
        let days = local.div_euclid(SECONDS_PER_DAY);
        let (year, month, day) = civil_from_days(days);
        Civil {
            year,
            month,
            day,
            day_of_year: days - days_from_civil(year, 1, 1),
            weekday: (days + 4).rem_euclid(7),
            second_of_day: local.rem_euclid(SECONDS_PER_DAY),
        }
    }
}

fn overflow() -> EvalError {
    EvalError::failed("timestamp overflow")
}

impl Duration {
    /// A duration of whole seconds, if it fits.
    pub fn from_seconds(seconds: i64) -> Option<Self> {
        seconds.checked_mul(NANOS_PER_SECOND).map(|nanos| Self { nanos })
    }
}

/// RFC 3339, with as many digits of a second as there are.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Civil { year, month, day, second_of_day, .. } = self.civil(i64::from(self.offset_s));
        let (hour, minute, second) = (second_of_day / 3600, second_of_day / 60 % 60, second_of_day % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")?;
        if self.nanos > 0 {
            write!(f, ".{}", format!("{:09}", self.nanos).trim_end_matches('0'))?;
        }
        if self.offset_s == 0 {
            return f.write_str("Z");
        }
        let sign = if self.offset_s < 0 { '-' } else { '+' };
        let minutes = self.offset_s.abs() / 60;
        write!(f, "{sign}{:02}:{:02}", minutes / 60, minutes % 60)
    }
}

/// Seconds, as `1.5s`.
impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.nanos < 0 { "-" } else { "" };
        let nanos = self.nanos.unsigned_abs();
        let (seconds, fraction) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
        if fraction == 0 {
            return write!(f, "{sign}{seconds}s");
        }
        write!(f, "{sign}{seconds}.{}s", format!("{fraction:09}").trim_end_matches('0'))
    }
}

// ---- parsing ----

/// `2006-01-02T15:04:05.999Z` or with an offset.
pub(crate) fn parse_rfc3339(text: &str) -> Option<Timestamp> {
    let (day, rest) = text.split_at_checked(10)?;
    let rest = rest.strip_prefix('T')?;
    let (clock, rest) = rest.split_at_checked(8)?;
    let (fraction, zone) = match rest.strip_prefix(['.', ',']) {
        Some(rest) => {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            if digits == 0 {
                return None;
            }
            rest.split_at(digits)
        }
        None => ("", rest),
    };
    let offset_s = match zone {
        "Z" => 0,
        zone => {
            let (sign, zone) = match zone.split_at_checked(1)? {
                ("+", zone) => (1, zone),
                ("-", zone) => (-1, zone),
                _ => return None,
            };
            let [hours, minutes] = two_digit_parts(zone)?;
            // Go lets offsets be of a whole day and a whole hour.
            if hours > 24 || minutes > 60 {
                return None;
            }
            sign * (hours * 3600 + minutes * 60)
        }
    };
    let [hour, minute, second] = two_digit_parts(clock)?;
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let seconds = date_days(day)? * SECONDS_PER_DAY + hour * 3600 + minute * 60 + second - offset_s;
    let mut nanos = 0;
    for place in 0..9 {
        nanos = nanos * 10 + fraction.as_bytes().get(place).map_or(0, |digit| u32::from(digit - b'0'));
    }
    let time = Timestamp::new(seconds, nanos).ok()?;
    Some(Timestamp { offset_s: offset_s as i32, ..time })
}

/// `2006-01-02`.
pub(crate) fn parse_date(text: &str) -> Option<Timestamp> {
    Timestamp::new(date_days(text)? * SECONDS_PER_DAY, 0).ok()
}

/// Returns whether a text is a date. Year 0 is allowed.
pub(crate) fn is_date(text: &str) -> bool {
    date_days(text).is_some()
}

fn date_days(text: &str) -> Option<i64> {
    let (year, rest) = text.split_at_checked(4)?;
    let year = digits(year)?;
    let [month, day] = two_digit_parts(rest.strip_prefix('-')?.replace('-', ":").as_str())?;
    if rest.len() != 6 || !(1..=12).contains(&month) || !(1..=days_in_month(year, month)).contains(&day) {
        return None;
    }
    Some(days_from_civil(year, month, day))
}

/// `15:04:05` as numbers.
fn two_digit_parts<const N: usize>(text: &str) -> Option<[i64; N]> {
    let mut parts = [0; N];
    let mut pieces = text.split(':');
    for part in &mut parts {
        let piece = pieces.next().filter(|piece| piece.len() == 2)?;
        *part = digits(piece)?;
    }
    pieces.next().is_none().then_some(parts)
}

fn digits(text: &str) -> Option<i64> {
    if text.bytes().all(|b| b.is_ascii_digit()) { text.parse().ok() } else { None }
}

/// Parses a duration in Go's notation: `1h30m`, `1.5s`, `-2ms`.
pub(crate) fn parse_duration(text: &str) -> Option<Duration> {
    orlop_duration::parse(text).ok().map(|nanos| Duration { nanos })
}

/// As [`parse_duration`], and also `3 days`, `1 week`: what the format `duration` of OpenAPI admits.
pub(crate) fn parse_loose_duration(text: &str) -> Option<Duration> {
    if let Some(duration) = parse_duration(text) {
        return Some(duration);
    }
    let mut total: i64 = 0;
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let (number, after) = rest.split_at(rest.bytes().take_while(u8::is_ascii_digit).count());
        let after = after.trim_start();
        let (unit, after) = after.split_at(after.bytes().take_while(u8::is_ascii_alphabetic).count());
        let part = number.parse::<i64>().ok()?.checked_mul(loose_unit_nanos(unit)?)?;
        total = total.checked_add(part)?;
        rest = after.trim_start();
    }
    Some(Duration { nanos: total })
}

fn loose_unit_nanos(unit: &str) -> Option<i64> {
    const SECONDS_PER_HOUR: i64 = 3600;
    Some(match unit {
        "ns" | "nano" | "nanos" => 1,
        "us" | "micro" | "micros" => 1_000,
        "ms" | "milli" | "millis" => 1_000_000,
        "s" | "sec" | "secs" | "second" | "seconds" => NANOS_PER_SECOND,
        "m" | "min" | "mins" | "minute" | "minutes" => 60 * NANOS_PER_SECOND,
        "h" | "hr" | "hrs" | "hour" | "hours" => SECONDS_PER_HOUR * NANOS_PER_SECOND,
        "d" | "day" | "days" => SECONDS_PER_DAY * NANOS_PER_SECOND,
        "w" | "wk" | "wks" | "week" | "weeks" => 7 * SECONDS_PER_DAY * NANOS_PER_SECOND,
        _ => return None,
    })
}

// ---- the calendar ----

fn days_in_month(year: i64, month: i64) -> i64 {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970 of a date in the proleptic Gregorian calendar. Years are counted from March, so that the leap day
/// comes last.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// The inverse of [`days_from_civil`].
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (year, month, day_of_year - (153 * shifted + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_round_trip() {
        for days in (-719_162..2_932_896).step_by(97) {
            let (year, month, day) = civil_from_days(days);
            assert_eq!(days_from_civil(year, month, day), days);
        }
    }

    #[test]
    fn timestamps_round_trip() {
        for text in ["1970-01-01T00:00:00Z", "2009-02-13T23:31:30.5+01:00", "0001-01-01T00:00:00Z"] {
            assert_eq!(parse_rfc3339(text).map(|time| time.to_string()).as_deref(), Some(text));
        }
        for text in
            ["2023-02-29T00:00:00Z", "2023-01-01", "2023-01-01T24:00:00Z", "0000-01-01T00:00:00Z", "é"]
        {
            assert!(parse_rfc3339(text).is_none(), "{text}");
        }
    }

    #[test]
    fn durations_sum_their_units() {
        for (text, nanos) in
            [("1h1m1s", 3_661_000_000_000), ("-1.5ms", -1_500_000), ("1us", 1_000), (".5s", 500_000_000)]
        {
            assert_eq!(parse_duration(text).map(|duration| duration.nanos), Some(nanos), "{text}");
        }
        for text in ["", "1", "s", "1x", ".s", "1.2.3s", "1000000h1000000000h"] {
            assert!(parse_duration(text).is_none(), "{text}");
        }
        assert_eq!(parse_loose_duration("2 days").map(|duration| duration.nanos), Some(172_800_000_000_000));
    }
}
