//! Annotations that steer a pass.

use serde_json::Value;

use crate::settings::Gates;

/// ACK's annotations of an object.
#[derive(Clone, Debug, Default)]
pub(super) struct Annotations {
    pub(super) adoption_policy: Option<String>,
    pub(super) adoption_fields: Option<String>,
    pub(super) adopted: bool,
    pub(super) read_only: bool,
    /// Identifying fields as of the create or the adoption.
    pub(super) identity: Option<Value>,
}

impl Annotations {
    pub(super) fn of(object: &Value, gates: Gates) -> Self {
        let all = object.pointer("/metadata/annotations");
        let get = |key: &str| all?.get(format!("services.k8s.aws/{key}"))?.as_str().map(str::to_owned);
        let is_true = |key: &str| get(key).is_some_and(|value| value.eq_ignore_ascii_case("true"));
        Self {
            adoption_policy: get("adoption-policy").filter(|policy| gates.adoption && !policy.is_empty()),
            adoption_fields: get("adoption-fields"),
            adopted: is_true("adopted"),
            read_only: gates.read_only && is_true("read-only"),
            identity: get("identity").and_then(|text| serde_json::from_str(&text).ok()),
        }
    }
}
