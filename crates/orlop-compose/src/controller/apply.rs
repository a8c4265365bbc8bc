//! Objects of one node: read, applied, compared. No decisions about the graph.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::stream;
use orlop_api::labels::Selector;
use orlop_client::object_json;
use serde_json::{Map, Value as Json, json};

use super::Controller;
use super::existing::Claim;
use super::memory::{Child, ChildKey, InstanceKey};
use crate::cluster::{Cluster, Resource, Result, code, message};
use crate::definition::{Adopt, fnv1a64};
use crate::graph::{Graph, Item, Node, Role, Target};
use crate::kinds::Gvk;
use crate::names;

/// Objects of one node that are applied at once.
const PARALLEL: usize = 16;

/// State that all nodes of a pass share.
pub(super) struct Context {
    pub(super) controller: Arc<Controller>,
    pub(super) instance: InstanceKey,
    pub(super) cluster: Cluster,
    pub(super) graph: Arc<Graph>,
    pub(super) applyset: String,
    /// Labels of every child.
    pub(super) labels: Map<String, Json>,
    /// Members of the ApplySet as they are.
    pub(super) members: HashMap<ChildKey, Json>,
    /// Children as the last pass left them.
    pub(super) before: HashMap<ChildKey, Child>,
}

/// Outcome of a node's objects.
#[derive(Debug, Default)]
pub(super) struct Applied {
    /// The objects as they are, in the order of items.
    pub(super) objects: Vec<Json>,
    pub(super) children: Vec<(ChildKey, Child)>,
    /// Errors in the order of items.
    pub(super) errors: Vec<String>,
    /// An object that is being deleted, with the text for the condition; and whether its end will be seen.
    pub(super) deleting: Option<(String, bool)>,
    /// An external object that is not there.
    pub(super) missing: Option<String>,
}

/// Labels of every child of an instance.
pub(crate) fn child_labels(key: &InstanceKey, gvk: &Gvk, uid: &str, applyset: &str) -> Map<String, Json> {
    let mut labels = Map::new();
    for (label, value) in [
        (names::PART_OF, applyset),
        (names::OWNED, "true"),
        (names::CONTROLLER_VERSION, names::TOOL_VERSION),
        (names::INSTANCE_ID, uid),
        (names::INSTANCE_NAME, &key.name),
        (names::INSTANCE_GROUP, &gvk.group),
        (names::INSTANCE_VERSION, &gvk.version),
        (names::INSTANCE_KIND, &gvk.kind),
        (names::MANAGED_BY, "kro"),
    ] {
        labels.insert(label.to_owned(), json!(value));
    }
    if let Some(namespace) = key.namespace() {
        labels.insert(names::INSTANCE_NAMESPACE.to_owned(), json!(namespace));
    }
    labels
}

/// Completes a manifest with the labels and annotations of this controller; returns it with its hash.
pub(crate) fn complete(
    labels: &Map<String, Json>,
    node: &Node,
    item: &Item,
    index: usize,
    count: usize,
) -> (Json, u64) {
    let mut manifest = item.manifest.clone();
    let Some(metadata) = manifest.get_mut("metadata").and_then(Json::as_object_mut) else {
        return (manifest, 0);
    };
    let mut own = labels.clone();
    own.insert(names::NODE_ID.to_owned(), json!(node.id));
    if node.role == Role::Collection {
        own.insert(names::COLLECTION_INDEX.to_owned(), json!(index.to_string()));
        own.insert(names::COLLECTION_SIZE.to_owned(), json!(count.to_string()));
    }
    merge_into(metadata, "labels", own);
    let mut annotations = Map::from_iter([(names::APPLY_ORDER.to_owned(), json!(node.wave.to_string()))]);
    if node.lifecycle.retains() {
        annotations.insert(names::ON_DELETE.to_owned(), json!(names::RETAIN));
    }
    merge_into(metadata, "annotations", annotations);
    let hash = fnv1a64(&object_json::encode(&manifest));
    manifest["metadata"]["annotations"][names::APPLIED] = json!(format!("{hash:016x}"));
    (manifest, hash)
}

/// Returns true if an object is as this manifest was applied before: it bears its hash, so no field has left the manifest,
/// and it has all of its fields.
fn is_applied(live: &Json, manifest: &Json) -> bool {
    let hash = |object: &Json| object["metadata"]["annotations"][names::APPLIED].clone();
    hash(live).is_string() && hash(live) == hash(manifest) && contains(live, manifest)
}

fn contains(live: &Json, manifest: &Json) -> bool {
    match (live, manifest) {
        (Json::Object(live), Json::Object(fields)) => {
            fields.iter().all(|(name, field)| match live.get(name) {
                Some(value) => contains(value, field),
                None => field.is_null(),
            })
        }
        (Json::Array(live), Json::Array(items)) => {
            live.len() == items.len() && live.iter().zip(items).all(|(live, item)| contains(live, item))
        }
        _ => live == manifest,
    }
}

