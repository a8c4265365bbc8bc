//! Types of built-in kinds, from generated tables.
//!
//! `data/types.tsv` is indexed by type name on first use;
//! a type's rows are parsed when the type is first used. Types refer
//! to each other by name, so unused types are not expanded.
//!
//! The defaults of the table are those Go's encoder always writes (a struct that
//! is not a pointer is `{}`, a required string `""`) and the few declared ones.

use super::{
    AdditionalProperties, Field, GoField, ListType, MapType, PatchStrategy, Schema, SchemaRef, Type, Unset,
};
use std::collections::HashMap;
use std::sync::{LazyLock, OnceLock};

static TYPES: &str = include_str!("../../data/types.tsv");
static GO: &str = include_str!("../../data/go.tsv");
static RESOURCES: &str = include_str!("../../data/resources.tsv");
static KUBERNETES_VERSION: &str = include_str!("../../data/kubernetes-version");

/// A built-in type: its rows, and its schema once used.
#[derive(Debug)]
pub struct TypeEntry {
    name: &'static str,
    rows: &'static str,
    schema: OnceLock<Schema>,
}

impl TypeEntry {
    pub fn name(&self) -> &'static str {
        self.name
    }

    pub fn schema(&self) -> &Schema {
        self.schema.get_or_init(|| read_type(self.name, self.rows))
    }

    /// Returns the rows of the type and its fields.
    pub fn rows(&self) -> impl Iterator<Item = Row> {
        self.rows.lines().map(row)
    }
}

static INDEX: LazyLock<HashMap<&'static str, TypeEntry>> = LazyLock::new(|| {
    let entry = |(name, rows)| (name, TypeEntry { name, rows, schema: OnceLock::new() });
    blocks(TYPES).map(entry).collect()
});

/// Rows of `data/go.tsv` by type.
static GO_INDEX: LazyLock<HashMap<&'static str, &'static str>> = LazyLock::new(|| blocks(GO).collect());

/// Returns all types, in no order.
pub(crate) fn types() -> impl Iterator<Item = &'static TypeEntry> {
    INDEX.values()
}

/// Splits a table into types and their rows.
pub(crate) fn blocks(table: &'static str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let mut rest = table.split_once('\n').map_or("", |(_, rest)| rest);
    std::iter::from_fn(move || {
        let (name, _) = rest.split_once('\t')?;
        let belongs = |line: &&str| line.strip_prefix(name).is_some_and(|after| after.starts_with('\t'));
        let length = rest.split_inclusive('\n').take_while(belongs).map(str::len).sum();
        let (rows, after) = rest.split_at(length);
        rest = after;
        Some((name, rows))
    })
}

/// Returns a type by its full name, `io.k8s.api.core.v1.Pod`.
pub fn type_named(name: &str) -> Option<&'static TypeEntry> {
    INDEX.get(name)
}

/// Returns the table of types, to detect changes.
pub fn table() -> &'static str {
    TYPES
}

/// Returns the Kubernetes version that the tables were generated from, such as `1.37.1`.
pub fn kubernetes_version() -> &'static str {
    KUBERNETES_VERSION.trim_ascii_end()
}

/// Returns the number of types in the tables.
pub fn type_count() -> usize {
    INDEX.len()
}

/// Returns the type of a built-in kind.
pub fn type_of(group: &str, version: &str, kind: &str) -> Option<&'static TypeEntry> {
    let package = match group {
        "" => "io.k8s.api.core".to_owned(),
        "apiextensions.k8s.io" => "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions".to_owned(),
        "apiregistration.k8s.io" => "io.k8s.kube-aggregator.pkg.apis.apiregistration".to_owned(),
        "internal.apiserver.k8s.io" => "io.k8s.api.apiserverinternal".to_owned(),
        "meta.k8s.io" => "io.k8s.apimachinery.pkg.apis.meta".to_owned(),
        other => format!("io.k8s.api.{}", other.split('.').next().unwrap_or_default()),
    };
    type_named(&format!("{package}.{version}.{kind}"))
}

/// Returns the schema of `ObjectMeta`, which custom resources share.
pub fn object_meta() -> &'static Schema {
    static EMPTY: LazyLock<Schema> = LazyLock::new(Schema::default);
    type_named("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta").map_or(&*EMPTY, TypeEntry::schema)
}

/// A built-in resource, as discovery lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// Empty for the core group.
    pub group: &'static str,
    pub version: &'static str,
    pub plural: &'static str,
    pub singular: &'static str,
    pub kind: &'static str,
    pub namespaced: bool,
    pub verbs: Vec<&'static str>,
    pub short_names: Vec<&'static str>,
    pub categories: Vec<&'static str>,
    pub subresources: Vec<Subresource>,
}

