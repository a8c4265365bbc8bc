//! The number of replicas that a HorizontalPodAutoscaler wants. Pure.

/// Deviation from the target that is left alone.
const TOLERANCE: f64 = 0.1;

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
    pub(super) fn wanted(self, target: Target, current: i32) -> Option<i32> {
        let ratio = self.ratio(target)?;
        if (ratio - 1.0).abs() <= TOLERANCE {
            return Some(current);
        }
        // Pods without metrics hold back: they use nothing when growing, and all that they may when shrinking.
        let missing = f64::from(self.missing);
        let measured = f64::from(self.measured);
        let assumed = if ratio < 1.0 { missing } else { 0.0 };
        let with_missing = (ratio * measured + assumed) / (measured + missing);
        let turned = ratio < 1.0 && with_missing > 1.0 || ratio > 1.0 && with_missing < 1.0;
        if (with_missing - 1.0).abs() <= TOLERANCE || turned {
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
}

/// Returns a number of replicas within the limits.
pub(super) fn bounded(wanted: i32, current: i32, min: i32, max: i32) -> (i32, Limit) {
    // At most double, or four more, at a time.
    let step = current.saturating_mul(2).max(current.saturating_add(4));
    if wanted > step.min(max) {
        return if step < max { (step.max(min), Limit::ScaleUp) } else { (max, Limit::TooMany) };
    }
    if wanted < min { (min, Limit::TooFew) } else { (wanted, Limit::None) }
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
        assert_eq!(usage(900, 1000, 1, 0).wanted(half, 1), Some(2));
        assert_eq!(usage(1500, 3000, 3, 0).wanted(half, 3), Some(3));
        assert_eq!(usage(1600, 3000, 3, 0).wanted(half, 3), Some(3), "within the tolerance");
        assert_eq!(usage(300, 3000, 3, 0).wanted(half, 3), Some(1));
        assert_eq!(usage(0, 0, 0, 3).wanted(half, 3), None);
        assert_eq!(usage(100, 0, 1, 0).wanted(half, 1), None, "no requests");
        assert_eq!(usage(300, 100, 3, 0).wanted(Target::AverageValue(50), 3), Some(6));
    }

    #[test]
    fn pods_without_metrics_hold_back() {
        let half = Target::Utilization(50);
        assert_eq!(usage(1000, 1000, 1, 3).wanted(half, 4), Some(4), "half of what grows is unknown");
        assert_eq!(usage(100, 1000, 1, 3).wanted(half, 4), Some(4));
    }

    #[test]
    fn limits_are_kept() {
        assert_eq!(bounded(100, 1, 1, 50), (5, Limit::ScaleUp));
        assert_eq!(bounded(100, 30, 1, 50), (50, Limit::TooMany));
        assert_eq!(bounded(0, 3, 2, 50), (2, Limit::TooFew));
        assert_eq!(bounded(4, 3, 2, 50), (4, Limit::None));
    }
}
