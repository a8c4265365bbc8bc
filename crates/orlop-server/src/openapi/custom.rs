//! Schemas of custom kinds.

use orlop_api::schema::{AdditionalProperties, ListType, MapType, Schema, Type};
use orlop_crd::openapi;
use serde_json::{Map, Value, json};

use super::{
    SpecVersion,
    references::{META, kind_extension, reference},
};
use crate::registry::Kind;

/// Page that descriptions of lists refer to.
const CONVENTIONS: &str =
    "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md";

/// Returns the name of a definition: `com.example.v1.Foo`, the group reversed.
pub(super) fn name(kind: &Kind, of: &str) -> String {
    let group: Vec<&str> = kind.gvk.group.split('.').rev().collect();
    format!("{}.{}.{of}", group.join("."), kind.gvk.version)
}

/// Returns the schema of a kind's objects: as its author wrote it, if available, or as it was parsed.
pub(super) fn schema(kind: &Kind, spec_version: SpecVersion) -> Value {
    let mut schema = match kind.strategy.published_schema() {
        Some(written) => written,
        None => of(kind.schema.get()),
    };
    let v2 = spec_version == SpecVersion::V2;
    let meta = reference(&format!("{META}.ObjectMeta"), spec_version);
    let meta = if v2 { meta } else { json!({"allOf": [meta]}) };
    if openapi::is_opaque(&schema, v2) {
        schema = json!({"type": "object"});
    } else {
        if v2 {
            openapi::to_v2(&mut schema);
        }
        openapi::add_embedded_type_meta(&mut schema, &meta);
        schema["properties"]["apiVersion"] = json!({"type": "string"});
        schema["properties"]["kind"] = json!({"type": "string"});
        schema["properties"]["metadata"] = meta;
    }
    add_selectable_fields(&mut schema, kind);
    schema["x-kubernetes-group-version-kind"] = json!([kind_extension(&kind.gvk)]);
    schema
}

/// Returns the schema of a kind's lists.
pub(super) fn list(kind: &Kind, spec_version: SpecVersion) -> Value {
    let meta = reference(&format!("{META}.ListMeta"), spec_version);
    let gvk = kind.gvk.group_version().with_kind(&kind.list_kind);
    let items = format!("List of {}. More info: {CONVENTIONS}", kind.resource);
    let mut schema = json!({
        "type": "object",
        "description": format!("{} is a list of {}", kind.list_kind, kind.gvk.kind),
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": if spec_version == SpecVersion::V2 { meta } else { json!({"allOf": [meta]}) },
            "items": {
                "type": "array", "items": reference(&name(kind, &kind.gvk.kind), spec_version), "description": items,
            },
        },
        "x-kubernetes-group-version-kind": [kind_extension(&gvk)],
    });
    add_selectable_fields(&mut schema, kind);
    schema
}

fn add_selectable_fields(schema: &mut Value, kind: &Kind) {
    let paths = kind.strategy.selectable_field_paths();
    if !paths.is_empty() {
        let field = |path: &String| json!({"fieldPath": path.trim_start_matches('.')});
        schema["x-kubernetes-selectable-fields"] = paths.iter().map(field).collect();
    }
}

/// Returns the OpenAPI of a parsed schema.
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
    match &schema.additional_properties {
        AdditionalProperties::Of(values) => set("additionalProperties", of(values.get())),
        AdditionalProperties::Anything => set("additionalProperties", true.into()),
        AdditionalProperties::Forbidden | AdditionalProperties::Unspecified => {}
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
    if let Some(validation) = &schema.value_validation
        && !validation.enumeration.is_empty()
    {
        set("enum", validation.enumeration.clone().into());
    }
    Value::Object(made)
}
