//! Conditions.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// Sets a condition, and keeps its transition time unless its status changes. Returns true if it changed.
pub(crate) fn set(
    conditions: &mut Vec<Condition>,
    kind: &str,
    is_true: bool,
    reason: &str,
    message: &str,
    generation: Option<i64>,
) -> bool {
    let status = if is_true { "True" } else { "False" };
    let present = conditions.iter().position(|condition| condition.type_ == kind);
    let since = present.map(|position| &conditions[position]).filter(|condition| condition.status == status);
    let condition = Condition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        last_transition_time: since
            .map_or_else(|| Time(Timestamp::now()), |since| since.last_transition_time.clone()),
        reason: reason.to_owned(),
        message: message.to_owned(),
        observed_generation: generation,
    };
    match present {
        Some(position) => {
            let old = std::mem::replace(&mut conditions[position], condition);
            old.status != conditions[position].status || old.reason != conditions[position].reason
        }
        None => {
            conditions.push(condition);
            true
        }
    }
}
