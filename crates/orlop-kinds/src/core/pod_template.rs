//! PodTemplate.

use orlop_api::field_error::{FieldError, FieldPath};
use serde_json::Value;

use super::pod::{self, Owner};
use crate::{
    BuiltinKind, StrategyFlags,
    accessors::map,
    defaulting,
    printer::{ColumnDefinition, PrinterColumns, container_cells, format_labels, name},
    strategy::Strategy,
};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    flags: StrategyFlags { returns_deleted_object: true, tracks_generation: true, ..StrategyFlags::BUILTIN },
    columns: &COLUMNS,
    strategy: &PodTemplate,
    ..BuiltinKind::new("", "podtemplates")
};

static COLUMNS: PrinterColumns = PrinterColumns {
    definitions: &[
        ColumnDefinition::NAME,
        ColumnDefinition::text("Containers"),
        ColumnDefinition::text("Images"),
        ColumnDefinition::text("Pod Labels"),
    ],
    cells: |object, _| {
        let [names, images] = container_cells(object, "/template/spec");
        vec![name(object), names, images, format_labels(map(object, "/template/metadata/labels"))]
    },
};

pub(crate) struct PodTemplate;

impl Strategy for PodTemplate {
    fn set_defaults(&self, object: &mut Value) {
        if let Some(template) = defaulting::object_mut(object, "template") {
            pod::set_template_defaults(template);
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let owner = Owner { restarts_always: None };
        let template = object.get("template").unwrap_or(&Value::Null);
        pod::validate_template(template, None, &owner, &FieldPath::root("template"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{printer::tests::row, validation::tests::messages};

    #[test]
    fn template_is_validated_as_a_pod() {
        let mut object = json!({"metadata": {"name": "t"}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x:1"}]}}});
        PodTemplate.set_defaults(&mut object);
        assert_eq!(object["template"]["spec"]["containers"][0]["imagePullPolicy"], "IfNotPresent");
        assert!(messages(PodTemplate.validate(&object)).is_empty());
        assert_eq!(row(&COLUMNS, &object), ["t", "c", "x:1", "a=b"]);
        object["template"]["spec"]["containers"] = json!([]);
        assert_eq!(messages(PodTemplate.validate(&object)), ["template.spec.containers: Required value"]);
    }
}
