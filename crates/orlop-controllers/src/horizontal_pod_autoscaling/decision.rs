//! The number of replicas that a HorizontalPodAutoscaler wants. Pure.

/// Deviation from the target that is left alone, unless `spec.behavior` says otherwise.
pub(super) const TOLERANCE: f64 = 0.1;

/// Deviations from the target that are left alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Tolerance {
    pub(super) up: f64,
    pub(super) down: f64,
}

impl Default for Tolerance {
    fn default() -> Self {
        Self { up: TOLERANCE, down: TOLERANCE }
    }
}

impl Tolerance {
    pub(super) fn covers(self, ratio: f64) -> bool {
        1.0 - self.down <= ratio && ratio <= 1.0 + self.up
    }
}

/// Usage of one resource by the pods of a target.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Usage {
    /// Sum of the usage of pods that have metrics.
    pub(super) used: i64,
    /// Sum of their requests.
    pub(super) requested: i64,
    /// Number of them.
    pub(super) measured: i32,
    /// Pods without metrics.
    pub(super) missing: i32,
}

/// Target of a metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Target {
    /// Percent of the requests.
    Utilization(i32),
    /// Average amount of a pod.
    AverageValue(i64),
}

impl Usage {
    /// Returns the usage relative to the target. `None` without metrics or requests.
    fn ratio(self, target: Target) -> Option<f64> {
        if self.measured == 0 {
            return None;
        }
        match target {
            Target::Utilization(percent) if self.requested > 0 && percent > 0 => {
                Some(self.used as f64 * 100.0 / self.requested as f64 / f64::from(percent))
            }
            Target::AverageValue(amount) if amount > 0 => {
                Some(self.used as f64 / f64::from(self.measured) / amount as f64)
            }
            _ => None,
        }
    }

    /// Returns the usage in percent of the requests.
    pub(super) fn percent(self) -> Option<i32> {
        (self.requested > 0).then(|| (self.used.saturating_mul(100) / self.requested) as i32)
    }

    /// Returns the number of replicas at which the target is met.
    pub(super) fn wanted(self, target: Target, current: i32, tolerance: Tolerance) -> Option<i32> {
        let ratio = self.ratio(target)?;
        if tolerance.covers(ratio) {
            return Some(current);
        }
        // Pods without metrics hold back: they use nothing when growing, and all that they may when shrinking.
        let missing = f64::from(self.missing);
        let measured = f64::from(self.measured);
        let assumed = if ratio < 1.0 { missing } else { 0.0 };
        let with_missing = (ratio * measured + assumed) / (measured + missing);
        let turned = ratio < 1.0 && with_missing > 1.0 || ratio > 1.0 && with_missing < 1.0;
        if tolerance.covers(with_missing) || turned {
            return Some(current);
        }
        let wanted = (with_missing * (measured + missing)).ceil() as i32;
        let is_against = ratio < 1.0 && wanted > current || ratio > 1.0 && wanted < current;
        Some(if is_against { current } else { wanted })
    }
}

/// Reason that a number of replicas is not the one that the metrics ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    None,
    TooFew,
    TooMany,
    ScaleUp,
    ScaleDown,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(used: i64, requested: i64, measured: i32, missing: i32) -> Usage {
        Usage { used, requested, measured, missing }
    }

    #[test]
    fn replicas_follow_utilization() {
        let half = Target::Utilization(50);
        assert_eq!(usage(900, 1000, 1, 0).wanted(half, 1, Tolerance::default()), Some(2));
        assert_eq!(usage(1500, 3000, 3, 0).wanted(half, 3, Tolerance::default()), Some(3));
        assert_eq!(
            usage(1600, 3000, 3, 0).wanted(half, 3, Tolerance::default()),
            Some(3),
            "within the tolerance"
        );
        assert_eq!(usage(300, 3000, 3, 0).wanted(half, 3, Tolerance::default()), Some(1));
        assert_eq!(usage(0, 0, 0, 3).wanted(half, 3, Tolerance::default()), None);
        assert_eq!(usage(100, 0, 1, 0).wanted(half, 1, Tolerance::default()), None, "no requests");
        assert_eq!(usage(300, 100, 3, 0).wanted(Target::AverageValue(50), 3, Tolerance::default()), Some(6));
    }

    #[test]
    fn pods_without_metrics_hold_back() {
        let half = Target::Utilization(50);
        assert_eq!(
            usage(1000, 1000, 1, 3).wanted(half, 4, Tolerance::default()),
            Some(4),
            "half of what grows is unknown"
        );
        assert_eq!(usage(100, 1000, 1, 3).wanted(half, 4, Tolerance::default()), Some(4));
    }
}
