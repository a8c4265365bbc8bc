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
    /// Sum of the usage of ready pods that have metrics.
    pub(super) used: i64,
    /// Sum of their requests.
    pub(super) requested: i64,
    /// Number of them.
    pub(super) measured: i32,
    /// Pods without metrics.
    pub(super) missing: Unmeasured,
    /// Pods whose usage does not count yet.
    pub(super) unready: Unmeasured,
}

/// Pods whose usage is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Unmeasured {
    pods: i32,
    requested: i64,
}

impl Unmeasured {
    /// Adds a pod.
    pub(super) fn add(&mut self, requested: i64) {
        self.pods += 1;
        self.requested = self.requested.saturating_add(requested);
    }
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
    pub(super) fn replicas(self, target: Target, current: i32, tolerance: Tolerance) -> Option<i32> {
        let ratio = self.ratio(target)?;
        let grows_with_unready = self.unready.pods > 0 && ratio > 1.0;
        if !grows_with_unready && self.missing.pods == 0 {
            let is_met = tolerance.covers(ratio);
            return Some(if is_met { current } else { (ratio * f64::from(self.measured)).ceil() as i32 });
        }
        // Pods that are not measured hold back: they use nothing when growing, and all that they may when shrinking.
        let mut assumed = self;
        if ratio < 1.0 {
            assumed.assume(self.missing, target.assumed_usage(self.missing));
        } else if ratio > 1.0 {
            assumed.assume(self.missing, 0);
        }
        if grows_with_unready {
            assumed.assume(self.unready, 0);
        }
        let assumed_ratio = assumed.ratio(target)?;
        let has_turned = ratio < 1.0 && assumed_ratio > 1.0 || ratio > 1.0 && assumed_ratio < 1.0;
        if tolerance.covers(assumed_ratio) || has_turned {
            return Some(current);
        }
        let replicas = (assumed_ratio * f64::from(assumed.measured)).ceil() as i32;
        let is_against =
            assumed_ratio < 1.0 && replicas > current || assumed_ratio > 1.0 && replicas < current;
        Some(if is_against { current } else { replicas })
    }

    /// Counts pods as measured, with an assumed usage.
    fn assume(&mut self, unmeasured: Unmeasured, used: i64) {
        self.measured += unmeasured.pods;
        self.requested = self.requested.saturating_add(unmeasured.requested);
        self.used = self.used.saturating_add(used);
    }
}

impl Target {
    /// Returns the usage of pods without metrics that a shrinking target assumes: all that they request, or more if the
    /// target is.
    fn assumed_usage(self, missing: Unmeasured) -> i64 {
        match self {
            Self::Utilization(percent) => missing.requested.saturating_mul(i64::from(percent.max(100))) / 100,
            Self::AverageValue(amount) => amount.saturating_mul(i64::from(missing.pods)),
        }
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

    const HALF: Target = Target::Utilization(50);

    fn usage(used: i64, requested: i64, measured: i32) -> Usage {
        Usage { used, requested, measured, ..Usage::default() }
    }

    fn replicas(usage: Usage, target: Target, current: i32) -> Option<i32> {
        usage.replicas(target, current, Tolerance::default())
    }

    #[test]
    fn replicas_follow_utilization() {
        assert_eq!(replicas(usage(900, 1000, 1), HALF, 1), Some(2));
        assert_eq!(replicas(usage(1500, 3000, 3), HALF, 3), Some(3));
        assert_eq!(replicas(usage(1600, 3000, 3), HALF, 3), Some(3), "within the tolerance");
        assert_eq!(replicas(usage(300, 3000, 3), HALF, 3), Some(1));
        assert_eq!(replicas(usage(0, 0, 0), HALF, 3), None);
        assert_eq!(replicas(usage(100, 0, 1), HALF, 1), None, "no requests");
        assert_eq!(replicas(usage(300, 100, 3), Target::AverageValue(50), 3), Some(6));
    }

    #[test]
    fn pods_without_metrics_hold_back() {
        let missing = Unmeasured { pods: 3, requested: 3000 };
        let growing = Usage { missing, ..usage(1000, 1000, 1) };
        assert_eq!(replicas(growing, HALF, 4), Some(4), "the others use nothing: 25%");
        let shrinking = Usage { missing, ..usage(100, 1000, 1) };
        assert_eq!(replicas(shrinking, HALF, 4), Some(4), "the others use all that they request: 77%");
        let one = Unmeasured { pods: 1, requested: 1000 };
        let shrinking = Usage { missing: one, ..usage(300, 9000, 9) };
        assert_eq!(replicas(shrinking, HALF, 10), Some(3), "1300 of 10000: 26% of the target");
        let by_value = Usage { missing: one, ..usage(90, 0, 9) };
        assert_eq!(replicas(by_value, Target::AverageValue(50), 10), Some(3), "140 of 500");
    }

    #[test]
    fn unready_pods_hold_back_growth_only() {
        let unready = Unmeasured { pods: 1, requested: 1000 };
        let growing = Usage { unready, ..usage(1200, 1000, 1) };
        assert_eq!(replicas(growing, HALF, 2), Some(3), "60% of two pods");
        assert_eq!(replicas(Usage { unready, ..usage(1000, 1000, 1) }, HALF, 2), Some(2), "50% of two pods");
        let shrinking = Usage { unready, ..usage(300, 3000, 3) };
        assert_eq!(replicas(shrinking, HALF, 4), Some(1), "10% of three pods");
    }
}
