//! Reconciles an instance: management metadata, a pass over its graph, pruning, status.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

use futures_util::StreamExt as _;
use futures_util::stream::{self, FuturesUnordered};
use orlop_controllers::runtime::Action;
use serde_json::{Map, Value as Json, json};

use super::apply::{Context, apply_node, child_labels};
use super::memory::{Child, ChildKey, InstanceKey, Seen};
use super::pass::{NodeState, Pass};
use super::reconciliation::Reconciliation;
use super::report::{DEPENDENTS, MANAGED, RESOLVED, RESOURCES, with_own_conditions};
use super::{Controller, Key, Served, instance_resource, now};
use crate::applyset::{self, Inventory};
use crate::cluster::{Resource, Result, code, message};
use crate::conditions::{Conditions, Status};
use crate::graph::Target;
use crate::metrics::{Count, Time};
use crate::names;

/// Deletions at once.
const PARALLEL: usize = 16;

impl Controller {
    pub(super) async fn reconcile_instance(self: &Arc<Self>, key: &InstanceKey) -> Result<Action> {
        let metrics = &self.metrics;
        let Some(served) = self.served(&key.group, &key.kind) else {
            let kind = format!("{}, Kind={}", key.group, key.kind);
            metrics.count(Count::GraphUnresolved, &[("gvr", &kind), ("reason", "not_available")]);
            self.memories.forget(key);
            return Ok(Action::Done);
        };
        let gvr = instance_resource(&served.graph).to_string();
        metrics.count(Count::GraphResolved, &[("gvr", &gvr)]);
        let mut children = self.memories.begin(key);
        let mut seen = None;
        let began = Instant::now();
        let result = self.pass_over(key, &served, &mut children, &mut seen).await;
        metrics.count(Count::InstancePasses, &[("gvr", &gvr)]);
        metrics.took(Time::Instance, &[("gvr", &gvr)], began.elapsed());
        if result.is_err() {
            metrics.count(Count::InstanceErrors, &[("gvr", &gvr)]);
        }
        if matches!(result, Ok(None)) {
            self.memories.forget(key);
            metrics.conditions().remove(&(gvr, key.namespace.clone(), key.name.clone()));
            return Ok(Action::Done);
        }
        if self.memories.finish(key, children, seen) {
            self.queue.add(Key::Instance(key.clone()));
        }
        Ok(result?.unwrap_or(Action::Done))
    }

    /// `None` if the instance is gone.
    async fn pass_over(
        self: &Arc<Self>,
        key: &InstanceKey,
        served: &Arc<Served>,
        children: &mut HashMap<ChildKey, Child>,
        seen: &mut Option<Seen>,
    ) -> Result<Option<Action>> {
        let resource = instance_resource(&served.graph);
        let Some(instance) = self.cluster.get(&resource, key.namespace(), &key.name).await? else {
            return Ok(None);
        };
        if instance.pointer("/metadata/deletionTimestamp").is_some() {
            return self.delete_instance(key, &served.graph, instance, children, seen).await;
        }
        let mut reconciliation = Reconciliation {
            controller: self,
            key,
            served,
            graph: &served.graph,
            applyset: applyset::id(&key.name, &key.namespace, &key.kind, &key.group),
            conditions: Conditions::read(&with_own_conditions(&instance), DEPENDENTS, now()),
            resource,
            instance,
        };
        let before = user_metadata(&reconciliation.instance);
        let outcome = reconciliation.run(children).await;
        // A change that came during the pass, such as a deletion, shows in what the last write returned. It has not
        // been acted on, so it must not count as seen.
        *seen = (user_metadata(&reconciliation.instance) == before)
            .then(|| Seen::of(&reconciliation.instance["metadata"]));
        outcome.map(Some)
    }
}

