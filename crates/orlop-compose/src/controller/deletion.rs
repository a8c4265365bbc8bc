//! Deletion of an instance from its inventory: no graph, no expressions. Highest wave first; a wave must be gone before
//! the next. Events of the children drive it on.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use orlop_controllers::runtime::Action;
use serde_json::{Map, Value as Json, json};

use super::apply::version_of;
use super::memory::{Child, ChildKey, InstanceKey, Seen};
use super::report::{DEPENDENTS, RESOURCES};
use super::{Controller, instance_resource, now};
use crate::applyset::{self, Inventory};
use crate::cluster::{Cluster, Resource, Result, code, message};
use crate::conditions::{Conditions, Status};
use crate::expression::Scope;
use crate::graph::{Graph, Node};
use crate::names;

/// Labels that tie a child to its instance.
const TIES: &[&str] = &[
    names::PART_OF,
    names::OWNED,
    names::CONTROLLER_VERSION,
    names::INSTANCE_ID,
    names::INSTANCE_NAME,
    names::INSTANCE_NAMESPACE,
    names::INSTANCE_GROUP,
    names::INSTANCE_VERSION,
    names::INSTANCE_KIND,
    names::NODE_ID,
    names::COLLECTION_INDEX,
    names::COLLECTION_SIZE,
    names::MANAGED_BY,
];

/// Members by key, with their resource.
pub(super) type Members = HashMap<ChildKey, (Resource, Json)>;

impl Controller {
    /// The cluster as children of an instance are written to it: as the service account that the definition, or else the
    /// controller, names. It never falls back to the controller's own rights.
    pub(super) fn child_cluster(
        &self,
        graph: &Graph,
        instance: &Json,
    ) -> std::result::Result<Cluster, String> {
        let namespace = instance.pointer("/metadata/namespace").and_then(Json::as_str);
        let account = match &graph.service_account {
            Some(template) => {
                let mut scope = Scope::measured(&self.metrics);
                scope.bind("schema", instance);
                let filled = template
                    .fill(&scope)
                    .map_err(|failure| format!("service account: {}", failure.message()))?;
                filled.as_ref().and_then(Json::as_str).unwrap_or_default().to_owned()
            }
            None => match &self.settings.default_service_account {
                Some(account) => account.clone(),
                None => return Ok(self.cluster.clone()),
            },
        };
        // An instance in a namespace acts as an account of that namespace and of no other.
        let (namespace, name) = match (namespace, account.split_once('/')) {
            (Some(_), Some(_)) => {
                return Err(format!(
                    "service account: \"{account}\" names a namespace; only cluster-scoped kinds may"
                ));
            }
            (Some(namespace), None) => (namespace, account.as_str()),
            (None, Some((namespace, name))) => (namespace, name),
            (None, None) => ("default", account.as_str()),
        };
        if name.is_empty() || namespace.is_empty() || name.contains(['/', ':']) || namespace.contains(':') {
            return Err(format!("service account: \"{account}\" is no name"));
        }
        Ok(self.cluster.as_service_account(namespace, name))
    }

    pub(super) async fn delete_instance(
        self: &Arc<Self>,
        key: &InstanceKey,
        graph: &Graph,
        instance: Json,
        children: &mut HashMap<ChildKey, Child>,
        seen: &mut Option<Seen>,
    ) -> Result<Option<Action>> {
        let resource = &instance_resource(graph);
        let finalizers = instance.pointer("/metadata/finalizers").and_then(Json::as_array);
        if !finalizers.into_iter().flatten().any(|finalizer| finalizer == names::FINALIZER) {
            // Somebody else's finalizer holds it; there is nothing left to do here.
            *seen = Some(Seen::of(&instance["metadata"]));
            return Ok(Some(Action::Done));
        }
        let blocked = match self.delete_members(key, graph, &instance, children, seen).await {
            Ok(outcome) => {
                self.memories.retry(key, false);
                return Ok(outcome);
            }
            // Somebody else wrote in between: look again.
            Err(Blocked::Api(error)) if code(&error) == Some(409) => return Err(error),
            Err(Blocked::Api(error)) => message(&error),
            Err(Blocked::Reason(text)) => text,
        };
        let instance =
            self.report_deletion(resource, &instance, &format!("deletion blocked: {blocked}")).await?;
        *seen = Some(Seen::of(&instance["metadata"]));
        Ok(Some(self.memories.retry(key, true).map_or(Action::Requeue, Action::After)))
    }

    async fn delete_members(
        self: &Arc<Self>,
        key: &InstanceKey,
        graph: &Graph,
        instance: &Json,
        children: &mut HashMap<ChildKey, Child>,
        seen: &mut Option<Seen>,
    ) -> std::result::Result<Option<Action>, Blocked> {
        let parent = &instance_resource(graph);
        let id = applyset::id(&key.name, &key.namespace, &key.kind, &key.group);
        let inventory = Inventory::read(instance, &id)
            .map_err(|error| Blocked::Reason(format!("validate deletion inventory: {error}")))?
            .unwrap_or_default();
        let cluster = self.child_cluster(graph, instance).map_err(Blocked::Reason)?;
        let mut instance = instance.clone();
        let mut reported = false;
        loop {
            let members = self.list_members(&id, &inventory, key.namespace(), &[]).await?;
            *children = members
                .iter()
                .map(|(key, (_, member))| (key.clone(), Child { version: version_of(member), applied: 0 }))
                .collect();
            *seen = Some(Seen::of(&instance["metadata"]));
            if members.is_empty() {
                self.remove_finalizer(parent, &instance).await?;
                return Ok(None);
            }
            if !reported {
                instance = self.report_deletion(parent, &instance, "deleting resources").await?;
                reported = true;
            }
            for (resource, _) in members.values() {
                self.watch_children(resource);
            }
            let mut waves: BTreeMap<i64, Vec<(&ChildKey, &Resource, &Json)>> = BTreeMap::new();
            for (key, (resource, member)) in &members {
                waves.entry(wave_of(member)).or_default().push((key, resource, member));
            }
            let Some((_, wave)) = waves.into_iter().next_back() else { continue };
            let mut waits = false;
            for (key, resource, member) in wave {
                if member.pointer("/metadata/deletionTimestamp").is_some() {
                    waits = true;
                    continue;
                }
                if !self.remove_member(&cluster, resource, key, member).await? {
                    return Err(Blocked::Reason("deletion encountered UID conflicts; retrying".to_owned()));
                }
                let finalizers = member.pointer("/metadata/finalizers").and_then(Json::as_array);
                waits |= finalizers.is_some_and(|finalizers| !finalizers.is_empty());
            }
            if waits {
                return Ok(Some(Action::Done));
            }
        }
    }