fn merge_into(metadata: &mut Map<String, Json>, field: &str, own: Map<String, Json>) {
    let entry = metadata.entry(field).or_insert_with(|| json!({}));
    if !entry.is_object() {
        *entry = json!({});
    }
    if let Some(map) = entry.as_object_mut() {
        map.extend(own);
    }
}

/// The key of an item.
pub(super) fn child_key(gvk: &Gvk, item: &Item) -> ChildKey {
    ChildKey { group_kind: gvk.group_kind(), namespace: item.namespace.clone(), name: item.name.clone() }
}

/// Brings a node's objects about; never fails as a whole.
pub(super) async fn apply_node(
    context: Arc<Context>,
    index: usize,
    target: Arc<Target>,
) -> (usize, Arc<Target>, Applied) {
    let applied = match context.graph.nodes.get(index) {
        None => Applied::default(),
        Some(node) => match &*target {
            Target::Managed(items) => apply_items(&context, node, items).await,
            Target::Named { namespace, name } => read_named(&context, node, namespace.as_deref(), name).await,
            Target::Selected { namespace, selector } => {
                read_selected(&context, node, namespace.as_deref(), selector).await
            }
        },
    };
    (index, target, applied)
}

async fn apply_items(context: &Context, node: &Node, items: &[Item]) -> Applied {
    let count = items.len();
    let work: Vec<_> =
        items.iter().enumerate().map(|(at, item)| apply_item(context, node, item, at, count)).collect();
    let results: Vec<_> = stream::iter(work).buffered(PARALLEL).collect().await;
    let mut applied = Applied::default();
    for (result, item) in results.into_iter().zip(items) {
        let problem = match result {
            Ok((object, key, child)) => {
                applied.objects.push(object);
                applied.children.push((key, child));
                continue;
            }
            Err(problem) => problem,
        };
        // An object that could not be changed is still there, and the status still tells of it.
        applied.objects.extend(context.members.get(&child_key(&node.kind.gvk, item)).cloned());
        match problem {
            Problem::Failed(error) => applied.errors.push(error),
            Problem::Deleting(text, seen) => applied.deleting = applied.deleting.or(Some((text, seen))),
        }
    }
    applied
}

/// Returns why an object may not be taken over, if it may not.
pub(crate) fn refusal(node: &Node, live: &Json, place: &str, applyset: &str) -> Option<String> {
    let owner = live.pointer("/metadata/labels").and_then(|labels| labels.get(names::PART_OF)?.as_str());
    match owner {
        Some(owner) if owner == applyset => None,
        Some(owner) if node.lifecycle.adopt != Adopt::Always => Some(format!(
            "resource belongs to a different ApplySet: {place} ({}) belongs to ApplySet \"{owner}\", cannot reassign \
             to \"{applyset}\"",
            node.kind.gvk
        )),
        None if node.lifecycle.adopt == Adopt::Never => Some(format!(
            "node \"{}\": {} {place} exists already and lifecycle.adopt is Never",
            node.id, node.kind.gvk.kind
        )),
        _ => None,
    }
}

enum Problem {
    Failed(String),
    Deleting(String, bool),
}

async fn apply_item(
    context: &Context,
    node: &Node,
    item: &Item,
    at: usize,
    count: usize,
) -> std::result::Result<(Json, ChildKey, Child), Problem> {
    let resource = Resource::from(&*node.kind);
    let key = child_key(&node.kind.gvk, item);
    let namespace = item.namespace.as_deref();
    let place = || match namespace {
        Some(namespace) => format!("{namespace}/{}", item.name),
        None => item.name.clone(),
    };
    let failed = |error: &orlop_client::Error| {
        Problem::Failed(format!(
            "node \"{}\": failed to apply {} {}: {}",
            node.id,
            node.kind.gvk.kind,
            place(),
            message(error)
        ))
    };
    let (manifest, hash) = complete(&context.labels, node, item, at, count);
    // Zero stands for: not applied.
    let applied = hash.max(1);
    let deleting = || {
        format!(
            "resource \"{}\" for node \"{}\" is currently being deleted; waiting for deletion to complete before \
             continuing reconciliation",
            place(),
            node.id
        )
    };
    let mut write = Write { context, resource: &resource, key: &key, manifest: &manifest };
    let member = context.members.get(&key);
    if member.is_none() && node.lifecycle.adopt == Adopt::IfUnowned {
        match write.create().await {
            Ok(Some(object)) if object.pointer("/metadata/deletionTimestamp").is_some() => {
                return Err(Problem::Deleting(deleting(), true));
            }
            Ok(Some(object)) => {
                let version = version_of(&object);
                return Ok((object, key, Child { version, applied }));
            }
            Ok(None) => {}
            Err(error) => return Err(failed(&error)),
        }
    }
    let fetched;
    let live = match member {
        Some(live) => Some(live),
        None => {
            fetched = context
                .cluster
                .get(&resource, namespace, &item.name)
                .await
                .map_err(|error| failed(&error))?;
            fetched.as_ref()
        }
    };
    if let Some(live) = live {
        let owner = live.pointer("/metadata/labels").and_then(|labels| labels.get(names::PART_OF)?.as_str());
        if live.pointer("/metadata/deletionTimestamp").is_some() {
            return Err(Problem::Deleting(deleting(), owner == Some(&context.applyset)));
        }
        if let Some(refusal) = refusal(node, live, &place(), &context.applyset) {
            return Err(Problem::Failed(refusal));
        }
        // Nothing changed on either side since it was applied: no need to write.
        let version = version_of(live);
        if context.before.get(&key).is_some_and(|child| child.applied == applied && child.version == version)
        {
            return Ok((live.clone(), key, Child { version, applied }));
        }
        // A restarted controller remembers nothing.
        if !context.before.contains_key(&key)
            && owner == Some(&context.applyset)
            && is_applied(live, &manifest)
        {
            return Ok((live.clone(), key, Child { version, applied }));
        }
    }
    let object = write.replace().await.map_err(|error| failed(&error))?;
    let child = Child { version: version_of(&object), applied };
    Ok((object, key, child))
}

