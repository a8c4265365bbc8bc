//! Definitions and instances without a cluster: checked against CRD files, against each other, and against the built-in
//! kinds of Kubernetes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use orlop_api::schema::{Root, apply_defaults, from_openapi, unknown_fields, validate};
use serde_json::{Value as Json, json};

use crate::builtin::{builtin_kind, is_builtin_version};
use crate::crd;
use crate::definition::DefinitionSpec;
use crate::graph::{Built, Limits, build, required_kinds};
use crate::kinds::{Gvk, Kinds, kinds_of_crd, untyped_kind};

/// A definition that was compiled, or the reason why it was not.
#[derive(Debug)]
pub struct Compiled {
    /// Name of the definition.
    pub name: String,
    /// The graph, or the text of the error.
    pub result: Result<Built, String>,
}

/// Compiles definitions in their order. Kinds come from `others`, which holds CRDs and further definitions, from the
/// definitions themselves, and from Kubernetes. A kind that none of them has is taken as it is, unchecked.
pub fn compile(definitions: &[Json], others: &[Json]) -> Vec<Compiled> {
    let is = |document: &&Json, kind: &str| document.get("kind").and_then(Json::as_str) == Some(kind);
    let crds = others.iter().filter(|document| is(document, "CustomResourceDefinition"));
    let mut kinds: Kinds =
        crds.flat_map(kinds_of_crd).map(|kind| (kind.gvk.clone(), Arc::new(kind))).collect();
    let further = others.iter().filter(|document| is(document, "ResourceGraphDefinition"));
    let mut waiting: Vec<(usize, &Json, Result<DefinitionSpec, String>)> = definitions
        .iter()
        .chain(further)
        .enumerate()
        .map(|(index, definition)| {
            let spec = DefinitionSpec::from_json(definition.get("spec").unwrap_or(&Json::Null));
            (index, definition, spec)
        })
        .collect();
    let mut compiled = BTreeMap::new();
    while !waiting.is_empty() {
        let promised: BTreeSet<Gvk> =
            waiting.iter().filter_map(|(_, _, spec)| spec.as_ref().ok()).map(defined_kind).collect();
        let is_ready = |spec: &DefinitionSpec| {
            required_kinds(spec).iter().all(|gvk| kinds.contains_key(gvk) || !promised.contains(gvk))
        };
        let ready = waiting.iter().position(|(_, _, spec)| spec.as_ref().is_ok_and(is_ready));
        // Among definitions that need each other's kinds, one goes without.
        let (index, definition, spec) = waiting.remove(ready.unwrap_or(0));
        let name = definition.pointer("/metadata/name").and_then(Json::as_str).unwrap_or_default();
        let result = spec.and_then(|spec| compile_one(name, &spec, &mut kinds));
        compiled.insert(index, Compiled { name: name.to_owned(), result });
    }
    compiled.into_values().take(definitions.len()).collect()
}

fn defined_kind(spec: &DefinitionSpec) -> Gvk {
    let schema = &spec.schema;
    Gvk { group: schema.group.clone(), version: schema.api_version.clone(), kind: schema.kind.clone() }
}

/// Compiles a definition and adds the kind that it defines.
fn compile_one(name: &str, spec: &DefinitionSpec, kinds: &mut Kinds) -> Result<Built, String> {
    for gvk in required_kinds(spec) {
        if kinds.contains_key(&gvk) {
            continue;
        }
        let kind = match builtin_kind(&gvk) {
            Some(kind) => kind,
            // A misspelt name: the build says so.
            None if is_builtin_version(&gvk) => continue,
            None => untyped_kind(gvk.clone()),
        };
        kinds.insert(gvk, Arc::new(kind));
    }
    let built = build(name, spec, kinds, Limits::default()).map_err(|error| error.to_string())?;
    for kind in kinds_of_crd(&crd::generate(spec, &built, "")) {
        kinds.insert(kind.gvk.clone(), Arc::new(kind));
    }
    Ok(built)
}

