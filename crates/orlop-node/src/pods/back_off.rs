//! Delay between restarts of a container that keeps ending.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

const DELAY_MIN: Duration = Duration::from_secs(10);
const DELAY_MAX: Duration = Duration::from_secs(300);
/// Run after which the delay starts anew.
const RESET_AFTER: Duration = Duration::from_secs(600);

/// Back-off of a container's restarts, or of an image's pulls. The first is immediate, then 10 s doubling to 300 s.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BackOff {
    delay: Duration,
    updated: Option<Timestamp>,
}

impl BackOff {
    /// Returns the time before which an attempt that failed at `failed_at` must not be repeated, and its delay.
    pub(crate) fn until(&self, failed_at: Timestamp) -> Option<(Timestamp, Duration)> {
        if self.is_expired(failed_at) || self.delay.is_zero() {
            return None;
        }
        Some((failed_at + self.delay, self.delay))
    }

    /// Counts an attempt.
    pub(crate) fn attempted(&mut self, now: Timestamp) {
        self.delay = if self.is_expired(now) || self.delay.is_zero() {
            DELAY_MIN
        } else {
            (self.delay * 2).min(DELAY_MAX)
        };
        self.updated = Some(now);
    }

    /// Returns the time of the last attempt.
    pub(crate) fn updated(&self) -> Option<Timestamp> {
        self.updated
    }

    fn is_expired(&self, at: Timestamp) -> bool {
        self.updated
            .is_some_and(|updated| at.duration_since(updated) > RESET_AFTER.try_into().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[test]
    fn delay_doubles_from_ten_seconds_to_five_minutes() {
        let mut back_off = BackOff::default();
        assert_eq!(back_off.until(at(0)), None);
        let mut delays = Vec::new();
        for _ in 0..7 {
            back_off.attempted(at(0));
            delays.extend(back_off.until(at(0)).map(|(_, delay)| delay.as_secs()));
        }
        assert_eq!(delays, [10, 20, 40, 80, 160, 300, 300]);
    }

    #[test]
    fn long_run_resets_the_delay() {
        let mut back_off = BackOff::default();
        back_off.attempted(at(0));
        back_off.attempted(at(1));
        assert_eq!(back_off.until(at(602)), None);
        back_off.attempted(at(602));
        assert_eq!(back_off.until(at(610)), Some((at(620), DELAY_MIN)));
    }
}
