//! Cron schedules and the times at which they fire. Pure.
//!
//! The API server has validated the schedule; this parses it once more for its times.

use jiff::{SignedDuration, Timestamp, Zoned, civil::Weekday, tz::TimeZone};

/// A schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Schedule {
    /// Minutes, hours, days of the month, months, days of the week, as bits.
    Fields { fields: [u64; 5], any_day: bool, any_weekday: bool },
    /// A fixed interval, in whole seconds.
    Every(SignedDuration),
}

const BOUNDS: [(u32, u32); 5] = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 6)];
const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
/// Time after which a schedule that has not fired never will.
const YEARS_MAX: i16 = 5;

impl Schedule {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = match text.trim() {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            other => other,
        };
        if let Some(every) = text.strip_prefix("@every ") {
            let every = orlop_duration::parse(every.trim()).ok()?;
            let seconds = (every / 1_000_000_000).max(1);
            return Some(Self::Every(SignedDuration::from_secs(seconds)));
        }
        let parts: Vec<&str> = text.split_whitespace().collect();
        let mut fields = [0; 5];
        if parts.len() != fields.len() {
            return None;
        }
        for (place, part) in parts.iter().enumerate() {
            fields[place] = parse_field(part, place)?;
        }
        Some(Self::Fields { fields, any_day: is_any(parts[2]), any_weekday: is_any(parts[4]) })
    }

    /// Returns the first time after another.
    pub(super) fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        match self {
            Self::Every(every) => {
                let after = Timestamp::from_second(after.as_second()).ok()?;
                after.checked_add(*every).ok()
            }
            Self::Fields { fields, any_day, any_weekday } => {
                let start = after.to_zoned(zone.clone());
                next_field_time(fields, *any_day, *any_weekday, &start)
            }
        }
    }
}

fn has(bits: u64, value: i8) -> bool {
    u32::try_from(value).is_ok_and(|value| bits & (1 << value) != 0)
}

/// Walks to the next matching month, day, hour and minute. Hours and minutes are walked in elapsed time: one that daylight
/// saving skips does not fire, and one that it repeats fires twice.
fn next_field_time(fields: &[u64; 5], any_day: bool, any_weekday: bool, start: &Zoned) -> Option<Timestamp> {
    let [minutes, hours, days, months, weekdays] = *fields;
    let last_year = start.year().checked_add(YEARS_MAX)?;
    let minute = SignedDuration::from_mins(1);
    let mut time = start.with().second(0).subsec_nanosecond(0).build().ok()?.checked_add(minute).ok()?;
    loop {
        if time.year() > last_year {
            return None;
        }
        if !has(months, time.month()) {
            let next = time.date().first_of_month().checked_add(jiff::Span::new().months(1)).ok()?;
            time = next.to_zoned(start.time_zone().clone()).ok()?;
            continue;
        }
        let weekday = time.date().weekday().since(Weekday::Sunday);
        let (is_day, is_weekday) = (has(days, time.day()), has(weekdays, weekday));
        let matches = if any_day || any_weekday { is_day && is_weekday } else { is_day || is_weekday };
        if !matches {
            time = time.date().tomorrow().ok()?.to_zoned(start.time_zone().clone()).ok()?;
            continue;
        }
        if !has(hours, time.hour()) {
            time = time.with().minute(0).build().ok()?.checked_add(SignedDuration::from_hours(1)).ok()?;
            continue;
        }
        if !has(minutes, time.minute()) {
            time = time.checked_add(minute).ok()?;
            continue;
        }
        return Some(time.timestamp());
    }
}

/// Returns whether a field names every value: only then does the other of the two kinds of days decide alone.
fn is_any(field: &str) -> bool {
    field.split(',').any(|part| {
        let (range, step) = part.split_once('/').unwrap_or((part, "1"));
        matches!(range, "*" | "?") && step.parse::<u32>().is_ok_and(|step| step == 1)
    })
}

fn parse_field(text: &str, place: usize) -> Option<u64> {
    let (low, high) = BOUNDS[place];
    let mut bits = 0;
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, Some(step.parse::<u32>().ok().filter(|step| *step > 0)?)),
            None => (part, None),
        };
        let (first, last) = match range {
            "*" | "?" => (low, high),
            _ => match range.split_once('-') {
                Some((first, last)) => (parse_value(first, place)?, parse_value(last, place)?),
                None => {
                    let one = parse_value(range, place)?;
                    (one, if step.is_some() { high } else { one })
                }
            },
        };
        if first < low || last > high || first > last {
            return None;
        }
        let step = usize::try_from(step.unwrap_or(1)).ok()?;
        (first..=last).step_by(step).for_each(|value| bits |= 1 << value);
    }
    Some(bits)
}

