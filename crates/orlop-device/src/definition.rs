//! The CustomResourceDefinition of a device kind, derived from its `.proto`, so that `orlop serve` on the same database
//! serves its objects.

use prost_reflect::{FieldDescriptor, Kind as FieldKind, MessageDescriptor};
use serde_json::{Map, Value, json};

use crate::{
    kinds::Kind,
    shape::{Part, Shape, ShapeError},
};

/// Returns the CustomResourceDefinition of a kind.
pub fn definition(kind: &Kind) -> Result<Value, ShapeError> {
    let shape = Shape::of(kind)?;
    let parts = [Part::Spec, Part::Status].map(|part| (part.name(), object(shape.descriptor(part))));
    let mut properties: Map<String, Value> =
        parts.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect();
    for (name, of_type) in [("apiVersion", "string"), ("kind", "string"), ("metadata", "object")] {
        properties.insert(name.to_owned(), json!({"type": of_type}));
    }
    Ok(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{}.{}", kind.plural, kind.group)},
        "spec": {
            "group": kind.group,
            "scope": "Namespaced",
            "names": {"kind": kind.kind, "plural": kind.plural, "singular": kind.kind.to_lowercase()},
            "versions": [{
                "name": kind.version, "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
                "subresources": {"status": {}},
            }],
        },
    }))
}

fn object(message: &MessageDescriptor) -> Value {
    let properties: Map<String, Value> =
        message.fields().map(|field| (field.json_name().to_owned(), field_schema(&field))).collect();
    json!({"type": "object", "properties": properties})
}

fn field_schema(field: &FieldDescriptor) -> Value {
    if field.is_map() {
        return json!({"type": "object", "additionalProperties": {"type": "string"}});
    }
    let one = match field.kind() {
        FieldKind::Message(message) if message.full_name() == "google.protobuf.Timestamp" => {
            json!({"type": "string", "format": "date-time", "nullable": true})
        }
        FieldKind::Message(message) => object(&message),
        FieldKind::Bool => json!({"type": "boolean"}),
        FieldKind::Double | FieldKind::Float => json!({"type": "number"}),
        FieldKind::String | FieldKind::Bytes | FieldKind::Enum(_) => json!({"type": "string"}),
        _ => json!({"type": "integer"}),
    };
    if field.is_list() { json!({"type": "array", "items": one}) } else { one }
}
