//! The CustomResourceDefinition of the kind that a definition describes.

use serde_json::{Map, Value as Json, json};

use crate::definition::{DefinitionSpec, Scope};
use crate::graph::Built;
use crate::names;

/// Generates the CRD. `uid` is the definition's.
pub fn generate(spec: &DefinitionSpec, built: &Built, uid: &str) -> Json {
    let schema = &spec.schema;
    let graph = &built.graph;
    let plural = &graph.plural;
    let mut labels: Map<String, Json> =
        schema.metadata.labels.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
    for (key, value) in [
        (names::OWNED, "true"),
        (names::CONTROLLER_VERSION, names::TOOL_VERSION),
        (names::DEFINITION_ID, uid),
        (names::DEFINITION_NAME, graph.name.as_str()),
    ] {
        labels.insert(key.to_owned(), json!(value));
    }
    let mut metadata = json!({"name": format!("{plural}.{}", graph.gvk.group), "labels": labels});
    if !schema.metadata.annotations.is_empty() {
        metadata["annotations"] = json!(schema.metadata.annotations);
    }
    let mut names = json!({
        "kind": graph.gvk.kind, "listKind": format!("{}List", graph.gvk.kind), "plural": plural,
        "singular": graph.gvk.kind.to_lowercase()});
    if !schema.short_names.is_empty() {
        names["shortNames"] = json!(schema.short_names);
    }
    if !schema.categories.is_empty() {
        names["categories"] = json!(schema.categories);
    }
    let columns = if schema.additional_printer_columns.is_empty() {
        default_columns()
    } else {
        json!(schema.additional_printer_columns)
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": {
            "group": graph.gvk.group,
            "names": names,
            "scope": if schema.scope == Scope::Cluster { "Cluster" } else { "Namespaced" },
            "versions": [{
                "name": graph.gvk.version, "served": true, "storage": true,
                "additionalPrinterColumns": columns,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"},
                    "spec": built.spec_schema,
                    "status": with_own_fields(&built.status_schema),
                }}},
            }],
        },
    })
}

/// The author's status with `state` and `conditions`, unless the author named them, and room for `managedResources`.
fn with_own_fields(status: &Json) -> Json {
    let mut status = status.clone();
    if !status.get("properties").is_some_and(Json::is_object) {
        status = json!({"type": "object", "properties": {}});
    }
    let text = json!({"type": "string"});
    let condition = json!({"type": "object", "properties": {
        "type": text, "status": text, "reason": text, "message": text, "lastTransitionTime": text,
        "observedGeneration": {"type": "integer"}}});
    if let Some(properties) = status.get_mut("properties").and_then(Json::as_object_mut) {
        properties.entry("state").or_insert_with(|| text.clone());
        properties.entry("conditions").or_insert_with(|| json!({"type": "array", "items": condition}));
    }
    status["description"] = json!(names::STATUS_DESCRIPTION);
    status["x-kubernetes-preserve-unknown-fields"] = json!(true);
    status
}

fn default_columns() -> Json {
    json!([
        {"name": "State", "type": "string", "jsonPath": ".status.state",
         "description": "The state of a ResourceGraphDefinition instance"},
        {"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status",
         "description": "Whether a ResourceGraphDefinition instance is ready"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp", "description": "Age of the resource"},
    ])
}

/// Returns true if a live CRD says all that the generated one says. Defaults that the server fills in do not count.
pub fn is_same(live: &Json, wanted: &Json) -> bool {
    let labels =
        |crd: &Json, field: &str| crd.pointer(&format!("/metadata/{field}")).cloned().unwrap_or_default();
    contains(&live["spec"], &wanted["spec"])
        && same_names(live, wanted)
        && same_schema(live, wanted)
        && contains(&labels(live, "labels"), &labels(wanted, "labels"))
        && contains(&labels(live, "annotations"), &labels(wanted, "annotations"))
}

/// Short names and categories that were taken away count as a change.
fn same_names(live: &Json, wanted: &Json) -> bool {
    ["shortNames", "categories"].iter().all(|field| {
        let list =
            |crd: &Json| crd.pointer(&format!("/spec/names/{field}")).cloned().unwrap_or_else(|| json!([]));
        list(live) == list(wanted)
    })
}

/// Schemas are stored as they are written, so anything beyond the wanted one is a change.
fn same_schema(live: &Json, wanted: &Json) -> bool {
    let pointer = "/spec/versions/0/schema/openAPIV3Schema";
    live.pointer(pointer) == wanted.pointer(pointer)
}

fn contains(live: &Json, wanted: &Json) -> bool {
    match (live, wanted) {
        (Json::Object(live), Json::Object(wanted)) => wanted
            .iter()
            .all(|(key, value)| live.get(key).map_or(value.is_null(), |found| contains(found, value))),
        (Json::Array(live), Json::Array(wanted)) => {
            live.len() == wanted.len() && live.iter().zip(wanted).all(|(live, wanted)| contains(live, wanted))
        }
        (Json::Null, Json::Object(wanted)) => wanted.is_empty(),
        (live, wanted) => live == wanted,
    }
}