impl Reconciliation<'_> {
    async fn run(&mut self, children: &mut HashMap<ChildKey, Child>) -> Result<Action> {
        let stored = match self.manage().await {
            Ok(stored) => stored,
            Err(Unmanaged::Api(error)) if code(&error) == Some(409) => return Err(error),
            Err(problem) => {
                let text = format!("finalizer/labeling failed: {}", problem.message());
                self.conditions.set(MANAGED, Status::False, "ManagementFailed", &text);
                self.write_status("ERROR").await?;
                return Ok(Action::Requeue);
            }
        };
        self.conditions.set(
            MANAGED,
            Status::True,
            "Managed",
            "instance is properly managed with finalizers and labels",
        );
        self.conditions.set(
            RESOLVED,
            Status::True,
            "Resolved",
            "runtime graph created and all resources resolved",
        );
        if is_suspended(&self.instance) {
            let text = "reconciliation suspended via kro.run/reconcile annotation";
            self.conditions.set(RESOURCES, Status::False, "ReconciliationSuspended", text);
            let state =
                self.instance.pointer("/status/state").and_then(Json::as_str).unwrap_or("IN_PROGRESS");
            let state = state.to_owned();
            self.write_status(&state).await?;
            return Ok(Action::Done);
        }
        let cluster = match self.controller.child_cluster(self.graph, &self.instance) {
            Ok(cluster) => cluster,
            // Nothing is ever applied with more rights than the author allows.
            Err(error) => {
                let text = format!("resource reconciliation failed: {error}");
                self.conditions.set(RESOURCES, Status::False, "NotReady", &text);
                self.write_status("ERROR").await?;
                return Ok(Action::Done);
            }
        };
        let prepared = Instant::now();
        let members = self.members(&stored).await?;
        let before = std::mem::take(children);
        let uid = self.instance.pointer("/metadata/uid").and_then(Json::as_str).unwrap_or_default();
        let context = Arc::new(Context {
            controller: self.controller.clone(),
            instance: self.key.clone(),
            labels: child_labels(self.key, &self.graph.gvk, uid, &self.applyset),
            cluster,
            graph: self.graph.clone(),
            applyset: self.applyset.clone(),
            members,
            before,
        });
        let mut schema = self.instance.clone();
        if let Some(fields) = schema.as_object_mut() {
            fields.remove("status");
        }
        let mut pass = Pass::new(context.clone(), schema.clone(), self.key.namespace().map(str::to_owned));
        let metrics = &self.controller.metrics;
        metrics.count(Count::Runtimes, &[]);
        metrics.took(Time::Runtime, &[], prepared.elapsed());
        let inventory = self.apply_graph(&context, &mut pass, stored).await;
        *children = pass.children.clone();
        let mut inventory = inventory?;
        self.controller.memories.subscribe(self.key, std::mem::take(&mut pass.subscriptions));

        let pruned = self.prune(&context, &pass).await;
        let complete = pass.states.iter().all(NodeState::is_resolved);
        if let Ok(Pruned { settled: true, .. }) = &pruned
            && complete
        {
            self.shrink(&mut inventory, &pass).await?;
        }
        // Members that are neither desired nor gone are watched too.
        for (key, member) in &context.members {
            if !children.contains_key(key) {
                children.insert(key.clone(), Child { version: super::apply::version_of(member), applied: 0 });
            }
        }
        // No watch tells of the end of these: they are tried again with back-off.
        let refused = pass.states.iter().any(|state| matches!(state, NodeState::Failed(_, true)));
        let unseen = pass.states.iter().any(|state| matches!(state, NodeState::Deleting(_, false)));
        let failed = match &pruned {
            Ok(pruned) => pruned.conflict || refused || unseen,
            Err(_) => true,
        };
        let retry = self.controller.memories.retry(self.key, failed);
        let pruning = pruned.err().map(|error| format!("failed to prune: {}", message(&error)));
        self.report(&pass, &schema, pruning.as_deref(), retry).await?;
        Ok(retry.map_or(Action::Done, Action::After))
    }

    /// Sees to finalizer, labels and inventory; returns the inventory that was stored before, if any.
    async fn manage(&mut self) -> std::result::Result<Option<Inventory>, Unmanaged> {
        let finalizers = self.instance.pointer("/metadata/finalizers").and_then(Json::as_array);
        let finalized = finalizers.into_iter().flatten().any(|finalizer| finalizer == names::FINALIZER);
        let stored = match Inventory::read(&self.instance, &self.applyset) {
            Ok(stored) => stored,
            Err(error) if !finalized => {
                return Err(Unmanaged::Inventory(format!(
                    "cannot install finalizer with invalid ApplySet inventory; repair the metadata, or remove it only \
                     after confirming no managed members remain: {error}"
                )));
            }
            // It is rewritten below; what the graph names is added again.
            Err(_) => Inventory::read_loosely(&self.instance),
        };
        let uid = self.served.uid.clone();
        let labels = [
            (names::OWNED, "true"),
            (names::CONTROLLER_VERSION, names::TOOL_VERSION),
            (names::DEFINITION_ID, uid.as_str()),
            (names::DEFINITION_NAME, self.graph.name.as_str()),
        ];
        let label = |key: &str| {
            self.instance.pointer("/metadata/labels").and_then(|labels| labels.get(key)?.as_str())
        };
        let labelled = labels.iter().all(|(key, value)| label(key) == Some(value));
        if !finalized || !labelled {
            let labels: Map<String, Json> =
                labels.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
            let metadata = json!({"labels": labels, "finalizers": [names::FINALIZER]});
            self.apply_to_instance(names::LABELLER, metadata).await?;
        }
        // Everything that this pass may create is recorded before it is created.
        let mut planned = stored.clone().unwrap_or_default();
        for node in self.graph.nodes.iter().filter(|node| node.role.is_managed()) {
            planned.group_kinds.insert(node.kind.gvk.group_kind());
        }
        // What is there may be more than what the graph needs now; it shrinks at the end of a complete pass.
        if !self.has_inventory(&planned) && !self.covers(&stored) {
            self.write_inventory(&planned).await?;
        }
        Ok(stored)
    }

    /// Returns true if a stored inventory names every kind that the graph may create without looking at conditions.
    fn covers(&self, stored: &Option<Inventory>) -> bool {
        stored.as_ref().is_some_and(|stored| {
            self.graph
                .nodes
                .iter()
                .filter(|node| {
                    node.role.is_managed() && node.include_when.is_empty() && node.for_each.is_empty()
                })
                .all(|node| stored.group_kinds.contains(&node.kind.gvk.group_kind()))
        }) && self.has_inventory(stored.as_ref().unwrap_or(&Inventory::default()))
    }

    fn has_inventory(&self, inventory: &Inventory) -> bool {
        let annotations = self.instance.pointer("/metadata/annotations");
        inventory
            .annotations(&self.applyset)
            .iter()
            .all(|(key, value)| annotations.and_then(|annotations| annotations.get(key)) == Some(value))
    }

    async fn write_inventory(&mut self, inventory: &Inventory) -> Result<()> {
        let metadata = json!({
            "labels": {names::APPLYSET_ID: self.applyset},
            "annotations": inventory.annotations(&self.applyset)});
        self.apply_to_instance(names::APPLYSET_PARENT, metadata).await
    }

    /// Applies metadata to the instance. Its uid goes along, so that an instance that went is not created anew.
    async fn apply_to_instance(&mut self, manager: &str, mut metadata: Json) -> Result<()> {
        metadata["name"] = json!(self.key.name);
        metadata["uid"] = self.instance["metadata"]["uid"].clone();
        if let Some(namespace) = self.key.namespace() {
            metadata["namespace"] = json!(namespace);
        }
        let object = json!({
            "apiVersion": self.graph.gvk.api_version(), "kind": self.graph.gvk.kind, "metadata": metadata});
        let cluster = &self.controller.cluster;
        let applied =
            cluster.apply(&self.resource, self.key.namespace(), &self.key.name, manager, &object).await?;
        self.instance = applied;
        Ok(())
    }

    /// Lists the members of the ApplySet.
    async fn members(&self, inventory: &Option<Inventory>) -> Result<HashMap<ChildKey, Json>> {
        match inventory {
            None => Ok(HashMap::new()),
            Some(inventory) => {
                let known = self.graph.nodes.iter().map(|node| Resource::from(&*node.kind));
                let known: Vec<Resource> = known.collect();
                let found = self
                    .controller
                    .list_members(&self.applyset, inventory, self.key.namespace(), &known)
                    .await?;
                Ok(found.into_iter().map(|(key, (_, object))| (key, object)).collect())
            }
        }
    }

    /// Applies every node whose inputs are ready, level after level; returns the inventory as it is recorded now.
    async fn apply_graph(
        &mut self,
        context: &Arc<Context>,
        pass: &mut Pass,
        stored: Option<Inventory>,
    ) -> Result<Inventory> {
        let mut recorded =
            Inventory::read(&self.instance, &self.applyset).ok().flatten().or(stored).unwrap_or_default();
        let mut running = FuturesUnordered::new();
        loop {
            // Nodes stand in topological order, so one step decides all that can be decided now.
            let start = pass.step();
            if self.record(&mut recorded, &start) {
                self.write_inventory(&recorded).await?;
            }
            for (index, target) in start {
                running.push(apply_node(context.clone(), index, target));
            }
            match running.next().await {
                Some((index, target, applied)) => pass.complete(index, &target, applied),
                None => return Ok(recorded),
            }
        }
    }

    /// Adds to the inventory what is about to be applied; returns whether that was new.
    fn record(&self, inventory: &mut Inventory, start: &[(usize, Arc<Target>)]) -> bool {
        let parent = self.key.namespace().or(Some("default"));
        let mut grown = false;
        for (index, target) in start {
            if let Target::Managed(items) = &**target {
                let group_kind = self.graph.nodes[*index].kind.gvk.group_kind();
                for item in items {
                    grown |= inventory.add(&group_kind, item.namespace.as_deref(), parent);
                }
            }
        }
        grown
    }

    /// Deletes members that are no longer desired, higher waves first.
    async fn prune(&self, context: &Context, pass: &Pass) -> Result<Pruned> {
        let mut waves: BTreeMap<usize, Vec<(&ChildKey, &Json)>> = BTreeMap::new();
        for (key, member) in &context.members {
            let label = |label: &str| {
                member.pointer("/metadata/labels").and_then(|labels| labels.get(label)?.as_str())
            };
            let node = label(names::NODE_ID).unwrap_or_default();
            // The objects of a node that waits stay as they are.
            if pass.desired.contains(key) || !pass.can_prune(node) {
                continue;
            }
            // Nodes that left the graph go first.
            let wave = self.graph.node(node).map_or(usize::MAX, |node| node.wave);
            waves.entry(wave).or_default().push((key, member));
        }
        let mut pruned = Pruned { settled: true, conflict: false };
        for (_, members) in waves.into_iter().rev() {
            let work: Vec<_> =
                members.into_iter().map(|(key, member)| self.prune_one(context, key, member)).collect();
            let results: Vec<_> = stream::iter(work).buffer_unordered(PARALLEL).collect().await;
            for result in results {
                let (deleted, gone) = result?;
                pruned.conflict |= !deleted;
                pruned.settled &= deleted && gone;
            }
        }
        Ok(pruned)
    }

    /// Removes a member; returns whether it was still the same object, and whether it is gone now.
    async fn prune_one(&self, context: &Context, key: &ChildKey, member: &Json) -> Result<(bool, bool)> {
        let Some(resource) = self.controller.resource_of(&key.group_kind, &self.graph.nodes).await? else {
            return Ok((true, true));
        };
        if member.pointer("/metadata/deletionTimestamp").is_some() {
            return Ok((true, false));
        }
        let same = self.controller.remove_member(&context.cluster, &resource, key, member).await?;
        let finalizers = member.pointer("/metadata/finalizers").and_then(Json::as_array);
        Ok((same, finalizers.is_none_or(Vec::is_empty)))
    }

    /// Records only what is there, once a complete pass knows.
    async fn shrink(&mut self, inventory: &mut Inventory, pass: &Pass) -> Result<()> {
        let mut exact = Inventory::default();
        for key in &pass.desired {
            let parent = self.key.namespace().or(Some("default"));
            exact.add(&key.group_kind, key.namespace.as_deref(), parent);
        }
        if exact != *inventory || !self.has_inventory(&exact) {
            self.write_inventory(&exact).await?;
            *inventory = exact;
        }
        Ok(())
    }
}

