//! StorageVersionMigration: a request to rewrite stored objects in the current storage version.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    names,
};
use serde_json::Value;

use crate::{
    BuiltinKind, StrategyFlags,
    accessors::{is_condition_true, list, text},
    printer::{ColumnDefinition, PrinterColumns, name},
    strategy::Strategy,
    update_scope::STATUS_WITHOUT_METADATA,
    validation,
};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    flags: StrategyFlags { allow_unconditional_update: false, ..StrategyFlags::BUILTIN },
    update_scopes: STATUS_WITHOUT_METADATA,
    columns: &COLUMNS,
    strategy: &StorageVersionMigration,
    ..BuiltinKind::new("storagemigration.k8s.io", "storageversionmigrations")
};

pub(crate) struct StorageVersionMigration;

impl Strategy for StorageVersionMigration {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let path = FieldPath::root("spec").child("resource");
        let mut errors = Vec::new();
        let mut refuse = |field: &str, value: &str, problems: Vec<String>| {
            if !problems.is_empty() {
                errors.push(FieldError::invalid(&path.child(field), value, problems.join(",")));
            }
        };
        match text(object, "/spec/resource/group") {
            "" => {}
            group => refuse("group", group, names::dns1123_subdomain(group)),
        }
        match text(object, "/spec/resource/resource") {
            "" => {
                errors.insert(
                    0,
                    FieldError::required(&path.child("resource"), "resource is required to be set"),
                );
            }
            resource => {
                refuse("resource", resource, names::dns1035_label(resource));
                errors.reverse();
            }
        }
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        validation::validate_immutable(object, old, "spec", &FieldPath::nil()).into_iter().collect()
    }

    fn validate_subresource_update(&self, _: &str, object: &Value, old: &Value) -> Vec<FieldError> {
        let (path, mut errors) = (FieldPath::root("status"), Vec::new());
        let version = |of: &Value| text(of, "/status/resourceVersion").to_owned();
        if !version(old).is_empty() && version(old) != version(object) {
            errors.push(FieldError::invalid(
                &path.child("resourceVersion"),
                version(object),
                "field is immutable",
            ));
        }
        let mut refuse = |detail: &str| {
            let conditions = list(object, "/status/conditions").to_vec();
            errors.push(FieldError::invalid(&path.child("conditions"), conditions, detail));
        };
        if is_condition_true(object, "Succeeded") && is_condition_true(object, "Failed") {
            refuse("Both success and failed conditions cannot be true at the same time");
        }
        for (kind, word) in [("Succeeded", "Success"), ("Failed", "Failed")] {
            if is_condition_true(old, kind) && !is_condition_true(object, kind) {
                refuse(&format!("{word} condition cannot be set to false once it is true"));
            }
        }
        errors
    }
}

pub(crate) static COLUMNS: PrinterColumns = PrinterColumns {
    definitions: &[
        ColumnDefinition::NAME,
        ColumnDefinition::text("Resource"),
        ColumnDefinition::text("Status"),
    ],
    cells: |object, _| {
        let (group, resource) =
            (text(object, "/spec/resource/group"), text(object, "/spec/resource/resource"));
        let migrated = if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") };
        let holds = list(object, "/status/conditions")
            .iter()
            .filter(|condition| text(condition, "/status") == "True");
        let mut kinds = holds.map(|condition| text(condition, "/type"));
        let status = kinds.rfind(|kind| matches!(*kind, "Running" | "Failed" | "Succeeded"));
        vec![name(object), migrated.into(), status.unwrap_or("Unknown").into()]
    },
};

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::printer::tests::row;

    #[test]
    fn row_shows_resource_and_last_condition() {
        let migration = json!({"spec": {"resource": {"group": "apps", "resource": "deployments"}}, "status": {"conditions": [{"type": "Succeeded", "status": "True"}]}});
        assert_eq!(row(&COLUMNS, &migration)[1..], ["deployments.apps", "Succeeded"]);
    }
}
