//! Deadlines of gRPC requests.

use std::time::Duration;

use ::http::HeaderMap;

/// Returns the deadline that a client set with `grpc-timeout`: at most eight digits and a unit.
pub fn timeout(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let count = digits.parse::<u64>().ok().filter(|_| digits.len() <= 8)?;
    Some(match unit {
        "H" => Duration::from_secs(count * 3600),
        "M" => Duration::from_secs(count * 60),
        "S" => Duration::from_secs(count),
        "m" => Duration::from_millis(count),
        "u" => Duration::from_micros(count),
        "n" => Duration::from_nanos(count),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeout_is_digits_and_a_unit() {
        let parsed = |text: &str| {
            timeout(&HeaderMap::from_iter([("grpc-timeout".parse().unwrap(), text.parse().unwrap())]))
        };
        assert_eq!(parsed("50m"), Some(Duration::from_millis(50)));
        assert_eq!(parsed("2H"), Some(Duration::from_secs(7200)));
        assert_eq!(parsed("99999999S"), Some(Duration::from_secs(99_999_999)));
        for bad in ["", "S", "5", "5x", "999999999S", "-5S"] {
            assert_eq!(parsed(bad), None, "{bad}");
        }
    }
}
