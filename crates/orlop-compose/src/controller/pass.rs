//! One pass over an instance's graph: every node whose inputs are ready is applied at once, level after level, until
//! nothing more can be done.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use serde_json::Value as Json;

use super::apply::{Applied, Context, child_key, selector_text};
use super::memory::{Child, ChildKey, Subscription};
use crate::cluster::Resource;
use crate::expression::{Failure, Scope};
use crate::graph::{Graph, Ready, Role, Target, include, ready, resolve};
use crate::kinds::Gvk;
use crate::metrics::{Count, Time};
use crate::names;

/// Progress of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NodeState {
    /// Not looked at yet.
    Unresolved,
    /// Its objects are being applied.
    Applying,
    /// `includeWhen` is false, or a node that it reads is skipped.
    Skipped,
    /// Waits for another node or for data, with the text for the condition.
    Waiting(String),
    /// Applied, not ready.
    NotReady(String),
    /// An object of it is being deleted; whether a watch will tell of its end.
    Deleting(String, bool),
    /// Failed for good, or until something is repaired; whether the server refused.
    Failed(String, bool),
    /// Applied and ready.
    Synced,
}

impl NodeState {
    /// The name that users see.
    pub(super) fn as_str(&self) -> &'static str {
        match self {
            Self::Unresolved | Self::Applying | Self::Waiting(_) => "IN_PROGRESS",
            Self::NotReady(_) => "WAITING_FOR_READINESS",
            Self::Skipped => "SKIPPED",
            Self::Deleting(..) => "DELETING",
            Self::Failed(..) => "ERROR",
            Self::Synced => "SYNCED",
        }
    }

    /// The text that says why, if there is one.
    pub(super) fn reason(&self) -> Option<&str> {
        match self {
            Self::Waiting(text) | Self::NotReady(text) | Self::Deleting(text, _) | Self::Failed(text, _) => {
                Some(text)
            }
            _ => None,
        }
    }

    /// Returns true if only another attempt can change the state: no event will.
    pub(super) fn is_retried(&self) -> bool {
        matches!(self, Self::Failed(_, true) | Self::Deleting(_, false))
    }

    /// Returns true if the node's desired objects are known: others of it can be pruned.
    pub(super) fn is_resolved(&self) -> bool {
        matches!(self, Self::Skipped | Self::Synced | Self::NotReady(_))
    }
}

/// A pass under way.
pub(super) struct Pass {
    context: Arc<Context>,
    /// The instance as expressions see it.
    schema: Json,
    namespace: Option<String>,
    pub(super) states: Vec<NodeState>,
    /// Object, or list of objects, of each node.
    pub(super) observed: Vec<Option<Json>>,
    /// Objects that the nodes want.
    pub(super) desired: HashSet<ChildKey>,
    pub(super) children: HashMap<ChildKey, Child>,
    pub(super) subscriptions: BTreeMap<Gvk, Vec<Subscription>>,
    targets: Vec<Option<Arc<Target>>>,
    /// Nodes all of whose objects exist, though some could not be changed.
    present: Vec<bool>,
}

impl Pass {
    pub(super) fn new(context: Arc<Context>, schema: Json, namespace: Option<String>) -> Self {
        let count = context.graph.nodes.len();
        let observed = observe_members(&context);
        Self {
            states: vec![NodeState::Unresolved; count],
            targets: vec![None; count],
            present: vec![false; count],
            desired: HashSet::new(),
            children: HashMap::new(),
            subscriptions: BTreeMap::new(),
            observed,
            schema,
            namespace,
            context,
        }
    }

    fn graph(&self) -> &Arc<Graph> {
        &self.context.graph
    }

