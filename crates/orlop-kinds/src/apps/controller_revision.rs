//! ControllerRevision: an immutable snapshot of a workload's state.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    group_version::GroupVersion,
};
use serde_json::Value;

use crate::{
    BuiltinKind,
    accessors::{flag, integer, list, text},
    printer::{ColumnDefinition, PrinterColumns, age, name},
    strategy::Strategy,
    validation,
};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    columns: &COLUMNS,
    strategy: &ControllerRevision,
    ..BuiltinKind::new("apps", "controllerrevisions")
};

static COLUMNS: PrinterColumns = PrinterColumns {
    definitions: &[
        ColumnDefinition::NAME,
        ColumnDefinition::text("Controller"),
        ColumnDefinition::text("Revision"),
        ColumnDefinition::AGE,
    ],
    cells: |object, now| {
        vec![name(object), controller(object).into(), integer(object, "/revision").into(), age(object, now)]
    },
};

/// Returns the controller: `statefulset.apps/name`.
fn controller(object: &Value) -> String {
    let owners = list(object, "/metadata/ownerReferences");
    let Some(owner) = owners.iter().find(|owner| flag(owner, "/controller")) else {
        return "<none>".to_owned();
    };
    let group =
        GroupVersion::parse(text(owner, "/apiVersion")).map(|version| version.group).unwrap_or_default();
    let kind = text(owner, "/kind").to_lowercase();
    let kind = if group.is_empty() { kind } else { format!("{kind}.{}", group.to_lowercase()) };
    format!("{kind}/{}", text(owner, "/name"))
}

pub(crate) struct ControllerRevision;

impl Strategy for ControllerRevision {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors: Vec<FieldError> =
            validation::validate_non_negative(object, "revision", &FieldPath::nil()).into_iter().collect();
        match object.get("data") {
            None | Some(Value::Null) => {
                errors.push(FieldError::required(&FieldPath::root("data"), "data is mandatory"));
            }
            Some(Value::Object(_)) => {}
            Some(_) => {
                errors
                    .push(FieldError::required(&FieldPath::root("data"), "data must be a valid JSON object"));
            }
        }
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        validation::validate_immutable(object, old, "data", &FieldPath::nil()).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{printer::tests::row, validation::tests::messages};

    #[test]
    fn revision_data_is_required_and_immutable() {
        assert_eq!(
            messages(ControllerRevision.validate(&json!({"revision": -1}))),
            [
                "revision: Invalid value: -1: must be greater than or equal to 0",
                "data: Required value: data is mandatory"
            ]
        );
        let old = json!({"data": {"a": 1}});
        assert_eq!(
            messages(ControllerRevision.validate_update(&json!({"data": {"a": 2}}), &old)),
            [r#"data: Invalid value: {"a":2}: field is immutable"#]
        );
        let object = json!({"metadata": {"name": "r", "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "controller": true}]}, "revision": 3});
        let expected = json!(["r", "statefulset.apps/s", 3, "<unknown>"]);
        assert_eq!(row(&COLUMNS, &object), expected.as_array().unwrap()[..]);
    }
}
