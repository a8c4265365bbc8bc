//! Defaulting, and removal of nulls that a schema does not allow.

use super::{AdditionalProperties, Field, Schema, Type, Unset};
use crate::{quantity, time::Time};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value};

fn is_disallowed_null(value: &Value, schema: Option<&Schema>) -> bool {
    value.is_null() && schema.is_some_and(|schema| !schema.nullable)
}

/// Applies defaults to absent fields. A null that is not allowed counts as absent.
/// Defaults apply only where their parent exists.
pub fn apply_defaults(value: &mut Value, schema: &Schema) {
    match value {
        Value::Object(map) => {
            for (name, field) in &schema.properties {
                let Some(default) = field.default() else { continue };
                let absent =
                    map.get(&**name).is_none_or(|found| is_disallowed_null(found, Some(field.schema())));
                if absent {
                    map.insert(name.to_string(), default.clone());
                }
            }
            for (key, item) in map.iter_mut() {
                if let Some(field) = schema.field(key) {
                    apply_defaults(item, field.schema());
                } else if let AdditionalProperties::Of(inner) = &schema.additional_properties {
                    default_item(item, inner.get());
                }
            }
        }
        Value::Array(items) => {
            if let Some(inner) = schema.items() {
                items.iter_mut().for_each(|item| default_item(item, inner));
            }
        }
        _ => {}
    }
}

fn default_item(item: &mut Value, schema: &Schema) {
    if is_disallowed_null(item, Some(schema))
        && let Some(default) = &schema.default
    {
        *item = default.clone();
    }
    apply_defaults(item, schema);
}

/// Brings an object into stored form: removes nulls of properties that are neither nullable nor
/// defaulted; for built-in types, also canonicalizes times and quantities, and
/// removes zeros, empty lists and maps that Go omits.
pub fn canonicalize(value: &mut Value, schema: &Schema) {
    canonicalize_in(value, schema, schema.go_type.is_some());
}

/// Like [`canonicalize`]; `typed` if the enclosing type is built-in.
fn canonicalize_in(value: &mut Value, schema: &Schema, typed: bool) {
    let item_of = |item: &mut Value, schema: &Schema| {
        // Go has no null in lists and maps of values: null is the zero value.
        if typed && item.is_null() {
            *item = zero_item(schema);
        }
        canonicalize_in(item, schema, typed);
    };
    match value {
        Value::Object(map) => map.retain(|key, item| {
            let Some(field) = schema.field(key) else {
                if let AdditionalProperties::Of(inner) = &schema.additional_properties {
                    item_of(item, inner.get());
                }
                return true;
            };
            if is_disallowed_null(item, Some(field.schema())) && field.default().is_none() {
                return false;
            }
            if typed && is_left_out(key, item, field) {
                return false;
            }
            canonicalize_in(item, field.schema(), typed);
            true
        }),
        Value::Array(items) if typed && schema.kind == Type::String => {
            let byte = |item: &Value| item.as_u64().and_then(|byte| u8::try_from(byte).ok());
            *value = STANDARD.encode(items.iter().filter_map(byte).collect::<Vec<u8>>()).into();
        }
        Value::Array(items) => {
            if let Some(inner) = schema.items() {
                items.iter_mut().for_each(|item| item_of(item, inner));
            }
        }
        Value::String(text) => {
            if let Some(canonical) = canonical(text, schema).filter(|canonical| canonical != text) {
                *text = canonical;
            }
        }
        Value::Number(number) if schema.go_type == Some("Quantity") => {
            if let Ok(canonical) = quantity::canonical(&number.to_string()) {
                *value = canonical.into();
            }
        }
        _ => {}
    }
}

/// Returns the initial value of a list item or map entry.
fn zero_item(schema: &Schema) -> Value {
    match schema.kind {
        _ if schema.go_type == Some("Quantity") => "0".into(),
        Type::String => "".into(),
        Type::Integer | Type::Number => 0.into(),
        Type::Boolean => false.into(),
        Type::Object => Value::Object(Map::new()),
        Type::Array => Value::Array(Vec::new()),
        Type::Any => Value::Null,
    }
}

/// Returns whether Go omits a field of a built-in type: a zero, or an empty list or map, of a field with `omitempty`.
/// An empty managedFields list is kept: it resets the managers.
fn is_left_out(name: &str, item: &Value, field: &Field) -> bool {
    // Most values are not empty.
    let is_empty = match item {
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        scalar => return field.go.unset == Unset::Zero && is_zero(scalar),
    };
    if !is_empty || name == "managedFields" || field.go.unset == Unset::Null {
        return false;
    }
    let schema = field.schema();
    let is_map =
        schema.properties.is_empty() && matches!(schema.additional_properties, AdditionalProperties::Of(_));
    schema.kind == Type::Array || is_map
}

/// Canonicalizes a time or a quantity.
fn canonical(text: &str, schema: &Schema) -> Option<String> {
    match schema.go_type? {
        "Time" => Some(Time::parse(text)?.to_string()),
        "MicroTime" => Some(Time::parse(text)?.to_micro()),
        "Quantity" => quantity::canonical(text).ok(),
        _ => None,
    }
}

