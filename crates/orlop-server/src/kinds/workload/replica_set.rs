//! Replica sets: so many pods alike.

use orlop_api::field_error::{FieldError, FieldPath};
use serde_json::Value;

use super::{
    super::{
        check,
        columns::{Heading, Table, containers, name, selector},
        fill,
        read::integer,
    },
    counts, default_template, same_selector, selector_and_template, template_warnings,
};
use crate::{
    registry::Hooks,
    table::{Columns, age},
};

pub(super) const HEADINGS: &[Heading] = &[
    Heading::NAME,
    Heading::integer("Desired"),
    Heading::integer("Current"),
    Heading::integer("Ready"),
    Heading::AGE,
    Heading::wide("Containers"),
    Heading::wide("Images"),
    Heading::wide("Selector"),
];

static TABLE: Table = Table {
    headings: HEADINGS,
    cells: |object, now| {
        let [names, images] = containers(object, "/spec/template/spec");
        vec![
            name(object),
            integer(object, "/spec/replicas").into(),
            integer(object, "/status/replicas").into(),
            integer(object, "/status/readyReplicas").into(),
            age(object, now),
            names,
            images,
            selector(object.pointer("/spec/selector")),
        ]
    },
};

/// The counts of a replica set's or replication controller's status.
pub(super) const COUNTS: [&str; 4] =
    ["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas"];

pub(in super::super) struct ReplicaSet;

impl Hooks for ReplicaSet {
    fn default(&self, object: &mut Value) {
        if let Some(spec) = default_template(object) {
            fill::absent(spec, "replicas", 1);
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let (spec, path) = (object.get("spec").unwrap_or(&Value::Null), FieldPath::root("spec"));
        let mut errors: Vec<FieldError> = check::not_negative(spec, "replicas", &path).into_iter().collect();
        errors.extend(check::not_negative(spec, "minReadySeconds", &path));
        errors.extend(selector_and_template(spec, &path, "deployment", "ReplicaSet"));
        errors.extend(counts(object, &COUNTS, &COUNTS[1..]));
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        same_selector(object, old).into_iter().collect()
    }

    fn warnings(&self, object: &Value) -> Vec<String> {
        template_warnings(object)
    }

    fn columns(&self) -> Option<&dyn Columns> {
        Some(&TABLE)
    }

    fn field(&self, object: &Value, path: &str) -> String {
        super::replication_controller::field(object, path)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{
        super::{
            super::{check::tests::told, columns::tests::row},
            tests::workload,
        },
        *,
    };

    #[test]
    fn a_replica_set_is_one_pod_unless_it_says_otherwise() {
        let mut object = workload();
        ReplicaSet.default(&mut object);
        assert_eq!(object["spec"]["replicas"], 1);
        assert!(told(ReplicaSet.validate(&object)).is_empty());
        let mut changed = object.clone();
        changed["spec"]["selector"] = json!({"matchLabels": {"x": "y"}});
        changed["status"] = json!({"replicas": 1, "availableReplicas": 2});
        assert_eq!(
            told(ReplicaSet.validate_update(&changed, &object)),
            [r#"spec.selector: Invalid value: {"matchLabels":{"x":"y"}}: field is immutable"#]
        );
        assert_eq!(
            told(ReplicaSet.validate(&changed)).last().unwrap(),
            "status.availableReplicas: Invalid value: 2: cannot be greater than status.replicas"
        );
        let expected = json!(["w", 1, 0, 0, "<unknown>", "c", "x:1", "a=b"]);
        assert_eq!(row(&TABLE, &object), expected.as_array().unwrap()[..]);
        assert_eq!(ReplicaSet.field(&json!({}), "status.replicas"), "0");
    }
}
