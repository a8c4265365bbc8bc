//! Conditions: a set of dependents and the root that sums them up.

use serde_json::{Value as Json, json};

/// A condition's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    True,
    False,
    Unknown,
}

impl Status {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// The conditions of one object while it is reconciled.
#[derive(Clone, Debug)]
pub(crate) struct Conditions {
    dependents: &'static [&'static str],
    generation: i64,
    now: String,
    list: Vec<Json>,
}

/// Name of the root.
pub(crate) const READY: &str = "Ready";

impl Conditions {
    /// Starts from what the object has; types that are missing are Unknown.
    pub(crate) fn read(object: &Json, dependents: &'static [&'static str], now: String) -> Self {
        let generation = object.pointer("/metadata/generation").and_then(Json::as_i64).unwrap_or(0);
        let stored =
            object.pointer("/status/conditions").and_then(Json::as_array).cloned().unwrap_or_default();
        let known = |kind: &str| kind == READY || dependents.contains(&kind);
        let list = stored.into_iter().filter(|condition| known(type_of(condition))).collect();
        let mut conditions = Self { dependents, generation, now, list };
        for kind in dependents {
            if conditions.get(kind).is_none() {
                let message = format!("condition \"{kind}\" is awaiting reconciliation");
                conditions.set(kind, Status::Unknown, "AwaitingReconciliation", &message);
            }
        }
        conditions
    }

    /// Sets a condition; its transition time moves only with its status.
    pub(crate) fn set(&mut self, kind: &str, status: Status, reason: &str, message: &str) {
        let before = self.get(kind);
        let time = before
            .filter(|before| before.get("status").and_then(Json::as_str) == Some(status.as_str()))
            .and_then(|before| before.get("lastTransitionTime").cloned())
            .unwrap_or_else(|| json!(self.now));
        let condition = json!({
            "type": kind, "status": status.as_str(), "reason": reason, "message": message,
            "lastTransitionTime": time, "observedGeneration": self.generation});
        self.list.retain(|other| type_of(other) != kind);
        self.list.push(condition);
    }

    /// The condition of this type.
    pub(crate) fn get(&self, kind: &str) -> Option<&Json> {
        self.list.iter().find(|condition| type_of(condition) == kind)
    }

    /// Returns true if a condition is True for this generation.
    pub(crate) fn is_true(&self, kind: &str) -> bool {
        self.get(kind).is_some_and(|condition| {
            condition.get("status").and_then(Json::as_str) == Some("True")
                && condition.get("observedGeneration").and_then(Json::as_i64) == Some(self.generation)
        })
    }

    /// Computes the root and returns all conditions: dependents in their order, the root last.
    pub(crate) fn finish(mut self) -> Vec<Json> {
        if self.dependents.iter().all(|kind| self.is_true(kind)) {
            self.set(READY, Status::True, READY, "");
        } else {
            let with = |status: &str| {
                let mut found = self.dependents.iter().filter_map(|kind| self.get(kind));
                found.rfind(|condition| condition.get("status").and_then(Json::as_str) == Some(status))
            };
            let (status, source) = match (with("False"), with("Unknown")) {
                (Some(condition), _) => (Status::False, condition.clone()),
                (None, Some(condition)) => (Status::Unknown, condition.clone()),
                // True, but for an older generation.
                (None, None) => (Status::Unknown, Json::Null),
            };
            let text = |key: &str| source.get(key).and_then(Json::as_str).unwrap_or_default().to_owned();
            self.set(READY, status, &text("reason"), &text("message"));
        }
        let rank = |condition: &Json| {
            self.dependents.iter().position(|kind| *kind == type_of(condition)).unwrap_or(usize::MAX)
        };
        let mut list = self.list.clone();
        list.sort_by_key(rank);
        list
    }
}

fn type_of(condition: &Json) -> &str {
    condition.get("type").and_then(Json::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_copies_a_false_dependent_and_keeps_transition_times() {
        let object = json!({"metadata": {"generation": 2}});
        let mut conditions = Conditions::read(&object, &["A", "B"], "t1".to_owned());
        conditions.set("A", Status::True, "Ok", "");
        conditions.set("B", Status::False, "Bad", "broken");
        let list = conditions.finish();
        let root = list.last().unwrap();
        assert_eq!((root["status"].as_str(), root["message"].as_str()), (Some("False"), Some("broken")));
        let object = json!({"metadata": {"generation": 3}, "status": {"conditions": list}});
        let mut conditions = Conditions::read(&object, &["A", "B"], "t2".to_owned());
        conditions.set("A", Status::True, "Ok", "");
        conditions.set("B", Status::True, "Ok", "");
        let list = conditions.finish();
        let time =
            |kind: &str| list.iter().find(|c| c["type"] == kind).unwrap()["lastTransitionTime"].clone();
        assert_eq!((time("A"), time("B"), time("Ready")), (json!("t1"), json!("t2"), json!("t2")));
    }
}
