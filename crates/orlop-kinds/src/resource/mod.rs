//! Kinds of `resource.k8s.io`.

mod device_claim;
mod device_class;
mod device_expressions;
mod device_taint_rule;
mod resource_claim;
mod resource_claim_template;
mod resource_slice;

use crate::BuiltinKind;

pub(crate) const KINDS: &[BuiltinKind] = &[
    device_class::KIND,
    device_taint_rule::KIND,
    resource_claim::KIND,
    resource_claim_template::KIND,
    resource_slice::KIND,
];
