//! HorizontalPodAutoscaler, served as v1 and v2.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    group_version::GroupVersion,
    names, object_meta,
};
use serde_json::{Value, json};

use super::{
    conversion::{self, METRICS},
    metrics,
};
use crate::{
    BuiltinKind, StrategyFlags,
    accessors::{integer, list, present, text},
    defaulting,
    printer::{ColumnDefinition, PrinterColumns, age, name},
    quantities::canonical_text,
    strategy::Strategy,
    validation,
};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    flags: StrategyFlags { tracks_generation: true, ..StrategyFlags::BUILTIN },
    columns: &COLUMNS,
    strategy: &HorizontalPodAutoscaler,
    conversion: Some(&conversion::V1),
    ..BuiltinKind::new("autoscaling", "horizontalpodautoscalers")
};

/// Metrics that a row shows.
const SHOWN_MAX: usize = 2;
const STABILIZATION_SECONDS_MAX: i64 = 3600;
const PERIOD_SECONDS_MAX: i64 = 1800;

static COLUMNS: PrinterColumns = PrinterColumns {
    definitions: &[
        ColumnDefinition::NAME,
        ColumnDefinition::text("Reference"),
        ColumnDefinition::text("Targets"),
        ColumnDefinition::text("MinPods"),
        ColumnDefinition::text("MaxPods"),
        ColumnDefinition::text("Replicas"),
        ColumnDefinition::AGE,
    ],
    cells: |object, now| {
        let target = |field: &str| text(object, &format!("/spec/scaleTargetRef/{field}"));
        let least =
            present(object, "/spec/minReplicas").map_or_else(|| "<unset>".to_owned(), Value::to_string);
        vec![
            name(object),
            format!("{}/{}", target("kind"), target("name")).into(),
            metrics_cell(object).into(),
            least.into(),
            integer(object, "/spec/maxReplicas").into(),
            integer(object, "/status/currentReplicas").into(),
            age(object, now),
        ]
    },
};

fn metrics_cell(object: &Value) -> String {
    let share = |value: Option<&Value>, none: &str| {
        value.map_or_else(|| none.to_owned(), |share| format!("{share}%"))
    };
    // v1 has one metric.
    if let Some(target) = present(object, "/spec/targetCPUUtilizationPercentage") {
        let current = share(present(object, "/status/currentCPUUtilizationPercentage"), "<unknown>");
        return format!("cpu: {current}/{target}%");
    }
    let statuses = list(object, "/status/currentMetrics");
    let specs = list(object, "/spec/metrics");
    let metrics: Vec<String> =
        specs.iter().enumerate().map(|(index, spec)| metric_text(spec, statuses.get(index))).collect();
    match metrics.len() {
        0 => "<none>".to_owned(),
        count if count > SHOWN_MAX => {
            format!("{} + {} more...", metrics[..SHOWN_MAX].join(", "), count - SHOWN_MAX)
        }
        _ => metrics.join(", "),
    }
}

fn metric_text(spec: &Value, status: Option<&Value>) -> String {
    let field = match text(spec, "/type") {
        "External" => "external",
        "Pods" => "pods",
        "Object" => "object",
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        _ => return "<unknown type>".to_owned(),
    };
    let status = status.and_then(|status| present(status, &format!("/{field}")));
    let target = |part: &str| present(spec, &format!("/{field}/target/{part}"));
    let current = |part: &str| status.and_then(|status| present(status, &format!("/current/{part}")));
    let amount = |part: &str| match (status, current(part)) {
        (None, _) => "<unknown>".to_owned(),
        (Some(_), amount) => canonical_text(amount),
    };
    let prefix = match field {
        "resource" | "containerResource" => format!("{}: ", text(spec, &format!("/{field}/name"))),
        _ => String::new(),
    };
    match (target("averageValue"), field) {
        (Some(wanted), "external" | "object") => {
            let known = current("averageValue")
                .map_or_else(|| "<unknown>".to_owned(), |amount| canonical_text(Some(amount)));
            format!("{known}/{} (avg)", canonical_text(Some(wanted)))
        }
        (Some(wanted), _) => format!("{prefix}{}/{}", amount("averageValue"), canonical_text(Some(wanted))),
        (None, "resource" | "containerResource") => {
            let percent = |value: Option<&Value>, none: &str| {
                value.map_or_else(|| none.to_owned(), |share| format!("{share}%"))
            };
            let current = percent(current("averageUtilization"), "<unknown>");
            format!("{prefix}{current}/{}", percent(target("averageUtilization"), "<auto>"))
        }
        (None, "pods") => format!("{}/0", amount("averageValue")),
        (None, _) => format!("{}/{}", amount("value"), canonical_text(target("value"))),
    }
}

pub(crate) struct HorizontalPodAutoscaler;

