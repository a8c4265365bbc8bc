//! Moments of a quantity over time.

use std::time::Instant;

/// Integrates a quantity: its time-weighted average, deviation and maximum since the last reset.
#[derive(Debug)]
pub(crate) struct Integrator {
    value: f64,
    since: Instant,
    seconds: f64,
    integral: f64,
    integral_of_square: f64,
    max: f64,
}

/// Moments of a quantity in an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Moments {
    pub(crate) seconds: f64,
    pub(crate) average: f64,
    pub(crate) deviation: f64,
    pub(crate) max: f64,
}

impl Integrator {
    pub(crate) fn new(now: Instant) -> Self {
        Self { value: 0.0, since: now, seconds: 0.0, integral: 0.0, integral_of_square: 0.0, max: 0.0 }
    }

    /// Sets the quantity from now on.
    pub(crate) fn set(&mut self, now: Instant, value: f64) {
        self.integrate(now);
        self.value = value;
        self.max = self.max.max(value);
    }

    fn integrate(&mut self, now: Instant) {
        let seconds = now.saturating_duration_since(self.since).as_secs_f64();
        self.since = now.max(self.since);
        self.seconds += seconds;
        self.integral += self.value * seconds;
        self.integral_of_square += self.value * self.value * seconds;
    }

    /// Returns the moments up to now, and begins another interval.
    pub(crate) fn reset(&mut self, now: Instant) -> Moments {
        self.integrate(now);
        let mut moments = Moments { seconds: self.seconds, max: self.max, ..Moments::default() };
        if self.seconds > 0.0 {
            moments.average = self.integral / self.seconds;
            let variance = self.integral_of_square / self.seconds - moments.average * moments.average;
            // Rounding can make it negative.
            moments.deviation = variance.max(0.0).sqrt();
        }
        *self = Self { value: self.value, max: self.value, ..Self::new(self.since) };
        moments
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn moments_are_weighted_by_time() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut integrator = Integrator::new(start);
        integrator.set(at(1), 4.0);
        integrator.set(at(3), 1.0);
        let moments = integrator.reset(at(4));
        assert_eq!((moments.seconds, moments.average, moments.max), (4.0, 2.25, 4.0));
        // 0 for 1 s, 4 for 2 s, 1 for 1 s.
        assert!((moments.deviation - (33.0_f64 / 4.0 - 2.25 * 2.25).sqrt()).abs() < 1e-9);
        let moments = integrator.reset(at(6));
        assert_eq!((moments.average, moments.deviation, moments.max), (1.0, 0.0, 1.0));
    }
}
