//! Plans: the changes a pass would make. Every write is a dry run.

use futures_util::future::BoxFuture;
use std::collections::BTreeSet;

use orlop_client::Client;
use serde_json::{Value as Json, json};

use crate::applyset::{self, Inventory};
use crate::cluster::{Cluster, Resource, message};
use crate::controller::{InstanceKey, child_labels, complete, definition_resource};
use crate::definition::DefinitionSpec;
use crate::expression::Scope;
use crate::graph::{Graph, Limits, Target, build, include, required_kinds, resolve};
use crate::metrics::Metrics;
use crate::names;

/// A change of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Planned action.
    pub action: Action,
    /// Kind, namespace and name.
    pub object: String,
    /// Fields that differ, as `path: old -> new`.
    pub fields: Vec<String>,
}

/// Planned action on an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It is created.
    Create,
    /// It is changed.
    Change,
    /// It stays as it is.
    Keep,
    /// It is deleted.
    Delete,
    /// It cannot be told yet.
    Wait,
}

/// An instance's changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Namespace and name of the instance.
    pub instance: String,
    /// Nodes that are not ready now, each with its reason, since when, and the next retry.
    pub now: Vec<String>,
    /// Its changes, in the order of the graph.
    pub changes: Vec<Change>,
}

/// A plan that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The definition or the instance is wrong.
    #[error("{0}")]
    Invalid(String),
    /// The server does not answer.
    #[error("{}", message(.0))]
    Api(#[from] orlop_client::Error),
}

/// Plans a definition's effect on every live instance.
pub fn plan_definition(client: Client, definition: &Json) -> BoxFuture<'_, Result<Vec<Plan>, PlanError>> {
    Box::pin(async move {
        let cluster = Cluster::new(client, Metrics::default());
        let graph = compile(&cluster, definition).await?;
        let resource =
            Resource { gvk: graph.gvk.clone(), plural: graph.plural.clone(), namespaced: graph.namespaced };
        let mut plans = Vec::new();
        for instance in cluster.list(&resource, None, "").await? {
            plans.push(plan(&cluster, &graph, &instance).await?);
        }
        Ok(plans)
    })
}

/// Plans an instance, live or not, of a definition in the cluster.
pub fn plan_instance(client: Client, instance: &Json) -> BoxFuture<'_, Result<Plan, PlanError>> {
    Box::pin(async move {
        let cluster = Cluster::new(client, Metrics::default());
        let text = |key: &str| instance.get(key).and_then(Json::as_str).unwrap_or_default();
        let gvk = crate::kinds::Gvk::new(text("apiVersion"), text("kind"));
        let definitions = cluster.list(&definition_resource(), None, "").await?;
        let definition = definitions.iter().find(|definition| {
            let text = |key: &str| definition.pointer(&format!("/spec/schema/{key}")).and_then(Json::as_str);
            text("kind") == Some(&gvk.kind)
                && text("apiVersion") == Some(&gvk.version)
                && text("group").unwrap_or(names::GROUP) == gvk.group
        });
        let Some(definition) = definition else {
            return Err(PlanError::Invalid(format!("no ResourceGraphDefinition defines {gvk}")));
        };
        let graph = compile(&cluster, definition).await?;
        let instance = defaulted(&cluster, &graph, instance).await?;
        plan(&cluster, &graph, &instance).await
    })
}

/// The instance as the server would store it: with defaults, and with what it has already.
async fn defaulted(cluster: &Cluster, graph: &Graph, instance: &Json) -> Result<Json, PlanError> {
    let resource =
        Resource { gvk: graph.gvk.clone(), plural: graph.plural.clone(), namespaced: graph.namespaced };
    let mut metadata = serde_json::Map::new();
    for field in ["name", "namespace", "labels", "annotations"] {
        if let Some(value) = instance.pointer(&format!("/metadata/{field}")) {
            metadata.insert(field.to_owned(), value.clone());
        }
    }
    let applied = json!({
        "apiVersion": instance["apiVersion"], "kind": instance["kind"], "metadata": metadata, "spec": instance["spec"]});
    let text = |field: &str| instance.pointer(&format!("/metadata/{field}")).and_then(Json::as_str);
    let namespace = text("namespace").or(graph.namespaced.then_some("default"));
    let name = text("name").unwrap_or_default();
    Ok(cluster.apply_dry_run(&resource, namespace, name, "orlop-compose-plan", &applied).await?)
}