fn parse_value(text: &str, place: usize) -> Option<u32> {
    let lower = text.to_ascii_lowercase();
    let names: (&[&str], usize) = match place {
        3 => (&MONTHS, 1),
        4 => (&DAYS, 0),
        _ => (&[], 0),
    };
    match names.0.iter().position(|name| *name == lower) {
        Some(position) => u32::try_from(position + names.1).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(schedule: &str, after: &str, zone: &str) -> String {
        let zone = TimeZone::get(zone).unwrap();
        let schedule = Schedule::parse(schedule).unwrap();
        let next = schedule.next(after.parse().unwrap(), &zone);
        next.map(|time| time.to_string()).unwrap_or_default()
    }

    #[test]
    fn times_match_robfig_cron() {
        let utc = |schedule: &str, after: &str| next(schedule, after, "UTC");
        assert_eq!(utc("*/15 * * * *", "2026-07-09T14:45:00Z"), "2026-07-09T15:00:00Z");
        assert_eq!(utc("* * * * *", "2026-07-09T14:45:30Z"), "2026-07-09T14:46:00Z");
        assert_eq!(utc("0 0 29 feb ?", "2025-03-01T00:00:00Z"), "2028-02-29T00:00:00Z");
        assert_eq!(utc("20-35/15 * * * *", "2026-07-09T14:46:00Z"), "2026-07-09T15:20:00Z");
        assert_eq!(utc("0 0 13 * FRI", "2026-11-01T00:00:00Z"), "2026-11-06T00:00:00Z", "either day");
        assert_eq!(
            utc("0 0 */10 * 1", "2026-11-02T00:00:00Z"),
            "2026-11-09T00:00:00Z",
            "a step names days, too"
        );
        assert_eq!(utc("0 0 */1 * 1", "2026-11-02T00:00:00Z"), "2026-11-09T00:00:00Z");
        assert_eq!(utc("0 0 */10 * *", "2026-11-02T00:00:00Z"), "2026-11-11T00:00:00Z");
        assert_eq!(utc("0 0 * * 0", "2026-11-01T00:00:00Z"), "2026-11-08T00:00:00Z");
        assert_eq!(utc("@monthly", "2026-11-01T00:00:00Z"), "2026-12-01T00:00:00Z");
        assert_eq!(utc("@every 90s", "2026-11-01T00:00:00Z"), "2026-11-01T00:01:30Z");
        assert_eq!(utc("0 0 30 feb *", "2026-11-01T00:00:00Z"), "", "never");
        assert_eq!(utc("30/20 0 * * *", "2026-11-01T00:00:00Z"), "2026-11-01T00:30:00Z");
    }

    #[test]
    fn time_zones_and_daylight_saving() {
        let berlin = |schedule: &str, after: &str| next(schedule, after, "Europe/Berlin");
        assert_eq!(berlin("0 9 * * *", "2026-01-01T00:00:00Z"), "2026-01-01T08:00:00Z");
        assert_eq!(berlin("0 9 * * *", "2026-07-01T00:00:00Z"), "2026-07-01T07:00:00Z");
        // 02:30 does not exist on 2026-03-29.
        assert_eq!(berlin("30 2 * * *", "2026-03-28T12:00:00Z"), "2026-03-30T00:30:00Z");
        // 02:00 to 03:00 comes twice on 2026-10-25, at 00:00 and at 01:00 in UTC.
        assert_eq!(berlin("*/30 * * * *", "2026-10-25T00:30:00Z"), "2026-10-25T01:00:00Z");
        assert_eq!(berlin("30 2 * * *", "2026-10-25T00:00:00Z"), "2026-10-25T00:30:00Z");
        assert_eq!(berlin("30 2 * * *", "2026-10-25T00:30:00Z"), "2026-10-25T01:30:00Z");
        assert_eq!(berlin("0 3 * * *", "2026-10-25T00:30:00Z"), "2026-10-25T02:00:00Z");
        // Midnight does not exist on 2026-09-06: the day begins at 01:00.
        assert_eq!(next("0 1 * * *", "2026-09-05T12:00:00Z", "America/Santiago"), "2026-09-06T04:00:00Z");
    }

    #[test]
    fn malformed_schedules_are_refused() {
        for text in ["", "* * * *", "60 * * * *", "* * * * 7", "*/0 * * * *", "a * * * *", "@never"] {
            assert_eq!(Schedule::parse(text), None, "{text}");
        }
    }
}
