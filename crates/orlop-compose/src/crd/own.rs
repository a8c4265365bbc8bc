//! The kinds of this controller: ResourceGraphDefinition and GraphRevision.

use serde_json::{Value as Json, json};

use crate::names::{GROUP, INTERNAL_GROUP, VERSION};

/// Returns the CRD of ResourceGraphDefinitions.
pub fn definition_crd() -> Json {
    let columns = json!([
        {"name": "APIVERSION", "type": "string", "jsonPath": ".spec.schema.apiVersion"},
        {"name": "KIND", "type": "string", "jsonPath": ".spec.schema.kind"},
        {"name": "STATE", "type": "string", "jsonPath": ".status.state"},
        {"name": "READY", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"},
        {"name": "TOPOLOGICALORDER", "type": "string", "jsonPath": ".status.topologicalOrder", "priority": 1},
        {"name": "AGE", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]);
    let status = json!({"type": "object", "properties": {
        "state": {"type": "string"},
        "topologicalOrder": {"type": "array", "items": {"type": "string"}},
        "conditions": conditions(),
        "resources": resources_status(),
        "lastIssuedRevision": {"type": "integer", "format": "int64"},
    }});
    let schema = json!({"type": "object", "properties": {
        "apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"},
        "spec": definition_spec(), "status": status}});
    crd(GROUP, "ResourceGraphDefinition", "resourcegraphdefinitions", "rgd", &columns, &schema, &json!([]))
}

/// Returns the CRD of GraphRevisions.
pub fn revision_crd() -> Json {
    let columns = json!([
        {"name": "RGD", "type": "string", "jsonPath": ".spec.snapshot.name", "priority": 1},
        {"name": "REVISION", "type": "integer", "jsonPath": ".spec.revision"},
        {"name": "HASH", "type": "string", "jsonPath": ".metadata.labels.kro\\.run/graph-revision-hash", "priority": 1},
        {"name": "READY", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"},
        {"name": "AGE", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]);
    let spec = json!({
    "type": "object", "required": ["revision", "snapshot"],
    "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "spec is immutable"}],
    "properties": {
        "revision": {"type": "integer", "format": "int64", "minimum": 1},
        "snapshot": {"type": "object", "required": ["name", "spec"], "properties": {
            "name": {"type": "string"},
            "generation": {"type": "integer", "format": "int64"},
            "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        }},
    }});
    let status = json!({"type": "object", "properties": {
        "topologicalOrder": {"type": "array", "items": {"type": "string"}},
        "conditions": conditions(), "resources": resources_status()}});
    let schema = json!({"type": "object", "properties": {
        "apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"},
        "spec": spec, "status": status}});
    let selectable = json!([{"jsonPath": ".spec.snapshot.name"}]);
    crd(INTERNAL_GROUP, "GraphRevision", "graphrevisions", "gr", &columns, &schema, &selectable)
}

fn crd(
    group: &str,
    kind: &str,
    plural: &str,
    short: &str,
    columns: &Json,
    schema: &Json,
    selectable: &Json,
) -> Json {
    let mut version = json!({
        "name": VERSION, "served": true, "storage": true, "additionalPrinterColumns": columns,
        "subresources": {"status": {}}, "schema": {"openAPIV3Schema": schema}});
    if selectable.as_array().is_some_and(|fields| !fields.is_empty()) {
        version["selectableFields"] = selectable.clone();
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Cluster",
            "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural,
                "singular": kind.to_lowercase(), "shortNames": [short]},
            "versions": [version],
        },
    })
}

fn definition_spec() -> Json {
    let free = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let immutable =
        |what: &str| json!([{"rule": "self == oldSelf", "message": format!("{what} is immutable")}]);
    let names = json!({"type": "array", "maxItems": 32, "x-kubernetes-list-type": "set", "items": {
        "type": "string", "maxLength": 63, "pattern": "^[a-z]([-a-z0-9]*[a-z0-9])?$"}});
    let texts = json!({"type": "array", "items": {"type": "string"}});
    let map = json!({"type": "object", "additionalProperties": {"type": "string"}});
    let schema = json!({"type": "object", "required": ["kind", "apiVersion"], "properties": {
        "kind": {"type": "string", "pattern": "^[A-Z][a-zA-Z0-9]{0,62}$", "x-kubernetes-validations": immutable("kind")},
        "apiVersion": {"type": "string", "pattern": "^v[0-9]+(alpha[0-9]+|beta[0-9]+)?$",
            "x-kubernetes-validations": immutable("apiVersion")},
        "group": {"type": "string", "default": GROUP, "x-kubernetes-validations": immutable("group")},
        "scope": {"type": "string", "default": "Namespaced", "enum": ["Namespaced", "Cluster"],
            "x-kubernetes-validations": immutable("scope")},
        "spec": free, "types": free, "status": free,
        "additionalPrinterColumns": {"type": "array", "items": {"type": "object", "required": ["name", "type", "jsonPath"],
            "properties": {"name": {"type": "string"}, "type": {"type": "string"}, "format": {"type": "string"},
                "description": {"type": "string"}, "priority": {"type": "integer", "format": "int32"},
                "jsonPath": {"type": "string"}}}},
        "shortNames": names, "categories": names,
        "metadata": {"type": "object", "properties": {"labels": map, "annotations": map}},
    }});
    let external = json!({"type": "object", "required": ["apiVersion", "kind", "metadata"], "properties": {
        "apiVersion": {"type": "string"}, "kind": {"type": "string"},
        "metadata": {"type": "object", "properties": {
            "name": {"type": "string", "minLength": 1}, "namespace": {"type": "string"},
            "selector": {"x-kubernetes-preserve-unknown-fields": true}}}}});
    let lifecycle = json!({"type": "object", "properties": {
        "adopt": {"type": "string", "enum": ["IfUnowned", "Always", "Never"]},
        "retain": {"type": "boolean"},
        "onDelete": {"type": "string", "enum": ["Delete", "Retain"]}}});
    let resource = json!({"type": "object", "required": ["id"],
    "x-kubernetes-validations": [{
        "rule": "has(self.template) != has(self.externalRef)",
        "message": "exactly one of template or externalRef must be provided"}],
    "properties": {
        "id": {"type": "string"}, "template": free, "externalRef": external, "readyWhen": texts, "includeWhen": texts,
        "forEach": {"type": "array", "items": {"type": "object", "minProperties": 1, "maxProperties": 1,
            "additionalProperties": {"type": "string"}}},
        "dependsOn": {"type": "array", "items": {"x-kubernetes-preserve-unknown-fields": true}},
        "lifecycle": lifecycle,
    }});
    json!({"type": "object", "required": ["schema"], "properties": {
        "schema": schema,
        "resources": {"type": "array", "items": resource},
        "serviceAccountName": {"type": "string"},
        "deletionPolicy": {"type": "string", "enum": ["Wait", "Drain", "Orphan"]},
    }})
}

fn conditions() -> Json {
    json!({"type": "array", "items": {"type": "object", "required": ["type", "status"], "properties": {
        "type": {"type": "string"}, "status": {"type": "string"}, "reason": {"type": "string"},
        "message": {"type": "string"}, "lastTransitionTime": {"type": "string", "format": "date-time"},
        "observedGeneration": {"type": "integer", "format": "int64"}}}})
}

fn resources_status() -> Json {
    json!({"type": "array", "items": {"type": "object", "properties": {
        "id": {"type": "string"},
        "dependencies": {"type": "array", "items": {"type": "object", "properties": {"id": {"type": "string"}}}}}}})
}
