//! ComponentStatus: deprecated health of control-plane components.

use crate::{
    BuiltinKind,
    accessors::{list, text},
    printer::{ColumnDefinition, PrinterColumns, name},
};

pub(crate) const KIND: BuiltinKind =
    BuiltinKind { columns: &COLUMNS, ..BuiltinKind::new("", "componentstatuses") };

pub(crate) static COLUMNS: PrinterColumns = PrinterColumns {
    definitions: &[
        ColumnDefinition::NAME,
        ColumnDefinition::text("Status"),
        ColumnDefinition::text("Message"),
        ColumnDefinition::text("Error"),
    ],
    cells: |object, _| {
        let healthy =
            list(object, "/conditions").iter().find(|condition| text(condition, "/type") == "Healthy");
        let status = match healthy.map(|condition| text(condition, "/status")) {
            Some("True") => "Healthy",
            Some(_) => "Unhealthy",
            None => "Unknown",
        };
        let field = |pointer| healthy.map_or("", |condition| text(condition, pointer)).into();
        vec![name(object), status.into(), field("/message"), field("/error")]
    },
};

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::printer::tests::row;

    #[test]
    fn row_shows_the_healthy_condition() {
        let healthy = json!({"metadata": {"name": "etcd-0"}, "conditions": [{"type": "Healthy", "status": "True", "message": "ok"}]});
        assert_eq!(row(&COLUMNS, &healthy), ["etcd-0", "Healthy", "ok", ""]);
    }
}
