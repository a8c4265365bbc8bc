//! Kinds of `resource.k8s.io`.

mod binding_conditions;
mod claim_status;
mod counters;
mod device;
mod device_capacity;
mod device_claim;
mod device_class;
mod device_expressions;
mod device_taint_rule;
mod qualified_names;
mod resource_claim;
mod resource_claim_template;
mod resource_slice;

use crate::BuiltinKind;

const ATTRIBUTES_AND_CAPACITIES_MAX: usize = 32;
const ATTRIBUTE_TEXT_LENGTH_MAX: usize = 64;
const DRIVER_LENGTH_MAX: usize = 63;
const IDENTIFIER_LENGTH_MAX: usize = 32;

pub(crate) const KINDS: &[BuiltinKind] = &[
    device_class::KIND,
    device_taint_rule::KIND,
    resource_claim::KIND,
    resource_claim_template::KIND,
    resource_slice::KIND,
];
