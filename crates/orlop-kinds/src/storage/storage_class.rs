//! StorageClass: how volumes are provisioned.

use std::collections::{BTreeMap, BTreeSet};

use orlop_api::{
    field_error::{FieldError, FieldPath},
    names,
};
use serde_json::Value;

use crate::{
    BuiltinKind, StrategyFlags,
    accessors::{annotation, flag, list, map, mark_repeated, text, text_or},
    defaulting,
    printer::{ColumnDefinition, PrinterColumns, age},
    strategy::Strategy,
    validation,
};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    flags: StrategyFlags { returns_deleted_object: true, ..StrategyFlags::BUILTIN },
    columns: &COLUMNS,
    strategy: &StorageClass,
    ..BuiltinKind::new("storage.k8s.io", "storageclasses")
};

const DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";
const BETA_DEFAULT: &str = "storageclass.beta.kubernetes.io/is-default-class";
const PARAMETERS_MAX: usize = 512;
const PARAMETERS_BYTES_MAX: usize = 256 << 10;

static COLUMNS: PrinterColumns = PrinterColumns {
    definitions: &[
        ColumnDefinition::NAME,
        ColumnDefinition::text("Provisioner"),
        ColumnDefinition::text("ReclaimPolicy"),
        ColumnDefinition::text("VolumeBindingMode"),
        ColumnDefinition::text("AllowVolumeExpansion"),
        ColumnDefinition::AGE,
    ],
    cells: |object, now| {
        let is_default = [DEFAULT, BETA_DEFAULT].iter().any(|key| annotation(object, key) == "true");
        let mark = if is_default { " (default)" } else { "" };
        vec![
            format!("{}{mark}", text(object, "/metadata/name")).into(),
            text(object, "/provisioner").into(),
            text_or(object, "/reclaimPolicy", "Delete").into(),
            text_or(object, "/volumeBindingMode", "Immediate").into(),
            flag(object, "/allowVolumeExpansion").into(),
            age(object, now),
        ]
    },
};

pub(crate) struct StorageClass;

impl Strategy for StorageClass {
    fn set_defaults(&self, object: &mut Value) {
        defaulting::set_if_absent(object, "reclaimPolicy", "Delete");
        defaulting::set_if_absent(object, "volumeBindingMode", "Immediate");
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let root = FieldPath::nil();
        let mut errors = validate_provisioner(object, "provisioner");
        errors.extend(validate_parameters(object));
        if !text(object, "/reclaimPolicy").is_empty() {
            errors.extend(validation::validate_supported(
                object,
                "reclaimPolicy",
                &root,
                &["Delete", "Retain"],
            ));
        }
        let modes = &["Immediate", "WaitForFirstConsumer"];
        errors.extend(validation::validate_supported(object, "volumeBindingMode", &root, modes));
        errors.extend(validate_topologies(object));
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        let root = FieldPath::nil();
        let kept = ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"];
        kept.iter().filter_map(|field| validation::validate_immutable(object, old, field, &root)).collect()
    }
}

/// Validates a provisioner: a qualified name, in any case.
pub(crate) fn validate_provisioner(object: &Value, field: &str) -> Vec<FieldError> {
    let path = FieldPath::root(field);
    match object.get(field).and_then(Value::as_str).unwrap_or_default() {
        "" => vec![FieldError::required(&path, "")],
        given => {
            let lower = given.to_lowercase();
            let problems = names::qualified_name(&lower);
            validation::invalid_for_each(&path, lower, problems)
        }
    }
}

/// Validates allowedTopologies: unique terms, each with unique keys and values.
fn validate_topologies(object: &Value) -> Vec<FieldError> {
    type Place = BTreeMap<String, BTreeSet<String>>;
    let path = FieldPath::root("allowedTopologies");
    let (mut errors, mut known) = (Vec::new(), vec![Place::new()]);
    for (index, term) in list(object, "/allowedTopologies").iter().enumerate() {
        let path = path.index(index).child("matchLabelExpressions");
        let mut place = Place::new();
        for (index, expression) in list(term, "/matchLabelExpressions").iter().enumerate() {
            let (key, path) = (text(expression, "/key"), path.index(index));
            let values = list(expression, "/values");
            if values.is_empty() {
                errors.push(FieldError::required(&path.child("values"), ""));
            }
            for ((index, value), repeated) in
                values.iter().enumerate().zip(mark_repeated(values, Value::as_str))
            {
                if repeated {
                    errors.push(FieldError::duplicate(&path.child("values").index(index), value.clone()));
                }
            }
            errors.extend(validation::invalid_for_each(&path.child("key"), key, names::qualified_name(key)));
            let values = values.iter().filter_map(Value::as_str).map(str::to_owned).collect();
            if place.insert(key.to_owned(), values).is_some() {
                errors.push(FieldError::duplicate(&path.child("key"), key));
            }
        }
        if known.contains(&place) {
            errors.push(FieldError::duplicate(&path, ""));
        }
        known.push(place);
    }
    errors
}

pub(crate) fn validate_parameters(object: &Value) -> Vec<FieldError> {
    let (path, parameters) = (FieldPath::root("parameters"), map(object, "/parameters"));
    if parameters.len() > PARAMETERS_MAX {
        return vec![FieldError::too_long(&path, PARAMETERS_MAX)];
    }
    let mut errors = Vec::new();
    if parameters.contains_key("") {
        errors.push(FieldError::invalid(&path, "", "field can not be empty."));
    }
    if orlop_api::object_meta::annotations_bytes(parameters) > PARAMETERS_BYTES_MAX {
        errors.push(FieldError::too_long(&path, PARAMETERS_BYTES_MAX));
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{printer::tests::row, validation::tests::messages};

    #[test]
    fn provisioner_is_required_and_class_is_immutable() {
        let mut class =
            json!({"metadata": {"name": "c", "annotations": {DEFAULT: "true"}}, "provisioner": "x.y/z"});
        StorageClass.set_defaults(&mut class);
        assert_eq!(
            (&class["reclaimPolicy"], &class["volumeBindingMode"]),
            (&json!("Delete"), &json!("Immediate"))
        );
        assert!(messages(StorageClass.validate(&class)).is_empty());
        assert_eq!(
            messages(StorageClass.validate(&json!({"reclaimPolicy": "x", "volumeBindingMode": "y"}))),
            [
                "provisioner: Required value",
                r#"reclaimPolicy: Unsupported value: "x": supported values: "Delete", "Retain""#,
                r#"volumeBindingMode: Unsupported value: "y": supported values: "Immediate", "WaitForFirstConsumer""#,
            ]
        );
        let mut changed = class.clone();
        changed["provisioner"] = "a/b".into();
        assert_eq!(
            messages(StorageClass.validate_update(&changed, &class)),
            [r#"provisioner: Invalid value: "a/b": field is immutable"#]
        );
        let expected = json!(["c (default)", "x.y/z", "Delete", "Immediate", false, "<unknown>"]);
        assert_eq!(row(&COLUMNS, &class), expected.as_array().unwrap()[..]);
    }
}
