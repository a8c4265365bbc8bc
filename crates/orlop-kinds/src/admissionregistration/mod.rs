//! Kinds of `admissionregistration.k8s.io`.

mod admission_policy;
mod match_conditions;
mod match_rules;
mod mutating_admission_policy;
mod mutating_admission_policy_binding;
mod mutating_webhook_configuration;
mod policy_binding;
mod policy_expressions;
mod static_names;
mod validating_admission_policy;
mod validating_admission_policy_binding;
mod validating_webhook_configuration;
pub(crate) mod virtual_resources;
mod webhook_configuration;

use crate::BuiltinKind;

pub(crate) const KINDS: &[BuiltinKind] = &[
    mutating_admission_policy::KIND,
    mutating_admission_policy_binding::KIND,
    mutating_webhook_configuration::KIND,
    validating_admission_policy::KIND,
    validating_admission_policy_binding::KIND,
    validating_webhook_configuration::KIND,
];
