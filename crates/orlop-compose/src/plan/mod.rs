//! Plans: the changes a pass would make. Every write is a dry run.

mod differences;

use futures_util::future::BoxFuture;
use std::collections::BTreeSet;

use orlop_client::Client;
use serde_json::{Value as Json, json};

use self::differences::differences;

use crate::applyset::{self, Inventory};
use crate::cluster::{Cluster, Resource, code, message};
use crate::controller::{InstanceKey, child_labels, complete, crd_resource, definition_resource, refusal};
use crate::crd;
use crate::definition::DefinitionSpec;
use crate::expression::Scope;
use crate::graph::{Built, Graph, Item, Limits, Node, Target, build, include, required_kinds, resolve};
use crate::metrics::Metrics;
use crate::names;
use crate::offline::admit;

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
    /// It leaves the instance and stays.
    Retain,
    /// It cannot be told yet.
    Wait,
    /// It would be refused.
    Refuse,
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

/// A definition's changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefinitionPlan {
    /// Change of the CRD of its kind.
    pub crd: Change,
    /// Changes of the CRD that break objects or clients, and that the definition does not allow.
    pub breaking: Vec<String>,
    /// Its effect on every live instance.
    pub instances: Vec<Plan>,
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

/// Plans a definition: the change of its kind, and its effect on every live instance.
pub fn plan_definition(
    client: Client,
    definition: &Json,
) -> BoxFuture<'_, Result<DefinitionPlan, PlanError>> {
    Box::pin(async move {
        let cluster = Cluster::new(client, Metrics::default());
        let (spec, built) = compile(&cluster, definition).await?;
        let (crd, breaking) = plan_crd(&cluster, definition, &spec, &built).await?;
        let mut instances = Vec::new();
        for instance in cluster.list(&instance_resource(&built.graph), None, "").await? {
            // The schema may have changed as well: fields get other defaults, and some become invalid.
            let (instance, faults) = admit(&built, &instance);
            let mut planned = plan(&cluster, &built.graph, &instance).await?;
            planned
                .now
                .extend(faults.into_iter().map(|fault| format!("invalid under the new schema: {fault}")));
            instances.push(planned);
        }
        Ok(DefinitionPlan { crd, breaking, instances })
    })
}

/// Compares the CRD of a definition with the live one.
async fn plan_crd(
    cluster: &Cluster,
    definition: &Json,
    spec: &DefinitionSpec,
    built: &Built,
) -> Result<(Change, Vec<String>), PlanError> {
    let wanted = crd::generate(spec, built, "");
    let name = wanted.pointer("/metadata/name").and_then(Json::as_str).unwrap_or_default();
    let object = format!("CustomResourceDefinition {name}");
    let Some(live) = cluster.get(&crd_resource(), None, name).await? else {
        return Ok((Change { action: Action::Create, object, fields: Vec::new() }, Vec::new()));
    };
    let label = |key: &str| live.pointer("/metadata/labels").and_then(|labels| labels.get(key)?.as_str());
    let owner = label(names::DEFINITION_NAME).unwrap_or_default();
    if label(names::OWNED) != Some("true") || owner != built.graph.name {
        let whose = if owner.is_empty() { "no ResourceGraphDefinition" } else { owner };
        let fields = vec![format!("it belongs to {whose}")];
        return Ok((Change { action: Action::Refuse, object, fields }, Vec::new()));
    }
    let fields_of = |crd: &Json| {
        let version = crd.pointer("/spec/versions/0").cloned().unwrap_or_default();
        let mut fields = version.pointer("/schema/openAPIV3Schema/properties").cloned().unwrap_or_default();
        fields["additionalPrinterColumns"] = version["additionalPrinterColumns"].clone();
        for list in ["shortNames", "categories"] {
            fields[list] = crd.pointer(&format!("/spec/names/{list}")).cloned().unwrap_or_default();
        }
        // Compared as fields of a schema, not as parts of an object.
        json!({"schema": fields})
    };
    let fields = differences(&fields_of(&live), &fields_of(&wanted));
    let annotations = definition.pointer("/metadata/annotations");
    let allowed = annotations.and_then(|annotations| annotations.get(names::ALLOW_BREAKING)?.as_str());
    let breaking = match allowed {
        Some("true") => Vec::new(),
        _ => crd::breaking_changes(&live, &wanted)
            .into_iter()
            .map(|change| format!("{}: {}", change.path, change.message))
            .collect(),
    };
    let action = if fields.is_empty() { Action::Keep } else { Action::Change };
    Ok((Change { action, object, fields }, breaking))
}

