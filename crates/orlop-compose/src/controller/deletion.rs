//! Deletion of an instance from its inventory: no graph, no expressions. Highest wave first; a wave must be gone before
//! the next. Events of the children drive it on.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use orlop_controllers::runtime::Action;
use serde_json::{Map, Value as Json, json};

use super::apply::version_of;
use super::instances::{DEPENDENTS, RESOURCES};
use super::memory::{Child, ChildKey, InstanceKey, fingerprint};
use super::{Controller, now};
use crate::applyset::{self, Inventory};
use crate::cluster::{Cluster, Resource, Result};
use crate::conditions::{Conditions, Status};
use crate::graph::Node;
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
    pub(super) async fn delete_instance(
        self: &Arc<Self>,
        key: &InstanceKey,
        resource: &Resource,
        instance: Json,
        children: &mut HashMap<ChildKey, Child>,
        seen: &mut Option<u64>,
    ) -> Result<Option<Action>> {
        let finalizers = instance.pointer("/metadata/finalizers").and_then(Json::as_array);
        if !finalizers.into_iter().flatten().any(|finalizer| finalizer == names::FINALIZER) {
            // Somebody else's finalizer holds it; there is nothing left to do here.
            *seen = Some(fingerprint(&instance["metadata"]));
            return Ok(Some(Action::Done));
        }
        let id = applyset::id(&key.name, &key.namespace, &key.kind, &key.group);
        let inventory = match Inventory::read(&instance, &id) {
            Ok(inventory) => inventory.unwrap_or_default(),
            Err(error) => {
                let text = format!("deletion blocked: validate deletion inventory: {error}");
                let instance = self.report_deletion(resource, &instance, &text).await?;
                *seen = Some(fingerprint(&instance["metadata"]));
                return Ok(Some(Action::Requeue));
            }
        };
        let mut instance = instance;
        let mut reported = false;
        loop {
            let members = self.list_members(&id, &inventory, key.namespace(), &[]).await?;
            *children = members
                .iter()
                .map(|(key, (_, member))| (key.clone(), Child { version: version_of(member), applied: 0 }))
                .collect();
            *seen = Some(fingerprint(&instance["metadata"]));
            if members.is_empty() {
                self.remove_finalizer(resource, &instance).await?;
                return Ok(None);
            }
            if !reported {
                instance = self.report_deletion(resource, &instance, "deleting resources").await?;
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
                if !self.remove_member(&self.cluster.clone(), resource, key, member).await? {
                    let text = "deletion encountered UID conflicts; retrying";
                    self.report_deletion(resource, &instance, text).await.ok();
                    return Ok(Some(Action::Requeue));
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
            names::APPLY_ORDER: null, names::ON_DELETE: null}}});
        match cluster.merge(resource, key.namespace.as_deref(), &key.name, &patch).await {
            Ok(_) => Ok(true),
            Err(orlop_client::Error::Api(status)) if status.code == 404 => Ok(true),
            Err(orlop_client::Error::Api(status)) if status.code == 409 => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// The deletion wave of a member; members without a valid one go last.
fn wave_of(member: &Json) -> i64 {
    let annotations = member.pointer("/metadata/annotations");
    let wave = annotations.and_then(|annotations| annotations.get(names::APPLY_ORDER)?.as_str());
    wave.and_then(|wave| wave.parse::<i64>().ok()).filter(|wave| *wave > 0).unwrap_or(0)
}
