//! ResourceSlice: devices that a driver offers.

use crate::{
    BuiltinKind, StrategyFlags,
    accessors::text,
    printer::{ColumnDefinition, PrinterColumns, age, name},
};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    flags: StrategyFlags { returns_deleted_object: true, tracks_generation: true, ..StrategyFlags::BUILTIN },
    selectable_fields: &["spec.nodeName", "spec.driver", "spec.pool.name"],
    columns: &COLUMNS,
    ..BuiltinKind::new("resource.k8s.io", "resourceslices")
};

pub(crate) static COLUMNS: PrinterColumns = PrinterColumns {
    definitions: &[
        ColumnDefinition::NAME,
        ColumnDefinition::text("Node"),
        ColumnDefinition::text("Driver"),
        ColumnDefinition::text("Pool"),
        ColumnDefinition::AGE,
    ],
    cells: |object, now| {
        let field = |pointer| text(object, pointer).into();
        vec![
            name(object),
            field("/spec/nodeName"),
            field("/spec/driver"),
            field("/spec/pool/name"),
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
    fn row_shows_driver_and_pool() {
        let slice = json!({"metadata": {"name": "s"}, "spec": {"driver": "d", "pool": {"name": "p"}}});
        assert_eq!(row(&COLUMNS, &slice), json!(["s", "", "d", "p", "<unknown>"]).as_array().unwrap()[..]);
    }
}
