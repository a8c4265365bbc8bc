//! Schemas of custom resources as OpenAPI publishes them.

use orlop_api::schema::unstructured::{flag, list};
use serde_json::{Map, Value, json};

/// Keywords that OpenAPI v2 lacks.
const V3_KEYWORDS: [&str; 7] =
    ["oneOf", "anyOf", "allOf", "not", "nullable", "default", "x-kubernetes-validations"];

/// Returns whether only `type: object` is published of a schema.
///
/// kubectl reads `properties` in OpenAPI v2 as a complete list and refuses other fields, so the properties of a root
/// that preserves unknown fields are left out. A version without a schema has none.
pub fn is_opaque(schema: &Value, v2: bool) -> bool {
    !schema.is_object() || (v2 && flag(schema, "x-kubernetes-preserve-unknown-fields"))
}

/// Removes from a schema what OpenAPI v2 cannot express. Clients refuse what a schema does not allow, so a node that
/// cannot be expressed fully loses its type and properties.
pub fn to_v2(schema: &mut Value) {
    let nullable = flag(schema, "nullable");
    let int_or_string = flag(schema, "x-kubernetes-int-or-string");
    let preserves = flag(schema, "x-kubernetes-preserve-unknown-fields");
    let Some(map) = schema.as_object_mut() else { return };
    V3_KEYWORDS.iter().for_each(|keyword| drop(map.remove(*keyword)));
    if int_or_string {
        map.remove("type");
    }
    if nullable || preserves {
        ["type", "items", "properties"].iter().for_each(|keyword| drop(map.remove(*keyword)));
    }
    match map.get_mut("properties") {
        Some(Value::Object(properties)) => properties.values_mut().for_each(to_v2),
        _ => drop(map.remove("properties")),
    }
    for keyword in ["items", "additionalProperties"] {
        map.get_mut(keyword).into_iter().for_each(to_v2);
    }
}

/// Adds apiVersion, kind and metadata to embedded resources. `metadata` is the schema of ObjectMeta.
pub fn add_embedded_type_meta(schema: &mut Value, metadata: &Value) {
    let embedded = flag(schema, "x-kubernetes-embedded-resource");
    let missing: Vec<&str> = ["kind", "apiVersion"]
        .into_iter()
        .filter(|name| !list(schema, "required").iter().any(|required| required.as_str() == Some(name)))
        .collect();
    let Some(map) = schema.as_object_mut() else { return };
    for keyword in ["items", "additionalProperties"] {
        map.get_mut(keyword).into_iter().for_each(|inner| add_embedded_type_meta(inner, metadata));
    }
    if let Some(Value::Object(properties)) = map.get_mut("properties") {
        properties.values_mut().for_each(|property| add_embedded_type_meta(property, metadata));
    }
    if !embedded {
        return;
    }
    if let Value::Object(properties) = map.entry("properties").or_insert_with(|| Map::new().into()) {
        properties.insert("apiVersion".to_owned(), json!({"type": "string"}));
        properties.insert("kind".to_owned(), json!({"type": "string"}));
        properties.insert("metadata".to_owned(), metadata.clone());
    }
    if let Value::Array(required) = map.entry("required").or_insert_with(|| json!([])) {
        required.extend(missing.into_iter().map(Value::from));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v2_drops_structure_of_nullable_and_preserving_nodes() {
        let mut schema = json!({"type": "object", "properties": {
            "nullable": {"type": "object", "nullable": true, "description": "d", "properties": {"a": {"type": "string"}}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"a": {"type": "string"}}},
            "port": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
            "list": {"type": "array", "items": {"type": "string", "nullable": true, "default": "x"}},
        }});
        to_v2(&mut schema);
        assert_eq!(
            schema["properties"],
            json!({
                "nullable": {"description": "d"},
                "free": {"x-kubernetes-preserve-unknown-fields": true},
                "port": {"x-kubernetes-int-or-string": true},
                "list": {"type": "array", "items": {}},
            })
        );
    }

    #[test]
    fn roots_that_preserve_unknown_fields_are_opaque_in_v2() {
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        assert!(is_opaque(&schema, true) && !is_opaque(&schema, false));
        assert!(is_opaque(&Value::Null, false));
    }

    #[test]
    fn embedded_resources_have_type_meta() {
        let mut schema = json!({"type": "object", "properties": {"items": {"type": "array", "items": {
            "type": "object", "x-kubernetes-embedded-resource": true, "required": ["kind", "spec"]}}}});
        add_embedded_type_meta(&mut schema, &json!({"$ref": "meta"}));
        assert_eq!(
            schema["properties"]["items"]["items"],
            json!({
                "type": "object", "x-kubernetes-embedded-resource": true, "required": ["kind", "spec", "apiVersion"],
                "properties": {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"$ref": "meta"}},
            })
        );
    }
}
