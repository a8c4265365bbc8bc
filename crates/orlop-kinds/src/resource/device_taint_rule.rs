//! DeviceTaintRule: a taint on devices that match a selector.

use crate::{
    BuiltinKind, StrategyFlags,
    accessors::{text, time},
    printer::{ColumnDefinition, PrinterColumns, age, format_age, name},
    update_scope::STATUS_WITHOUT_METADATA,
};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    flags: StrategyFlags { returns_deleted_object: true, tracks_generation: true, ..StrategyFlags::BUILTIN },
    update_scopes: STATUS_WITHOUT_METADATA,
    columns: &COLUMNS,
    ..BuiltinKind::new("resource.k8s.io", "devicetaintrules")
};

pub(crate) static COLUMNS: PrinterColumns = PrinterColumns {
    definitions: &[
        ColumnDefinition::NAME,
        ColumnDefinition::text("Key"),
        ColumnDefinition::text("Value"),
        ColumnDefinition::text("Effect"),
        ColumnDefinition::text("TimeAdded"),
        ColumnDefinition::AGE,
    ],
    cells: |object, now| {
        let field = |pointer| text(object, pointer).into();
        let added = time(object, "/spec/taint/timeAdded")
            .map_or_else(String::new, |then| format_age(Some(then), now));
        vec![
            name(object),
            field("/spec/taint/key"),
            field("/spec/taint/value"),
            field("/spec/taint/effect"),
            added.into(),
            age(object, now),
        ]
    },
};
