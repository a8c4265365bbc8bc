//! ReplicationController: the predecessor of ReplicaSet, with a map as its selector.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    fields,
    labels::Selector,
    names::NameRule,
};
use serde_json::{Value, json};

use super::{
    pod::{self, Owner},
    workload::{REPLICA_COLUMNS, REPLICA_COUNTS, set_template_defaults, validate_status_counts},
};
use crate::{
    BuiltinKind, StrategyFlags,
    accessors::{integer, map, present},
    defaulting,
    printer::{PrinterColumns, age, container_cells, format_labels, name},
    strategy::Strategy,
    validation,
};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    flags: StrategyFlags {
        orphans_dependents_by_default: true,
        tracks_generation: true,
        ..StrategyFlags::BUILTIN
    },
    name_rule: NameRule::LongName,
    selectable_fields: &["status.replicas"],
    columns: &COLUMNS,
    strategy: &ReplicationController,
    ..BuiltinKind::new("", "replicationcontrollers")
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
            format_labels(map(object, "/spec/selector")),
        ]
    },
};

pub(crate) struct ReplicationController;

impl Strategy for ReplicationController {
    fn set_defaults(&self, object: &mut Value) {
        let given = map(object, "/spec/template/metadata/labels").clone();
        if present(object, "/spec/template").is_some() {
            set_template_defaults(object);
        }
        let Some(spec) = defaulting::object_mut(object, "spec") else { return };
        defaulting::set_if_absent(spec, "replicas", 1);
        if integer(spec, "/minReadySeconds") == 0 {
            // Go's encoder omits a zero, though the schema gives it as the default.
            defaulting::remove_field(spec, "minReadySeconds");
        }
        if given.is_empty() {
            return;
        }
        if map(spec, "/selector").is_empty() {
            spec["selector"] = Value::Object(given.clone());
        }
        if map(object, "/metadata/labels").is_empty() {
            object["metadata"]["labels"] = Value::Object(given);
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let (spec, path) = (object.get("spec").unwrap_or(&Value::Null), FieldPath::root("spec"));
        let mut errors: Vec<FieldError> =
            validation::validate_non_negative(spec, "minReadySeconds", &path).into_iter().collect();
        let chosen = map(spec, "/selector");
        if chosen.is_empty() {
            errors.push(FieldError::required(&path.child("selector"), ""));
        }
        errors.extend(validation::validate_non_negative(spec, "replicas", &path));
        match present(spec, "/template") {
            None => errors.push(FieldError::required(&path.child("template"), "")),
            Some(template) => {
                let selector = Selector::from_label_selector(&json!({"matchLabels": chosen})).ok();
                let owner = Owner { restarts_always: Some("ReplicationController") };
                errors.extend(pod::validate_template(
                    template,
                    selector.as_ref(),
                    &owner,
                    &path.child("template"),
                ));
            }
        }
        errors.extend(validate_status_counts(object, &REPLICA_COUNTS, &REPLICA_COUNTS[1..]));
        errors
    }

    fn field_value(&self, object: &Value, path: &str) -> String {
        count_field(object, path)
    }
}

/// Returns the value of a selectable count; `0` if absent.
pub(crate) fn count_field(object: &Value, path: &str) -> String {
    match path {
        "status.replicas" => integer(object, "/status/replicas").to_string(),
        _ => fields::field_text(object, path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{printer::tests::row, validation::tests::messages};

    #[test]
    fn labels_and_selector_default_from_the_template() {
        let mut object = json!({"metadata": {"name": "r"}, "spec": {"template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x:1"}]}}}});
        ReplicationController.set_defaults(&mut object);
        assert_eq!(object["spec"]["selector"], json!({"a": "b"}));
        assert_eq!(object["metadata"]["labels"], json!({"a": "b"}));
        assert_eq!(object["spec"]["replicas"], 1);
        assert!(messages(ReplicationController.validate(&object)).is_empty());
        assert_eq!(row(&COLUMNS, &object)[7], "a=b");
        assert_eq!(
            messages(ReplicationController.validate(&json!({"spec": {"replicas": -1}}))),
            [
                "spec.selector: Required value",
                "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
                "spec.template: Required value"
            ]
        );
        object["spec"]["selector"] = json!({"a": "c"});
        assert_eq!(
            messages(ReplicationController.validate(&object)),
            [
                r#"spec.template.metadata.labels: Invalid value: {"a":"b"}: `selector` does not match template `labels`"#
            ]
        );
    }
}