/// A subresource, with the kind it takes where that is not the resource's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subresource {
    pub name: &'static str,
    /// `autoscaling/v1`; empty if it is the resource's own group version.
    pub api_version: &'static str,
    pub kind: &'static str,
    pub verbs: Vec<&'static str>,
}

/// `scale=autoscaling/v1:Scale[get,patch,update]`
fn subresource(text: &'static str) -> Option<Subresource> {
    let (name, rest) = text.trim().split_once('=')?;
    let (kind, verbs) = rest.strip_suffix(']')?.split_once('[')?;
    let (api_version, kind) = kind.split_once(':').unwrap_or(("", kind));
    Some(Subresource { name, api_version, kind, verbs: verbs.split(',').collect() })
}

/// Returns all built-in resources.
pub fn resources() -> Vec<Resource> {
    let list = |text: &'static str| text.split(',').filter(|part| !part.is_empty()).collect();
    let row = |line: &'static str| {
        let columns: Vec<&'static str> = line.split('\t').collect();
        let column = |index: usize| columns.get(index).copied().unwrap_or_default();
        Resource {
            group: if column(0) == "core" { "" } else { column(0) },
            version: column(1),
            plural: column(2),
            singular: column(3),
            kind: column(4),
            namespaced: column(5) == "ns",
            verbs: list(column(6)),
            short_names: list(column(7)),
            categories: list(column(8)),
            subresources: column(9).split(';').filter_map(subresource).collect(),
        }
    };
    RESOURCES.lines().skip(1).filter(|line| !line.is_empty()).map(row).collect()
}

// === Reading rows ===

/// A row of the table: a field, or with an empty field the type itself.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub field: &'static str,
    /// The field's number in protobuf.
    pub proto: &'static str,
    /// `string`, `integer:int32`, `[T]`, `map[T]`, `oneOf(…)`, `any`, or a type's name.
    pub json_type: &'static str,
    pub required: bool,
    pub list_type: &'static str,
    pub list_map_keys: &'static str,
    pub patch_merge_key: &'static str,
    pub patch_strategy: &'static str,
    pub map_type: &'static str,
    /// JSON, or empty.
    pub default: &'static str,
    /// `unions=…`, or empty.
    pub other: &'static str,
}

pub(crate) fn row(line: &'static str) -> Row {
    let mut columns = line.split('\t').skip(1);
    let mut next = || columns.next().unwrap_or_default();
    Row {
        field: next(),
        proto: next(),
        json_type: next(),
        required: next() == "yes",
        list_type: next(),
        list_map_keys: next(),
        patch_merge_key: next(),
        patch_strategy: next(),
        map_type: next(),
        default: next(),
        other: next(),
    }
}

fn read_type(name: &'static str, rows: &'static str) -> Schema {
    let mut schema = Schema::default();
    let go_rows = GO_INDEX.get(name).copied().unwrap_or_default();
    let mut go_fields: HashMap<&str, GoField> = go_rows.lines().map(go_field).collect();
    for row in rows.lines().map(row) {
        if row.field.is_empty() {
            schema = shape(row.json_type);
            schema.map_type = map_type(row.map_type).unwrap_or_default();
            continue;
        }
        if row.required {
            schema.required.push(row.field.into());
        }
        let go = go_fields.remove(row.field).unwrap_or_default();
        schema.properties.insert(row.field.into(), Field { go, ..field(&row) });
    }
    schema.go_type = name.rsplit('.').next();
    match schema.go_type {
        // Free-form by design.
        Some("FieldsV1" | "Patch") => schema.preserve_unknown = true,
        Some("RawExtension") => {
            schema.preserve_unknown = true;
            schema.opaque = true;
        }
        _ => {}
    }
    schema
}

fn field(row: &Row) -> Field {
    let patch = PatchStrategy {
        merge: row.patch_strategy.split(',').any(|part| part == "merge"),
        replace: row.patch_strategy.split(',').any(|part| part == "replace"),
        retain_keys: row.patch_strategy.split(',').any(|part| part == "retainKeys"),
        merge_key: (!row.patch_merge_key.is_empty()).then(|| row.patch_merge_key.into()),
    };
    let schema = match type_named(row.json_type) {
        Some(entry) => SchemaRef::Builtin(entry),
        None => {
            let mut schema = shape(row.json_type);
            schema.list_type = list_type(row, &patch);
            SchemaRef::from(schema)
        }
    };
    let default = if row.default.is_empty() { None } else { serde_json::from_str(row.default).ok() };
    Field { schema, map_type: map_type(row.map_type), patch, default, go: GoField::default() }
}

/// Reads a row of `data/go.tsv`.
fn go_field(line: &'static str) -> (&'static str, GoField) {
    let mut columns = line.split('\t').skip(1);
    let mut next = || columns.next().unwrap_or_default();
    let (field, go_type, embedded) = (next(), next(), next());
    let given = |text: &'static str| (!text.is_empty()).then_some(text);
    let unset = match next() {
        "null" => Unset::Null,
        "zero" => Unset::Zero,
        _ => Unset::Absent,
    };
    (field, GoField { go_type: given(go_type), embedded: given(embedded.trim_end_matches('.')), unset })
}

