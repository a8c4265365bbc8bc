//! Timestamps (`metav1.Time`, `MicroTime`): RFC 3339, seconds or microseconds, UTC.
//!
//! No clock is read here; callers pass the current time.

use std::fmt;

/// A point in time, in Unix seconds and nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    pub unix_seconds: i64,
    pub nanoseconds: u32,
}

impl Time {
    pub fn from_unix(unix_seconds: i64) -> Self {
        Self { unix_seconds, nanoseconds: 0 }
    }

    /// Parses RFC 3339 with any offset and any number of fractional digits.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let digits = |start: usize, length: usize| -> Option<i64> {
            let part = bytes.get(start..start + length)?;
            part.iter()
                .try_fold(0i64, |sum, byte| byte.is_ascii_digit().then(|| sum * 10 + i64::from(byte - b'0')))
        };
        let is = |index: usize, expected: u8| bytes.get(index) == Some(&expected);
        let (year, month, day) = (digits(0, 4)?, digits(5, 2)?, digits(8, 2)?);
        let (hour, minute, second) = (digits(11, 2)?, digits(14, 2)?, digits(17, 2)?);
        let separated =
            is(4, b'-') && is(7, b'-') && (is(10, b'T') || is(10, b't')) && is(13, b':') && is(16, b':');
        if !separated || !(1..=12).contains(&month) || day < 1 || day > days_in_month(year, month) {
            return None;
        }
        if hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        let mut rest = bytes.get(19..)?;
        let mut nanoseconds = 0u32;
        if rest.first() == Some(&b'.') {
            let length = rest[1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            if length == 0 {
                return None;
            }
            for place in 0..9 {
                let digit = if place < length { u32::from(rest[1 + place] - b'0') } else { 0 };
                nanoseconds = nanoseconds * 10 + digit;
            }
            rest = &rest[1 + length..];
        }
        let offset_seconds = match rest {
            [b'Z' | b'z'] => 0,
            [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2]
                if [h1, h2, m1, m2].iter().all(|b| b.is_ascii_digit()) =>
            {
                let two = |tens: u8, ones: u8| i64::from(tens - b'0') * 10 + i64::from(ones - b'0');
                let (hours, minutes) = (two(*h1, *h2), two(*m1, *m2));
                if hours > 23 || minutes > 59 {
                    return None;
                }
                let seconds = hours * 3600 + minutes * 60;
                if *sign == b'-' { -seconds } else { seconds }
            }
            _ => return None,
        };
        let days = days_from_civil(year, month, day);
        let unix_seconds = days * 86_400 + hour * 3600 + minute * 60 + second - offset_seconds;
        Some(Self { unix_seconds, nanoseconds })
    }

    /// Formats as `MicroTime`: `2026-01-02T03:04:05.678901Z`.
    pub fn to_micro(self) -> String {
        let mut text = Vec::with_capacity("2006-01-02T15:04:05.000000Z".len());
        self.push_micro(&mut text);
        String::from_utf8(text).unwrap_or_default()
    }

    /// As [`Time::to_micro`], at the end of a text.
    pub fn push_micro(self, text: &mut Vec<u8>) {
        match self.digits() {
            Some(digits) => text.extend_from_slice(&digits.0),
            None => text.extend_from_slice(self.to_string().trim_end_matches('Z').as_bytes()),
        }
        let mut fraction = *b".000000Z";
        let mut rest = self.nanoseconds / 1000;
        for digit in fraction[1..7].iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        text.extend_from_slice(&fraction);
    }

    /// Returns the seconds since `earlier`, rounded towards zero.
    pub fn seconds_since(self, earlier: Self) -> i64 {
        let mut seconds = self.unix_seconds.saturating_sub(earlier.unix_seconds);
        if seconds > 0 && self.nanoseconds < earlier.nanoseconds {
            seconds -= 1;
        } else if seconds < 0 && self.nanoseconds > earlier.nanoseconds {
            seconds += 1;
        }
        seconds
    }
}

/// Formats as `Time`: `2026-01-02T03:04:05Z`.
impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(digits) = self.digits() {
            f.write_str(digits.as_str())?;
            return f.write_str("Z");
        }
        let [year, month, day, hour, minute, second] = self.civil();
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }
}

/// Date and time of day in RFC 3339, up to seconds. Audit events and objects are full of them: formatting each number
/// takes several times as long.
struct Digits([u8; 19]);

impl Digits {
    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl Time {
    /// Returns year, month, day, hour, minute and second.
    fn civil(self) -> [i64; 6] {
        let (year, month, day) = civil_from_days(self.unix_seconds.div_euclid(86_400));
        let second = self.unix_seconds.rem_euclid(86_400);
        [year, month, day, second / 3600, second / 60 % 60, second % 60]
    }

    /// Returns the digits of a time with a year of four.
    fn digits(self) -> Option<Digits> {
        let [year, rest @ ..] = self.civil();
        if !(0..=9999).contains(&year) {
            return None;
        }
        let mut digits = *b"0000-00-00T00:00:00";
        let mut put = |at: usize, number: i64| {
            digits[at] = b'0' + (number / 10) as u8;
            digits[at + 1] = b'0' + (number % 10) as u8;
        };
        put(0, year / 100);
        put(2, year % 100);
        for (index, number) in rest.into_iter().enumerate() {
            put(5 + 3 * index, number);
        }
        Some(Digits(digits))
    }
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

pub(crate) fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Returns the days since 1970-01-01, counting 400-year eras that start in March.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_round_trip() {
        for text in [
            "1970-01-01T00:00:00Z",
            "2000-02-29T23:59:59Z",
            "2026-11-15T04:05:06Z",
            "1969-12-31T23:59:59Z",
            "0001-01-01T00:00:00Z",
        ] {
            assert_eq!(Time::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Time::from_unix(1_000_000_000).to_string(), "2001-09-09T01:46:40Z");
    }

    #[test]
    fn offsets_and_fractions_parse() {
        let time = Time::parse("2026-01-01T01:30:00.123456789+01:30").unwrap();
        assert_eq!(time.to_string(), "2026-01-01T00:00:00Z");
        assert_eq!(time.to_micro(), "2026-01-01T00:00:00.123456Z");
        for bad in [
            "",
            "2026-01-01",
            "2026-13-01T00:00:00Z",
            "2026-02-29T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:00:00",
            "2026-01-01T00:00:00.Z",
            "2026-01-01 00:00:00Z",
        ] {
            assert_eq!(Time::parse(bad), None, "{bad}");
        }
    }
}
