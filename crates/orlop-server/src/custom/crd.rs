//! Definitions themselves: what the server does with a CustomResourceDefinition beyond its schema.

use orlop_api::{field_error::FieldError, object_meta};
use orlop_crd::{Condition, Conditions, TERMINATING};
use serde_json::{Value, json};

use super::FINALIZER;
use crate::{
    cluster::{is_terminating, now},
    registry::Hooks,
};

/// The hooks of definitions.
#[derive(Debug)]
pub(crate) struct CustomResourceDefinition;

impl Hooks for CustomResourceDefinition {
    fn default(&self, object: &mut Value) {
        orlop_crd::default(object);
    }

    fn prepare_create(&self, object: &mut Value) {
        object["status"] = json!({"conditions": [], "acceptedNames": {"plural": "", "kind": ""}});
        store_version(object);
    }

    fn prepare_update(&self, object: &mut Value, old: &Value) {
        if object.get("spec") != old.get("spec") {
            store_version(object);
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        orlop_crd::validate_create(object)
    }

    fn validate_replacing(&self, object: &Value, old: &Value, subresource: &str) -> Vec<FieldError> {
        match subresource {
            "status" => orlop_crd::validate_status_update(object, old),
            _ => orlop_crd::validate_update(object, old),
        }
    }

    fn prepare_delete(&self, object: &mut Value) {
        if is_terminating(object) {
            return;
        }
        let finalizers = &mut object["metadata"]["finalizers"];
        match finalizers.as_array_mut() {
            Some(list) if list.iter().any(|name| name == FINALIZER) => {}
            Some(list) => list.push(FINALIZER.into()),
            None => *finalizers = json!([FINALIZER]),
        }
        let why = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
        terminating(object, "True", "InstanceDeletionPending", why);
    }

    fn warnings(&self, object: &Value) -> Vec<String> {
        orlop_crd::warnings(object, None)
    }

    fn warnings_replacing(&self, object: &Value, old: &Value) -> Vec<String> {
        orlop_crd::warnings(object, Some(old))
    }
}

/// Says how far the end of a definition is.
pub(super) fn terminating(object: &mut Value, status: &str, reason: &str, message: &str) {
    let mut conditions = Conditions::of(object);
    conditions.set(Condition::new(TERMINATING, status, reason, message), now());
    object["status"]["conditions"] = conditions.to_value();
}

/// Whether a definition waits for its objects to go.
pub(super) fn is_ending(object: &Value) -> bool {
    let finalizers = object_meta::of(object).get("finalizers").and_then(Value::as_array);
    is_terminating(object) && finalizers.is_some_and(|list| list.iter().any(|name| name == FINALIZER))
}

/// Remembers that objects may be stored in the version that is stored now.
fn store_version(object: &mut Value) {
    let versions = object.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten();
    let storage = versions.into_iter().find(|version| version["storage"] == true);
    let Some(name) = storage.and_then(|version| version["name"].as_str()).map(str::to_owned) else { return };
    let stored = &mut object["status"]["storedVersions"];
    match stored.as_array_mut() {
        Some(list) if list.iter().any(|known| *known == name) => {}
        Some(list) => list.push(name.into()),
        None => *stored = json!([name]),
    }
}
