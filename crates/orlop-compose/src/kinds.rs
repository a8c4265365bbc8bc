//! Kinds that templates use: where they are served, and what their fields are.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use orlop_cel::{Schema, SchemaSpec};
use serde_json::{Value as Json, json};

use crate::names;

/// A group, version and kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Gvk {
    /// Group; empty for the core group.
    pub group: String,
    /// Version.
    pub version: String,
    /// Kind.
    pub kind: String,
}

impl Gvk {
    /// Reads `apiVersion` and `kind`.
    pub fn new(api_version: &str, kind: &str) -> Self {
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        Self { group: group.to_owned(), version: version.to_owned(), kind: kind.to_owned() }
    }

    /// Returns `apiVersion`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Returns `Kind.group`, as ApplySets write it.
    pub fn group_kind(&self) -> String {
        if self.group.is_empty() { self.kind.clone() } else { format!("{}.{}", self.kind, self.group) }
    }
}

/// Go's `schema.GroupVersionKind` as text, which error messages show.
impl fmt::Display for Gvk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}, Kind={}", self.group, self.version, self.kind)
    }
}

/// A kind that is served.
#[derive(Clone, Debug)]
pub struct Kind {
    /// Its name.
    pub gvk: Gvk,
    /// Its resource, for example `configmaps`.
    pub plural: String,
    /// True if objects live in namespaces.
    pub namespaced: bool,
    /// Its fields.
    pub schema: Schema,
}

/// Kinds by name.
pub type Kinds = HashMap<Gvk, Arc<Kind>>;

/// Builds the fields of a kind from OpenAPI; `resolve` gives the schema behind a `$ref`.
pub fn schema_from_openapi<'j>(
    gvk: &Gvk,
    json: &'j Json,
    resolve: &dyn Fn(&str) -> Option<&'j Json>,
) -> Schema {
    let mut spec = SchemaSpec::from_openapi(json, &|name| {
        // A quantity is written as a string or a number.
        if name.ends_with(".Quantity") { Some(anything()) } else { resolve(name) }
    });
    let description = json.pointer("/properties/status/description").and_then(Json::as_str);
    if description == Some(names::STATUS_DESCRIPTION)
        && let Some(status) = spec.properties.get_mut("status")
    {
        // All that instances have in there is known.
        status.preserve_unknown_fields = false;
        let managed = SchemaSpec::from_openapi(managed_resources(), &|_| None);
        status.properties.entry("managedResources".to_owned()).or_insert(managed);
    }
    schema_from_spec(gvk, spec)
}

/// Builds the fields of a kind, with those that every object has.
pub(crate) fn schema_from_spec(gvk: &Gvk, mut spec: SchemaSpec) -> Schema {
    if spec.properties.get("metadata").is_none_or(|metadata| metadata.properties.is_empty()) {
        let metadata = SchemaSpec::from_openapi(object_meta(), &|_| None);
        spec.properties.insert("metadata".to_owned(), metadata);
    }
    for field in ["apiVersion", "kind"] {
        let text = SchemaSpec { kind: "string".to_owned(), ..SchemaSpec::default() };
        spec.properties.entry(field.to_owned()).or_insert(text);
    }
    if spec.kind.is_empty() {
        spec.kind = "object".to_owned();
        spec.preserve_unknown_fields |= spec.properties.len() <= 3;
    }
    named_schema(&format!("{}.{}.{}", gvk.group, gvk.version, gvk.kind), spec)
}

/// Builds the fields of `schema` in expressions: an instance without its status.
pub(crate) fn instance_schema(spec: &Json, namespaced: bool) -> Schema {
    instance_view(spec, namespaced, false)
}

/// The same with a status of unknown fields, for conditions.
pub(crate) fn instance_schema_with_status(spec: &Json, namespaced: bool) -> Schema {
    instance_view(spec, namespaced, true)
}

fn instance_view(spec: &Json, namespaced: bool, status: bool) -> Schema {
    let mut metadata = object_meta().clone();
    if !namespaced && let Some(properties) = metadata.get_mut("properties").and_then(Json::as_object_mut) {
        properties.remove("namespace");
    }
    let mut json = json!({"type": "object", "properties": {
        "apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": metadata, "spec": spec}});
    if status {
        json["properties"]["status"] = json!({"type": "object"});
    }
    let spec = SchemaSpec::from_openapi(&json, &|_| None);
    named_schema(if status { "schema.status" } else { "schema" }, spec)
}

