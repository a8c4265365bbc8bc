//! The delay that clients of an overloaded level are delays.
//!
//! As TCP does: doubled when many requests were rejected in the last interval, decreased by one second when few were.

use std::collections::VecDeque;

/// Maximum delay in seconds.
const SECONDS_MAX: u64 = 32;

/// Rejected requests of a level, by second.
#[derive(Debug)]
pub(crate) struct RetryAfter {
    seconds: u64,
    /// Second of the last increase.
    increased: Option<u64>,
    /// The current second and its rejected requests.
    current: (u64, u64),
    history: VecDeque<(u64, u64)>,
}

impl Default for RetryAfter {
    fn default() -> Self {
        Self { seconds: 1, increased: None, current: (0, 0), history: VecDeque::new() }
    }
}

impl RetryAfter {
    /// Counts a request that was rejected in a second since the start. Returns the delay to tell its client.
    pub(crate) fn reject(&mut self, second: u64) -> u64 {
        if self.current.0 == second && self.current.1 > 0 {
            self.current.1 += 1;
            return self.seconds;
        }
        if self.current.1 > 0 {
            self.history.push_back(self.current);
        }
        let kept = (2 * self.seconds).min(SECONDS_MAX);
        while self.history.front().is_some_and(|(past, _)| second.saturating_sub(*past) > kept) {
            self.history.pop_front();
        }
        self.current = (second, 1);
        self.update(second);
        self.seconds
    }

    fn update(&mut self, second: u64) {
        let recent = self.history.iter().filter(|(past, _)| second.saturating_sub(*past) <= self.seconds);
        let rejected: u64 = recent.map(|(_, rejected)| rejected).sum();
        let may_increase =
            self.increased.is_none_or(|increased| second.saturating_sub(increased) >= self.seconds);
        if may_increase && rejected >= 3 * self.seconds {
            self.seconds = (2 * self.seconds).min(SECONDS_MAX);
            self.increased = Some(second);
        } else if rejected < self.seconds && self.seconds > 1 {
            self.seconds -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_doubles_under_load_and_falls_by_a_second() {
        let mut delay = RetryAfter::default();
        let mut delays = Vec::new();
        for second in 0..20 {
            for _ in 0..50 {
                delay.reject(second);
            }
            delays.push(delay.seconds);
        }
        assert_eq!(delays[..8], [1, 2, 2, 4, 4, 4, 4, 8]);
        assert_eq!(delay.reject(40), 15);
        for second in 41..400 {
            assert!(delay.reject(second * 60) <= 15);
        }
        assert_eq!(delay.seconds, 1);
        for second in 30_000..31_000 {
            for _ in 0..1000 {
                delay.reject(second);
            }
        }
        assert_eq!(delay.seconds, SECONDS_MAX);
    }
}
