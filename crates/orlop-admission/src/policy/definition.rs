//! Policies and bindings, as they were written.

use orlop_api::{
    group_version::{GroupVersion, GroupVersionKind},
    labels::Selector,
};
use serde_json::Value;

use crate::matching::{Constraints, MatchConditions};

/// Policy for errors of evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailurePolicy {
    Fail,
    Ignore,
}

/// The fields that both kinds of policies have.
#[derive(Debug)]
pub(super) struct Definition {
    pub(super) name: String,
    pub(super) constraints: Option<Constraints>,
    pub(super) conditions: MatchConditions,
    pub(super) failure_policy: FailurePolicy,
    pub(super) param_kind: Option<GroupVersionKind>,
}

impl Definition {
    pub(super) fn read(policy: &Value) -> Self {
        let spec = &policy["spec"];
        let param_kind = present(spec, "paramKind").map(|kind| {
            let version =
                GroupVersion::parse(text(kind, "apiVersion")).unwrap_or_else(|_| GroupVersion::new("", ""));
            version.with_kind(text(kind, "kind"))
        });
        Self {
            name: text(&policy["metadata"], "name").to_owned(),
            constraints: present(spec, "matchConstraints").map(Constraints::of_policy),
            conditions: MatchConditions::compile(spec, param_kind.is_some()),
            failure_policy: match text(spec, "failurePolicy") {
                "Ignore" => FailurePolicy::Ignore,
                _ => FailurePolicy::Fail,
            },
            param_kind,
        }
    }
}

/// A binding of a policy.
#[derive(Debug)]
pub(super) struct Binding {
    pub(super) name: String,
    pub(super) policy: String,
    /// Constraints beside those of the policy.
    pub(super) constraints: Option<Constraints>,
    pub(super) param_ref: Option<ParamRef>,
    /// Only bindings of validating policies have actions.
    pub(super) actions: Vec<Action>,
}

/// Consequence of a validation that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Deny,
    Warn,
    Audit,
}

impl Action {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Deny => "Deny",
            Self::Warn => "Warn",
            Self::Audit => "Audit",
        }
    }
}

/// A reference to parameters.
#[derive(Debug)]
pub(super) struct ParamRef {
    /// Empty if parameters are selected by labels.
    pub(super) name: String,
    /// Empty for the namespace of the request.
    pub(super) namespace: String,
    pub(super) selector: Result<Selector, String>,
    /// Requests are denied if there are no parameters.
    pub(super) denies_if_missing: bool,
}

impl Binding {
    pub(super) fn read(binding: &Value) -> Self {
        let spec = &binding["spec"];
        let actions = spec["validationActions"].as_array().into_iter().flatten();
        Self {
            name: text(&binding["metadata"], "name").to_owned(),
            policy: text(spec, "policyName").to_owned(),
            constraints: present(spec, "matchResources").map(Constraints::of_policy),
            param_ref: present(spec, "paramRef").map(|reference| ParamRef {
                name: text(reference, "name").to_owned(),
                namespace: text(reference, "namespace").to_owned(),
                selector: Selector::from_label_selector(&reference["selector"]),
                denies_if_missing: text(reference, "parameterNotFoundAction") == "Deny",
            }),
            actions: actions
                .filter_map(|action| match action.as_str()? {
                    "Deny" => Some(Action::Deny),
                    "Warn" => Some(Action::Warn),
                    "Audit" => Some(Action::Audit),
                    _ => None,
                })
                .collect(),
        }
    }
}

pub(super) fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn present<'a>(value: &'a Value, field: &str) -> Option<&'a Value> {
    value.get(field).filter(|found| !found.is_null())
}

pub(super) fn items<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}