/// The write of an object.
struct Write<'w> {
    context: &'w Context,
    resource: &'w Resource,
    key: &'w ChildKey,
    manifest: &'w Json,
}

impl Write<'_> {
    /// Applies an object that is certainly no other instance's, without reading what is there. `None` if it may be
    /// one's, or if somebody else has written other values: then what is there decides.
    async fn create(&mut self) -> Result<Option<Json>> {
        let controller = &self.context.controller;
        // An object that lost its labels is still its instance's.
        let owner = controller.memories.owner(self.key);
        if owner.is_some_and(|owner| owner != self.context.instance) {
            return Ok(None);
        }
        let claim = controller.existing.claim(self.resource, self.key);
        if claim == Claim::Unknown {
            return Ok(None);
        }
        match self.apply(claim, false).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if code(&error) == Some(409) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Applies an object whatever is there.
    async fn replace(&mut self) -> Result<Json> {
        let claim = self.context.controller.existing.claim(self.resource, self.key);
        self.apply(claim, true).await
    }

    async fn apply(&mut self, claim: Claim, force: bool) -> Result<Json> {
        let Self { context, resource, key, manifest } = self;
        let namespace = key.namespace.as_deref();
        let manager = names::APPLYSET;
        let cluster = &context.cluster;
        let result = match force {
            true => cluster.apply(resource, namespace, &key.name, manager, manifest).await,
            false => cluster.apply_unforced(resource, namespace, &key.name, manager, manifest).await,
        };
        let version = result.as_ref().ok().map(version_of);
        context.controller.existing.settle(resource, key, claim, version.as_deref());
        result
    }
}

async fn read_named(context: &Context, node: &Node, namespace: Option<&str>, name: &str) -> Applied {
    match context.cluster.get(&Resource::from(&*node.kind), namespace, name).await {
        Ok(Some(object)) => Applied { objects: vec![object], ..Applied::default() },
        Ok(None) => {
            let place = namespace.map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}"));
            let text = format!(
                "waiting for external reference \"{}\": not found ({} {place})",
                node.id, node.kind.gvk.kind
            );
            Applied { missing: Some(text), ..Applied::default() }
        }
        Err(error) => failure(node, &error),
    }
}

async fn read_selected(context: &Context, node: &Node, namespace: Option<&str>, selector: &Json) -> Applied {
    let labels = match selector_text(&node.id, selector) {
        Ok((labels, _)) => labels,
        Err(error) => return Applied { errors: vec![error], ..Applied::default() },
    };
    match context.cluster.list(&Resource::from(&*node.kind), namespace, &labels).await {
        Ok(objects) => Applied { objects, ..Applied::default() },
        Err(error) => failure(node, &error),
    }
}

fn failure(node: &Node, error: &orlop_client::Error) -> Applied {
    let forbidden = if code(error) == Some(403) { "forbidden: " } else { "" };
    let text = format!("external reference \"{}\": {forbidden}{}", node.id, message(error));
    Applied { errors: vec![text], ..Applied::default() }
}

/// Decodes a resolved LabelSelector strictly; returns it as a query and as a selector.
pub(crate) fn selector_text(id: &str, selector: &Json) -> std::result::Result<(String, Selector), String> {
    let unknown = selector
        .as_object()
        .ok_or_else(|| format!("failed to convert selector for {id}: selector is not an object"))?
        .keys()
        .find(|key| !["matchLabels", "matchExpressions"].contains(&key.as_str()));
    if let Some(unknown) = unknown {
        return Err(format!("failed to convert selector for {id}: unknown field \"{unknown}\""));
    }
    let labels = selector.get("matchLabels").and_then(Json::as_object);
    if labels.is_some_and(|labels| labels.values().any(|value| !value.is_string())) {
        return Err(format!("failed to convert selector for {id}: matchLabels values must be strings"));
    }
    let parsed = Selector::from_label_selector(selector)
        .map_err(|error| format!("invalid label selector for {id}: {error}"))?;
    Ok((parsed.to_string(), parsed))
}

/// The version of an object.
pub(super) fn version_of(object: &Json) -> String {
    object.pointer("/metadata/resourceVersion").and_then(Json::as_str).unwrap_or_default().to_owned()
}