impl Strategy for HorizontalPodAutoscaler {
    fn set_defaults(&self, object: &mut Value) {
        let second = text(object, "/apiVersion") != "autoscaling/v1";
        // v1 has a field for one metric, and an annotation for others.
        let kept_aside = object_meta::of(object)
            .get("annotations")
            .is_some_and(|annotations| annotations.get(METRICS).is_some());
        let Some(spec) = defaulting::object_mut(object, "spec") else { return };
        defaulting::set_if_absent(spec, "minReplicas", 1);
        if second && list(spec, "/metrics").is_empty() {
            spec["metrics"] = json!([{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}]);
        }
        if !second && !kept_aside {
            defaulting::set_if_absent(spec, "targetCPUUtilizationPercentage", 80);
        }
        if let Some(behavior) = defaulting::object_mut(spec, "behavior") {
            let pods = json!({"type": "Pods", "value": 4, "periodSeconds": 15});
            let percent = json!({"type": "Percent", "value": 100, "periodSeconds": 15});
            defaulting::set_if_absent(behavior, "scaleUp", json!({}));
            defaulting::set_if_absent(behavior, "scaleDown", json!({}));
            if let Some(up) = defaulting::object_mut(behavior, "scaleUp") {
                defaulting::set_if_absent(up, "stabilizationWindowSeconds", 0);
                defaulting::set_if_absent(up, "selectPolicy", "Max");
                defaulting::set_if_absent(up, "policies", json!([pods, percent]));
            }
            if let Some(down) = defaulting::object_mut(behavior, "scaleDown") {
                defaulting::set_if_absent(down, "selectPolicy", "Max");
                defaulting::set_if_absent(down, "policies", json!([percent]));
            }
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let (spec, path) = (object.get("spec").unwrap_or(&Value::Null), FieldPath::root("spec"));
        let mut errors = validate_replica_bounds(spec, &path);
        errors.extend(validate_scale_target(spec, &path.child("scaleTargetRef")));
        errors.extend(validation::validate_items(spec, "metrics", &path, metrics::validate));
        let scales_from_zero = |metric: &Value| matches!(text(metric, "/type"), "Object" | "External");
        if present(spec, "/minReplicas").and_then(Value::as_i64) == Some(0)
            && !list(spec, "/metrics").iter().any(scales_from_zero)
        {
            let detail =
                "must specify at least one Object or External metric to support scaling to zero replicas";
            errors.push(FieldError::forbidden(&path.child("metrics"), detail));
        }
        for direction in ["scaleUp", "scaleDown"] {
            if let Some(rules) = present(spec, &format!("/behavior/{direction}")) {
                errors.extend(validate_scaling_rules(rules, &path.child("behavior").child(direction)));
            }
        }
        errors
    }
}

fn validate_replica_bounds(spec: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let least = present(spec, "/minReplicas").and_then(Value::as_i64);
    if let Some(least) = least.filter(|least| *least < 0) {
        errors.push(FieldError::invalid(
            &path.child("minReplicas"),
            least,
            "must be greater than or equal to 0",
        ));
    }
    let (most, at) = (integer(spec, "/maxReplicas"), path.child("maxReplicas"));
    match most {
        0 => errors.push(FieldError::required(&at, "").declaratively()),
        ..0 => {
            let detail = "must be greater than or equal to 1";
            errors.push(FieldError::invalid(&at, most, detail).declaratively());
        }
        _ => {}
    }
    if least.is_some_and(|least| most < least) {
        errors.push(FieldError::invalid(&at, most, "must be greater than or equal to `minReplicas`"));
    }
    errors
}

fn validate_scale_target(spec: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for field in ["kind", "name"] {
        match text(spec, &format!("/scaleTargetRef/{field}")) {
            "" => errors.push(FieldError::required(&path.child(field), "")),
            given => errors.extend(validation::invalid_for_each(
                &path.child(field),
                given,
                names::path_segment(given),
            )),
        }
    }
    let version = text(spec, "/scaleTargetRef/apiVersion");
    if GroupVersion::parse(version).is_err() {
        let detail = format!("unexpected GroupVersion string: {version}");
        errors.push(FieldError::invalid(&path.child("apiVersion"), version, detail));
    } else if !version.contains('/') && text(spec, "/scaleTargetRef/kind") != "ReplicationController" {
        let detail = "apiVersion must specify API group";
        errors.push(FieldError::invalid(&path.child("apiVersion"), version, detail));
    }
    errors
}

fn validate_scaling_rules(rules: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let Some(seconds) = present(rules, "/stabilizationWindowSeconds").and_then(Value::as_i64) {
        let at = path.child("stabilizationWindowSeconds");
        if seconds < 0 {
            errors.push(FieldError::invalid(&at, seconds, "must be greater than or equal to zero"));
        } else if seconds > STABILIZATION_SECONDS_MAX {
            let detail = format!("must be less than or equal to {STABILIZATION_SECONDS_MAX}");
            errors.push(FieldError::invalid(&at, seconds, detail));
        }
    }
    errors.extend(validation::validate_supported(rules, "selectPolicy", path, &["Disabled", "Max", "Min"]));
    if list(rules, "/policies").is_empty() {
        errors.push(FieldError::required(&path.child("policies"), "must specify at least one Policy"));
    }
    errors.extend(validation::validate_items(rules, "policies", path, |policy, path| {
        let mut errors: Vec<FieldError> =
            validation::validate_supported(policy, "type", path, &["Percent", "Pods"]).into_iter().collect();
        for field in ["value", "periodSeconds"] {
            let number = policy.get(field).and_then(Value::as_i64).unwrap_or_default();
            if number <= 0 {
                errors.push(FieldError::invalid(&path.child(field), number, "must be greater than zero"));
            } else if field == "periodSeconds" && number > PERIOD_SECONDS_MAX {
                let detail = format!("must be less than or equal to {PERIOD_SECONDS_MAX}");
                errors.push(FieldError::invalid(&path.child(field), number, detail));
            }
        }
        errors
    }));
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{printer::tests::row, validation::tests::messages};

    #[test]
    fn autoscaler_defaults_are_set() {
        let mut object = json!({"apiVersion": "autoscaling/v2", "spec": {"maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}, "behavior": {}}});
        HorizontalPodAutoscaler.set_defaults(&mut object);
        assert_eq!(object["spec"]["minReplicas"], 1);
        assert_eq!(object["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 80);
        assert_eq!(
            object["spec"]["behavior"]["scaleDown"],
            json!({"selectPolicy": "Max", "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]})
        );
        assert!(messages(HorizontalPodAutoscaler.validate(&object)).is_empty());
        let mut old = json!({"apiVersion": "autoscaling/v1", "spec": {}});
        HorizontalPodAutoscaler.set_defaults(&mut old);
        assert_eq!(old["spec"], json!({"minReplicas": 1, "targetCPUUtilizationPercentage": 80}));
        let annotations = json!({"autoscaling.alpha.kubernetes.io/metrics": "[]"});
        let mut old =
            json!({"apiVersion": "autoscaling/v1", "metadata": {"annotations": annotations}, "spec": {}});
        HorizontalPodAutoscaler.set_defaults(&mut old);
        assert_eq!(old["spec"], json!({"minReplicas": 1}));
    }

    #[test]
    fn invalid_bounds_targets_and_metrics_are_rejected() {
        assert_eq!(
            messages(HorizontalPodAutoscaler.validate(&json!({"spec": {"minReplicas": 0, "metrics": [{"type": "x"}, {"type": "Resource", "pods": {}}], "behavior": {"scaleUp": {"selectPolicy": "x"}}}}))),
            [
                "spec.maxReplicas: Required value",
                "spec.scaleTargetRef.kind: Required value",
                "spec.scaleTargetRef.name: Required value",
                r#"spec.scaleTargetRef.apiVersion: Invalid value: "": apiVersion must specify API group"#,
                r#"spec.metrics[0].type: Unsupported value: "x": supported values: "ContainerResource", "External", "Object", "Pods", "Resource""#,
                "spec.metrics[1].resource: Required value: must populate information for the given metric source",
                "spec.metrics[1].pods: Forbidden: must populate the given metric source only",
                "spec.metrics: Forbidden: must specify at least one Object or External metric to support scaling to zero \
                 replicas",
                r#"spec.behavior.scaleUp.selectPolicy: Unsupported value: "x": supported values: "Disabled", "Max", "Min""#,
                "spec.behavior.scaleUp.policies: Required value: must specify at least one Policy",
            ]
        );
    }

    #[test]
    fn row_shows_targets() {
        let resource = |status: Value| {
            json!({"metadata": {"name": "h"}, "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "d"}, "minReplicas": 1, "maxReplicas": 3,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 80}}}]}, "status": status})
        };
        let expected = json!(["h", "Deployment/d", "cpu: <unknown>/80%", "1", 3, 0, "<unknown>"]);
        assert_eq!(row(&COLUMNS, &resource(json!({}))), expected.as_array().unwrap()[..]);
        let known = resource(
            json!({"currentReplicas": 2, "currentMetrics": [{"resource": {"current": {"averageUtilization": 50}}}]}),
        );
        assert_eq!(row(&COLUMNS, &known)[2], "cpu: 50%/80%");
        let old = json!({"spec": {"targetCPUUtilizationPercentage": 70}, "status": {"currentCPUUtilizationPercentage": 10}});
        assert_eq!(row(&COLUMNS, &old)[2], "cpu: 10%/70%");
        let external = json!({"spec": {"metrics": [{"type": "External", "external": {"target": {"averageValue": "5"}}}, {"type": "Pods", "pods": {"target": {"averageValue": "1"}}}, {"type": "?"}]}});
        assert_eq!(row(&COLUMNS, &external)[2], "<unknown>/5 (avg), <unknown>/1 + 1 more...");
        assert_eq!(row(&COLUMNS, &json!({}))[2], "<none>");
    }
}
