//! CSINode: the CSI drivers of a node.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    names,
    object_meta::IMMUTABLE,
};
use serde_json::Value;

use super::csi_driver::validate_driver_name;
use crate::{
    BuiltinKind, StrategyFlags,
    accessors::{list, mark_repeated, present, text},
    equality::semantically_equal,
    printer::{ColumnDefinition, PrinterColumns, age, name},
    strategy::Strategy,
    update_scope::STATUS_WITHOUT_METADATA,
    validation,
};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    flags: StrategyFlags {
        allow_unconditional_update: false,
        returns_deleted_object: true,
        ..StrategyFlags::BUILTIN
    },
    update_scopes: STATUS_WITHOUT_METADATA,
    columns: &COLUMNS,
    strategy: &CsiNode,
    ..BuiltinKind::new("storage.k8s.io", "csinodes")
};

pub(crate) static COLUMNS: PrinterColumns = PrinterColumns {
    definitions: &[ColumnDefinition::NAME, ColumnDefinition::integer("Drivers"), ColumnDefinition::AGE],
    cells: |object, now| vec![name(object), list(object, "/spec/drivers").len().into(), age(object, now)],
};

const NODE_ID_MAX: usize = 256;

pub(crate) struct CsiNode;

impl Strategy for CsiNode {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let drivers = list(object, "/spec/drivers");
        let path = FieldPath::root("spec").child("drivers");
        let repeated = mark_repeated(drivers, |driver| text(driver, "/name"));
        let mut errors = Vec::new();
        for ((index, driver), repeated) in drivers.iter().enumerate().zip(repeated) {
            let path = path.index(index);
            errors.extend(validate_driver_name(text(driver, "/name"), &path.child("name")));
            match text(driver, "/nodeID") {
                "" => errors.push(FieldError::required(&path.child("nodeID"), "")),
                id if id.len() > NODE_ID_MAX => {
                    let detail = format!("must be {NODE_ID_MAX} characters or less");
                    errors.push(FieldError::invalid(&path.child("nodeID"), id, detail));
                }
                _ => {}
            }
            if let Some(allocatable) = present(driver, "/allocatable") {
                errors.extend(validation::validate_non_negative(
                    allocatable,
                    "count",
                    &path.child("allocatable"),
                ));
            }
            errors.extend(validate_topology_keys(driver, &path));
            if repeated {
                errors.push(FieldError::duplicate(&path.child("name"), text(driver, "/name")));
            }
        }
        errors
    }

    /// Drivers may be added and removed; those that remain are immutable.
    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        let before = list(old, "/spec/drivers");
        let changed = list(object, "/spec/drivers").iter().filter(|driver| {
            let known = before.iter().find(|before| text(before, "/name") == text(driver, "/name"));
            known.is_some_and(|known| !semantically_equal(driver, known))
        });
        let path = FieldPath::root("spec").child("drivers");
        changed.map(|driver| FieldError::invalid(&path, driver.clone(), IMMUTABLE)).collect()
    }
}

fn validate_topology_keys(driver: &Value, path: &FieldPath) -> Vec<FieldError> {
    let keys = list(driver, "/topologyKeys");
    let repeated = mark_repeated(keys, Value::as_str);
    let mut errors = Vec::new();
    for (key, repeated) in keys.iter().map(|key| key.as_str().unwrap_or_default()).zip(repeated) {
        if repeated {
            errors.push(FieldError::duplicate(path, key));
        }
        if key.is_empty() {
            errors.push(FieldError::required(path, ""));
        }
        errors.extend(validation::invalid_for_each(path, key, names::qualified_name(key)));
    }
    errors
}
