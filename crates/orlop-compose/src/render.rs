//! Graphs without a cluster: manifests of an instance, and pictures.

use serde_json::Value as Json;

use crate::expression::{Failure, Scope};
use crate::graph::{Built, Target, include, resolve};
use crate::offline::admit;

pub use crate::picture::{to_dot, to_mermaid, to_svg};

/// A node as an instance would have it.
#[derive(Clone, Debug, PartialEq)]
pub struct Rendered {
    /// Its id.
    pub id: String,
    /// Its manifests, or why there are none.
    pub outcome: Outcome,
}

/// Outcome of a node.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// These objects would be applied.
    Manifests(Vec<Json>),
    /// `includeWhen` is false, or a node that it reads is skipped.
    Skipped,
    /// Reads objects of others, which only a cluster has.
    External,
    /// Needs data that only a cluster has, with the expression's error.
    Pending(String),
    /// An expression fails.
    Failed(String),
}

/// Renders an instance, with the defaults of its schema; the error says why a server would refuse it. A node sees the
/// manifests of the nodes it reads, not their status.
pub fn render(built: &Built, instance: &Json) -> Result<Vec<Rendered>, String> {
    let graph = &built.graph;
    let (mut schema, faults) = admit(built, instance);
    if !faults.is_empty() {
        return Err(faults.join("; "));
    }
    if let Some(fields) = schema.as_object_mut() {
        fields.remove("status");
    }
    let namespace = match instance.pointer("/metadata/namespace").and_then(Json::as_str) {
        Some(namespace) => Some(namespace),
        None => graph.namespaced.then_some("default"),
    };
    let mut observed: Vec<Option<Json>> = vec![None; graph.nodes.len()];
    let mut rendered: Vec<Rendered> = Vec::with_capacity(graph.nodes.len());
    for (index, node) in graph.nodes.iter().enumerate() {
        let skipped = |dependency: &usize| {
            rendered.get(*dependency).is_some_and(|other| other.outcome == Outcome::Skipped)
        };
        let outcome = if node.data_dependencies.iter().any(skipped) {
            Outcome::Skipped
        } else {
            let mut scope = Scope::default();
            scope.bind("schema", &schema);
            for dependency in &node.data_dependencies {
                if let (Some(other), Some(Some(json))) =
                    (graph.nodes.get(*dependency), observed.get(*dependency))
                {
                    scope.bind(&other.id, json);
                }
            }
            let resolved = match include(node, &scope) {
                Ok(true) => resolve(graph, node, &scope, namespace).map(Some),
                Ok(false) => Ok(None),
                Err(failure) => Err(failure),
            };
            match resolved {
                Ok(None) => Outcome::Skipped,
                Ok(Some(Target::Managed(items))) => {
                    Outcome::Manifests(items.into_iter().map(|item| item.manifest).collect())
                }
                Ok(Some(_)) => Outcome::External,
                Err(Failure::Pending(error)) => Outcome::Pending(error),
                Err(Failure::Failed(error)) => Outcome::Failed(error),
            }
        };
        if let Outcome::Manifests(manifests) = &outcome
            && let Some(slot) = observed.get_mut(index)
        {
            *slot = match node.role.is_list() {
                true => Some(Json::Array(manifests.clone())),
                false => manifests.first().cloned(),
            };
        }
        rendered.push(Rendered { id: node.id.clone(), outcome });
    }
    Ok(rendered)
}
