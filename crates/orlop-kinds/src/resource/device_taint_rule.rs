//! DeviceTaintRule: a taint on devices that match a selector.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    names,
};
use serde_json::Value;

use super::{device_claim::TAINT_EFFECTS, resource_slice::validate_pool_name};
use crate::{
    BuiltinKind, StrategyFlags,
    accessors::{text, time},
    printer::{ColumnDefinition, PrinterColumns, age, format_age, name},
    storage::csi_driver::validate_driver_name,
    strategy::Strategy,
    update_scope::STATUS_WITHOUT_METADATA,
    validation::{invalid_for_each, require_supported, validate_dns_label},
};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    flags: StrategyFlags { returns_deleted_object: true, tracks_generation: true, ..StrategyFlags::BUILTIN },
    update_scopes: STATUS_WITHOUT_METADATA,
    columns: &COLUMNS,
    strategy: &DeviceTaintRule,
    ..BuiltinKind::new("resource.k8s.io", "devicetaintrules")
};

pub(crate) struct DeviceTaintRule;

impl Strategy for DeviceTaintRule {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let spec = FieldPath::root("spec");
        let (selector, path) = (&object["spec"]["deviceSelector"], spec.child("deviceSelector"));
        let given = |field: &str| selector.get(field).and_then(Value::as_str);
        let mut errors = Vec::new();
        match given("driver") {
            None => {}
            Some("") => errors.push(FieldError::required(&path.child("driver"), "")),
            Some(driver) => errors.extend(validate_driver_name(driver, &path.child("driver"))),
        }
        if let Some(pool) = given("pool") {
            errors.extend(validate_pool_name(pool, &path.child("pool")));
        }
        if let Some(device) = given("device") {
            errors.extend(validate_dns_label(device, &path.child("device")));
        }
        let (taint, path) = (&object["spec"]["taint"], spec.child("taint"));
        let (key, value) = (text(taint, "/key"), text(taint, "/value"));
        errors.extend(invalid_for_each(&path.child("key"), key, names::qualified_name(key)));
        errors.extend(invalid_for_each(&path.child("value"), value, names::label_value(value)));
        errors.extend(require_supported(taint, "effect", &path, TAINT_EFFECTS));
        errors
    }
}

pub(crate) static COLUMNS: PrinterColumns = PrinterColumns {
    definitions: &[
        ColumnDefinition::NAME,
        ColumnDefinition::text("Key"),
        ColumnDefinition::text("Value"),
        ColumnDefinition::text("Effect"),
        ColumnDefinition::text("TimeAdded"),
        ColumnDefinition::AGE,
    ],
    cells: |object, now| {
        let field = |pointer| text(object, pointer).into();
        let added = time(object, "/spec/taint/timeAdded")
            .map_or_else(String::new, |then| format_age(Some(then), now));
        vec![
            name(object),
            field("/spec/taint/key"),
            field("/spec/taint/value"),
            field("/spec/taint/effect"),
            added.into(),
            age(object, now),
        ]
    },
};

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validation::tests::messages;

    #[test]
    fn rules_are_validated() {
        let rule = |selector: Value, taint: Value| {
            messages(DeviceTaintRule.validate(&json!({"spec": {"deviceSelector": selector, "taint": taint}})))
        };
        let taint = json!({"key": "a.b/c", "effect": "NoExecute"});
        assert!(rule(Value::Null, taint.clone()).is_empty());
        assert!(rule(json!({"driver": "a.b", "pool": "p/q", "device": "d"}), taint).is_empty());
        assert_eq!(
            rule(json!({"driver": "", "pool": ""}), json!({"key": "k", "effect": "Odd"})),
            [
                "spec.deviceSelector.driver: Required value",
                "spec.deviceSelector.pool: Required value",
                "spec.taint.effect: Unsupported value: \"Odd\": supported values: \"NoExecute\", \"NoSchedule\", \"None\"",
            ]
        );
    }
}
