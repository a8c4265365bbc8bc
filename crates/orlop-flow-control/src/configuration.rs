//! FlowSchemas and PriorityLevelConfigurations, decoded for use.

mod matching;

use orlop_kinds::flowcontrol::bootstrap;
use serde::Deserialize;
use serde_json::Value;

pub(crate) use matching::Rule;

use crate::{dealer::Dealer, queue_set::Queuing};

/// Name of the mandatory objects that exempt requests.
pub(crate) const EXEMPT: &str = "exempt";
/// Name of the mandatory objects for requests that nothing else matches.
pub(crate) const CATCH_ALL: &str = "catch-all";

/// Property of requests that makes them one flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(crate) enum Distinguisher {
    ByUser,
    ByNamespace,
}

/// A FlowSchema.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowSchema {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) level: String,
    pub(crate) precedence: i64,
    pub(crate) distinguisher: Option<Distinguisher>,
    pub(crate) rules: Vec<Rule>,
    /// Status, reason and message of its condition Dangling, if it has one.
    pub(crate) dangling: Option<(String, String, String)>,
}

/// A PriorityLevelConfiguration.
#[derive(Clone, Debug, PartialEq)]
pub struct PriorityLevel {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) shares: u32,
    pub(crate) lendable_percent: u32,
    /// Seats that it may borrow, in percent of its own; `None` for no limit.
    pub(crate) borrowing_limit_percent: Option<u32>,
    pub(crate) queuing: Queuing,
    /// Size of a flow's hand of queues; 0 without queues.
    pub(crate) hand: usize,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    name: String,
    uid: String,
}

#[derive(Deserialize)]
struct SchemaObject {
    metadata: Metadata,
    spec: SchemaSpec,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SchemaSpec {
    priority_level_configuration: Reference,
    #[serde(default)]
    matching_precedence: i64,
    distinguisher_method: Option<DistinguisherMethod>,
    rules: Option<Vec<Rule>>,
}

#[derive(Deserialize)]
struct Reference {
    name: String,
}

#[derive(Deserialize)]
struct DistinguisherMethod {
    r#type: Distinguisher,
}

#[derive(Deserialize, Default)]
struct Status {
    conditions: Option<Vec<Condition>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Condition {
    r#type: String,
    status: String,
    reason: String,
    message: String,
}

#[derive(Deserialize)]
struct LevelObject {
    metadata: Metadata,
    spec: LevelSpec,
}

#[derive(Deserialize)]
struct LevelSpec {
    r#type: String,
    limited: Option<Limits>,
    exempt: Option<Limits>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Limits {
    nominal_concurrency_shares: Option<u32>,
    lendable_percent: Option<u32>,
    borrowing_limit_percent: Option<u32>,
    limit_response: Option<LimitResponse>,
}

#[derive(Deserialize)]
struct LimitResponse {
    r#type: String,
    queuing: Option<QueuingSpec>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct QueuingSpec {
    queues: usize,
    hand_size: usize,
    queue_length_limit: usize,
}

impl FlowSchema {
    /// Decodes an object. `None` if it is broken, which validation does not let pass.
    pub fn decode(object: &Value) -> Option<Self> {
        let SchemaObject { metadata, spec, status } = SchemaObject::deserialize(object).ok()?;
        let conditions = status.conditions.unwrap_or_default();
        let dangling = conditions.into_iter().find(|condition| condition.r#type == "Dangling");
        Some(Self {
            name: metadata.name,
            uid: metadata.uid,
            level: spec.priority_level_configuration.name,
            precedence: spec.matching_precedence,
            distinguisher: spec.distinguisher_method.map(|method| method.r#type),
            rules: spec.rules.unwrap_or_default(),
            dangling: dangling.map(|condition| (condition.status, condition.reason, condition.message)),
        })
    }

    /// Returns the mandatory schemas as they are while there are no objects.
    pub(crate) fn mandatory() -> impl Iterator<Item = Self> {
        bootstrap::mandatory().into_iter().filter_map(|object| Self::decode(&object))
    }
}

impl PriorityLevel {
    /// Decodes an object. `None` if it is broken, which validation does not let pass.
    pub fn decode(object: &Value) -> Option<Self> {
        let LevelObject { metadata, spec } = LevelObject::deserialize(object).ok()?;
        // A level does not switch between exempt and limited.
        if (spec.r#type == "Exempt") != (metadata.name == EXEMPT) {
            return None;
        }
        let (limits, queuing, hand) = match spec.r#type.as_str() {
            "Exempt" => (spec.exempt?, Queuing::Exempt, 0),
            "Limited" => {
                let limits = spec.limited?;
                let response = limits.limit_response.as_ref()?;
                let (queuing, hand) = match (response.r#type.as_str(), &response.queuing) {
                    ("Reject", None) => (Queuing::Reject, 0),
                    ("Queue", Some(queuing)) => {
                        let dealer = Dealer::new(queuing.queues, queuing.hand_size)?;
                        let length_max = queuing.queue_length_limit;
                        (Queuing::Queue { dealer, length_max }, queuing.hand_size)
                    }
                    _ => return None,
                };
                (limits, queuing, hand)
            }
            _ => return None,
        };
        let default_shares = if queuing == Queuing::Exempt { 0 } else { 30 };
        Some(Self {
            name: metadata.name,
            uid: metadata.uid,
            shares: limits.nominal_concurrency_shares.unwrap_or(default_shares),
            lendable_percent: limits.lendable_percent.unwrap_or(0).min(100),
            borrowing_limit_percent: limits.borrowing_limit_percent,
            queuing,
            hand,
        })
    }

    /// Returns the mandatory levels as they are while there are no objects.
    pub(crate) fn mandatory() -> impl Iterator<Item = Self> {
        bootstrap::mandatory().into_iter().filter_map(|object| Self::decode(&object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_decoded() {
        let levels: Vec<_> = PriorityLevel::mandatory().map(|level| (level.name, level.shares)).collect();
        assert_eq!(levels, [("catch-all".to_owned(), 5), ("exempt".to_owned(), 0)]);
        let schemas: Vec<_> =
            FlowSchema::mandatory().map(|schema| (schema.name, schema.precedence)).collect();
        assert_eq!(schemas, [("exempt".to_owned(), 1), ("catch-all".to_owned(), 10_000)]);
        let suggested: Vec<_> = bootstrap::suggested().iter().filter_map(PriorityLevel::decode).collect();
        assert_eq!(suggested.len(), 6);
        assert_eq!(bootstrap::suggested().iter().filter_map(FlowSchema::decode).count(), 9);
    }

    #[test]
    fn broken_objects_are_ignored() {
        for broken in [
            serde_json::json!({}),
            serde_json::json!({"metadata": {"name": "x"}, "spec": {"type": "Exempt", "exempt": {}}}),
            serde_json::json!({"metadata": {"name": "x"}, "spec": {"type": "Limited"}}),
            serde_json::json!({"metadata": {"name": "x"}, "spec": {"type": "Limited", "limited": {
                "limitResponse": {"type": "Queue", "queuing":
                    {"queues": 4, "handSize": 5, "queueLengthLimit": 1}}}}}),
        ] {
            assert_eq!(PriorityLevel::decode(&broken), None, "{broken}");
        }
    }
}
