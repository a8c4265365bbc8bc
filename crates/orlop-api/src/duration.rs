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
}
