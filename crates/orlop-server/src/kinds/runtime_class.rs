//! Runtime classes: what runs a pod's containers.

use orlop_api::field_error::{FieldError, FieldPath};
use serde_json::Value;

use super::{
    check,
    columns::{Heading, Table, name},
    read::{map, text},
};
use crate::{
    registry::Hooks,
    table::{Columns, age},
};

static TABLE: Table = Table {
    headings: &[Heading::NAME, Heading::text("Handler"), Heading::AGE],
    cells: |object, now| vec![name(object), text(object, "/handler").into(), age(object, now)],
};

pub(super) struct RuntimeClass;

impl Hooks for RuntimeClass {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let path = FieldPath::root("handler");
        let mut errors = match text(object, "/handler") {
            "" => vec![FieldError::required(&path, "")],
            handler => check::dns_label(handler, &path),
        };
        let selector = map(object, "/scheduling/nodeSelector");
        let scheduling = FieldPath::root("scheduling");
        errors.extend(orlop_api::labels::validate(selector, &scheduling.child("nodeSelector")));
        errors.extend(super::pod::tolerations(
            super::read::list(object, "/scheduling/tolerations"),
            &scheduling.child("tolerations"),
        ));
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        check::immutable(object, old, "handler", &FieldPath::nil()).into_iter().collect()
    }

    fn columns(&self) -> Option<&dyn Columns> {
        Some(&TABLE)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::check::tests::told, super::columns::tests::row, *};

    #[test]
    fn a_handler_is_a_name_that_stays() {
        assert_eq!(told(RuntimeClass.validate(&json!({}))), ["handler: Required value"]);
        assert_eq!(told(RuntimeClass.validate(&json!({"handler": "A"}))).len(), 1);
        assert_eq!(
            told(RuntimeClass.validate_update(&json!({"handler": "b"}), &json!({"handler": "a"}))),
            ["handler: Invalid value: \"b\": field is immutable"]
        );
        assert_eq!(row(&TABLE, &json!({"metadata": {"name": "r"}, "handler": "h"})), ["r", "h", "<unknown>"]);
    }
}
