//! Schemas of types.
//!
//! A built-in type is built from the data tables, a custom one from what its author wrote. Version 2 refers directly,
//! version 3 through `allOf`, so that a default can be beside the reference; version 2 has neither alternatives nor
//! defaults.

use orlop_api::{
    group_version::{GroupVersion, GroupVersionKind},
    schema::builtin::{self, Row, TypeEntry, type_named},
};
use serde_json::{Map, Value, json};
use std::{collections::HashMap, sync::LazyLock};

use super::{
    SpecVersion, custom,
    descriptions::Descriptions,
    references::{META, kind_extension, reference},
};
use crate::registry::{Kind, KindSchema};

/// A schema of a document.
#[derive(Clone, Copy, Debug)]
pub(super) enum Definition<'a> {
    Builtin(&'static TypeEntry),
    Custom(&'a Kind),
    CustomList(&'a Kind),
}

impl<'a> Definition<'a> {
    /// Returns the schema of a kind's objects.
    pub(super) fn of(kind: &'a Kind) -> Self {
        match kind.schema {
            KindSchema::Builtin(entry) => Self::Builtin(entry),
            KindSchema::Owned(_) | KindSchema::Lazy(_) => Self::Custom(kind),
        }
    }

    /// Returns the schema of a kind's lists.
    pub(super) fn list_of(kind: &'a Kind) -> Self {
        match kind.schema {
            KindSchema::Builtin(entry) => {
                type_named(&format!("{}List", entry.name())).map_or(Self::CustomList(kind), Self::Builtin)
            }
            KindSchema::Owned(_) | KindSchema::Lazy(_) => Self::CustomList(kind),
        }
    }

    /// Returns the name in a document.
    pub(super) fn name(self) -> String {
        match self {
            Self::Builtin(entry) => entry.name().to_owned(),
            Self::Custom(kind) => custom::name(kind, &kind.gvk.kind),
            Self::CustomList(kind) => custom::name(kind, &kind.list_kind),
        }
    }

    /// Returns the schemas that it refers to.
    pub(super) fn references(self) -> Vec<Definition<'a>> {
        let meta = |name: &str| type_named(&format!("{META}.{name}")).map(Definition::Builtin);
        match self {
            Self::Builtin(entry) => entry
                .rows()
                .filter_map(|row| type_named(inner(row.json_type)))
                .map(Definition::Builtin)
                .collect(),
            Self::Custom(_) => meta("ObjectMeta").into_iter().collect(),
            Self::CustomList(kind) => meta("ListMeta").into_iter().chain([Definition::of(kind)]).collect(),
        }
    }

    /// Encodes the schema. DeleteOptions and WatchEvent list all `versions` of the document.
    pub(super) fn schema(
        self,
        spec_version: SpecVersion,
        versions: &[GroupVersion],
        words: &Descriptions<'_>,
    ) -> Value {
        match self {
            Self::Builtin(entry) => builtin(entry, spec_version, versions, words),
            Self::Custom(kind) => described(custom::schema(kind, spec_version), words),
            Self::CustomList(kind) => {
                let mut schema = described(custom::list(kind, spec_version), words);
                if let Some(text) = words.of("io.k8s.api.core.v1.PodList", "metadata") {
                    schema["properties"]["metadata"]["description"] = text.into();
                }
                schema
            }
        }
    }
}

/// Descriptions of fields that every kind has.
fn described(mut schema: Value, words: &Descriptions<'_>) -> Value {
    for field in ["apiVersion", "kind", "metadata"] {
        // An opaque schema must stay without properties: kubectl would refuse all others.
        if let Some(property) = schema.pointer_mut(&format!("/properties/{field}"))
            && let Some(text) = words.of("io.k8s.api.core.v1.ConfigMap", field)
        {
            property["description"] = text.into();
        }
    }
    schema
}

/// Returns the innermost type of `[map[T]]`.
fn inner(json_type: &str) -> &str {
    match json_type.strip_suffix(']') {
        Some(outer) => inner(outer.trim_start_matches("map").strip_prefix('[').unwrap_or(outer)),
        None => json_type,
    }
}

fn builtin(
    entry: &TypeEntry,
    spec_version: SpecVersion,
    versions: &[GroupVersion],
    words: &Descriptions<'_>,
) -> Value {
    let (mut schema, mut properties, mut required) = (Map::new(), Map::new(), Vec::new());
    for row in entry.rows() {
        if row.field.is_empty() {
            schema = shape(row.json_type, spec_version);
            extensions(&mut schema, &row);
            describe(&mut schema, words.of(entry.name(), ""));
            continue;
        }
        if row.required {
            required.push(row.field);
        }
        let mut property = property(&row, spec_version);
        describe(&mut property, words.of(entry.name(), row.field));
        if let Some(values) = words.values(entry.name(), row.field) {
            property.insert("enum".into(), values);
        }
        if let Some(values) = words.values(entry.name(), &format!("{}[]", row.field))
            && let Some(part) =
                ["items", "additionalProperties"].into_iter().find(|part| property.contains_key(*part))
            && let Some(Value::Object(items)) = property.get_mut(part)
        {
            items.insert("enum".into(), values);
        }
        properties.insert(row.field.to_owned(), property.into());
    }
    if !required.is_empty() {
        schema.insert("required".into(), json!(required));
    }
    if !properties.is_empty() {
        schema.insert("properties".into(), properties.into());
    }
    let kinds = kinds_of(entry.name(), versions);
    if !kinds.is_empty() {
        schema.insert("x-kubernetes-group-version-kind".into(), kinds.iter().map(kind_extension).collect());
    }
    Value::Object(schema)
}

fn describe(schema: &mut Map<String, Value>, text: Option<String>) {
    if let Some(text) = text {
        schema.insert("description".into(), text.into());
    }
}

fn property(row: &Row, spec_version: SpecVersion) -> Map<String, Value> {
    let mut schema = match type_named(row.json_type) {
        Some(entry) if spec_version == SpecVersion::V3 => {
            Map::from_iter([("allOf".to_owned(), json!([reference(entry.name(), spec_version)]))])
        }
        _ => shape(row.json_type, spec_version),
    };
    if spec_version == SpecVersion::V3
        && let Ok(default) = serde_json::from_str(row.default)
    {
        schema.insert("default".into(), default);
    }
    extensions(&mut schema, row);
    schema
}

/// Adds the extensions that apply and strategic merge read.
fn extensions(schema: &mut Map<String, Value>, row: &Row) {
    let keys: Vec<&str> = row.list_map_keys.split(',').filter(|key| !key.is_empty()).collect();
    let texts = [
        ("x-kubernetes-list-type", row.list_type),
        ("x-kubernetes-map-type", row.map_type),
        ("x-kubernetes-patch-merge-key", row.patch_merge_key),
        ("x-kubernetes-patch-strategy", row.patch_strategy),
    ];
    for (name, text) in texts.iter().filter(|(_, text)| !text.is_empty()) {
        schema.insert((*name).to_owned(), (*text).into());
    }
    if !keys.is_empty() {
        schema.insert("x-kubernetes-list-map-keys".into(), json!(keys));
    }
    if let Some(Ok(unions)) = row.other.strip_prefix("unions=").map(serde_json::from_str::<Value>) {
        schema.insert("x-kubernetes-unions".into(), unions);
    }
}

/// Encodes a type: `string`, `integer:int32`, `[T]`, `map[T]`, `oneOf(…)`, `any`, or a reference.
fn shape(json_type: &str, spec_version: SpecVersion) -> Map<String, Value> {
    let object = |value: Value| match value {
        Value::Object(map) => map,
        _ => Map::new(),
    };
    if let Some(of) = json_type.strip_prefix("map[").and_then(|rest| rest.strip_suffix(']')) {
        return object(json!({"type": "object", "additionalProperties": shape(of, spec_version)}));
    }
    if let Some(of) = json_type.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return object(json!({"type": "array", "items": shape(of, spec_version)}));
    }
    if type_named(json_type).is_some() {
        return object(reference(json_type, spec_version));
    }
    object(match (json_type, spec_version) {
        ("any", _) => json!({}),
        ("oneOf(integer|string)", SpecVersion::V2) => json!({"type": "string", "format": "int-or-string"}),
        ("oneOf(integer|string)", SpecVersion::V3) => {
            json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]})
        }
        ("oneOf(string|number)", SpecVersion::V2) => json!({"type": "string"}),
        ("oneOf(string|number)", SpecVersion::V3) => {
            json!({"oneOf": [{"type": "string"}, {"type": "number"}]})
        }
        (scalar, _) => match scalar.split_once(':') {
            Some((kind, format)) => json!({"type": kind, "format": format}),
            None => json!({"type": scalar}),
        },
    })
}