/// Returns Go's zero value of a type: nested structs, and no lists.
/// Fields that equal it were not set by a client.
pub fn zero_value(schema: &Schema) -> Value {
    let mut zero = Map::new();
    for (name, field) in &schema.properties {
        let value = match field.default() {
            Some(Value::Object(_)) => zero_value(field.schema()),
            Some(default) if is_zero(default) => default.clone(),
            Some(_) => continue,
            None if field.go.unset == Unset::Null => Value::Null,
            None => continue,
        };
        zero.insert(name.to_string(), value);
    }
    Value::Object(zero)
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::String(text) => text.is_empty(),
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::Bool(flag) => !flag,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::from_openapi;
    use super::*;
    use serde_json::json;

    #[test]
    fn times_of_built_in_types_are_canonicalized() {
        let schema = super::super::builtin::type_of("coordination.k8s.io", "v1", "Lease").unwrap().schema();
        let mut lease = json!({
            "metadata": {"creationTimestamp": "2026-11-15T09:42:16.5+02:00", "annotations": {"t": "2026-11-15T09:42:16+02:00"}},
            "spec": {"renewTime": "2026-11-15T07:42:16Z", "holderIdentity": "2026-11-15T09:42:16+02:00"},
        });
        canonicalize(&mut lease, schema);
        assert_eq!(lease["metadata"]["creationTimestamp"], "2026-11-15T07:42:16Z");
        assert_eq!(lease["spec"]["renewTime"], "2026-11-15T07:42:16.000000Z");
        // Strings that are not times stay unchanged.
        assert_eq!(lease["metadata"]["annotations"]["t"], lease["spec"]["holderIdentity"]);
    }

    #[test]
    fn quantities_of_built_in_types_are_canonicalized() {
        let schema = super::super::builtin::type_of("", "v1", "ResourceQuota").unwrap().schema();
        let mut quota =
            json!({"spec": {"hard": {"cpu": "0.5", "pods": 5000, "memory": "1.5Gi", "odd": "x"}}});
        canonicalize(&mut quota, schema);
        let hard = json!({"cpu": "500m", "pods": "5k", "memory": "1536Mi", "odd": "x"});
        assert_eq!(quota["spec"]["hard"], hard);
    }

    #[test]
    fn empty_lists_and_maps_of_built_in_types_are_omitted() {
        let schema = super::super::builtin::type_of("apps", "v1", "Deployment").unwrap().schema();
        let mut deployment = json!({
            "metadata": {"labels": {}, "managedFields": []},
            "spec": {"selector": {"matchLabels": {}}, "template": {"metadata": {"annotations": {}}, "spec": {
                "containers": [], "nodeSelector": {}, "tolerations": [], "securityContext": {},
                "volumes": [{"name": "v", "emptyDir": {}, "configMap": {"items": []}}],
            }}},
        });
        canonicalize(&mut deployment, schema);
        // Structs and required fields stay.
        let expected = json!({
            "metadata": {"managedFields": []},
            "spec": {"selector": {}, "template": {"metadata": {}, "spec": {
                "containers": [], "securityContext": {},
                "volumes": [{"name": "v", "emptyDir": {}, "configMap": {}}],
            }}},
        });
        assert_eq!(deployment, expected);
        let custom = from_openapi(&json!({"type": "object", "properties": {"list": {"type": "array"}}}));
        let mut object = json!({"list": []});
        canonicalize(&mut object, &custom);
        assert_eq!(object, json!({"list": []}));
    }

    #[test]
    fn nulls_in_lists_and_maps_become_zero_values() {
        let schema = super::super::builtin::type_of("", "v1", "Pod").unwrap().schema();
        let mut pod = json!({
            "metadata": {"labels": {"a": null}},
            "spec": {"containers": [{"args": [null, "b"], "env": [null], "resources": {"limits": {"cpu": null}}}]},
        });
        canonicalize(&mut pod, schema);
        let expected = json!({
            "metadata": {"labels": {"a": ""}},
            "spec": {"containers": [{"args": ["", "b"], "env": [{}], "resources": {"limits": {"cpu": "0"}}}]},
        });
        assert_eq!(pod, expected);
    }

    #[test]
    fn zero_value_matches_go() {
        let schema = super::super::builtin::type_of("apps", "v1", "Deployment").unwrap().schema();
        let template = json!({"metadata": {}, "spec": {"containers": null}});
        let expected = json!({
            "metadata": {},
            "spec": {"selector": null, "strategy": {}, "template": template},
            "status": {},
        });
        assert_eq!(zero_value(schema), expected);
    }

    #[test]
    fn defaults_apply_to_absent_and_disallowed_null_fields() {
        let schema = from_openapi(&json!({"type": "object", "properties": {
            "a": {"type": "string", "default": "x"},
            "n": {"type": "string", "nullable": true, "default": "y"},
            "o": {"type": "object", "default": {}, "properties": {"p": {"type": "integer", "default": 1}}},
            "q": {"type": "object", "properties": {"r": {"type": "integer", "default": 1}}},
            "l": {"type": "array", "items": {"type": "object", "properties": {"i": {"type": "integer", "default": 2}}}},
            "m": {"type": "object", "additionalProperties": {"type": "string", "default": "z"}},
            "plain": {"type": "string"}
        }}));
        let mut value =
            json!({"a": null, "n": null, "l": [{}, {"i": 5}], "m": {"k": null, "j": "v"}, "plain": null});
        canonicalize(&mut value, &schema);
        assert!(value.get("plain").is_none() && value.get("a").is_some());
        apply_defaults(&mut value, &schema);
        assert_eq!(
            value,
            json!({"a": "x", "n": null, "o": {"p": 1}, "l": [{"i": 2}, {"i": 5}], "m": {"k": "z", "j": "v"}})
        );
        let once = value.clone();
        apply_defaults(&mut value, &schema);
        assert_eq!(value, once);
    }
}
