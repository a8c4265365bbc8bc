//! Reconciles an instance: management metadata, a pass over its graph, pruning, status.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::stream::{self, FuturesUnordered};
use orlop_controllers::runtime::Action;
use serde_json::{Map, Value as Json, json};

use super::apply::{Context, apply_node, child_labels};
use super::memory::{Child, ChildKey, InstanceKey, fingerprint};
use super::pass::{NodeState, Pass};
use super::{Controller, Key, Served, instance_resource, now};
use crate::applyset::{self, Inventory};
use crate::cluster::{Cluster, Resource, Result, code, message};
use crate::conditions::{Conditions, Status};
use crate::expression::Failure;
use crate::graph::{Graph, Target};
use crate::names;

pub(super) const MANAGED: &str = "InstanceManaged";
pub(super) const RESOLVED: &str = "GraphResolved";
pub(super) const RESOURCES: &str = "ResourcesReady";
pub(super) const DEPENDENTS: &[&str] = &[MANAGED, RESOLVED, RESOURCES];

/// Objects listed in an instance's status, at most.
const LISTED_MAX: usize = 200;
/// Deletions at once.
const PARALLEL: usize = 16;

impl Controller {
    pub(super) async fn reconcile_instance(self: &Arc<Self>, key: &InstanceKey) -> Result<Action> {
        let Some(served) = self.served(&key.group, &key.kind) else {
            self.memories.forget(key);
            return Ok(Action::Done);
        };
        let mut children = self.memories.begin(key);
        let mut seen = None;
        let result = self.pass_over(key, &served, &mut children, &mut seen).await;
        if matches!(result, Ok(None)) {
            self.memories.forget(key);
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
        seen: &mut Option<u64>,
    ) -> Result<Option<Action>> {
        let resource = instance_resource(&served.graph);
        let Some(instance) = self.cluster.get(&resource, key.namespace(), &key.name).await? else {
            return Ok(None);
        };
        if instance.pointer("/metadata/deletionTimestamp").is_some() {
            return self.delete_instance(key, &resource, instance, children, seen).await;
        }
        let mut work = Work {
            controller: self,
            key,
            served,
            graph: &served.graph,
            applyset: applyset::id(&key.name, &key.namespace, &key.kind, &key.group),
            conditions: Conditions::read(&with_own_conditions(&instance), DEPENDENTS, now()),
            resource,
            instance,
        };
        let before = user_metadata(&work.instance);
        let outcome = work.run(children).await;
        // A change that came during the pass, such as a deletion, shows in what the last write returned. It has not
        // been acted on, so it must not count as seen.
        *seen = (user_metadata(&work.instance) == before).then(|| fingerprint(&work.instance["metadata"]));
        outcome.map(Some)
    }
}

/// One reconciliation of a live instance.
struct Work<'c> {
    controller: &'c Arc<Controller>,
    key: &'c InstanceKey,
    served: &'c Arc<Served>,
    graph: &'c Arc<Graph>,
    applyset: String,
    conditions: Conditions,
    resource: Resource,
    instance: Json,
}

