//! DeviceTaintRule: a taint on devices that match a selector.

use orlop_api::field_error::{FieldError, FieldPath};
use serde_json::Value;

use super::{device, qualified_names::validate_pool_name};
use crate::{
    BuiltinKind, StrategyFlags,
    accessors::{list, text, time},
    printer::{ColumnDefinition, PrinterColumns, age, format_age, name},
    storage::csi_driver::validate_driver_name,
    strategy::Strategy,
    update_scope::STATUS_WITHOUT_METADATA,
    validation::{conditions::validate_conditions, validate_dns_label},
};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    flags: StrategyFlags { tracks_generation: true, ..StrategyFlags::BUILTIN },
    update_scopes: STATUS_WITHOUT_METADATA,
    columns: &COLUMNS,
    strategy: &DeviceTaintRule,
    ..BuiltinKind::new("resource.k8s.io", "devicetaintrules")
};

const CONDITIONS_MAX: usize = 8;

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
        errors.extend(device::validate_taint(&object["spec"]["taint"], &spec.child("taint")));
        errors
    }

    fn validate_subresource_update(&self, _: &str, object: &Value, _: &Value) -> Vec<FieldError> {
        let conditions = list(object, "/status/conditions");
        let path = FieldPath::root("status").child("conditions");
        let mut errors = validate_conditions(conditions, &path);
        if conditions.len() > CONDITIONS_MAX {
            errors.push(FieldError::too_many(&path, conditions.len(), CONDITIONS_MAX));
        }
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
    fn status_has_few_complete_conditions() {
        let condition = |kind: String| {
            json!({"type": kind, "status": "True", "reason": "R",
            "lastTransitionTime": "2026-01-01T00:00:00Z"})
        };
        let errors = |count: usize| {
            let conditions: Vec<Value> = (0..count).map(|index| condition(format!("c{index}"))).collect();
            let object = json!({"status": {"conditions": conditions}});
            messages(DeviceTaintRule.validate_subresource_update("status", &object, &object))
        };
        assert!(errors(8).is_empty());
        assert_eq!(errors(9), ["status.conditions: Too many: 9: must have at most 8 items"]);
    }

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