/// Returns the group, version and kind of built-in types that have them.
static KINDS: LazyLock<HashMap<&'static str, GroupVersionKind>> = LazyLock::new(|| {
    let mut kinds = HashMap::new();
    let mut add = |group: &str, version: &str, kind: &str| {
        if let Some(entry) = builtin::type_of(group, version, kind) {
            kinds.insert(entry.name(), GroupVersionKind::new(group, version, kind));
        }
    };
    for resource in builtin::resources() {
        add(resource.group, resource.version, resource.kind);
        add(resource.group, resource.version, &format!("{}List", resource.kind));
        for subresource in &resource.subresources {
            let (group, version) =
                subresource.api_version.split_once('/').unwrap_or((resource.group, resource.version));
            add(group, version, subresource.kind);
        }
    }
    kinds
});

fn kinds_of(name: &str, versions: &[GroupVersion]) -> Vec<GroupVersionKind> {
    if let Some(kind) = KINDS.get(name) {
        return vec![kind.clone()];
    }
    let core = |kind: &str| GroupVersionKind::new("", "v1", kind);
    match name.strip_prefix(META).and_then(|rest| rest.strip_prefix('.')) {
        Some(kind @ ("Status" | "APIResourceList")) => vec![core(kind)],
        // Part of every version.
        Some(kind @ ("DeleteOptions" | "WatchEvent")) => {
            let mut kinds = vec![core(kind)];
            kinds.extend(
                versions.iter().map(|version| version.with_kind(kind)).filter(|gvk| !gvk.group.is_empty()),
            );
            kinds
        }
        _ => Vec::new(),
    }
}