fn instance_resource(graph: &Graph) -> Resource {
    Resource { gvk: graph.gvk.clone(), plural: graph.plural.clone(), namespaced: graph.namespaced }
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
        let graph = compile(&cluster, definition).await?.1.graph;
        let instance = defaulted(&cluster, &graph, instance).await?;
        plan(&cluster, &graph, &instance).await
    })
}

/// The instance as the server would store it: with defaults, and with what it has already.
async fn defaulted(cluster: &Cluster, graph: &Graph, instance: &Json) -> Result<Json, PlanError> {
    let resource = instance_resource(graph);
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

async fn compile(cluster: &Cluster, definition: &Json) -> Result<(DefinitionSpec, Built), PlanError> {
    let name = definition.pointer("/metadata/name").and_then(Json::as_str).unwrap_or_default();
    let spec = DefinitionSpec::from_json(&definition["spec"]).map_err(PlanError::Invalid)?;
    let kinds = cluster.kinds(&required_kinds(&spec)).await?;
    let built = build(name, &spec, &kinds, Limits::default());
    let built = built.map_err(|error| PlanError::Invalid(error.to_string()))?;
    Ok((spec, built))
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
                    let (manifest, _) = complete(&labels, node, item, at, items.len());
                    let (change, object) = plan_item(cluster, node, item, manifest, (&id, &wanted)).await?;
                    wanted.insert(change.object.clone());
                    changes.push(change);
                    objects.push(object);
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

/// Plans one object; also returns it as dependents will see it. `planned` names the objects planned so far.
async fn plan_item(
    cluster: &Cluster,
    node: &Node,
    item: &Item,
    manifest: Json,
    (applyset, planned): (&str, &BTreeSet<String>),
) -> Result<(Change, Json), PlanError> {
    let resource = Resource::from(&*node.kind);
    let namespace = item.namespace.as_deref();
    let object = described(&resource, namespace, &item.name);
    let live = cluster.get(&resource, namespace, &item.name).await?;
    let place = namespace.map_or_else(|| item.name.clone(), |namespace| format!("{namespace}/{}", item.name));
    if let Some(why) = live.as_ref().and_then(|live| refusal(node, live, &place, applyset)) {
        return Ok((Change { action: Action::Refuse, object, fields: vec![why] }, manifest));
    }
    let applied =
        match cluster.apply_dry_run(&resource, namespace, &item.name, names::APPLYSET, &manifest).await {
            Ok(applied) => applied,
            Err(error @ orlop_client::Error::Api(_)) => {
                // The graph itself makes the namespace.
                let made = namespace.is_some_and(|name| planned.contains(&format!("Namespace {name}")));
                let change = match code(&error) == Some(404) && made {
                    true => Change { action: Action::Create, object, fields: Vec::new() },
                    false => Change { action: Action::Refuse, object, fields: vec![message(&error)] },
                };
                return Ok((change, manifest));
            }
            Err(error) => return Err(error.into()),
        };
    let fields = live.as_ref().map(|live| differences(live, &applied)).unwrap_or_default();
    let action = match &live {
        None => Action::Create,
        Some(_) if fields.is_empty() => Action::Keep,
        Some(_) => Action::Change,
    };
    // A live status is what dependents will see.
    Ok((Change { action, object, fields }, with_status(applied, live.as_ref())))
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

/// Members that the graph no longer desires.
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
                let annotations = object.pointer("/metadata/annotations");
                let policy = annotations.and_then(|annotations| annotations.get(names::ON_DELETE)?.as_str());
                let action = if policy == Some(names::RETAIN) { Action::Retain } else { Action::Delete };
                let object = described(&resource, place, name);
                if !wanted.contains(&object) {
                    gone.push(Change { action, object, fields: Vec::new() });
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
