//! Deployment: rolls out ReplicaSets.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    labels::Selector,
};
use serde_json::{Value, json};

use crate::{
    BuiltinKind, StrategyFlags,
    accessors::{integer, present, text},
    core::workload::{
        is_zero, set_rolling_update_defaults, set_template_defaults, template_warnings,
        validate_immutable_selector, validate_selector_and_template, validate_status_counts,
    },
    defaulting,
    printer::{ColumnDefinition, PrinterColumns, age, container_cells, name},
    strategy::{RequestContext, Strategy},
    update_scope::{UpdateScope, UpdateScopes},
    validation,
};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    flags: StrategyFlags { tracks_generation: true, ..StrategyFlags::BUILTIN },
    update_scopes: UPDATE_SCOPES,
    columns: &COLUMNS,
    strategy: &Deployment,
    ..BuiltinKind::new("apps", "deployments")
};

const UPDATE_SCOPES: UpdateScopes = &[("status", UpdateScope::without(&["/spec", "/metadata/labels"]))];

static COLUMNS: PrinterColumns = PrinterColumns {
    definitions: &[
        ColumnDefinition::NAME,
        ColumnDefinition::text("Ready"),
        ColumnDefinition::text("Up-to-date"),
        ColumnDefinition::text("Available"),
        ColumnDefinition::AGE,
        ColumnDefinition::wide("Containers"),
        ColumnDefinition::wide("Images"),
        ColumnDefinition::wide("Selector"),
    ],
    cells: |object, now| {
        let [names, images] = container_cells(object, "/spec/template/spec");
        let selector = object.pointer("/spec/selector").unwrap_or(&Value::Null);
        let selector =
            Selector::from_label_selector(selector).map_or("<invalid>".to_owned(), |s| s.to_string());
        vec![
            name(object),
            format!("{}/{}", integer(object, "/status/readyReplicas"), integer(object, "/spec/replicas"))
                .into(),
            integer(object, "/status/updatedReplicas").into(),
            integer(object, "/status/availableReplicas").into(),
            age(object, now),
            names,
            images,
            selector.into(),
        ]
    },
};

pub(crate) struct Deployment;

impl Strategy for Deployment {
    fn set_defaults(&self, object: &mut Value) {
        let Some(spec) = set_template_defaults(object) else { return };
        defaulting::set_if_absent(spec, "replicas", 1);
        set_rolling_update_defaults(
            spec,
            "strategy",
            &[("maxUnavailable", json!("25%")), ("maxSurge", json!("25%"))],
        );
        defaulting::set_if_absent(spec, "revisionHistoryLimit", 10);
        defaulting::set_if_absent(spec, "progressDeadlineSeconds", 600);
    }

    fn prepare_for_update(&self, object: &mut Value, old: &Value, _context: &RequestContext<'_>) {
        // The controller copies annotations to ReplicaSets, so their change bumps the generation.
        if object.pointer("/metadata/annotations") != old.pointer("/metadata/annotations") {
            object["metadata"]["generation"] = integer(old, "/metadata/generation").saturating_add(1).into();
        }
    }

    fn prepare_for_subresource_update(
        &self,
        subresource: &str,
        object: &mut Value,
        old: &Value,
        _context: &RequestContext<'_>,
    ) {
        // A status update may change annotations without bumping the generation.
        if subresource == "status" {
            object["metadata"]["generation"] = integer(old, "/metadata/generation").into();
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let (spec, path) = (object.get("spec").unwrap_or(&Value::Null), FieldPath::root("spec"));
        let mut errors: Vec<FieldError> =
            validation::validate_non_negative(spec, "replicas", &path).into_iter().collect();
        errors.extend(validate_selector_and_template(spec, &path, "deployment", "ReplicaSet"));
        errors.extend(validate_strategy(spec, &path.child("strategy")));
        errors.extend(validation::validate_non_negative(spec, "minReadySeconds", &path));
        errors.extend(validation::validate_non_negative(spec, "revisionHistoryLimit", &path));
        if let Some(seconds) = present(spec, "/progressDeadlineSeconds").and_then(Value::as_i64) {
            errors.extend(validation::validate_non_negative(spec, "progressDeadlineSeconds", &path));
            if seconds <= integer(spec, "/minReadySeconds") {
                let detail = "must be greater than minReadySeconds";
                errors.push(FieldError::invalid(&path.child("progressDeadlineSeconds"), seconds, detail));
            }
        }
        let fields =
            ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "unavailableReplicas"];
        errors.extend(validate_status_counts(
            object,
            &fields,
            &["updatedReplicas", "readyReplicas", "availableReplicas"],
        ));
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        validate_immutable_selector(object, old).into_iter().collect()
    }