async fn compile(cluster: &Cluster, definition: &Json) -> Result<Graph, PlanError> {
    let name = definition.pointer("/metadata/name").and_then(Json::as_str).unwrap_or_default();
    let spec = DefinitionSpec::from_json(&definition["spec"]).map_err(PlanError::Invalid)?;
    let kinds = cluster.kinds(&required_kinds(&spec)).await?;
    let built = build(name, &spec, &kinds, Limits::default());
    built.map(|built| built.graph).map_err(|error| PlanError::Invalid(error.to_string()))
}

async fn plan(cluster: &Cluster, graph: &Graph, instance: &Json) -> Result<Plan, PlanError> {
    let text =
        |pointer: &str| instance.pointer(pointer).and_then(Json::as_str).unwrap_or_default().to_owned();
    let namespace = match text("/metadata/namespace") {
        empty if empty.is_empty() && graph.namespaced => "default".to_owned(),
        given => given,
    };
    let key = InstanceKey {
        group: graph.gvk.group.clone(),
        kind: graph.gvk.kind.clone(),
        namespace,
        name: text("/metadata/name"),
    };
    let id = applyset::id(&key.name, &key.namespace, &key.kind, &key.group);
    let labels = child_labels(&key, &graph.gvk, &text("/metadata/uid"), &id);
    let mut schema = instance.clone();
    if let Some(fields) = schema.as_object_mut() {
        fields.remove("status");
    }
    let mut observed: Vec<Option<Json>> = vec![None; graph.nodes.len()];
    let mut skipped: BTreeSet<usize> = BTreeSet::new();
    let mut wanted: BTreeSet<String> = BTreeSet::new();
    let mut changes = Vec::new();
    let mut unknown = false;
    for (index, node) in graph.nodes.iter().enumerate() {
        let target = {
            let mut scope = Scope::default();
            scope.bind("schema", &schema);
            for dependency in &node.data_dependencies {
                if let Some(json) = &observed[*dependency] {
                    scope.bind(&graph.nodes[*dependency].id, json);
                }
            }
            if node.data_dependencies.iter().any(|dependency| skipped.contains(dependency)) {
                Ok(None)
            } else {
                match include(node, &scope) {
                    Ok(true) => resolve(graph, node, &scope, key.namespace()).map(Some),
                    Ok(false) => Ok(None),
                    Err(failure) => Err(failure),
                }
            }
        };
        let resource = Resource::from(&*node.kind);
        let mut objects = Vec::new();
        match target {
            Ok(None) => {
                skipped.insert(index);
            }
            Err(failure) => {
                unknown = true;
                let object = format!("{} (node {})", node.kind.gvk.kind, node.id);
                changes.push(Change {
                    action: Action::Wait,
                    object,
                    fields: vec![failure.message().to_owned()],
                });
            }
            Ok(Some(Target::Named { namespace, name })) => {
                objects.extend(cluster.get(&resource, namespace.as_deref(), &name).await?);
            }
            Ok(Some(Target::Selected { namespace, selector })) => {
                let (labels, _) =
                    crate::controller::selector_text(&node.id, &selector).map_err(PlanError::Invalid)?;
                objects = cluster.list(&resource, namespace.as_deref(), &labels).await?;
            }
            Ok(Some(Target::Managed(items))) => {
                for (at, item) in items.iter().enumerate() {
                    let manifest = complete(&labels, node, item, at, items.len());
                    let namespace = item.namespace.as_deref();
                    let live = cluster.get(&resource, namespace, &item.name).await?;
                    let planned = cluster
                        .apply_dry_run(&resource, namespace, &item.name, names::APPLYSET, &manifest)
                        .await?;
                    let object = described(&resource, namespace, &item.name);
                    wanted.insert(object.clone());
                    let fields = live.as_ref().map(|live| differences(live, &planned)).unwrap_or_default();
                    let action = match &live {
                        None => Action::Create,
                        Some(_) if fields.is_empty() => Action::Keep,
                        Some(_) => Action::Change,
                    };
                    changes.push(Change { action, object, fields });
                    // A live status is what dependents will see.
                    objects.push(with_status(planned, live.as_ref()));
                }
            }
        }
        observed[index] = match node.role.is_list() {
            true => Some(Json::Array(objects)),
            false => objects.into_iter().next(),
        };
    }
    if !unknown && let Ok(Some(inventory)) = Inventory::read(instance, &id) {
        changes.extend(deletions(cluster, &id, &inventory, &key, &wanted).await?);
    }
    let now = waiting(instance);
    let instance =
        key.namespace().map_or_else(|| key.name.clone(), |namespace| format!("{namespace}/{}", key.name));
    Ok(Plan { instance, now, changes })
}

