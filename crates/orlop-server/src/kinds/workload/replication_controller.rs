//! Replication controllers: replica sets as they first were, with a plain map for a selector.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    fields,
    labels::Selector,
};
use serde_json::{Value, json};

use super::{
    super::{
        check,
        columns::{Table, containers, labels, name},
        fill,
        pod::{self, Owner},
        read::{integer, map, present},
    },
    counts, default_template,
    replica_set::{COUNTS, HEADINGS},
};
use crate::{
    registry::Hooks,
    table::{Columns, age},
};

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
            labels(map(object, "/spec/selector")),
        ]
    },
};

pub(in super::super) struct ReplicationController;

impl Hooks for ReplicationController {
    fn default(&self, object: &mut Value) {
        let given = map(object, "/spec/template/metadata/labels").clone();
        if present(object, "/spec/template").is_some() {
            default_template(object);
        }
        let Some(spec) = fill::child(object, "spec") else { return };
        fill::absent(spec, "replicas", 1);
        if integer(spec, "/minReadySeconds") == 0 {
            // Go leaves a zero out, though its type calls it the default.
            fill::remove(spec, "minReadySeconds");
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
            check::not_negative(spec, "minReadySeconds", &path).into_iter().collect();
        let chosen = map(spec, "/selector");
        if chosen.is_empty() {
            errors.push(FieldError::required(&path.child("selector"), ""));
        }
        errors.extend(check::not_negative(spec, "replicas", &path));
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
        errors.extend(counts(object, &COUNTS, &COUNTS[1..]));
        errors
    }

    fn columns(&self) -> Option<&dyn Columns> {
        Some(&TABLE)
    }

    fn field(&self, object: &Value, path: &str) -> String {
        field(object, path)
    }
}

/// A count that is absent is none.
pub(super) fn field(object: &Value, path: &str) -> String {
    match path {
        "status.replicas" => integer(object, "/status/replicas").to_string(),
        _ => fields::field_text(object, path),
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::super::{check::tests::told, columns::tests::row},
        *,
    };

    #[test]
    fn a_controller_takes_its_labels_from_its_template() {
        let mut object = json!({"metadata": {"name": "r"}, "spec": {"template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x:1"}]}}}});
        ReplicationController.default(&mut object);
        assert_eq!(object["spec"]["selector"], json!({"a": "b"}));
        assert_eq!(object["metadata"]["labels"], json!({"a": "b"}));
        assert_eq!(object["spec"]["replicas"], 1);
        assert!(told(ReplicationController.validate(&object)).is_empty());
        assert_eq!(row(&TABLE, &object)[7], "a=b");
        assert_eq!(
            told(ReplicationController.validate(&json!({"spec": {"replicas": -1}}))),
            [
                "spec.selector: Required value",
                "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
                "spec.template: Required value"
            ]
        );
        object["spec"]["selector"] = json!({"a": "c"});
        assert_eq!(
            told(ReplicationController.validate(&object)),
            [
                r#"spec.template.metadata.labels: Invalid value: {"a":"b"}: `selector` does not match template `labels`"#
            ]
        );
    }
}
