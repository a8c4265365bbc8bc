//! Conditions of a definition's status.

use orlop_api::schema::unstructured::{list, text};
use orlop_api::time::Time;
use serde_json::{Map, Value};

pub const NAMES_ACCEPTED: &str = "NamesAccepted";
pub const ESTABLISHED: &str = "Established";
pub const TERMINATING: &str = "Terminating";
pub(crate) const NON_STRUCTURAL_SCHEMA: &str = "NonStructuralSchema";
pub(crate) const API_APPROVAL: &str = "KubernetesAPIApprovalPolicyConformant";

/// One condition. [`Conditions::set`] maintains lastTransitionTime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    pub reason: String,
    pub message: String,
    pub last_transition_time: String,
}

impl Condition {
    pub fn new(kind: &str, status: &str, reason: &str, message: impl Into<String>) -> Self {
        Self {
            kind: kind.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: message.into(),
            last_transition_time: String::new(),
        }
    }

    pub fn is_true(&self) -> bool {
        self.status == "True"
    }

    /// Returns whether two conditions are equal, ignoring lastTransitionTime.
    pub fn is_equivalent(&self, other: &Self) -> bool {
        (&self.kind, &self.status, &self.reason, &self.message)
            == (&other.kind, &other.status, &other.reason, &other.message)
    }
}

/// The conditions of a status, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions(Vec<Condition>);

impl Conditions {
    /// Reads `status.conditions` of an object.
    pub fn of(object: &Value) -> Self {
        let status = object.get("status").unwrap_or(&Value::Null);
        let read = |condition: &Value| Condition {
            kind: text(condition, "type").to_owned(),
            status: text(condition, "status").to_owned(),
            reason: text(condition, "reason").to_owned(),
            message: text(condition, "message").to_owned(),
            last_transition_time: text(condition, "lastTransitionTime").to_owned(),
        };
        Self(list(status, "conditions").iter().map(read).collect())
    }

    pub fn get(&self, kind: &str) -> Option<&Condition> {
        self.0.iter().find(|condition| condition.kind == kind)
    }

    pub fn is_true(&self, kind: &str) -> bool {
        self.get(kind).is_some_and(Condition::is_true)
    }

    /// Adds or replaces a condition and returns whether anything changed. lastTransitionTime changes only with the status.
    pub fn set(&mut self, condition: Condition, now: Time) -> bool {
        let Some(existing) = self.0.iter_mut().find(|existing| existing.kind == condition.kind) else {
            self.0.push(Condition { last_transition_time: now.to_string(), ..condition });
            return true;
        };
        if existing.is_equivalent(&condition) && !existing.last_transition_time.is_empty() {
            return false;
        }
        let turned = existing.status != condition.status || existing.last_transition_time.is_empty();
        let since = if turned { now.to_string() } else { std::mem::take(&mut existing.last_transition_time) };
        *existing = Condition { last_transition_time: since, ..condition };
        true
    }

    /// Removes a condition and returns whether it existed.
    pub fn remove(&mut self, kind: &str) -> bool {
        let before = self.0.len();
        self.0.retain(|condition| condition.kind != kind);
        self.0.len() != before
    }

    /// Returns the list for `status.conditions`.
    pub fn to_value(&self) -> Value {
        let written = |condition: &Condition| {
            let fields = [
                ("type", &condition.kind),
                ("status", &condition.status),
                ("lastTransitionTime", &condition.last_transition_time),
                ("reason", &condition.reason),
                ("message", &condition.message),
            ];
            let present = fields.into_iter().filter(|(key, value)| *key == "type" || !value.is_empty());
            Value::Object(
                present.map(|(key, value)| (key.to_owned(), value.as_str().into())).collect::<Map<_, _>>(),
            )
        };
        Value::Array(self.0.iter().map(written).collect())
    }
}
