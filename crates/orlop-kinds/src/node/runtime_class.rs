//! RuntimeClass: a container runtime configuration.

use orlop_api::field_error::{FieldError, FieldPath};
use serde_json::{Value, json};

use crate::{
    BuiltinKind, StrategyFlags,
    accessors::{list, map, text},
    core::pod,
    printer::{ColumnDefinition, PrinterColumns, age, name},
    strategy::Strategy,
    validation,
};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    flags: StrategyFlags {
        allow_unconditional_update: false,
        allow_create_on_update: true,
        qualified_finalizers: false,
        ..StrategyFlags::BUILTIN
    },
    columns: &COLUMNS,
    strategy: &RuntimeClass,
    ..BuiltinKind::new("node.k8s.io", "runtimeclasses")
};

static COLUMNS: PrinterColumns = PrinterColumns {
    definitions: &[ColumnDefinition::NAME, ColumnDefinition::text("Handler"), ColumnDefinition::AGE],
    cells: |object, now| vec![name(object), text(object, "/handler").into(), age(object, now)],
};

pub(crate) struct RuntimeClass;

impl Strategy for RuntimeClass {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let path = FieldPath::root("handler");
        let mut errors = match text(object, "/handler") {
            "" => vec![FieldError::required(&path, "")],
            handler => validation::validate_dns_label(handler, &path),
        };
        // As limits of a container.
        let overhead = json!({"limits": map(object, "/overhead/podFixed")});
        errors.extend(pod::validate_requirements(&overhead, &[], &FieldPath::root("overhead")));
        let selector = map(object, "/scheduling/nodeSelector");
        let scheduling = FieldPath::root("scheduling");
        errors.extend(orlop_api::labels::validate(selector, &scheduling.child("nodeSelector")));
        errors.extend(pod::validate_tolerations(
            list(object, "/scheduling/tolerations"),
            &scheduling.child("tolerations"),
        ));
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        validation::validate_immutable(object, old, "handler", &FieldPath::nil()).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{printer::tests::row, validation::tests::messages};

    #[test]
    fn handler_is_a_label_and_immutable() {
        assert_eq!(messages(RuntimeClass.validate(&json!({}))), ["handler: Required value"]);
        assert_eq!(messages(RuntimeClass.validate(&json!({"handler": "A"}))).len(), 1);
        assert_eq!(
            messages(RuntimeClass.validate_update(&json!({"handler": "b"}), &json!({"handler": "a"}))),
            ["handler: Invalid value: \"b\": field is immutable"]
        );
        assert_eq!(
            row(&COLUMNS, &json!({"metadata": {"name": "r"}, "handler": "h"})),
            ["r", "h", "<unknown>"]
        );
    }
}
