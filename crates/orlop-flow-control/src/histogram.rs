//! Histograms that the lock of their level guards.

use std::time::Instant;

/// Counts of observations by upper bound.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    bounds: &'static [f64],
    /// One more than there are bounds, for what exceeds them all.
    counts: Vec<u64>,
    sum: f64,
}

impl Histogram {
    pub(crate) fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, counts: vec![0; bounds.len() + 1], sum: 0.0 }
    }

    pub(crate) fn observe(&mut self, value: f64) {
        self.add(value, 1);
    }

    fn add(&mut self, value: f64, weight: u64) {
        let index = self.bounds.iter().position(|bound| value <= *bound).unwrap_or(self.bounds.len());
        self.counts[index] += weight;
        self.sum += value * weight as f64;
    }

    /// Returns sum, count and the count of each bucket by upper bound.
    pub(crate) fn read(&self) -> (f64, u64, Vec<(f64, u64)>) {
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        (self.sum, self.counts.iter().sum(), bounds.zip(self.counts.iter().copied()).collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.counts.iter().all(|count| *count == 0)
    }
}

/// Histogram of a ratio that is observed at the end of every nanosecond.
#[derive(Clone, Debug)]
pub(crate) struct TimedRatio {
    histogram: Histogram,
    numerator: f64,
    denominator: f64,
    since: Instant,
}

impl TimedRatio {
    pub(crate) fn new(bounds: &'static [f64], now: Instant) -> Self {
        Self { histogram: Histogram::new(bounds), numerator: 0.0, denominator: 1.0, since: now }
    }

    /// Sets the numerator from now on.
    pub(crate) fn set(&mut self, now: Instant, numerator: usize) {
        let numerator = numerator as f64;
        if numerator != self.numerator {
            self.observe(now);
            self.numerator = numerator;
        }
    }

    /// Sets the denominator from now on.
    pub(crate) fn set_denominator(&mut self, now: Instant, denominator: usize) {
        self.observe(now);
        self.denominator = denominator.max(1) as f64;
    }

    fn observe(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.since).as_nanos();
        self.since = now.max(self.since);
        self.histogram
            .add(self.numerator / self.denominator, u64::try_from(elapsed).unwrap_or(u64::MAX >> 8));
    }

    /// Returns the histogram up to now.
    pub(crate) fn read(&mut self, now: Instant) -> Histogram {
        self.observe(now);
        self.histogram.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn observations_fall_into_the_first_bucket_that_holds_them() {
        let mut histogram = Histogram::new(&[1.0, 2.0]);
        assert!(histogram.is_empty());
        [0.5, 1.0, 1.5, 9.0].into_iter().for_each(|value| histogram.observe(value));
        assert_eq!(histogram.read(), (12.0, 4, vec![(1.0, 2), (2.0, 1), (f64::INFINITY, 1)]));
    }

    #[test]
    fn ratio_is_weighted_by_nanoseconds() {
        let start = Instant::now();
        let mut ratio = TimedRatio::new(&[0.0, 0.5, 1.0], start);
        ratio.set_denominator(start, 4);
        ratio.set(start + Duration::from_nanos(10), 1);
        ratio.set(start + Duration::from_nanos(30), 4);
        let (sum, count, buckets) = ratio.read(start + Duration::from_nanos(35)).read();
        assert_eq!((sum, count), (10.0, 35));
        assert_eq!(buckets, [(0.0, 10), (0.5, 20), (1.0, 5), (f64::INFINITY, 0)]);
    }
}
