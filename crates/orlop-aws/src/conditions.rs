//! `status.conditions`: rebuilt on each pass, with times that change only with a status.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use orlop_api::time::Time;
use serde_json::{Value, json};

pub(crate) const READY: &str = "Ready";
pub(crate) const SYNCED: &str = "ACK.ResourceSynced";
pub(crate) const TERMINAL: &str = "ACK.Terminal";
pub(crate) const RECOVERABLE: &str = "ACK.Recoverable";
pub(crate) const ADVISORY: &str = "ACK.Advisory";
pub(crate) const LATE_INITIALIZED: &str = "ACK.LateInitialized";
pub(crate) const REFERENCES_RESOLVED: &str = "ACK.ReferencesResolved";
pub(crate) const ROLE_SELECTED: &str = "ACK.IAMRoleSelected";

/// Longest text of a condition.
const TEXT_MAX: usize = 2048;

/// Conditions of a pass.
#[derive(Clone, Debug, Default)]
pub(crate) struct Conditions {
    list: Vec<Value>,
}

impl Conditions {
    /// Returns the conditions of an object.
    pub(crate) fn of(object: &Value) -> Self {
        let mut conditions = Self::default();
        let known = object.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
        for condition in known {
            let field = |name: &str| condition[name].as_str().unwrap_or_default();
            conditions.set(field("type"), field("status"), field("reason"), field("message"));
        }
        conditions
    }

    /// Sets a condition. Types that may be there several times differ by reason.
    pub(crate) fn set(&mut self, kind: &str, status: &str, reason: &str, message: &str) {
        let several = kind == ADVISORY;
        self.list.retain(|known| known["type"] != kind || (several && known["reason"] != reason));
        let mut condition = json!({"type": kind, "status": status});
        for (field, text) in [("reason", reason), ("message", message)] {
            if !text.is_empty() {
                condition[field] = json!(text.chars().take(TEXT_MAX).collect::<String>());
            }
        }
        self.list.push(condition);
    }

    pub(crate) fn status(&self, kind: &str) -> Option<&str> {
        status_of(&self.list, kind)
    }

    /// Returns the list, with the times of `old` where the status is the same, and in a fixed order.
    pub(crate) fn finish(mut self, old: &Value, observed_generation: Option<i64>) -> Value {
        let old = old.as_array().map_or(&[][..], Vec::as_slice);
        let now = now();
        for condition in &mut self.list {
            let same = old.iter().find(|known| {
                let field = |name: &str| known[name] == condition[name];
                field("type") && field("status") && (condition["type"] != ADVISORY || field("reason"))
            });
            let since = same.and_then(|known| known.get("lastTransitionTime")).cloned();
            condition["lastTransitionTime"] = since.unwrap_or_else(|| json!(now));
            if let Some(generation) = observed_generation {
                condition["observedGeneration"] = json!(generation);
            }
        }
        self.list.sort_by_key(|condition| (condition["type"].to_string(), condition["reason"].to_string()));
        Value::Array(self.list)
    }
}

/// Returns the status of a condition in a list.
pub(crate) fn status_of<'a>(list: &'a [Value], kind: &str) -> Option<&'a str> {
    list.iter().find(|condition| condition["type"] == kind)?["status"].as_str()
}

/// Returns true if an object of ACK is synced.
pub fn is_synced(object: &Value) -> bool {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    conditions.is_some_and(|conditions| status_of(conditions, SYNCED) == Some("True"))
}

/// Returns the time as objects carry it.
pub(crate) fn now() -> String {
    after(Duration::ZERO)
}

/// Returns the time after a wait, as objects carry it.
pub(crate) fn after(wait: Duration) -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default() + wait;
    Time::from_unix(i64::try_from(since.as_secs()).unwrap_or_default()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_changes_only_with_the_status() {
        let old = json!([{"type": READY, "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z", "message": "m"}]);
        let mut conditions = Conditions::default();
        conditions.set(READY, "True", "", "other");
        let new = conditions.finish(&old, None);
        assert_eq!(new[0]["lastTransitionTime"], "2020-01-01T00:00:00Z");
        let mut conditions = Conditions::default();
        conditions.set(READY, "False", "", "m");
        assert_ne!(conditions.finish(&old, None)[0]["lastTransitionTime"], "2020-01-01T00:00:00Z");
    }
}