    fn warnings_on_create(&self, object: &Value) -> Vec<String> {
        template_warnings(object)
    }
}

fn validate_strategy(spec: &Value, path: &FieldPath) -> Vec<FieldError> {
    let none = json!({});
    let strategy = spec.get("strategy").unwrap_or(&none);
    let rolling = present(strategy, "/rollingUpdate");
    let at = path.child("rollingUpdate");
    match (text(strategy, "/type"), rolling) {
        ("Recreate", Some(_)) => {
            vec![FieldError::forbidden(&at, "may not be specified when strategy `type` is 'Recreate'")]
        }
        ("Recreate", None) => Vec::new(),
        ("RollingUpdate", None) => {
            vec![FieldError::required(&at, "this should be defaulted and never be nil")]
        }
        ("RollingUpdate", Some(rolling)) => validate_rolling_update(rolling, &at),
        _ => vec![FieldError::not_supported(path, strategy.clone(), &["Recreate", "RollingUpdate"])],
    }
}

fn validate_rolling_update(rolling: &Value, path: &FieldPath) -> Vec<FieldError> {
    let unavailable = rolling.get("maxUnavailable").unwrap_or(&Value::Null);
    let at = path.child("maxUnavailable");
    let mut errors = validation::validate_int_or_percent(unavailable, &at);
    let surge = rolling.get("maxSurge").unwrap_or(&Value::Null);
    errors.extend(validation::validate_int_or_percent(surge, &path.child("maxSurge")));
    if is_zero(Some(unavailable)) && is_zero(Some(surge)) {
        errors.push(FieldError::invalid(&at, unavailable.clone(), "may not be 0 when `maxSurge` is 0"));
    }
    errors.extend(validation::validate_at_most_100_percent(unavailable, &at));
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{core::workload::tests::workload, printer::tests::row, validation::tests::messages};

    fn deployment() -> Value {
        let mut object = workload();
        Deployment.set_defaults(&mut object);
        object
    }

    #[test]
    fn deployment_defaults_are_set() {
        let object = deployment();
        let spec = &object["spec"];
        assert_eq!(spec["replicas"], 1);
        assert_eq!(
            spec["strategy"],
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}})
        );
        assert_eq!(spec["revisionHistoryLimit"], 10);
        assert_eq!(spec["progressDeadlineSeconds"], 600);
        assert_eq!(spec["template"]["spec"]["restartPolicy"], "Always");
        assert_eq!(spec["template"]["spec"].get("enableServiceLinks"), None);
        assert!(messages(Deployment.validate(&object)).is_empty());
    }

    #[test]
    fn invalid_numbers_and_strategies_are_rejected() {
        let mut object = deployment();
        object["spec"]["replicas"] = (-1).into();
        object["spec"]["progressDeadlineSeconds"] = 5.into();
        object["spec"]["minReadySeconds"] = 5.into();
        object["spec"]["strategy"]["rollingUpdate"] = json!({"maxUnavailable": 0, "maxSurge": "0%"});
        assert_eq!(
            messages(Deployment.validate(&object)),
            [
                "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
                "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0",
                "spec.progressDeadlineSeconds: Invalid value: 5: must be greater than minReadySeconds",
            ]
        );
        object = deployment();
        object["spec"]["strategy"]["type"] = "Recreate".into();
        assert_eq!(
            messages(Deployment.validate(&object)),
            [
                "spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'"
            ]
        );
        object["spec"]["strategy"] = json!({"type": "x"});
        assert_eq!(
            messages(Deployment.validate(&object)),
            [
                r#"spec.strategy: Unsupported value: {"type":"x"}: supported values: "Recreate", "RollingUpdate""#
            ]
        );
    }

    #[test]
    fn selector_is_immutable() {
        let mut changed = deployment();
        changed["spec"]["selector"]["matchLabels"]["a"] = "c".into();
        assert_eq!(
            messages(Deployment.validate_update(&changed, &deployment())),
            [r#"spec.selector: Invalid value: {"matchLabels":{"a":"c"}}: field is immutable"#]
        );
    }

    #[test]
    fn row_counts_replicas() {
        let mut object = deployment();
        object["status"] = json!({"readyReplicas": 1, "updatedReplicas": 2, "availableReplicas": 1});
        let expected = json!(["w", "1/1", 2, 1, "<unknown>", "c", "x:1", "a=b"]);
        assert_eq!(row(&COLUMNS, &object), expected.as_array().unwrap()[..]);
    }
}