impl Work<'_> {
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
        let cluster = self.child_cluster();
        let members = self.members(&stored).await?;
        let before = std::mem::take(children);
        let uid = self.instance.pointer("/metadata/uid").and_then(Json::as_str).unwrap_or_default();
        let context = Arc::new(Context {
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
        // Members that are neither wished for nor gone are watched too.
        for (key, member) in &context.members {
            if !children.contains_key(key) {
                children.insert(key.clone(), Child { version: super::apply::version_of(member), applied: 0 });
            }
        }
        self.report(&pass, &schema, &pruned).await?;
        let refused = pass.states.iter().any(|state| matches!(state, NodeState::Failed(_, true)));
        let unseen = pass.states.iter().any(|state| matches!(state, NodeState::Deleting(_, false)));
        Ok(match pruned {
            Err(_) => Action::Requeue,
            Ok(Pruned { conflict: true, .. }) => Action::Requeue,
            Ok(_) if refused => Action::Requeue,
            Ok(_) if unseen => Action::Requeue,
            Ok(_) => Action::Done,
        })
    }

    /// The cluster as children are applied to it: as the definition's service account, if it names one.
    fn child_cluster(&self) -> Cluster {
        let cluster = &self.controller.cluster;
        match &self.graph.service_account {
            Some(account) => cluster.as_service_account(self.key.namespace().unwrap_or("default"), account),
            None => cluster.clone(),
        }
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
    fn record(&self, inventory: &mut Inventory, start: &[(usize, Target)]) -> bool {
        let parent = self.key.namespace().or(Some("default"));
        let mut grown = false;
        for (index, target) in start {
            if let Target::Managed(items) = target {
                let group_kind = self.graph.nodes[*index].kind.gvk.group_kind();
                for item in items {
                    grown |= inventory.add(&group_kind, item.namespace.as_deref(), parent);
                }
            }
        }
        grown
    }

    /// Deletes members that nobody wishes for any more, higher waves first.
    async fn prune(&self, context: &Context, pass: &Pass) -> Result<Pruned> {
        let state_of = |id: &str| {
            let index = self.graph.nodes.iter().position(|node| node.id == id)?;
            pass.states.get(index)
        };
        let mut waves: BTreeMap<usize, Vec<(&ChildKey, &Json)>> = BTreeMap::new();
        for (key, member) in &context.members {
            let label = |label: &str| {
                member.pointer("/metadata/labels").and_then(|labels| labels.get(label)?.as_str())
            };
            let node = label(names::NODE_ID).unwrap_or_default();
            // The objects of a node that waits stay as they are.
            if pass.desired.contains(key) || state_of(node).is_some_and(|state| !state.is_resolved()) {
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

    // ---- status ----

    async fn report(&mut self, pass: &Pass, schema: &Json, pruned: &Result<Pruned>) -> Result<()> {
        let mut errors: Vec<&str> = Vec::new();
        let (mut deleting, mut waiting, mut unready) = (None, None, None);
        for state in &pass.states {
            match state {
                NodeState::Failed(text, _) => errors.push(text),
                NodeState::Deleting(text, _) => deleting = deleting.or(Some(text)),
                NodeState::Waiting(text) => waiting = waiting.or(Some(text)),
                NodeState::NotReady(text) => unready = unready.or(Some(text)),
                _ => {}
            }
        }
        let (mut fields, failures) = self.graph.status.fill(&pass.scope(schema));
        let pruning = pruned.as_ref().err().map(|error| format!("failed to prune: {}", message(error)));
        let mut set = |reason: &str, text: &str| self.conditions.set(RESOURCES, Status::False, reason, text);
        let failed = !errors.is_empty() || !failures.is_empty() || pruning.is_some();
        if failed {
            let all: Vec<&str> = errors
                .iter()
                .copied()
                .chain(failures.iter().map(String::as_str))
                .chain(pruning.as_deref())
                .collect();
            let text =
                format!("resource reconciliation failed: apply results contain errors: {}", all.join("; "));
            set("NotReady", &text);
        } else if let Some(text) = deleting {
            set("ResourceDeleting", text);
        } else if let Some(text) = unready {
            set("NotReady", &format!("awaiting resource readiness: {text}"));
        } else if let Some(text) = waiting {
            set("NotReady", &format!("resource reconciliation failed: {text}"));
        } else {
            let text = "all resources are created and ready";
            self.conditions.set(RESOURCES, Status::True, "AllResourcesReady", text);
        }
        // Waiting nodes name the node they wait for, so both texts matter.
        if let (false, Some(unready), Some(waiting), None) = (failed, unready, waiting, deleting) {
            let text = format!("awaiting resource readiness: {unready}; {waiting}");
            self.conditions.set(RESOURCES, Status::False, "NotReady", &text);
        }
        let settled = pass.states.iter().all(|state| matches!(state, NodeState::Synced | NodeState::Skipped));
        let mut state = match (failed, settled) {
            (true, _) => "ERROR",
            (false, true) => "ACTIVE",
            (false, false) => "IN_PROGRESS",
        };
        fields.insert("managedResources".to_owned(), self.listed(pass));
        let conditions = self.conditions.clone().finish();
        let custom = self.custom_conditions(pass, schema, &conditions, &mut state);
        fields.insert("conditions".to_owned(), Json::Array(custom.unwrap_or(conditions)));
        fields.insert("state".to_owned(), json!(state));
        self.replace_status(Json::Object(fields)).await
    }

    /// The objects of the graph with their states.
    fn listed(&self, pass: &Pass) -> Json {
        let mut listed = Vec::new();
        for ((node, state), observed) in self.graph.nodes.iter().zip(&pass.states).zip(&pass.observed) {
            let objects: Vec<&Json> = match observed {
                Some(Json::Array(items)) => items.iter().collect(),
                Some(object) => vec![object],
                None => Vec::new(),
            };
            let mut entry = json!({
                "id": node.id, "state": state.as_str(), "apiVersion": node.kind.gvk.api_version(),
                "kind": node.kind.gvk.kind});
            if let Some(reason) = state.reason() {
                entry["message"] = json!(reason);
            }
            if objects.is_empty() {
                listed.push(entry);
                continue;
            }
            for object in objects {
                let mut entry = entry.clone();
                for field in ["namespace", "name"] {
                    if let Some(value) = object.pointer(&format!("/metadata/{field}")) {
                        entry[field] = value.clone();
                    }
                }
                listed.push(entry);
            }
        }
        listed.truncate(LISTED_MAX);
        Json::Array(listed)
    }

    /// The author's conditions in place of the built-in ones, if the definition declares any.
    fn custom_conditions(
        &self,
        pass: &Pass,
        schema: &Json,
        own: &[Json],
        state: &mut &str,
    ) -> Option<Vec<Json>> {
        let entries = self.graph.status.conditions.as_ref()?;
        let stored = self.instance.pointer("/status/conditions").and_then(Json::as_array);
        let stored = |kind: &str| stored.into_iter().flatten().find(|condition| condition["type"] == kind);
        let generation = self.instance.pointer("/metadata/generation").cloned().unwrap_or_default();
        let mut with_status = schema.clone();
        with_status["status"] = json!({"conditions": own});
        let scope = pass.scope(&with_status);
        let mut found: Vec<Json> = Vec::new();
        for entry in entries {
            match entry.evaluate(&scope) {
                Ok(conditions) => found.extend(conditions),
                Err(Failure::Pending(_)) => {
                    found.extend(entry.types.iter().filter_map(|kind| stored(kind).cloned()));
                }
                Err(Failure::Failed(error)) => {
                    tracing::debug!(error, "a condition could not be evaluated");
                    *state = "ERROR";
                }
            }
        }
        let count = |kind: &Json, all: &[Json]| all.iter().filter(|other| other["type"] == *kind).count();
        let all = found.clone();
        let before = found.len();
        found.retain(|condition| count(&condition["type"], &all) == 1);
        if found.len() < before {
            *state = "ERROR";
        }
        for condition in &mut found {
            let kind = condition["type"].as_str().unwrap_or_default().to_owned();
            let kept = stored(&kind)
                .filter(|stored| stored["status"] == condition["status"])
                .and_then(|stored| stored.get("lastTransitionTime").cloned());
            condition["lastTransitionTime"] = kept.unwrap_or_else(|| json!(now()));
            condition["observedGeneration"] = generation.clone();
        }
        Some(found)
    }

    /// Writes state and conditions, and keeps what the status says otherwise.
    async fn write_status(&mut self, state: &str) -> Result<()> {
        let mut status =
            self.instance.get("status").cloned().filter(Json::is_object).unwrap_or_else(|| json!({}));
        status["state"] = json!(state);
        status["conditions"] = Json::Array(self.conditions.clone().finish());
        self.replace_status(status).await
    }

    async fn replace_status(&mut self, status: Json) -> Result<()> {
        self.instance =
            self.controller.replace_instance_status(&self.resource, &self.instance, status).await?;
        Ok(())
    }
}

impl Controller {
    /// Replaces an instance's status if it differs; somebody else's write in between is read again and kept.
    pub(super) async fn replace_instance_status(
        &self,
        resource: &Resource,
        instance: &Json,
        status: Json,
    ) -> Result<Json> {
        const ATTEMPTS: usize = 5;
        let mut instance = instance.clone();
        for attempt in 1.. {
            if instance.get("status") == Some(&status) {
                break;
            }
            instance["status"] = status.clone();
            match self.cluster.replace_status(resource, &instance).await {
                Ok(written) => return Ok(written),
                Err(error) if code(&error) == Some(404) => break,
                Err(error) if code(&error) == Some(409) && attempt < ATTEMPTS => {
                    let text = |pointer: &str| instance.pointer(pointer).and_then(Json::as_str);
                    let name = text("/metadata/name").unwrap_or_default();
                    match self.cluster.get(resource, text("/metadata/namespace"), name).await? {
                        Some(current) if current["metadata"]["uid"] == instance["metadata"]["uid"] => {
                            instance = current;
                        }
                        _ => break,
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(instance)
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

/// Conditions of an author do not count as the controller's own, even under the same names.
fn with_own_conditions(instance: &Json) -> Json {
    json!({"metadata": {"generation": instance["metadata"]["generation"]}, "status": {
        "conditions": instance.pointer("/status/conditions").cloned().unwrap_or_default()}})
}

/// Returns true if the user asked to leave the instance alone.
fn is_suspended(instance: &Json) -> bool {
    let annotations = instance.pointer("/metadata/annotations");
    let value =
        annotations.and_then(|annotations| annotations.get(names::RECONCILE)?.as_str()).unwrap_or_default();
    ["suspended", "disabled"].iter().any(|word| value.eq_ignore_ascii_case(word))
}
