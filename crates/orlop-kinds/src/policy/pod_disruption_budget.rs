//! PodDisruptionBudget: limits voluntary disruptions.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    labels,
    names::NameRule,
};
use serde_json::Value;

use crate::{
    BuiltinKind, StrategyFlags,
    accessors::{integer, present, scalar_text},
    printer::{ColumnDefinition, PrinterColumns, age, name},
    strategy::Strategy,
    validation,
};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    name_rule: NameRule::PathSegment,
    flags: StrategyFlags {
        allow_unconditional_update: false,
        qualified_finalizers: false,
        tracks_generation: true,
        ..StrategyFlags::BUILTIN
    },
    columns: &COLUMNS,
    strategy: &PodDisruptionBudget,
    ..BuiltinKind::new("policy", "poddisruptionbudgets")
};

static COLUMNS: PrinterColumns = PrinterColumns {
    definitions: &[
        ColumnDefinition::NAME,
        ColumnDefinition::text("Min Available"),
        ColumnDefinition::text("Max Unavailable"),
        ColumnDefinition::integer("Allowed Disruptions"),
        ColumnDefinition::AGE,
    ],
    cells: |object, now| {
        let share = |pointer: &str| {
            present(object, pointer).map_or_else(|| "N/A".to_owned(), |share| scalar_text(Some(share)))
        };
        vec![
            name(object),
            share("/spec/minAvailable").into(),
            share("/spec/maxUnavailable").into(),
            integer(object, "/status/disruptionsAllowed").into(),
            age(object, now),
        ]
    },
};

pub(crate) struct PodDisruptionBudget;

impl Strategy for PodDisruptionBudget {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let path = FieldPath::root("spec");
        let spec = object.get("spec").unwrap_or(&Value::Null);
        let mut errors = Vec::new();
        if present(spec, "/minAvailable").is_some() && present(spec, "/maxUnavailable").is_some() {
            let detail = "minAvailable and maxUnavailable cannot be both set";
            errors.push(FieldError::invalid(&path, spec.clone(), detail));
        }
        for field in ["minAvailable", "maxUnavailable"] {
            if let Some(share) = present(spec, &format!("/{field}")) {
                errors.extend(validation::validate_int_or_percent(share, &path.child(field)));
                errors.extend(validation::validate_at_most_100_percent(share, &path.child(field)));
            }
        }
        if let Some(selector) = present(spec, "/selector") {
            errors.extend(labels::validate_label_selector(selector, &path.child("selector")));
        }
        let policies = &["AlwaysAllow", "IfHealthyBudget"];
        errors.extend(validation::validate_supported(spec, "unhealthyPodEvictionPolicy", &path, policies));
        if let Some(status) = object.get("status") {
            let path = FieldPath::root("status");
            for field in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
                errors.extend(validation::validate_non_negative(status, field, &path));
            }
        }
        errors
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{printer::tests::row, validation::tests::messages};

    #[test]
    fn budget_takes_one_of_min_available_and_max_unavailable() {
        let validation_errors = |spec: Value| messages(PodDisruptionBudget.validate(&json!({"spec": spec})));
        assert!(validation_errors(json!({"minAvailable": 1, "selector": {}})).is_empty());
        assert_eq!(
            validation_errors(json!({"minAvailable": -1, "maxUnavailable": "101%"})),
            [
                r#"spec: Invalid value: {"maxUnavailable":"101%","minAvailable":-1}: minAvailable and maxUnavailable cannot be both set"#,
                "spec.minAvailable: Invalid value: -1: must be greater than or equal to 0",
                r#"spec.maxUnavailable: Invalid value: "101%": must not be greater than 100%"#,
            ]
        );
        assert_eq!(
            validation_errors(json!({"unhealthyPodEvictionPolicy": "x"})),
            [
                r#"spec.unhealthyPodEvictionPolicy: Unsupported value: "x": supported values: "AlwaysAllow", "IfHealthyBudget""#
            ]
        );
        let budget = json!({"metadata": {"name": "b"}, "spec": {"maxUnavailable": "25%"}, "status": {"disruptionsAllowed": 2}});
        assert_eq!(
            row(&COLUMNS, &budget),
            json!(["b", "N/A", "25%", 2, "<unknown>"]).as_array().unwrap()[..]
        );
    }
}