fn named_schema(name: &str, spec: SchemaSpec) -> Schema {
    let spec = spec.into_lenient();
    Schema::new(&format!("__type_{name}"), &spec, false)
        .or_else(|| Schema::new(name, &SchemaSpec::default().into_lenient(), false))
        .unwrap_or_else(|| unreachable!("a lenient schema is visible"))
}

/// Reads the kinds that a CustomResourceDefinition serves, for work without a cluster.
pub fn kinds_of_crd(crd: &Json) -> Vec<Kind> {
    let text = |pointer: &str| crd.pointer(pointer).and_then(Json::as_str).unwrap_or_default().to_owned();
    let versions = crd.pointer("/spec/versions").and_then(Json::as_array).into_iter().flatten();
    versions
        .map(|version| {
            let name = version.get("name").and_then(Json::as_str).unwrap_or_default();
            let gvk =
                Gvk { group: text("/spec/group"), version: name.to_owned(), kind: text("/spec/names/kind") };
            let schema = version.pointer("/schema/openAPIV3Schema").unwrap_or_else(|| anything());
            Kind {
                schema: schema_from_openapi(&gvk, schema, &|_| None),
                plural: text("/spec/names/plural"),
                namespaced: text("/spec/scope") != "Cluster",
                gvk,
            }
        })
        .collect()
}

/// A kind of which nothing but its name is known, for work without a cluster.
pub fn untyped_kind(gvk: Gvk) -> Kind {
    let plural = crate::plural::pluralize(&gvk.kind.to_lowercase());
    let schema = schema_from_openapi(&gvk, anything(), &|_| None);
    // Its scope is unknown too; most are namespaced, and definitions themselves are not.
    let namespaced = gvk != Gvk::new(names::API_VERSION, "ResourceGraphDefinition");
    Kind { plural, namespaced, schema, gvk }
}

/// Finds a kind in an OpenAPI v3 document.
pub fn schema_from_document(gvk: &Gvk, document: &Json) -> Option<Schema> {
    let schemas = document.pointer("/components/schemas")?.as_object()?;
    let names = |schema: &Json| {
        let kinds = schema.get("x-kubernetes-group-version-kind").and_then(Json::as_array);
        kinds.into_iter().flatten().any(|kind| {
            let text = |key: &str| kind.get(key).and_then(Json::as_str).unwrap_or_default();
            text("group") == gvk.group && text("version") == gvk.version && text("kind") == gvk.kind
        })
    };
    let schema = schemas.values().find(|schema| names(schema))?;
    let resolve = |reference: &str| schemas.get(reference.rsplit('/').next().unwrap_or_default());
    Some(schema_from_openapi(gvk, schema, &resolve))
}

fn anything() -> &'static Json {
    static ANYTHING: OnceLock<Json> = OnceLock::new();
    ANYTHING.get_or_init(|| json!({}))
}

/// `status.managedResources` of instances.
fn managed_resources() -> &'static Json {
    static MANAGED_RESOURCES: OnceLock<Json> = OnceLock::new();
    MANAGED_RESOURCES.get_or_init(|| {
        let text = json!({"type": "string"});
        json!({"type": "array", "items": {"type": "object", "properties": {
            "id": text, "state": text, "apiVersion": text, "kind": text, "namespace": text, "name": text,
            "message": text, "since": text, "nextRetryTime": text}}})
    })
}

/// ObjectMeta, for kinds whose schema does not spell it out.
fn object_meta() -> &'static Json {
    static OBJECT_META: OnceLock<Json> = OnceLock::new();
    OBJECT_META.get_or_init(|| {
        let text = json!({"type": "string"});
        let time = json!({"type": "string", "format": "date-time"});
        let texts = json!({"type": "object", "additionalProperties": {"type": "string"}});
        json!({"type": "object", "properties": {
            "name": text, "generateName": text, "namespace": text, "uid": text, "resourceVersion": text,
            "selfLink": text, "generation": {"type": "integer"}, "creationTimestamp": time,
            "deletionTimestamp": time, "deletionGracePeriodSeconds": {"type": "integer"},
            "labels": texts, "annotations": texts,
            "finalizers": {"type": "array", "items": {"type": "string"}},
            "managedFields": {"type": "array", "items": {}},
            "ownerReferences": {"type": "array", "items": {"type": "object", "properties": {
                "apiVersion": text, "kind": text, "name": text, "uid": text,
                "controller": {"type": "boolean"}, "blockOwnerDeletion": {"type": "boolean"}}}},
        }})
    })
}
