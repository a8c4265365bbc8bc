//! The OpenAPI schema of fields, and the CustomResourceDefinition around it.

use serde_json::{Map, Value, json};

use super::{Field, Leaf, Type};

/// Returns the schema of an object with these fields.
pub(crate) fn object_schema(fields: &[Field]) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for field in fields {
        let mut schema = type_schema(&field.kind);
        if field.immutable {
            schema["x-kubernetes-validations"] =
                json!([{"rule": "self == oldSelf", "message": "Value is immutable once set"}]);
        }
        properties.insert(field.name.clone(), schema);
        if field.required {
            required.push(field.name.clone());
        }
    }
    let mut schema = json!({"type": "object", "properties": properties});
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

fn type_schema(kind: &Type) -> Value {
    match kind {
        Type::Leaf(leaf) => match leaf {
            Leaf::Text => json!({"type": "string"}),
            Leaf::Integer => json!({"type": "integer", "format": "int64"}),
            Leaf::Boolean => json!({"type": "boolean"}),
            Leaf::Number => json!({"type": "number"}),
            Leaf::Bytes => json!({"type": "string", "format": "byte"}),
            Leaf::Time => json!({"type": "string", "format": "date-time"}),
            Leaf::Reference => json!({"type": "object", "properties": {"from": {"type": "object",
                "properties": {"name": {"type": "string"}, "namespace": {"type": "string"}}}}}),
            Leaf::Secret => json!({"type": "object", "required": ["key"], "x-kubernetes-map-type": "atomic",
                "properties": {"name": {"type": "string"}, "namespace": {"type": "string"}, "key": {"type": "string"}}}),
        },
        Type::Object(fields) => object_schema(fields),
        Type::List(item) => json!({"type": "array", "items": type_schema(item)}),
        Type::Map(value) => json!({"type": "object", "additionalProperties": type_schema(value)}),
    }
}

/// Returns the schema of `status.conditions`: a plain list, as ACK's.
pub(crate) fn conditions_schema() -> Value {
    json!({"type": "array", "items": {"type": "object", "required": ["type", "status"], "properties": {
        "type": {"type": "string"}, "status": {"type": "string"}, "reason": {"type": "string"},
        "message": {"type": "string"}, "observedGeneration": {"type": "integer", "format": "int64"},
        "lastTransitionTime": {"type": "string", "format": "date-time"}}}})
}

/// Returns a CustomResourceDefinition of one version with a status subresource.
pub(crate) fn custom_resource_definition(
    group: &str,
    (kind, plural): (&str, &str),
    namespaced: bool,
    spec: Value,
    mut status: Value,
    columns: Value,
    short_names: &[&str],
) -> Value {
    status["properties"]["conditions"] = conditions_schema();
    let singular = kind.to_lowercase();
    let mut names =
        json!({"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": singular});
    if !short_names.is_empty() {
        names["shortNames"] = json!(short_names);
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "names": names, "scope": if namespaced { "Namespaced" } else { "Cluster" },
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true, "subresources": {"status": {}},
                "additionalPrinterColumns": columns,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"},
                    "spec": spec, "status": status}}},
            }],
        },
    })
}
