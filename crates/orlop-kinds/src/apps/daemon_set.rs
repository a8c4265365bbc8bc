//! DaemonSet: one pod per node.

use orlop_api::field_error::{FieldError, FieldPath};
use serde_json::{Value, json};

use crate::{
    BuiltinKind, StrategyFlags,
    accessors::{annotation, integer, map, present, text},
    core::workload::{
        is_zero, set_rolling_update_defaults, set_template_defaults, template_warnings,
        validate_immutable_selector, validate_selector_and_template, validate_status_counts,
    },
    defaulting,
    printer::{ColumnDefinition, PrinterColumns, age, container_cells, format_labels, format_selector, name},
    strategy::{RequestContext, Strategy},
    validation,
};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    flags: StrategyFlags { tracks_generation: true, ..StrategyFlags::BUILTIN },
    columns: &COLUMNS,
    strategy: &DaemonSet,
    ..BuiltinKind::new("apps", "daemonsets")
};

static COLUMNS: PrinterColumns = PrinterColumns {
    definitions: &[
        ColumnDefinition::NAME,
        ColumnDefinition::integer("Desired"),
        ColumnDefinition::integer("Current"),
        ColumnDefinition::integer("Ready"),
        ColumnDefinition::integer("Up-to-date"),
        ColumnDefinition::integer("Available"),
        ColumnDefinition::text("Node Selector"),
        ColumnDefinition::AGE,
        ColumnDefinition::wide("Containers"),
        ColumnDefinition::wide("Images"),
        ColumnDefinition::wide("Selector"),
    ],
    cells: |object, now| {
        let [names, images] = container_cells(object, "/spec/template/spec");
        let count = |field: &str| integer(object, &format!("/status/{field}")).into();
        vec![
            name(object),
            count("desiredNumberScheduled"),
            count("currentNumberScheduled"),
            count("numberReady"),
            count("updatedNumberScheduled"),
            count("numberAvailable"),
            format_labels(map(object, "/spec/template/spec/nodeSelector")),
            age(object, now),
            names,
            images,
            format_selector(object.pointer("/spec/selector")),
        ]
    },
};

pub(crate) struct DaemonSet;

/// Template generation, for clients older than `metadata.generation`.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

fn set_template_generation(object: &mut Value, generation: i64) {
    let annotations = defaulting::object_mut(object, "metadata")
        .and_then(|meta| defaulting::object_mut_or_insert(meta, "annotations"));
    if let Some(annotations) = annotations {
        annotations.insert(TEMPLATE_GENERATION.to_owned(), generation.to_string().into());
    }
}

impl Strategy for DaemonSet {
    fn set_defaults(&self, object: &mut Value) {
        let Some(spec) = set_template_defaults(object) else { return };
        set_rolling_update_defaults(
            spec,
            "updateStrategy",
            &[("maxUnavailable", json!(1)), ("maxSurge", json!(0))],
        );
        defaulting::set_if_absent(spec, "revisionHistoryLimit", 10);
        if annotation(object, TEMPLATE_GENERATION).is_empty() {
            set_template_generation(object, 1);
        }
    }

