//! Schemas of kinds that did not come with the program.

use orlop_api::schema::{Additional, ListType, MapType, Schema, Type};
use serde_json::{Map, Value, json};

use super::{
    Form,
    schemas::{META, kind_extension, reference},
};
use crate::registry::Kind;

/// `com.example.v1.Foo`: the group backwards.
pub(super) fn name(kind: &Kind, of: &str) -> String {
    let group: Vec<&str> = kind.gvk.group.split('.').rev().collect();
    format!("{}.{}.{of}", group.join("."), kind.gvk.version)
}

/// The schema of a kind's objects: as its author wrote it where that is kept, else as it was understood.
pub(super) fn schema(kind: &Kind, form: Form) -> Value {
    let mut schema = match kind.strategy.published_schema() {
        Some(written) => written,
        None => of(kind.schema.get()),
    };
    if form == Form::V2 {
        simplify(&mut schema, true);
    }
    if !schema.is_object() {
        schema = json!({"type": "object"});
    }
    let meta = reference(&format!("{META}.ObjectMeta"), form);
    schema["properties"]["apiVersion"] = json!({"type": "string"});
    schema["properties"]["kind"] = json!({"type": "string"});
    schema["properties"]["metadata"] = if form == Form::V2 { meta } else { json!({"allOf": [meta]}) };
    schema["x-kubernetes-group-version-kind"] = json!([kind_extension(&kind.gvk)]);
    schema
}

/// The schema of a kind's lists.
pub(super) fn list(kind: &Kind, form: Form) -> Value {
    let meta = reference(&format!("{META}.ListMeta"), form);
    let gvk = kind.gvk.group_version().with_kind(&kind.list_kind);
    json!({
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": if form == Form::V2 { meta } else { json!({"allOf": [meta]}) },
            "items": {"type": "array", "items": reference(&name(kind, &kind.gvk.kind), form)},
        },
        "x-kubernetes-group-version-kind": [kind_extension(&gvk)],
    })
}

/// A schema as it was understood.
fn of(schema: &Schema) -> Value {
    let mut made = Map::new();
    let mut set = |name: &str, value: Value| drop(made.insert(name.to_owned(), value));
    if schema.kind != Type::Any {
        set("type", schema.kind.name().into());
    }
    if let Some(format) = &schema.format {
        set("format", format.as_ref().into());
    }
    if !schema.properties.is_empty() {
        let mut properties = Map::new();
        for (name, field) in &schema.properties {
            let mut property = of(field.schema());
            if let Some(default) = field.default() {
                property["default"] = default.clone();
            }
            properties.insert(name.to_string(), property);
        }
        set("properties", properties.into());
    }
    match &schema.additional {
        Additional::Of(values) => set("additionalProperties", of(values.get())),
        Additional::Anything => set("additionalProperties", true.into()),
        Additional::Forbidden | Additional::Unspecified => {}
    }
    if let Some(items) = schema.items() {
        set("items", of(items));
    }
    if !schema.required.is_empty() {
        set("required", schema.required.iter().map(AsRef::<str>::as_ref).collect());
    }
    match &schema.list_type {
        ListType::Map(keys) => {
            set("x-kubernetes-list-type", "map".into());
            set("x-kubernetes-list-map-keys", keys.iter().map(AsRef::<str>::as_ref).collect());
        }
        ListType::Set => set("x-kubernetes-list-type", "set".into()),
        ListType::Atomic => {}
    }
    if schema.map_type == MapType::Atomic {
        set("x-kubernetes-map-type", "atomic".into());
    }
    for (name, is_set) in [
        ("nullable", schema.nullable),
        ("x-kubernetes-preserve-unknown-fields", schema.preserve_unknown),
        ("x-kubernetes-embedded-resource", schema.embedded_resource),
        ("x-kubernetes-int-or-string", schema.int_or_string),
    ] {
        if is_set {
            set(name, true.into());
        }
    }
    if let Some(checks) = &schema.checks
        && !checks.enumeration.is_empty()
    {
        set("enum", checks.enumeration.clone().into());
    }
    Value::Object(made)
}

/// Takes out what version 2 cannot say. Clients of it refuse what a schema does not allow, so what cannot
/// be said must not be half said.
fn simplify(schema: &mut Value, root: bool) {
    const UNKNOWN: &[&str] =
        &["oneOf", "anyOf", "allOf", "not", "nullable", "default", "x-kubernetes-validations"];
    let Some(map) = schema.as_object_mut() else { return };
    UNKNOWN.iter().for_each(|name| drop(map.remove(*name)));
    let is = |map: &Map<String, Value>, name: &str| map.get(name) == Some(&Value::Bool(true));
    if is(map, "x-kubernetes-int-or-string") {
        map.remove("type");
    }
    if is(map, "x-kubernetes-preserve-unknown-fields") {
        map.remove("items");
        map.remove("properties");
        if !root {
            map.remove("type");
        }
        return;
    }
    match map.get_mut("properties") {
        Some(Value::Object(properties)) => {
            properties.values_mut().for_each(|property| simplify(property, false));
        }
        _ => drop(map.remove("properties")),
    }
    for name in ["items", "additionalProperties"] {
        if let Some(inner) = map.get_mut(name) {
            simplify(inner, false);
        }
    }
}
