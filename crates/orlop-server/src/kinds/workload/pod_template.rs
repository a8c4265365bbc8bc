//! Pod templates: stored for themselves.

use orlop_api::field_error::{FieldError, FieldPath};
use serde_json::Value;

use super::super::{
    columns::{Heading, Table, containers, labels, name},
    fill,
    pod::{self, Owner},
    read::map,
};
use crate::{registry::Hooks, table::Columns};

static TABLE: Table = Table {
    headings: &[
        Heading::NAME,
        Heading::text("Containers"),
        Heading::text("Images"),
        Heading::text("Pod Labels"),
    ],
    cells: |object, _| {
        let [names, images] = containers(object, "/template/spec");
        vec![name(object), names, images, labels(map(object, "/template/metadata/labels"))]
    },
};

pub(in super::super) struct PodTemplate;

impl Hooks for PodTemplate {
    fn default(&self, object: &mut Value) {
        if let Some(template) = fill::child(object, "template") {
            pod::default_template(template);
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let owner = Owner { restarts_always: None };
        let template = object.get("template").unwrap_or(&Value::Null);
        pod::validate_template(template, None, &owner, &FieldPath::root("template"))
    }

    fn columns(&self) -> Option<&dyn Columns> {
        Some(&TABLE)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{
        super::super::{check::tests::told, columns::tests::row},
        *,
    };

    #[test]
    fn a_template_is_held_to_what_a_pod_is() {
        let mut object = json!({"metadata": {"name": "t"}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x:1"}]}}});
        PodTemplate.default(&mut object);
        assert_eq!(object["template"]["spec"]["containers"][0]["imagePullPolicy"], "IfNotPresent");
        assert!(told(PodTemplate.validate(&object)).is_empty());
        assert_eq!(row(&TABLE, &object), ["t", "c", "x:1", "a=b"]);
        object["template"]["spec"]["containers"] = json!([]);
        assert_eq!(told(PodTemplate.validate(&object)), ["template.spec.containers: Required value"]);
    }
}