/// Returns an instance as a server would store it, with defaults, and the reasons why it would refuse it. Rules in CEL are
/// left to the server.
pub fn admit(built: &Built, instance: &Json) -> (Json, Vec<String>) {
    let schema = from_openapi(&json!({"type": "object", "properties": {"spec": built.spec_schema}}));
    let mut fields = json!({});
    if let Some(spec) = instance.get("spec") {
        fields["spec"] = spec.clone();
    }
    apply_defaults(&mut fields, &schema);
    let unknown = unknown_fields(&fields, &schema, Root::Plain);
    let mut faults: Vec<String> =
        unknown.into_iter().map(|path| format!("unknown field \"{path}\"")).collect();
    faults.extend(validate(&fields, &schema).iter().map(ToString::to_string));
    let mut instance = instance.clone();
    if let (Some(object), Some(spec)) = (instance.as_object_mut(), fields.get_mut("spec")) {
        object.insert("spec".to_owned(), spec.take());
        if built.graph.namespaced
            && let Some(metadata) = object.get_mut("metadata").and_then(Json::as_object_mut)
        {
            metadata.entry("namespace").or_insert_with(|| json!("default"));
        }
    }
    (instance, faults)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(name: &str, kind: &str, resources: Json) -> Json {
        json!({"apiVersion": "kro.run/v1alpha1", "kind": "ResourceGraphDefinition", "metadata": {"name": name},
            "spec": {"schema": {"kind": kind, "apiVersion": "v1alpha1",
                "spec": {"size": "integer | default=3 minimum=1", "name": "string | required=true"},
                "status": {"size": "${schema.spec.size}"}}, "resources": resources}})
    }

    fn error(compiled: &[Compiled]) -> String {
        compiled.iter().filter_map(|one| one.result.as_ref().err().cloned()).collect()
    }

    #[test]
    fn templates_are_checked_against_built_in_kinds() {
        let deployment = |spec: Json| {
            json!([{"id": "d", "template": {
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec}}])
        };
        let good = definition("a", "A", deployment(json!({"replicas": "${schema.spec.size}"})));
        assert_eq!(error(&compile(&[good], &[])), "");
        let mistyped = definition("a", "A", deployment(json!({"replicas": "${schema.spec.name}"})));
        let text = error(&compile(&[mistyped], &[]));
        assert!(text.contains("returns type \"string\" but expected \"int\""), "{text}");
        let unknown = definition("a", "A", deployment(json!({"replica": 1})));
        let text = error(&compile(&[unknown], &[]));
        assert!(text.contains("schema not found for field replica"), "{text}");
        let misspelt = definition(
            "a",
            "A",
            json!([{"id": "d", "template": {"apiVersion": "apps/v1", "kind": "Deploymnt", "metadata": {"name": "d"}}}]),
        );
        let text = error(&compile(&[misspelt], &[]));
        assert!(text.contains("cannot resolve group version kind \"apps/v1, Kind=Deploymnt\""), "{text}");
    }

    #[test]
    fn definitions_are_checked_against_kinds_of_one_another_in_any_order() {
        let uses = |field: &str| {
            definition(
                "outer",
                "Outer",
                json!([{"id": "inner", "template": {"apiVersion": "kro.run/v1alpha1", "kind": "Inner",
                    "metadata": {"name": "i"}, "spec": {"name": "n", field: 1}}}]),
            )
        };
        let inner = definition("inner", "Inner", json!([]));
        assert_eq!(error(&compile(&[uses("size"), inner.clone()], &[])), "");
        let text = error(&compile(&[uses("seize")], std::slice::from_ref(&inner)));
        assert!(text.contains("schema not found for field seize"), "{text}");
        // Fields of a status are known as well.
        let reads = |field: &str| {
            let mut outer = uses("size");
            outer["spec"]["schema"]["status"] = json!({"x": format!("${{inner.status.{field}}}")});
            error(&compile(&[outer, inner.clone()], &[]))
        };
        assert_eq!((reads("size"), reads("managedResources[0].state")), (String::new(), String::new()));
        assert!(reads("nothing").contains("undefined field 'nothing'"), "{}", reads("nothing"));
        // Two that need each other do not wait for ever.
        let other = |kind: &str, needs: &str| {
            definition(
                kind,
                kind,
                json!([{"id": "x", "template": {
                "apiVersion": "kro.run/v1alpha1", "kind": needs, "metadata": {"name": "i"}}}]),
            )
        };
        assert_eq!(compile(&[other("One", "Two"), other("Two", "One")], &[]).len(), 2);
    }

    #[test]
    fn instances_get_defaults_and_are_checked() {
        let compiled = compile(&[definition("a", "A", json!([]))], &[]).remove(0).result.unwrap();
        let (instance, faults) =
            admit(&compiled, &json!({"kind": "A", "metadata": {"name": "i"}, "spec": {"name": "n"}}));
        assert_eq!(instance["spec"], json!({"name": "n", "size": 3}));
        assert_eq!(instance["metadata"]["namespace"], "default");
        assert_eq!(faults, Vec::<String>::new());
        let (_, faults) = admit(&compiled, &json!({"metadata": {}, "spec": {"size": 0, "extra": 1}}));
        assert_eq!(faults.len(), 3, "{faults:?}");
        assert!(faults[0].contains("unknown field \"spec.extra\""), "{faults:?}");
    }
}
