//! Scaling rules of a HorizontalPodAutoscaler (`spec.behavior`): stabilization, and limits on the rate of change. Pure.

use std::{collections::VecDeque, time::Duration};

use k8s_openapi::{
    api::autoscaling::v2::{HPAScalingRules, HorizontalPodAutoscalerBehavior},
    apimachinery::pkg::api::resource::Quantity,
};
use tokio::time::Instant;

use super::decision::{Limit, TOLERANCE, Tolerance};
use crate::workload::resources::amount;

/// Time for which the largest recommendation counts before replicas are taken away.
const STABILIZATION_DOWN: Duration = Duration::from_secs(300);
/// Longest period of a policy, and so of what is remembered.
const REMEMBERED: Duration = Duration::from_secs(3600);
/// Replicas that may always be added without `spec.behavior`, and the factor above.
const UP_MIN: i32 = 4;
const UP_FACTOR: i32 = 2;

/// Changes and recommendations of the last time.
#[derive(Debug, Default)]
pub(super) struct History {
    recommendations: VecDeque<(Instant, i32)>,
    added: VecDeque<(Instant, i32)>,
    removed: VecDeque<(Instant, i32)>,
}

impl History {
    /// Returns a history that begins now. What was before is unknown: it counts as what there is.
    pub(super) fn starting(current: i32, now: Instant) -> Self {
        Self { recommendations: VecDeque::from([(now, current)]), ..Self::default() }
    }

    /// Remembers a change of the number of replicas.
    pub(super) fn scaled(&mut self, from: i32, to: i32, now: Instant) {
        let list = if to > from { &mut self.added } else { &mut self.removed };
        list.push_back((now, (to - from).abs()));
    }

    fn forget(&mut self, now: Instant) {
        for list in [&mut self.recommendations, &mut self.added, &mut self.removed] {
            while list.front().is_some_and(|(at, _)| now.duration_since(*at) > REMEMBERED) {
                list.pop_front();
            }
        }
    }
}

fn within(list: &VecDeque<(Instant, i32)>, period: Duration, now: Instant) -> impl Iterator<Item = i32> + '_ {
    list.iter().filter(move |(at, _)| now.duration_since(*at) < period).map(|(_, count)| *count)
}

/// A limit on the change within a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Policy {
    is_percent: bool,
    value: i32,
    period: Duration,
}

/// Rules of one direction.
#[derive(Clone, Debug)]
struct Direction {
    window: Duration,
    /// `Max`, `Min` or `Disabled`.
    select: String,
    policies: Vec<Policy>,
    /// Deviation from the target that is left alone.
    tolerance: f64,
}

impl Direction {
    fn of(rules: Option<&HPAScalingRules>, window: Duration, policies: Vec<Policy>) -> Self {
        let own_window = rules.and_then(|rules| rules.stabilization_window_seconds);
        let own: Vec<Policy> = rules
            .and_then(|rules| rules.policies.as_ref())
            .into_iter()
            .flatten()
            .map(|policy| Policy {
                is_percent: policy.type_ == "Percent",
                value: policy.value,
                period: seconds(policy.period_seconds),
            })
            .collect();
        Self {
            window: own_window.map_or(window, seconds),
            select: rules.and_then(|rules| rules.select_policy.clone()).unwrap_or_else(|| "Max".to_owned()),
            policies: if own.is_empty() { policies } else { own },
            tolerance: rules.and_then(|rules| rules.tolerance.as_ref()).map_or(TOLERANCE, fraction),
        }
    }
}

/// Returns a quantity as a number.
fn fraction(quantity: &Quantity) -> f64 {
    // In thousandths, as of cpu.
    amount("cpu", quantity).map_or(TOLERANCE, |thousandths| thousandths as f64 / 1000.0)
}

fn seconds(value: i32) -> Duration {
    Duration::from_secs(value.max(0).unsigned_abs().into())
}

/// Rules of both directions.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    up: Direction,
    down: Direction,
    /// There is a `spec.behavior`. Without it the rate has a simpler limit.
    is_explicit: bool,
}

/// A number of replicas, and the reason that it is not the one that the metrics ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Decision {
    pub(super) replicas: i32,
    pub(super) limit: Limit,
    /// Recent recommendations hold the change back.
    pub(super) stabilized: Option<Stabilized>,
}