/// Reads from a live instance which nodes wait, and for what.
fn waiting(instance: &Json) -> Vec<String> {
    let nodes = instance.pointer("/status/managedResources").and_then(Json::as_array);
    let nodes = nodes.into_iter().flatten().filter_map(|node| {
        let text = |field: &str| node.get(field).and_then(Json::as_str);
        let (id, state, message) = (text("id")?, text("state")?, text("message")?);
        let since = text("since").map(|since| format!(" since {since}")).unwrap_or_default();
        let retry = match text("nextRetryTime") {
            Some(time) => format!("next retry at {time}"),
            None => "next retry when an object that it waits for changes".to_owned(),
        };
        Some(format!("{id} {state}{since}: {message}; {retry}"))
    });
    nodes.collect()
}

/// Members that the graph no longer wishes for.
async fn deletions(
    cluster: &Cluster,
    id: &str,
    inventory: &Inventory,
    key: &InstanceKey,
    wanted: &BTreeSet<String>,
) -> Result<Vec<Change>, PlanError> {
    let selector = format!("{}={id}", names::PART_OF);
    let own = key.namespace().unwrap_or("default").to_owned();
    let mut gone = Vec::new();
    for group_kind in &inventory.group_kinds {
        let (kind, group) = group_kind.split_once('.').unwrap_or((group_kind, ""));
        let Some(resource) = cluster.preferred_resource(group, kind).await? else { continue };
        let places: Vec<Option<&str>> = match resource.namespaced {
            true => inventory.namespaces.iter().map(String::as_str).chain([own.as_str()]).map(Some).collect(),
            false => vec![None],
        };
        for place in places {
            for object in cluster.list(&resource, place, &selector).await? {
                let name = object.pointer("/metadata/name").and_then(Json::as_str).unwrap_or_default();
                let object = described(&resource, place, name);
                if !wanted.contains(&object) {
                    gone.push(Change { action: Action::Delete, object, fields: Vec::new() });
                }
            }
        }
    }
    Ok(gone)
}

fn described(resource: &Resource, namespace: Option<&str>, name: &str) -> String {
    match namespace {
        Some(namespace) => format!("{} {namespace}/{name}", resource.gvk.kind),
        None => format!("{} {name}", resource.gvk.kind),
    }
}

fn with_status(mut planned: Json, live: Option<&Json>) -> Json {
    if let (Some(status), Some(fields)) = (live.and_then(|live| live.get("status")), planned.as_object_mut())
    {
        fields.insert("status".to_owned(), status.clone());
    }
    planned
}

/// The fields in which two versions of an object differ, as `path: old -> new`.
fn differences(live: &Json, planned: &Json) -> Vec<String> {
    let mut found = Vec::new();
    compare(live, planned, "", &mut found);
    found
}

/// Fields that change with every write or belong to others.
const IGNORED: [&str; 5] = [
    "metadata.resourceVersion",
    "metadata.generation",
    "metadata.managedFields",
    "metadata.creationTimestamp",
    "status",
];

fn compare(old: &Json, new: &Json, path: &str, found: &mut Vec<String>) {
    if old == new || IGNORED.contains(&path) {
        return;
    }
    match (old, new) {
        (Json::Object(before), Json::Object(after)) => {
            let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
            for name in names {
                let below = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                let field = |map: &serde_json::Map<String, Json>| map.get(name).cloned().unwrap_or_default();
                compare(&field(before), &field(after), &below, found);
            }
        }
        (Json::Array(before), Json::Array(after)) if before.len() == after.len() => {
            for (index, (before, after)) in before.iter().zip(after).enumerate() {
                compare(before, after, &format!("{path}[{index}]"), found);
            }
        }
        _ => found.push(format!("{path}: {old} -> {new}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_name_fields_and_ignore_the_servers() {
        let live = json!({"metadata": {"resourceVersion": "1", "labels": {"a": "1"}}, "spec": {"l": [1, 2]}, "status": {"x": 1}});
        let planned =
            json!({"metadata": {"resourceVersion": "2", "labels": {"a": "2"}}, "spec": {"l": [1, 3]}});
        assert_eq!(differences(&live, &planned), ["metadata.labels.a: \"1\" -> \"2\"", "spec.l[1]: 2 -> 3"]);
    }
}
