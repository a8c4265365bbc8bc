//! VolumeAttachment: the intent to attach a volume to a node.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    names,
};
use serde_json::Value;

use crate::{
    BuiltinKind, StrategyFlags,
    accessors::{flag, list, present, text},
    printer::{ColumnDefinition, PrinterColumns, age, name},
    strategy::Strategy,
    update_scope::STATUS_WITHOUT_METADATA,
    validation,
};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    flags: StrategyFlags {
        allow_unconditional_update: false,
        returns_deleted_object: true,
        ..StrategyFlags::BUILTIN
    },
    update_scopes: STATUS_WITHOUT_METADATA,
    columns: &COLUMNS,
    strategy: &VolumeAttachment,
    ..BuiltinKind::new("storage.k8s.io", "volumeattachments")
};

pub(crate) struct VolumeAttachment;

impl Strategy for VolumeAttachment {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let spec = FieldPath::root("spec");
        let attacher = text(object, "/spec/attacher");
        let mut errors = match attacher {
            "" => vec![FieldError::required(&spec.child("attacher"), "").declaratively()],
            given => {
                let problems = names::dns1123_subdomain_caseless(given);
                let problems = validation::invalid_for_each(&spec.child("attacher"), given, problems);
                problems.into_iter().map(FieldError::declaratively).collect()
            }
        };
        errors.extend(validate_source(object, &spec.child("source")));
        errors.extend(validation::validate_dns_subdomain(
            text(object, "/spec/nodeName"),
            &spec.child("nodeName"),
        ));
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        validation::validate_immutable(object, old, "spec", &FieldPath::nil()).into_iter().collect()
    }
}

/// Validates the source: a volume by name, or inline.
fn validate_source(object: &Value, path: &FieldPath) -> Vec<FieldError> {
    let (name, inline) = (
        present(object, "/spec/source/persistentVolumeName").and_then(Value::as_str),
        present(object, "/spec/source/inlineVolumeSpec"),
    );
    let one = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    let by_name = path.child("persistentVolumeName");
    match (name, inline) {
        (None, None) => vec![FieldError::required(path, one)],
        (Some(_), Some(_)) => vec![FieldError::forbidden(path, one)],
        (Some(name), None) => {
            let detail = "must specify non empty persistentVolumeName";
            let mut errors: Vec<FieldError> =
                name.is_empty().then(|| FieldError::required(&by_name, detail)).into_iter().collect();
            errors.extend(validation::validate_dns_subdomain(name, &by_name));
            errors
        }
        (None, Some(volume)) => {
            let path = path.child("inlineVolumeSpec");
            let mut errors = Vec::new();
            let forbidden = "may not be specified in the context of inline volumes";
            for field in ["capacity", "claimRef", "persistentVolumeReclaimPolicy", "storageClassName"] {
                let given = volume.get(field).is_some_and(|value| match value {
                    Value::String(text) => !text.is_empty(),
                    Value::Object(map) => !map.is_empty(),
                    value => !value.is_null(),
                });
                if given {
                    errors.push(FieldError::forbidden(&path.child(field), forbidden));
                }
            }
            if present(volume, "/csi").is_none() {
                let detail = "has to be specified in the context of inline volumes";
                errors.push(FieldError::required(&path.child("csi"), detail));
            }
            if list(volume, "/accessModes").is_empty() {
                errors.push(FieldError::required(&path.child("accessModes"), ""));
            }
            errors
        }
    }
}

pub(crate) static COLUMNS: PrinterColumns = PrinterColumns {
    definitions: &[
        ColumnDefinition::NAME,
        ColumnDefinition::name("Attacher"),
        ColumnDefinition::text("PV"),
        ColumnDefinition::text("Node"),
        ColumnDefinition::boolean("Attached"),
        ColumnDefinition::AGE,
    ],
    cells: |object, now| {
        let field = |pointer| text(object, pointer).into();
        vec![
            name(object),
            field("/spec/attacher"),
            field("/spec/source/persistentVolumeName"),
            field("/spec/nodeName"),
            flag(object, "/status/attached").into(),
            age(object, now),
        ]
    },
};

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::printer::tests::row;

    #[test]
    fn row_shows_attacher_and_node() {
        let attachment = json!({"metadata": {"name": "a"}, "spec": {"attacher": "x", "nodeName": "n"}, "status": {"attached": true}});
        let expected = json!(["a", "x", "", "n", true, "<unknown>"]);
        assert_eq!(row(&COLUMNS, &attachment), expected.as_array().unwrap()[..]);
    }
}