/// Outcome of pruning.
struct Pruned {
    /// Everything that was to go is gone.
    settled: bool,
    /// An object was replaced by another of its name meanwhile.
    conflict: bool,
}

enum Unmanaged {
    Inventory(String),
    Api(orlop_client::Error),
}

impl Unmanaged {
    fn message(&self) -> String {
        match self {
            Self::Inventory(text) => text.clone(),
            Self::Api(error) => message(error),
        }
    }
}

impl From<orlop_client::Error> for Unmanaged {
    fn from(error: orlop_client::Error) -> Self {
        Self::Api(error)
    }
}

/// The metadata that others write: everything that a pass depends on but does not write itself.
fn user_metadata(instance: &Json) -> Json {
    let own = [
        names::OWNED,
        names::CONTROLLER_VERSION,
        names::DEFINITION_ID,
        names::DEFINITION_NAME,
        names::APPLYSET_ID,
        names::APPLYSET_TOOLING,
        names::APPLYSET_KINDS,
        names::APPLYSET_NAMESPACES,
        names::APPLYSET_HASH,
    ];
    let metadata = &instance["metadata"];
    let users = |field: &str| {
        let mut map = metadata.get(field).and_then(Json::as_object).cloned().unwrap_or_default();
        map.retain(|key, _| !own.contains(&key.as_str()));
        Json::Object(map)
    };
    json!({
        "generation": metadata["generation"], "deletion": metadata["deletionTimestamp"], "uid": metadata["uid"],
        "labels": users("labels"), "annotations": users("annotations")})
}

/// Returns true if the user asked to leave the instance alone.
fn is_suspended(instance: &Json) -> bool {
    let annotations = instance.pointer("/metadata/annotations");
    let value =
        annotations.and_then(|annotations| annotations.get(names::RECONCILE)?.as_str()).unwrap_or_default();
    ["suspended", "disabled"].iter().any(|word| value.eq_ignore_ascii_case(word))
}
