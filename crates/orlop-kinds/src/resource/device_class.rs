//! DeviceClass: a selection of devices with configuration.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    names::NameRule,
};
use serde_json::Value;

use super::device_claim::validate_class;
use crate::{BuiltinKind, StrategyFlags, printer::NAME_AND_AGE, strategy::Strategy};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    flags: StrategyFlags { returns_deleted_object: true, tracks_generation: true, ..StrategyFlags::BUILTIN },
    name_rule: NameRule::LongName,
    columns: &NAME_AND_AGE,
    strategy: &DeviceClass,
    ..BuiltinKind::new("resource.k8s.io", "deviceclasses")
};

pub(crate) struct DeviceClass;

impl Strategy for DeviceClass {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        validate_class(object.get("spec").unwrap_or(&Value::Null), &FieldPath::root("spec"))
    }
}
