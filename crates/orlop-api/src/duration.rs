//! Human-readable durations, for the Age column.

/// Formats a duration as `duration.HumanDuration`: `5s`, `2m3s`, `3h`, `4d`, `2y10d`.
pub fn human(seconds: i64) -> String {
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let days = hours / 24;
    match seconds {
        ..=-2 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        120..600 => with_rest(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => with_rest(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => with_rest(days, "d", hours % 24, "h"),
        _ if hours < 24 * 365 * 2 => format!("{days}d"),
        _ if hours < 24 * 365 * 8 => with_rest(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
    }
}

/// Formats a duration as `duration.ShortHumanDuration`: `5s`, `2m`, `3h`, `4d`, `1y`.
pub fn short_human(seconds: i64) -> String {
    let hours = seconds / 3600;
    match seconds {
        ..=-2 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{hours}h"),
        _ if hours < 24 * 365 => format!("{}d", hours / 24),
        _ => format!("{}y", hours / 24 / 365),
    }
}

/// Returns the age of an object; `<unknown>` without a creation time.
pub fn age(created: Option<crate::time::Time>, now: crate::time::Time) -> String {
    created.map_or_else(|| "<unknown>".to_owned(), |created| human(now.seconds_since(created)))
}

fn with_rest(amount: i64, unit: &str, rest: i64, rest_unit: &str) -> String {
    if rest == 0 { format!("{amount}{unit}") } else { format!("{amount}{unit}{rest}{rest_unit}") }
}

/// Nanoseconds of the units of Go's durations. Those with two letters come first.
const GO_UNITS: &[(&str, f64)] = &[
    ("ns", 1.0),
    ("us", 1e3),
    ("\u{b5}s", 1e3),
    ("\u{3bc}s", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("m", 60e9),
    ("h", 3600e9),
];

/// Parses a duration in Go's notation, such as `1h30m` or `-1.5s`, to nanoseconds.
pub fn parse_go(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    let mut nanoseconds = 0.0_f64;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..end].parse().ok()?;
        let unit = GO_UNITS.iter().find(|(unit, _)| rest[end..].starts_with(unit))?;
        nanoseconds += number * unit.1;
        rest = &rest[end + unit.0.len()..];
    }
    let in_range = nanoseconds < i64::MAX as f64;
    let nanoseconds = if negative { -nanoseconds } else { nanoseconds } as i64;
    (in_range && text != "-" && text != "+" && !text.is_empty()).then_some(nanoseconds)
}

/// Formats nanoseconds as Go does: `1h30m0s`, `1.5s`, `300ms`, `0s`.
pub fn to_go(nanoseconds: i64) -> String {
    let sign = if nanoseconds < 0 { "-" } else { "" };
    let absolute = nanoseconds.unsigned_abs();
    let decimal = |value: u64, unit: u64| {
        let (whole, rest) = (value / unit, value % unit);
        let digits = format!("{:0width$}", rest, width = unit.ilog10() as usize);
        let digits = digits.trim_end_matches('0');
        if rest == 0 { whole.to_string() } else { format!("{whole}.{digits}") }
    };
    let text = match absolute {
        0 => "0s".to_owned(),
        1..1_000 => format!("{absolute}ns"),
        1_000..1_000_000 => format!("{}\u{b5}s", decimal(absolute, 1_000)),
        1_000_000..1_000_000_000 => format!("{}ms", decimal(absolute, 1_000_000)),
        _ => {
            let minutes = absolute / 60_000_000_000;
            let seconds = decimal(absolute % 60_000_000_000, 1_000_000_000);
            match (minutes / 60, minutes % 60) {
                (0, 0) => format!("{seconds}s"),
                (0, minutes) => format!("{minutes}m{seconds}s"),
                (hours, minutes) => format!("{hours}h{minutes}m{seconds}s"),
            }
        }
    };
    format!("{sign}{text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_match_kubectl() {
        let (minute, hour, day) = (60, 3600, 86_400);
        for (seconds, expected) in [
            (-5, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (123, "2m3s"),
            (599, "9m59s"),
            (10 * minute, "10m"),
            (179 * minute, "179m"),
            (3 * hour, "3h"),
            (3 * hour + minute, "3h1m"),
            (8 * hour, "8h"),
            (47 * hour, "47h"),
            (2 * day, "2d"),
            (2 * day + hour, "2d1h"),
            (8 * day, "8d"),
            (729 * day, "729d"),
            (730 * day, "2y"),
            (740 * day, "2y10d"),
            (365 * 8 * day, "8y"),
        ] {
            assert_eq!(human(seconds), expected, "{seconds}");
        }
        assert_eq!(short_human(90), "1m");
        assert_eq!(short_human(400 * day), "1y");
        assert_eq!(age(None, crate::time::Time::from_unix(0)), "<unknown>");
    }

    #[test]
    fn go_durations_parse_and_print() {
        for (text, nanoseconds, printed) in [
            ("5m", 300_000_000_000, "5m0s"),
            ("1h30m", 5_400_000_000_000, "1h30m0s"),
            ("1.5s", 1_500_000_000, "1.5s"),
            ("300ms", 300_000_000, "300ms"),
            ("-2s", -2_000_000_000, "-2s"),
            ("10us", 10_000, "10\u{b5}s"),
            ("0", 0, "0s"),
        ] {
            assert_eq!(parse_go(text), Some(nanoseconds), "{text}");
            assert_eq!(to_go(nanoseconds), printed);
        }
        for bad in ["", "-", "5", "s", "5x", "1.2.3s", "9999999999h"] {
            assert_eq!(parse_go(bad), None, "{bad}");
        }
    }
}
