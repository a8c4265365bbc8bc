//! VolumeAttributesClass: mutable attributes of a volume.

use orlop_api::field_error::{FieldError, FieldPath};
use serde_json::Value;

use super::storage_class;
use crate::{
    BuiltinKind, StrategyFlags,
    accessors::{map, text},
    equality::semantically_equal,
    printer::{ColumnDefinition, PrinterColumns, age, name},
    strategy::Strategy,
};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    flags: StrategyFlags { returns_deleted_object: true, ..StrategyFlags::BUILTIN },
    columns: &COLUMNS,
    strategy: &VolumeAttributesClass,
    ..BuiltinKind::new("storage.k8s.io", "volumeattributesclasses")
};

pub(crate) struct VolumeAttributesClass;

impl Strategy for VolumeAttributesClass {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = storage_class::validate_provisioner(object, "driverName");
        if map(object, "/parameters").is_empty() {
            let detail = "must contain at least one key/value pair";
            errors.push(FieldError::required(&FieldPath::root("parameters"), detail));
        }
        errors.extend(storage_class::validate_parameters(object));
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        let none = Value::Null;
        let changed = ["driverName", "parameters"].into_iter().filter(|field| {
            !semantically_equal(object.get(field).unwrap_or(&none), old.get(field).unwrap_or(&none))
        });
        changed
            .map(|field| {
                let detail = format!("updates to {field} are forbidden.");
                FieldError::forbidden(&FieldPath::root(field), detail)
            })
            .collect()
    }
}

pub(crate) static COLUMNS: PrinterColumns = PrinterColumns {
    definitions: &[ColumnDefinition::NAME, ColumnDefinition::text("DriverName"), ColumnDefinition::AGE],
    cells: |object, now| vec![name(object), text(object, "/driverName").into(), age(object, now)],
};