    fn prepare_for_update(&self, object: &mut Value, old: &Value, _context: &RequestContext<'_>) {
        let generation = annotation(old, TEMPLATE_GENERATION).parse().unwrap_or(1i64);
        let changed = object.pointer("/spec/template") != old.pointer("/spec/template");
        set_template_generation(object, generation.saturating_add(changed.into()));
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let (spec, path) = (object.get("spec").unwrap_or(&Value::Null), FieldPath::root("spec"));
        let mut errors = validate_selector_and_template(spec, &path, "daemonset", "DaemonSet");
        errors.extend(validation::validate_non_negative(spec, "minReadySeconds", &path));
        errors.extend(validate_strategy(spec, &path.child("updateStrategy")));
        errors.extend(validation::validate_non_negative(spec, "revisionHistoryLimit", &path));
        let fields = [
            "currentNumberScheduled",
            "numberMisscheduled",
            "desiredNumberScheduled",
            "numberReady",
            "updatedNumberScheduled",
            "numberAvailable",
            "numberUnavailable",
        ];
        errors.extend(validate_status_counts(object, &fields, &[]));
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
    let strategy = spec.get("updateStrategy").unwrap_or(&none);
    let at = path.child("rollingUpdate");
    match (text(strategy, "/type"), present(strategy, "/rollingUpdate")) {
        ("OnDelete", _) => Vec::new(),
        ("RollingUpdate", None) => vec![FieldError::required(&at, "")],
        ("RollingUpdate", Some(rolling)) => validate_rolling_update(rolling, &at),
        _ => vec![FieldError::not_supported(path, strategy.clone(), &["RollingUpdate", "OnDelete"])],
    }
}

/// Validates that exactly one of maxUnavailable and maxSurge is set.
fn validate_rolling_update(rolling: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for field in ["maxUnavailable", "maxSurge"] {
        errors.extend(validation::validate_int_or_percent(
            rolling.get(field).unwrap_or(&Value::Null),
            &path.child(field),
        ));
    }
    for field in ["maxUnavailable", "maxSurge"] {
        errors.extend(validation::validate_at_most_100_percent(
            rolling.get(field).unwrap_or(&Value::Null),
            &path.child(field),
        ));
    }
    match (is_zero(rolling.get("maxUnavailable")), is_zero(rolling.get("maxSurge"))) {
        (false, false) => {
            let surge = rolling.get("maxSurge").cloned().unwrap_or_default();
            let detail = "may not be set when maxUnavailable is non-zero";
            errors.push(FieldError::invalid(&path.child("maxSurge"), surge, detail));
        }
        (true, true) => {
            errors
                .push(FieldError::required(&path.child("maxUnavailable"), "cannot be 0 when maxSurge is 0"));
        }
        _ => {}
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strategy::tests::context;
    use crate::{core::workload::tests::workload, printer::tests::row, validation::tests::messages};

    #[test]
    fn template_change_bumps_template_generation() {
        let mut object = workload();
        object["metadata"] = json!({"name": "d"});
        DaemonSet.set_defaults(&mut object);
        assert_eq!(annotation(&object, TEMPLATE_GENERATION), "1");
        let mut changed = object.clone();
        changed["metadata"]["annotations"] = json!({});
        DaemonSet.prepare_for_update(&mut changed, &object, &context());
        assert_eq!(annotation(&changed, TEMPLATE_GENERATION), "1", "a client may forget it");
        changed["spec"]["template"]["spec"]["hostNetwork"] = true.into();
        DaemonSet.prepare_for_update(&mut changed, &object, &context());
        assert_eq!(annotation(&changed, TEMPLATE_GENERATION), "2");
    }

    #[test]
    fn rolling_update_defaults_to_one_unavailable() {
        let mut object = workload();
        DaemonSet.set_defaults(&mut object);
        assert_eq!(
            object["spec"]["updateStrategy"],
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}})
        );
        assert_eq!(object["spec"]["revisionHistoryLimit"], 10);
        assert!(messages(DaemonSet.validate(&object)).is_empty());
        let with = |rolling: Value| {
            let mut object = object.clone();
            object["spec"]["updateStrategy"]["rollingUpdate"] = rolling;
            messages(DaemonSet.validate(&object))
        };
        assert_eq!(
            with(json!({"maxUnavailable": 1, "maxSurge": 1})),
            [
                "spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: 1: may not be set when maxUnavailable is non-zero"
            ]
        );
        assert_eq!(
            with(json!({"maxUnavailable": 0, "maxSurge": 0})),
            [
                "spec.updateStrategy.rollingUpdate.maxUnavailable: Required value: cannot be 0 when maxSurge is 0"
            ]
        );
        let mut changed = object.clone();
        changed["spec"]["selector"]["matchLabels"]["a"] = "c".into();
        assert_eq!(messages(DaemonSet.validate_update(&changed, &object)).len(), 1);
        object["status"] = json!({"desiredNumberScheduled": 3, "numberReady": 2});
        let expected = json!(["w", 3, 0, 2, 0, 0, "<none>", "<unknown>", "c", "x:1", "a=b"]);
        assert_eq!(row(&COLUMNS, &object), expected.as_array().unwrap()[..]);
    }
}
