//! CustomResourceDefinition.

use orlop_api::{field_error::FieldError, object_meta};
use orlop_crd::{Condition, Conditions, TERMINATING};
use serde_json::{Value, json};

use crate::{
    object::{is_terminating, now},
    registry::Hooks,
};

/// Holds a terminating definition until all of its objects are deleted.
pub(crate) const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Strategy of CustomResourceDefinitions.
#[derive(Debug)]
pub(crate) struct CustomResourceDefinition;

impl Hooks for CustomResourceDefinition {
    fn default(&self, object: &mut Value) {
        orlop_crd::default(object);
    }

    fn prepare_create(&self, object: &mut Value) {
        object["status"] = json!({"conditions": [], "acceptedNames": {"plural": "", "kind": ""}});
        add_stored_version(object);
    }

    fn prepare_update(&self, object: &mut Value, old: &Value) {
        if object.get("spec") != old.get("spec") {
            add_stored_version(object);
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
        set_terminating(object, "True", "InstanceDeletionPending", why);
    }

    fn warnings(&self, object: &Value) -> Vec<String> {
        orlop_crd::warnings(object, None)
    }

    fn warnings_replacing(&self, object: &Value, old: &Value) -> Vec<String> {
        orlop_crd::warnings(object, Some(old))
    }
}

/// Sets the Terminating condition.
pub(crate) fn set_terminating(object: &mut Value, status: &str, reason: &str, message: &str) {
    let mut conditions = Conditions::of(object);
    conditions.set(Condition::new(TERMINATING, status, reason, message), now());
    object["status"]["conditions"] = conditions.to_value();
}

/// Returns true if a definition is deleted and waits for its objects to be.
pub(crate) fn is_finalizing(object: &Value) -> bool {
    let finalizers = object_meta::of(object).get("finalizers").and_then(Value::as_array);
    is_terminating(object) && finalizers.is_some_and(|list| list.iter().any(|name| name == FINALIZER))
}

/// Adds the storage version to `status.storedVersions`.
fn add_stored_version(object: &mut Value) {
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