    async fn report_deletion(&self, resource: &Resource, instance: &Json, text: &str) -> Result<Json> {
        let mut conditions = Conditions::read(instance, DEPENDENTS, now());
        conditions.set(RESOURCES, Status::Unknown, "UnderDeletion", text);
        let mut status = instance.get("status").cloned().filter(Json::is_object).unwrap_or_else(|| json!({}));
        status["state"] = json!("DELETING");
        status["conditions"] = Json::Array(conditions.finish());
        self.replace_instance_status(resource, instance, status).await
    }

    /// Lists the members of an ApplySet in all places that its inventory names. Kinds that are gone are skipped.
    pub(super) async fn list_members(
        &self,
        id: &str,
        inventory: &Inventory,
        namespace: Option<&str>,
        known: &[Resource],
    ) -> Result<Members> {
        let selector = format!("{}={id}", names::PART_OF);
        let mut members = Members::new();
        let own = namespace.unwrap_or("default");
        let namespaces: BTreeSet<&str> =
            inventory.namespaces.iter().map(String::as_str).chain(std::iter::once(own)).collect();
        for group_kind in &inventory.group_kinds {
            let found = known.iter().find(|resource| resource.gvk.group_kind() == *group_kind).cloned();
            let resource = match found {
                Some(resource) => Some(resource),
                None => self.discover(group_kind).await?,
            };
            let Some(resource) = resource else { continue };
            let places: Vec<Option<&str>> =
                if resource.namespaced { namespaces.iter().copied().map(Some).collect() } else { vec![None] };
            for place in places {
                for object in self.cluster.list(&resource, place, &selector).await? {
                    let text = |field: &str| {
                        object
                            .pointer(&format!("/metadata/{field}"))
                            .and_then(Json::as_str)
                            .map(str::to_owned)
                    };
                    let key = ChildKey {
                        group_kind: group_kind.clone(),
                        namespace: text("namespace"),
                        name: text("name").unwrap_or_default(),
                    };
                    members.insert(key, (resource.clone(), object));
                }
            }
        }
        Ok(members)
    }

    async fn discover(&self, group_kind: &str) -> Result<Option<Resource>> {
        let (kind, group) = group_kind.split_once('.').unwrap_or((group_kind, ""));
        self.cluster.preferred_resource(group, kind).await
    }

    /// The resource of a group-kind: as the graph has it, or as the server says.
    pub(super) async fn resource_of(&self, group_kind: &str, nodes: &[Node]) -> Result<Option<Resource>> {
        match nodes.iter().find(|node| node.kind.gvk.group_kind() == group_kind) {
            Some(node) => Ok(Some(Resource::from(&*node.kind))),
            None => self.discover(group_kind).await,
        }
    }

    /// Deletes a member, or sets it free if it is to be retained; `false` if another object has its name by now.
    pub(super) async fn remove_member(
        &self,
        cluster: &Cluster,
        resource: &Resource,
        key: &ChildKey,
        member: &Json,
    ) -> Result<bool> {
        let annotations = member.pointer("/metadata/annotations");
        let policy = annotations.and_then(|annotations| annotations.get(names::ON_DELETE)?.as_str());
        let uid = member.pointer("/metadata/uid").and_then(Json::as_str).unwrap_or_default();
        if policy != Some(names::RETAIN) {
            return cluster.delete(resource, key.namespace.as_deref(), &key.name, uid).await;
        }
        let labels: Map<String, Json> = TIES.iter().map(|label| ((*label).to_owned(), Json::Null)).collect();
        let patch = json!({"metadata": {"uid": uid, "labels": labels, "annotations": {
            names::APPLY_ORDER: null, names::ON_DELETE: null, names::APPLIED: null}}});
        match cluster.merge(resource, key.namespace.as_deref(), &key.name, &patch).await {
            Ok(_) => Ok(true),
            Err(orlop_client::Error::Api(status)) if status.code == 404 => Ok(true),
            Err(orlop_client::Error::Api(status)) if status.code == 409 => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// A deletion that cannot go on now.
enum Blocked {
    /// The server does not let it.
    Api(orlop_client::Error),
    /// Something else holds it up.
    Reason(String),
}

impl From<orlop_client::Error> for Blocked {
    fn from(error: orlop_client::Error) -> Self {
        Self::Api(error)
    }
}

/// The deletion wave of a member; members without a valid one go last.
fn wave_of(member: &Json) -> i64 {
    let annotations = member.pointer("/metadata/annotations");
    let wave = annotations.and_then(|annotations| annotations.get(names::APPLY_ORDER)?.as_str());
    wave.and_then(|wave| wave.parse::<i64>().ok()).filter(|wave| *wave > 0).unwrap_or(0)
}
