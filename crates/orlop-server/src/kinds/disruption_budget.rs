//! Pod disruption budgets: how many pods may be missing at once.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    labels,
};
use serde_json::Value;

use super::{
    check,
    columns::{Heading, Table, name},
    read::{bare, integer, present},
};
use crate::{
    registry::Hooks,
    table::{Columns, age},
};

static TABLE: Table = Table {
    headings: &[
        Heading::NAME,
        Heading::text("Min Available"),
        Heading::text("Max Unavailable"),
        Heading::integer("Allowed Disruptions"),
        Heading::AGE,
    ],
    cells: |object, now| {
        let share = |pointer: &str| {
            present(object, pointer).map_or_else(|| "N/A".to_owned(), |share| bare(Some(share)))
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

pub(super) struct PodDisruptionBudget;

impl Hooks for PodDisruptionBudget {
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
                errors.extend(check::count_or_percentage(share, &path.child(field)));
                errors.extend(check::at_most_all(share, &path.child(field)));
            }
        }
        if let Some(selector) = present(spec, "/selector") {
            errors.extend(labels::validate_label_selector(selector, &path.child("selector")));
        }
        let policies = &["AlwaysAllow", "IfHealthyBudget"];
        errors.extend(check::supported(spec, "unhealthyPodEvictionPolicy", &path, policies));
        if let Some(status) = object.get("status") {
            let path = FieldPath::root("status");
            for field in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
                errors.extend(check::not_negative(status, field, &path));
            }
        }
        errors
    }

    fn columns(&self) -> Option<&dyn Columns> {
        Some(&TABLE)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::check::tests::told, super::columns::tests::row, *};

    #[test]
    fn a_budget_is_one_count_or_share() {
        let refused = |spec: Value| told(PodDisruptionBudget.validate(&json!({"spec": spec})));
        assert!(refused(json!({"minAvailable": 1, "selector": {}})).is_empty());
        assert_eq!(
            refused(json!({"minAvailable": -1, "maxUnavailable": "101%"})),
            [
                r#"spec: Invalid value: {"maxUnavailable":"101%","minAvailable":-1}: minAvailable and maxUnavailable cannot be both set"#,
                "spec.minAvailable: Invalid value: -1: must be greater than or equal to 0",
                r#"spec.maxUnavailable: Invalid value: "101%": must not be greater than 100%"#,
            ]
        );
        assert_eq!(
            refused(json!({"unhealthyPodEvictionPolicy": "x"})),
            [
                r#"spec.unhealthyPodEvictionPolicy: Unsupported value: "x": supported values: "AlwaysAllow", "IfHealthyBudget""#
            ]
        );
        let budget = json!({"metadata": {"name": "b"}, "spec": {"maxUnavailable": "25%"}, "status": {"disruptionsAllowed": 2}});
        assert_eq!(row(&TABLE, &budget), json!(["b", "N/A", "25%", 2, "<unknown>"]).as_array().unwrap()[..]);
    }
}