/// Without a declared list type, a merge strategy makes the list associative.
fn list_type(row: &Row, patch: &PatchStrategy) -> ListType {
    match row.list_type {
        "set" => ListType::Set,
        "map" => ListType::Map(row.list_map_keys.split(',').map(Into::into).collect()),
        "" if patch.merge => match &patch.merge_key {
            Some(key) => ListType::Map([key.clone()].into()),
            None => ListType::Set,
        },
        _ => ListType::Atomic,
    }
}

fn map_type(text: &str) -> Option<MapType> {
    match text {
        "atomic" => Some(MapType::Atomic),
        "granular" => Some(MapType::Granular),
        _ => None,
    }
}

/// `string`, `integer:int32`, `[T]`, `map[T]`, `oneOf(…)`, `any`, or a type's name.
fn shape(json_type: &'static str) -> Schema {
    if let Some(inner) = json_type.strip_prefix("map[").and_then(|rest| rest.strip_suffix(']')) {
        return Schema {
            kind: Type::Object,
            additional_properties: AdditionalProperties::Of(reference(inner)),
            ..Schema::default()
        };
    }
    if let Some(inner) = json_type.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return Schema { kind: Type::Array, items: Some(reference(inner)), ..Schema::default() };
    }
    if json_type.starts_with("oneOf(") {
        return Schema { int_or_string: true, ..Schema::default() };
    }
    let (kind, format) = json_type.split_once(':').unwrap_or((json_type, ""));
    let kind = match kind {
        "object" => Type::Object,
        "string" => Type::String,
        "integer" => Type::Integer,
        "number" => Type::Number,
        "boolean" => Type::Boolean,
        _ => return Schema { preserve_unknown: true, ..Schema::default() },
    };
    Schema { kind, format: (!format.is_empty()).then(|| format.into()), ..Schema::default() }
}

fn reference(json_type: &'static str) -> SchemaRef {
    type_named(json_type).map_or_else(|| shape(json_type).into(), SchemaRef::Builtin)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn all_types_of_the_tables_resolve() {
        for entry in INDEX.values() {
            let schema = entry.schema();
            for (name, field) in &schema.properties {
                let inner = field.schema();
                assert!(
                    inner.kind != Type::Any || inner.preserve_unknown || inner.int_or_string,
                    "{}.{name}",
                    entry.name()
                );
                if let ListType::Map(keys) = &inner.list_type {
                    let items = inner.items().unwrap_or_else(|| panic!("{}.{name}", entry.name()));
                    assert!(
                        keys.iter().all(|key| items.field(key).is_some()),
                        "{}.{name}: {keys:?}",
                        entry.name()
                    );
                }
            }
        }
        assert!(type_count() > 500);
    }

    #[test]
    fn pod_has_list_types_and_patch_strategies() {
        let pod = type_of("", "v1", "Pod").unwrap().schema();
        let spec = pod.at("spec").unwrap();
        let containers = spec.field("containers").unwrap();
        assert_eq!(containers.schema().list_type, ListType::Map(["name".into()].into()));
        assert_eq!(containers.patch.merge_key.as_deref(), Some("name"));
        let ports = containers.schema().items().unwrap().field("ports").unwrap();
        assert_eq!(
            ports.schema().list_type,
            ListType::Map(["containerPort".into(), "protocol".into()].into())
        );
        assert_eq!(ports.schema().items().unwrap().field("protocol").unwrap().default(), Some(&json!("TCP")));
        assert!(spec.field("volumes").unwrap().patch.retain_keys);
        assert_eq!(spec.field("nodeSelector").unwrap().map_type, Some(MapType::Atomic));
        assert_eq!(spec.go_type, Some("PodSpec"));
    }

    #[test]
    fn every_served_resource_has_a_type() {
        for resource in resources() {
            assert!(type_of(resource.group, resource.version, resource.kind).is_some(), "{resource:?}");
        }
        let pods = resources().into_iter().find(|resource| resource.plural == "pods").unwrap();
        assert!(pods.namespaced && pods.short_names == ["po"]);
        let eviction = pods.subresources.iter().find(|sub| sub.name == "eviction").unwrap();
        assert_eq!(
            (eviction.api_version, eviction.kind, eviction.verbs.as_slice()),
            ("policy/v1", "Eviction", &["create"][..])
        );
    }

    #[test]
    fn recursive_types_resolve() {
        let props = type_named("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps")
            .unwrap()
            .schema();
        let inner = props.at("properties.x.properties.y.not").unwrap();
        assert_eq!(inner.go_type, Some("JSONSchemaProps"));
    }
}