    /// Decides nodes whose inputs are known; returns those that can start.
    pub(super) fn step(&mut self) -> Vec<(usize, Arc<Target>)> {
        let graph = self.graph().clone();
        let mut start = Vec::new();
        for index in 0..graph.nodes.len() {
            if self.states[index] != NodeState::Unresolved {
                continue;
            }
            let began = Instant::now();
            let evaluated = self.evaluate(&graph, index);
            if evaluated.is_some() {
                let metrics = self.context.cluster.metrics();
                metrics.count(Count::NodeEvaluations, &[]);
                metrics.took(Time::NodeEvaluation, &[], began.elapsed());
            }
            match evaluated {
                None => {}
                Some(Err(state)) => {
                    let metrics = self.context.cluster.metrics();
                    if let NodeState::Failed(..) = state {
                        metrics.count(Count::NodeErrors, &[]);
                    }
                    if state == NodeState::Skipped {
                        metrics.count(Count::NodesIgnored, &[]);
                        self.observed[index] = None;
                    }
                    self.states[index] = state;
                }
                Some(Ok(target)) => {
                    self.states[index] = NodeState::Applying;
                    if let Target::Managed(items) = &target {
                        let gvk = &graph.nodes[index].kind.gvk;
                        let keys: Vec<ChildKey> = items.iter().map(|item| child_key(gvk, item)).collect();
                        if let Some(key) = keys.iter().find(|key| self.desired.contains(key)) {
                            let other = self.owner_of(key).unwrap_or_default();
                            let text = format!(
                                "found resources with conflicts: resourceID: {} conflicts with resourceID: {other}",
                                graph.nodes[index].id
                            );
                            self.states[index] = NodeState::Failed(text, false);
                            continue;
                        }
                        self.desired.extend(keys);
                    }
                    let target = Arc::new(target);
                    self.targets[index] = Some(target.clone());
                    start.push((index, target));
                }
            }
        }
        start
    }

    /// Returns true if objects of the node that it does not want can go: it is known what it wants, and all of that
    /// exists. An object is never removed before the one that takes its place is there.
    pub(super) fn can_prune(&self, id: &str) -> bool {
        match self.context.graph.nodes.iter().position(|node| node.id == id) {
            Some(index) => self.states[index].is_resolved() || self.present[index],
            None => true,
        }
    }

    /// Namespaces and names of the objects that a node wants or reads by name.
    pub(super) fn wanted(&self, id: &str) -> Vec<(Option<&str>, &str)> {
        let index = self.context.graph.nodes.iter().position(|node| node.id == id);
        match index.and_then(|index| self.targets.get(index)?.as_deref()) {
            Some(Target::Managed(items)) => {
                items.iter().map(|item| (item.namespace.as_deref(), item.name.as_str())).collect()
            }
            Some(Target::Named { namespace, name }) => vec![(namespace.as_deref(), name.as_str())],
            Some(Target::Selected { .. }) | None => Vec::new(),
        }
    }

    fn owner_of(&self, key: &ChildKey) -> Option<String> {
        let graph = self.graph();
        let owners = self.targets.iter().zip(&graph.nodes).filter(|(target, node)| match target.as_deref() {
            Some(Target::Managed(items)) => items.iter().any(|item| child_key(&node.kind.gvk, item) == *key),
            _ => false,
        });
        owners.map(|(_, node)| node.id.clone()).next()
    }

    /// `None` while a node that this one needs is under way.
    fn evaluate(&self, graph: &Graph, index: usize) -> Option<Result<Target, NodeState>> {
        let node = &graph.nodes[index];
        for dependency in &node.data_dependencies {
            if self.states[*dependency] == NodeState::Skipped {
                return Some(Err(NodeState::Skipped));
            }
        }
        let under_way = |state: &NodeState| matches!(state, NodeState::Unresolved | NodeState::Applying);
        if node.soft_dependencies.iter().any(|soft| under_way(&self.states[*soft])) {
            return None;
        }
        for dependency in &node.dependencies {
            match &self.states[*dependency] {
                NodeState::Synced | NodeState::Skipped => {}
                state if under_way(state) => return None,
                state => {
                    let gvr = Resource::from(&*node.kind);
                    let reason = state.reason().unwrap_or_default();
                    // A chain of waiting nodes tells its root once.
                    let reason = reason.rsplit(" not ready: ").next().unwrap_or(reason);
                    let reason = reason.strip_suffix(" (data pending)").unwrap_or(reason);
                    return Some(Err(NodeState::Waiting(format!(
                        "waiting for unresolved resource: gvr \"{gvr}\": node \"{}\": dependent node \"{}\" not ready: \
                         {reason} (data pending)",
                        node.id, graph.nodes[*dependency].id
                    ))));
                }
            }
        }
        let mut scope = Scope::measured(self.context.cluster.metrics());
        scope.bind("schema", &self.schema);
        for dependency in &node.data_dependencies {
            if let Some(observed) = &self.observed[*dependency] {
                scope.bind(&graph.nodes[*dependency].id, observed);
            }
        }
        let unavailable = |failure: Failure| match failure {
            Failure::Pending(message) => {
                let gvr = Resource::from(&*node.kind);
                NodeState::Waiting(format!(
                    "waiting for unresolved resource: gvr \"{gvr}\": {message} (data pending)"
                ))
            }
            Failure::Failed(message) => NodeState::Failed(message, false),
        };
        match include(node, &scope) {
            Ok(true) => {}
            Ok(false) => return Some(Err(NodeState::Skipped)),
            Err(failure) => return Some(Err(unavailable(failure))),
        }
        Some(resolve(graph, node, &scope, self.namespace.as_deref()).map_err(unavailable))
    }

