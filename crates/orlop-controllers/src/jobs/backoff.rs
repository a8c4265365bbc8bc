//! Pauses between a job's pods that fail. Pure.

use std::{sync::Arc, time::Duration};

use k8s_openapi::{api::core::v1::Pod, jiff::Timestamp};

use super::pod_state::finished_at;
use crate::workload::time::until;

const FIRST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(600);

/// Failures since the last success.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    failures: u32,
    last: Option<Timestamp>,
}

impl Record {
    /// Takes newly finished pods into account.
    #[must_use]
    pub(super) fn with(self, succeeded: &[&Arc<Pod>], failed: &[&Arc<Pod>]) -> Self {
        let last_success = succeeded.iter().map(|pod| finished_at(pod)).max();
        let since = |at: &Timestamp| last_success.is_none_or(|success| *at > success);
        let ends = || failed.iter().map(|pod| finished_at(pod)).filter(since);
        let before = if last_success.is_some() { Self::default() } else { self };
        Self {
            failures: before.failures.saturating_add(u32::try_from(ends().count()).unwrap_or(u32::MAX)),
            last: ends().max().or(before.last),
        }
    }

    /// Returns how long no pod is to be created.
    pub(super) fn remaining(self, now: Timestamp) -> Duration {
        self.last.map_or(Duration::ZERO, |last| remaining(self.failures, last, now))
    }
}

/// Returns how long to wait after a number of failures.
pub(super) fn remaining(failures: u32, last: Timestamp, now: Timestamp) -> Duration {
    if failures == 0 {
        return Duration::ZERO;
    }
    let pause = FIRST.saturating_mul(1 << (failures - 1).min(16)).min(LONGEST);
    let due = last.checked_add(pause).unwrap_or(Timestamp::MAX);
    until(due, now).min(pause)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(second: i64) -> Arc<Pod> {
        let at = Timestamp::from_second(second).unwrap().to_string();
        Arc::new(serde_json::from_value(json!({"metadata": {"creationTimestamp": at}})).unwrap())
    }

    #[test]
    fn pauses_double_and_a_success_resets_them() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let record = Record::default().with(&[], &[&pod(100)]);
        assert_eq!(record.remaining(at(100)), Duration::from_secs(10));
        let record = record.with(&[], &[&pod(110), &pod(111)]);
        assert_eq!(record.remaining(at(112)), Duration::from_secs(39));
        assert_eq!(record.remaining(at(1000)), Duration::ZERO);
        assert_eq!(remaining(30, at(0), at(0)), LONGEST);
        let after = record.with(&[&pod(200)], &[&pod(150), &pod(201)]);
        assert_eq!(after.remaining(at(201)), Duration::from_secs(10));
    }
}