/// Direction in which a change is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stabilized {
    Up,
    Down,
}

impl Rules {
    pub(super) fn of(behavior: Option<&HorizontalPodAutoscalerBehavior>) -> Self {
        const PERIOD: Duration = Duration::from_secs(15);
        let all = Policy { is_percent: true, value: 100, period: PERIOD };
        let four = Policy { is_percent: false, value: UP_MIN, period: PERIOD };
        let up = behavior.and_then(|behavior| behavior.scale_up.as_ref());
        let down = behavior.and_then(|behavior| behavior.scale_down.as_ref());
        Self {
            up: Direction::of(up, Duration::ZERO, vec![four, all]),
            down: Direction::of(down, STABILIZATION_DOWN, vec![all]),
            is_explicit: behavior.is_some(),
        }
    }

    /// Returns the deviations from the target that are left alone.
    pub(super) fn tolerance(&self) -> Tolerance {
        Tolerance { up: self.up.tolerance, down: self.down.tolerance }
    }

    /// Decides on a number of replicas, and remembers what was recommended.
    pub(super) fn decide(
        &self,
        history: &mut History,
        wanted: i32,
        current: i32,
        (min, max): (i32, i32),
        now: Instant,
    ) -> Decision {
        history.forget(now);
        let lowest =
            within(&history.recommendations, self.up.window, now).min().map_or(wanted, |low| low.min(wanted));
        let highest = within(&history.recommendations, self.down.window, now)
            .max()
            .map_or(wanted, |high| high.max(wanted));
        history.recommendations.push_back((now, wanted));
        // Upwards the lowest recommendation of its window counts, downwards the highest.
        let stable = current.max(lowest).min(highest);
        let stabilized = match stable {
            _ if stable < wanted => Some(Stabilized::Up),
            _ if stable > wanted => Some(Stabilized::Down),
            _ => None,
        };
        let (replicas, limit) = self.bound(history, stable, current, min, max, now);
        Decision { replicas, limit, stabilized }
    }

    fn bound(
        &self,
        history: &History,
        wanted: i32,
        current: i32,
        min: i32,
        max: i32,
        now: Instant,
    ) -> (i32, Limit) {
        if wanted > current {
            let limit = if self.is_explicit {
                self.up_limit(history, current, now).max(current)
            } else {
                current.saturating_mul(UP_FACTOR).max(UP_MIN)
            };
            if wanted > limit.min(max) {
                return if limit < max { (limit.max(min), Limit::ScaleUp) } else { (max, Limit::TooMany) };
            }
        } else if wanted < current && self.is_explicit {
            let limit = self.down_limit(history, current, now).min(current);
            if wanted < limit.max(min) {
                return if limit > min { (limit.min(max), Limit::ScaleDown) } else { (min, Limit::TooFew) };
            }
        }
        match wanted {
            _ if wanted < min => (min, Limit::TooFew),
            _ if wanted > max => (max, Limit::TooMany),
            _ => (wanted, Limit::None),
        }
    }

    fn up_limit(&self, history: &History, current: i32, now: Instant) -> i32 {
        let limits = self.up.policies.iter().map(|policy| {
            let start = start_of_period(history, policy, current, now);
            match policy.is_percent {
                true => (f64::from(start) * (1.0 + f64::from(policy.value) / 100.0)).ceil() as i32,
                false => start.saturating_add(policy.value),
            }
        });
        match self.up.select.as_str() {
            "Disabled" => current,
            "Min" => limits.min().unwrap_or(current),
            _ => limits.max().unwrap_or(current),
        }
    }

    fn down_limit(&self, history: &History, current: i32, now: Instant) -> i32 {
        let limits = self.down.policies.iter().map(|policy| {
            let start = start_of_period(history, policy, current, now);
            match policy.is_percent {
                true => (f64::from(start) * (1.0 - f64::from(policy.value) / 100.0)) as i32,
                false => start.saturating_sub(policy.value),
            }
        });
        match self.down.select.as_str() {
            "Disabled" => current,
            // The least change.
            "Min" => limits.max().unwrap_or(current),
            _ => limits.min().unwrap_or(current),
        }
    }
}

