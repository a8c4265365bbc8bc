//! `types.tsv`, `protobuf.tsv` and the descriptions: every stable type, from Kubernetes' published OpenAPI v3
//! documents.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::{enums::Enums, go_types::GoTypes};

const TYPES_HEADER: &str = "type\tfield\tproto\tjson_type\trequired\tlist_type\tlist_map_keys\
                            \tpatch_merge_key\tpatch_strategy\tmap_type\tdefault\tother\n";
const PROTOBUF_HEADER: &str = "type\tfield\tproto\tpresence\n";
const GO_HEADER: &str = "type\tfield\tgo_type\tembedded\tunset\n";
const REFERENCE: &str = "#/components/schemas/";
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
/// Of no interest: `/version` is no object of ours.
const LEFT_OUT: &[&str] = &["io.k8s.apimachinery.pkg.version.Info"];

/// Schemas by type name.
pub(crate) struct Schemas(BTreeMap<String, Value>);

/// Reads the stable types of a folder of OpenAPI documents, and the types that they refer to.
pub(crate) fn read(folder: &Path) -> Result<Schemas> {
    let mut published = BTreeMap::new();
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)?.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let mut document: Value =
            serde_json::from_slice(&fs::read(&path)?).with_context(|| path.display().to_string())?;
        if let Some(Value::Object(schemas)) = document.pointer_mut("/components/schemas").map(Value::take) {
            published.extend(schemas);
        }
    }
    let mut wanted: Vec<String> = published.keys().filter(|name| is_stable(name)).cloned().collect();
    let mut schemas = BTreeMap::new();
    while let Some(name) = wanted.pop() {
        if schemas.contains_key(&name) {
            continue;
        }
        let schema = published.remove(&name).with_context(|| format!("no schema of {name}"))?;
        let mut referred = BTreeSet::new();
        collect_references(&schema, &mut referred);
        wanted.extend(referred);
        schemas.insert(name, schema);
    }
    schemas.extend(metadata_types());
    Ok(Schemas(schemas))
}

fn is_stable(name: &str) -> bool {
    let unstable = |part: &str| {
        part.strip_prefix('v').is_some_and(|rest| {
            rest.starts_with(|first: char| first.is_ascii_digit())
                && (rest.contains("alpha") || rest.contains("beta"))
        })
    };
    !name.split('.').any(unstable) && !LEFT_OUT.contains(&name)
}

fn collect_references(schema: &Value, to: &mut BTreeSet<String>) {
    match schema {
        Value::Object(members) => {
            let reference = members.get("$ref").and_then(Value::as_str);
            to.extend(reference.and_then(|text| text.strip_prefix(REFERENCE)).map(str::to_owned));
            members.values().for_each(|member| collect_references(member, to));
        }
        Value::Array(items) => items.iter().for_each(|item| collect_references(item, to)),
        _ => {}
    }
}

/// Types that clients negotiate for and that no OpenAPI document has.
fn metadata_types() -> [(String, Value); 2] {
    let reference = |name: &str| json!({ "allOf": [{ "$ref": format!("{REFERENCE}{META}.{name}") }] });
    let with_default = |name: &str| {
        let mut schema = reference(name);
        schema["default"] = json!({});
        schema
    };
    let text = json!({ "type": "string" });
    let partial = json!({
        "type": "object",
        "properties": { "apiVersion": text, "kind": text, "metadata": with_default("ObjectMeta") },
    });
    let items = json!({ "type": "array", "items": reference("PartialObjectMetadata") });
    let list = json!({
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": text, "kind": text, "metadata": with_default("ListMeta"), "items": items,
        },
    });
    [(format!("{META}.PartialObjectMetadata"), partial), (format!("{META}.PartialObjectMetadataList"), list)]
}

impl Schemas {
    pub(crate) fn type_names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Returns every field of every type, sorted; an empty field is the type itself.
    pub(crate) fn types_table(&self, go_types: &GoTypes) -> String {
        let mut table = TYPES_HEADER.to_owned();
        for (name, field, schema, required) in self.fields() {
            // A field of an inlined struct has a path, which `protobuf.tsv` holds.
            let place = go_types.place(name, field).map(|place| place.path.as_str());
            let number = place.filter(|path| !path.contains('.')).unwrap_or_default();
            let extension = |key: &str| {
                schema.get(format!("x-kubernetes-{key}")).and_then(Value::as_str).unwrap_or_default()
            };
            let keys = schema.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
            let keys: Vec<&str> = keys.into_iter().flatten().filter_map(Value::as_str).collect();
            let unions = schema.get("x-kubernetes-unions");
            let columns = [
                name,
                field,
                number,
                &json_type(schema, field.is_empty()),
                if required { "yes" } else { "" },
                extension("list-type"),
                &keys.join(","),
                extension("patch-merge-key"),
                extension("patch-strategy"),
                extension("map-type"),
                &schema.get("default").map_or_else(String::new, Value::to_string),
                &unions.map_or_else(String::new, |unions| format!("unions={unions}")),
            ];
            table.push_str(&columns.join("\t"));
            table.push('\n');
        }
        table
    }

