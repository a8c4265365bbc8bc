//! StorageVersionMigration: a request to rewrite stored objects in the current storage version.

use crate::{
    BuiltinKind, StrategyFlags,
    accessors::{list, text},
    printer::{ColumnDefinition, PrinterColumns, name},
    update_scope::STATUS_WITHOUT_METADATA,
};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    flags: StrategyFlags { allow_unconditional_update: false, ..StrategyFlags::BUILTIN },
    update_scopes: STATUS_WITHOUT_METADATA,
    columns: &COLUMNS,
    ..BuiltinKind::new("storagemigration.k8s.io", "storageversionmigrations")
};

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