/// Returns the number of replicas when the period of a policy began.
fn start_of_period(history: &History, policy: &Policy, current: i32, now: Instant) -> i32 {
    let added: i32 = within(&history.added, policy.period, now).sum();
    let removed: i32 = within(&history.removed, policy.period, now).sum();
    current - added + removed
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rules(behavior: serde_json::Value) -> Rules {
        Rules::of(Some(&serde_json::from_value(behavior).unwrap()))
    }

    fn decide(rules: &Rules, history: &mut History, wanted: i32, current: i32, now: Instant) -> (i32, Limit) {
        let decision = rules.decide(history, wanted, current, (1, 100), now);
        (decision.replicas, decision.limit)
    }

    #[test]
    fn without_behavior_replicas_double_at_most_and_fall_late() {
        let (rules, now) = (Rules::of(None), Instant::now());
        let mut history = History::starting(1, now);
        assert_eq!(decide(&rules, &mut history, 50, 1, now), (4, Limit::ScaleUp));
        assert_eq!(decide(&rules, &mut history, 50, 4, now), (8, Limit::ScaleUp));
        assert_eq!(decide(&rules, &mut history, 500, 60, now), (100, Limit::TooMany));
        let late = now + Duration::from_secs(301);
        let mut history = History::starting(10, now);
        let held = rules.decide(&mut history, 2, 10, (1, 100), now);
        assert_eq!((held.replicas, held.stabilized), (10, Some(Stabilized::Down)));
        assert_eq!(decide(&rules, &mut history, 2, 10, late), (2, Limit::None));
    }

    #[test]
    fn policies_limit_the_change_of_a_period() {
        let rules = rules(
            json!({"scaleUp": {"policies": [{"type": "Pods", "value": 2, "periodSeconds": 60}]},
            "scaleDown": {"stabilizationWindowSeconds": 0, "policies": [{"type": "Percent", "value": 50, "periodSeconds": 60}]}}),
        );
        let now = Instant::now();
        let mut history = History::starting(4, now);
        assert_eq!(decide(&rules, &mut history, 20, 4, now), (6, Limit::ScaleUp));
        history.scaled(4, 6, now);
        assert_eq!(decide(&rules, &mut history, 20, 6, now), (6, Limit::ScaleUp), "the period is used up");
        let later = now + Duration::from_secs(61);
        assert_eq!(decide(&rules, &mut history, 20, 6, later), (8, Limit::ScaleUp));
        let mut history = History::starting(10, now);
        assert_eq!(decide(&rules, &mut history, 1, 10, now), (5, Limit::ScaleDown));
        history.scaled(10, 5, now);
        assert_eq!(decide(&rules, &mut history, 1, 5, now), (5, Limit::ScaleDown));
        assert_eq!(decide(&rules, &mut history, 1, 5, later), (2, Limit::ScaleDown));
    }

    #[test]
    fn policy_is_selected() {
        let policies = json!([{"type": "Pods", "value": 1, "periodSeconds": 60}, {"type": "Percent", "value": 100, "periodSeconds": 60}]);
        let now = Instant::now();
        for (select, limit) in [("Max", 20), ("Min", 11), ("Disabled", 10)] {
            let rules = rules(json!({"scaleUp": {"selectPolicy": select, "policies": policies}}));
            let mut history = History::starting(10, now);
            assert_eq!(decide(&rules, &mut history, 90, 10, now).0, limit, "{select}");
        }
        for (select, limit) in [("Max", 1), ("Min", 9), ("Disabled", 10)] {
            let down = json!({"selectPolicy": select, "policies": policies, "stabilizationWindowSeconds": 0});
            let rules = rules(json!({"scaleDown": down}));
            let mut history = History::starting(10, now);
            assert_eq!(decide(&rules, &mut history, 1, 10, now).0, limit, "{select}");
        }
    }

    #[test]
    fn scaling_up_waits_for_its_window() {
        let rules = rules(json!({"scaleUp": {"stabilizationWindowSeconds": 60}}));
        let now = Instant::now();
        let mut history = History::starting(2, now);
        let held = rules.decide(&mut history, 4, 2, (1, 100), now);
        assert_eq!((held.replicas, held.stabilized), (2, Some(Stabilized::Up)));
        let later = now + Duration::from_secs(61);
        assert_eq!(decide(&rules, &mut history, 4, 2, later), (4, Limit::None));
    }
}
