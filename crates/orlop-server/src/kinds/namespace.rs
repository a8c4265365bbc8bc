//! Namespaces: they end only when what is in them has gone.

use serde_json::{Value, json};

use crate::{
    cluster::is_terminating,
    registry::{Hooks, Kind},
};

pub(super) struct Namespace;

impl Hooks for Namespace {
    fn prepare_create(&self, object: &mut Value) {
        object["spec"] = json!({"finalizers": ["kubernetes"]});
        object["status"] = json!({"phase": "Active"});
        label(object);
    }

    fn prepare_update(&self, object: &mut Value, _old: &Value) {
        label(object);
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
        object["status"]["phase"] = "Terminating".into();
    }
}
