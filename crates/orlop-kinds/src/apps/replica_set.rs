//! ReplicaSet: a number of identical pods.

use orlop_api::field_error::{FieldError, FieldPath};
use serde_json::Value;

use crate::{
    BuiltinKind, StrategyFlags,
    accessors::integer,
    core::workload::{
        REPLICA_COLUMNS, REPLICA_COUNTS, set_template_defaults, template_warnings,
        validate_immutable_selector, validate_selector_and_template, validate_status_counts,
    },
    defaulting,
    printer::{PrinterColumns, age, container_cells, format_selector, name},
    strategy::Strategy,
    validation,
};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    flags: StrategyFlags { tracks_generation: true, ..StrategyFlags::BUILTIN },
    columns: &COLUMNS,
    strategy: &ReplicaSet,
    ..BuiltinKind::new("apps", "replicasets")
};

static COLUMNS: PrinterColumns = PrinterColumns {
    definitions: REPLICA_COLUMNS,
    cells: |object, now| {
        let [names, images] = container_cells(object, "/spec/template/spec");
        vec![
            name(object),
            integer(object, "/spec/replicas").into(),
            integer(object, "/status/replicas").into(),
            integer(object, "/status/readyReplicas").into(),
            age(object, now),
            names,
            images,
            format_selector(object.pointer("/spec/selector")),
        ]
    },
};

pub(crate) struct ReplicaSet;

impl Strategy for ReplicaSet {
    fn set_defaults(&self, object: &mut Value) {
        if let Some(spec) = set_template_defaults(object) {
            defaulting::set_if_absent(spec, "replicas", 1);
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let (spec, path) = (object.get("spec").unwrap_or(&Value::Null), FieldPath::root("spec"));
        let mut errors: Vec<FieldError> =
            validation::validate_non_negative(spec, "replicas", &path).into_iter().collect();
        errors.extend(validation::validate_non_negative(spec, "minReadySeconds", &path));
        errors.extend(validate_selector_and_template(spec, &path, "deployment", "ReplicaSet"));
        errors.extend(validate_status_counts(object, &REPLICA_COUNTS, &REPLICA_COUNTS[1..]));
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        validate_immutable_selector(object, old).into_iter().collect()
    }

    fn warnings_on_create(&self, object: &Value) -> Vec<String> {
        template_warnings(object)
    }

    fn field_value(&self, object: &Value, path: &str) -> String {
        crate::core::replication_controller::count_field(object, path)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{core::workload::tests::workload, printer::tests::row, validation::tests::messages};

    #[test]
    fn replicas_default_to_one() {
        let mut object = workload();
        ReplicaSet.set_defaults(&mut object);
        assert_eq!(object["spec"]["replicas"], 1);
        assert!(messages(ReplicaSet.validate(&object)).is_empty());
        let mut changed = object.clone();
        changed["spec"]["selector"] = json!({"matchLabels": {"x": "y"}});
        changed["status"] = json!({"replicas": 1, "availableReplicas": 2});
        assert_eq!(
            messages(ReplicaSet.validate_update(&changed, &object)),
            [r#"spec.selector: Invalid value: {"matchLabels":{"x":"y"}}: field is immutable"#]
        );
        assert_eq!(
            messages(ReplicaSet.validate(&changed)).last().unwrap(),
            "status.availableReplicas: Invalid value: 2: cannot be greater than status.replicas"
        );
        let expected = json!(["w", 1, 0, 0, "<unknown>", "c", "x:1", "a=b"]);
        assert_eq!(row(&COLUMNS, &object), expected.as_array().unwrap()[..]);
        assert_eq!(ReplicaSet.field_value(&json!({}), "status.replicas"), "0");
    }
}
