//! Namespaces: they end only when what is in them has gone.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    object_meta::{self, FINALIZER_NAMESPACE},
};
use serde_json::{Value, json};

use super::{
    columns::{Heading, Table, name},
    read::{list, text},
};
use crate::{
    object::is_terminating,
    registry::{Hooks, Kind},
    table::{Columns, age},
};

static TABLE: Table = Table {
    headings: &[Heading::NAME, Heading::text("Status"), Heading::AGE],
    cells: |object, now| vec![name(object), text(object, "/status/phase").into(), age(object, now)],
};

pub(super) struct Namespace;

impl Hooks for Namespace {
    fn default(&self, object: &mut Value) {
        // A name that is generated comes later.
        if !text(object, "/metadata/name").is_empty() {
            label(object);
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        let mut finalizers = list(object, "/spec/finalizers").to_vec();
        if !finalizers.iter().any(|finalizer| finalizer == FINALIZER_NAMESPACE) {
            finalizers.push(FINALIZER_NAMESPACE.into());
        }
        object["spec"] = json!({"finalizers": finalizers});
        object["status"] = json!({"phase": "Active"});
        label(object);
    }

    fn prepare_update(&self, object: &mut Value, _old: &Value) {
        label(object);
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let spec = object.get("spec").and_then(Value::as_object);
        let path = FieldPath::root("spec");
        spec.map(|spec| object_meta::unqualified_finalizers(spec, &path)).unwrap_or_default()
    }

    fn validate_subresource(&self, subresource: &str, object: &Value, _old: &Value) -> Vec<FieldError> {
        let (phase, path) = (text(object, "/status/phase"), FieldPath::root("status").child("Phase"));
        let expected = if is_terminating(object) { "Terminating" } else { "Active" };
        if subresource != "status" || phase == expected {
            return Vec::new();
        }
        let not = if is_terminating(object) { " not" } else { "" };
        let detail = format!("may only be '{expected}' if `deletionTimestamp` is{not} empty");
        vec![FieldError::invalid(&path, phase, detail)]
    }

    fn columns(&self) -> Option<&dyn Columns> {
        Some(&TABLE)
    }
}

/// Every namespace is found by its name, whatever its labels.
fn label(object: &mut Value) {
    let name = object["metadata"]["name"].clone();
    if !object["metadata"]["labels"].is_object() {
        object["metadata"]["labels"] = json!({});
    }
    object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
}

fn is_namespace(object: &Value) -> bool {
    object.get("kind").and_then(Value::as_str) == Some("Namespace")
        && object.get("apiVersion").and_then(Value::as_str) == Some("v1")
}

fn spec_finalizers(object: &Value) -> usize {
    object.pointer("/spec/finalizers").and_then(Value::as_array).map_or(0, Vec::len)
}

/// Whether a namespace must wait for what is in it.
pub(crate) fn has_content(_kind: &Kind, object: &Value) -> bool {
    is_namespace(object) && spec_finalizers(object) > 0
}

/// Whether a namespace on its way out still waits.
pub(crate) fn holds_namespace(object: &Value) -> bool {
    is_namespace(object) && is_terminating(object) && spec_finalizers(object) > 0
}

/// A namespace that is going says so.
pub(crate) fn mark_deleted(_kind: &Kind, object: &mut Value) {
    if is_namespace(object) {
        // A namespace has no time of grace, not even one of none.
        super::fill::remove(&mut object["metadata"], "deletionGracePeriodSeconds");
        object["status"]["phase"] = "Terminating".into();
    }
}

#[cfg(test)]
mod tests {
    use super::{super::columns::tests::row, *};

    #[test]
    fn a_new_namespace_is_active_and_found_by_its_name() {
        let mut object = json!({"metadata": {"name": "n"}});
        Namespace.prepare_create(&mut object);
        assert_eq!(object["spec"], json!({"finalizers": ["kubernetes"]}));
        assert_eq!(object["metadata"]["labels"], json!({"kubernetes.io/metadata.name": "n"}));
        assert_eq!(row(&TABLE, &object), ["n", "Active", "<unknown>"]);
    }
}