    /// Takes in what became of a node.
    pub(super) fn complete(&mut self, index: usize, target: &Target, applied: Applied) {
        let graph = self.graph().clone();
        let node = &graph.nodes[index];
        self.subscribe(index, target, &applied);
        self.children.extend(applied.children);
        let wanted = match target {
            Target::Managed(items) => items.len(),
            _ => applied.objects.len(),
        };
        self.present[index] =
            node.role.is_managed() && applied.deleting.is_none() && applied.objects.len() == wanted;
        let complete = applied.errors.is_empty() && applied.deleting.is_none() && applied.missing.is_none();
        if complete || !applied.objects.is_empty() {
            self.observed[index] = match node.role.is_list() {
                true => Some(Json::Array(applied.objects)),
                false => applied.objects.into_iter().next(),
            };
        } else if !node.role.is_managed() {
            self.observed[index] = None;
        }
        self.states[index] = if !applied.errors.is_empty() {
            NodeState::Failed(applied.errors.join("; "), true)
        } else if let Some((text, seen)) = applied.deleting {
            NodeState::Deleting(text, seen)
        } else if let Some(text) = applied.missing {
            NodeState::Waiting(text)
        } else {
            let metrics = self.context.cluster.metrics();
            match ready(node, self.observed[index].as_ref(), wanted, metrics) {
                Ready::Yes => NodeState::Synced,
                Ready::No(text) => NodeState::NotReady(text),
                Ready::Failed(text) => NodeState::Failed(text, false),
            }
        };
    }

    fn subscribe(&mut self, index: usize, target: &Target, applied: &Applied) {
        let node = &self.context.graph.nodes[index];
        let subscription = match target {
            Target::Managed(_) => return,
            Target::Named { namespace, name } => {
                Subscription::Named { namespace: namespace.clone(), name: name.clone() }
            }
            Target::Selected { namespace, selector } => {
                let Ok((_, selector)) = selector_text(&node.id, selector) else { return };
                let text = |object: &Json, field: &str| {
                    object.pointer(&format!("/metadata/{field}")).and_then(Json::as_str).map(str::to_owned)
                };
                let matched = applied
                    .objects
                    .iter()
                    .map(|object| (text(object, "namespace"), text(object, "name").unwrap_or_default()));
                Subscription::Selected { namespace: namespace.clone(), selector, matched: matched.collect() }
            }
        };
        self.subscriptions.entry(node.kind.gvk.clone()).or_default().push(subscription);
    }

    /// The variables of status expressions: the instance, and every node that was seen.
    pub(super) fn scope<'s>(&'s self, schema: &'s Json) -> Scope<'s> {
        let mut scope = Scope::measured(self.context.cluster.metrics());
        scope.bind("schema", schema);
        for (node, observed) in self.context.graph.nodes.iter().zip(&self.observed) {
            if let Some(observed) = observed {
                scope.bind(&node.id, observed);
            }
        }
        scope
    }
}

/// Collects members as the state of nodes that are not reached yet, so that their status fields stay.
fn observe_members(context: &Context) -> Vec<Option<Json>> {
    let mut of_nodes: HashMap<&str, Vec<(usize, &Json)>> = HashMap::new();
    for member in context.members.values() {
        let labels = member.pointer("/metadata/labels");
        let label = |key: &str| labels.and_then(|labels| labels.get(key)?.as_str());
        if let Some(id) = label(names::NODE_ID) {
            let index = label(names::COLLECTION_INDEX).and_then(|index| index.parse().ok()).unwrap_or(0);
            of_nodes.entry(id).or_default().push((index, member));
        }
    }
    let mut observe = |node: &crate::graph::Node| {
        let mut found = of_nodes.remove(node.id.as_str())?;
        found.sort_by_key(|(index, _)| *index);
        let mut objects = found.into_iter().map(|(_, object)| object.clone());
        match node.role {
            Role::Single => objects.next(),
            Role::Collection => Some(Json::Array(objects.collect())),
            Role::ExternalName | Role::ExternalSelector => None,
        }
    };
    context.graph.nodes.iter().map(&mut observe).collect()
}
