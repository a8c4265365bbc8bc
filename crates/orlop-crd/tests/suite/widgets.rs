//! A definition to start from, and changes to it.

use orlop_crd::{Definition, Version, apply_defaults};
use serde_json::{Value, json};
use std::sync::Arc;

/// `widgets.example.com` with one version, defaulted.
pub(crate) fn widgets() -> Value {
    with_schema(json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "size": {"type": "integer"}, "color": {"type": "string"}}}}}))
}

/// `widgets.example.com` with this schema.
pub(crate) fn with_schema(schema: Value) -> Value {
    let mut definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    });
    apply_defaults(&mut definition);
    definition
}

/// A definition changed by a JSON pointer: `null` removes.
pub(crate) fn changed(mut definition: Value, changes: &[(&str, Value)]) -> Value {
    for (pointer, value) in changes {
        let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
        let target = definition.pointer_mut(parent).expect("a place that exists");
        match (target, value) {
            (Value::Object(map), Value::Null) => drop(map.remove(key)),
            (Value::Object(map), value) => drop(map.insert(key.to_owned(), value.clone())),
            (Value::Array(items), value) if key == "-" => items.push(value.clone()),
            (Value::Array(items), value) => items[key.parse::<usize>().expect("an index")] = value.clone(),
            (other, _) => unreachable!("{other} has no parts"),
        }
    }
    definition
}

/// The version of a definition with this schema.
pub(crate) fn version(schema: Value) -> Arc<Version> {
    version_of(&with_schema(schema))
}

/// `v1` of a definition.
pub(crate) fn version_of(definition: &Value) -> Arc<Version> {
    read(definition).version("v1").expect("a version v1").clone()
}

pub(crate) fn read(definition: &Value) -> Definition {
    Definition::of(definition).expect("a definition")
}
