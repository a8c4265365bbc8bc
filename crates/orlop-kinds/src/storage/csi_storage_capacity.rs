//! CSIStorageCapacity: the capacity of a storage class in a topology segment.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    labels::validate_label_selector,
};
use serde_json::Value;

use crate::{
    BuiltinKind, StrategyFlags,
    accessors::{present, text},
    quantities,
    strategy::Strategy,
    validation,
};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    flags: StrategyFlags { allow_unconditional_update: false, ..StrategyFlags::BUILTIN },
    strategy: &CsiStorageCapacity,
    ..BuiltinKind::new("storage.k8s.io", "csistoragecapacities")
};

pub(crate) struct CsiStorageCapacity;

impl Strategy for CsiStorageCapacity {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if let Some(topology) = present(object, "/nodeTopology") {
            errors.extend(validate_label_selector(topology, &FieldPath::root("nodeTopology")));
        }
        let class = text(object, "/storageClassName");
        errors.extend(validation::validate_dns_subdomain(class, &FieldPath::root("storageClassName")));
        let capacity = present(object, "/capacity");
        errors.extend(
            capacity
                .and_then(|amount| quantities::validate_non_negative(amount, &FieldPath::root("capacity"))),
        );
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        let root = FieldPath::nil();
        let kept = ["nodeTopology", "storageClassName"];
        kept.iter().filter_map(|field| validation::validate_immutable(object, old, field, &root)).collect()
    }
}