    /// Returns what `types.tsv` leaves open: paths of inlined fields, and scalars that Go holds by pointer.
    pub(crate) fn protobuf_table(&self, go_types: &GoTypes) -> String {
        let mut table = PROTOBUF_HEADER.to_owned();
        for (name, field, schema, _) in self.fields() {
            let Some(place) = go_types.place(name, field) else { continue };
            let path = if place.path.contains('.') { &place.path } else { "" };
            let presence = place.pointer && is_scalar(schema);
            if !path.is_empty() || presence {
                let presence = if presence { "yes" } else { "" };
                table.push_str(&format!("{name}\t{field}\t{path}\t{presence}\n"));
            }
        }
        table
    }

    /// Returns what Go's decoder and encoder do that `types.tsv` does not say: types that its errors name otherwise, structs
    /// that are inlined, fields that are null where they are not set, and zeros that are omitted.
    pub(crate) fn go_table(&self, go_types: &GoTypes) -> String {
        let mut table = GO_HEADER.to_owned();
        for (name, field, schema, _) in self.fields() {
            let Some(place) = go_types.place(name, field) else { continue };
            let version = name.rsplit('.').nth(1).unwrap_or_default();
            let is_known = derived_go_type(schema, version).as_deref() == Some(&place.go_type);
            let go_type = if is_known { "" } else { &place.go_type };
            let unset = match () {
                () if place.is_nullable() => "null",
                () if place.omits_zero() && is_scalar(schema) => "zero",
                () => "",
            };
            if !(go_type.is_empty() && unset.is_empty() && place.embedded.is_empty()) {
                table.push_str(&format!("{name}\t{field}\t{go_type}\t{}\t{unset}\n", place.embedded));
            }
        }
        table
    }

    /// Returns the description of every type and field, as a JSON string, and the values of enumerations: as the type
    /// `enum TYPE`, whose fields end with `[]` if the values are those of items.
    pub(crate) fn descriptions_table(&self, enums: &Enums) -> String {
        let described = self.fields().filter_map(|(name, field, schema, _)| {
            let enumeration = enums.get(&(name.to_owned(), field.to_owned()));
            let explained = enumeration.and_then(|one| one.description.clone()).map(Value::from);
            let description = explained.or_else(|| schema.get("description").cloned())?;
            Some(format!("{name}\t{field}\t{description}\n"))
        });
        let values = enums.iter().map(|((name, field), one)| {
            let items = if one.of_items { "[]" } else { "" };
            format!("enum {name}\t{field}{items}\t{}\n", one.values)
        });
        described.chain(values).collect()
    }

    /// Types and their fields, sorted: type name, field (empty for the type itself), schema, required.
    fn fields(&self) -> impl Iterator<Item = (&str, &str, &Value, bool)> {
        self.0.iter().flat_map(|(name, schema)| {
            let required = schema.get("required").and_then(Value::as_array);
            let is_required =
                move |field: &str| required.is_some_and(|all| all.iter().any(|one| one == field));
            let properties = schema.get("properties").and_then(Value::as_object);
            let fields = properties
                .into_iter()
                .flatten()
                .map(move |(field, schema)| (name.as_str(), field.as_str(), schema, is_required(field)));
            std::iter::once((name.as_str(), "", schema, false)).chain(fields)
        })
    }
}

/// Returns the Go type that a schema stands for, if it does not matter where it is declared.
fn derived_go_type(schema: &Value, version: &str) -> Option<String> {
    let json_type = json_type(schema, false);
    let scalar = |json_type: &str| match json_type {
        "string" => Some("string".to_owned()),
        "string:byte" => Some("[]uint8".to_owned()),
        "boolean" => Some("bool".to_owned()),
        "integer:int32" => Some("int32".to_owned()),
        "integer:int64" => Some("int64".to_owned()),
        // Types of the version that most are of.
        name if version == "v1" && name.contains(".v1.") => {
            name.rsplit('.').next().map(|name| format!("v1.{name}"))
        }
        _ => None,
    };
    if let Some(item) = json_type.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return scalar(item).map(|item| format!("[]{item}"));
    }
    if let Some(item) = json_type.strip_prefix("map[").and_then(|rest| rest.strip_suffix(']')) {
        return scalar(item).map(|item| format!("map[string]{item}"));
    }
    scalar(&json_type)
}

fn is_scalar(schema: &Value) -> bool {
    matches!(schema["type"].as_str(), Some("string" | "integer" | "boolean" | "number"))
}

/// `string`, `integer:int32`, `[T]`, `map[T]`, `oneOf(…)`, `any`, or a type's name.
fn json_type(schema: &Value, whole_type: bool) -> String {
    if let Some(name) = schema.get("$ref").and_then(Value::as_str) {
        return name.strip_prefix(REFERENCE).unwrap_or(name).to_owned();
    }
    if let Some(only) = schema.pointer("/allOf/0") {
        return json_type(only, false);
    }
    if let Some(one_of) = schema.get("oneOf").and_then(Value::as_array) {
        let types: Vec<&str> = one_of.iter().filter_map(|schema| schema["type"].as_str()).collect();
        return format!("oneOf({})", types.join("|"));
    }
    let format = schema.get("format").and_then(Value::as_str);
    match (schema["type"].as_str(), format) {
        (None, _) => "any".to_owned(),
        (Some("array"), _) => format!("[{}]", json_type(&schema["items"], false)),
        (Some("object"), _) if !whole_type && schema.get("additionalProperties").is_some() => {
            format!("map[{}]", json_type(&schema["additionalProperties"], false))
        }
        (Some(of), Some(format)) => format!("{of}:{format}"),
        (Some(of), None) => of.to_owned(),
    }
}
