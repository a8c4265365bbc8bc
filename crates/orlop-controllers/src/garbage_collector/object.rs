//! Reconciliation of one object: its owners, its finalizers, its dependents.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use orlop_client::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, Preconditions, PropagationPolicy},
};
use serde_json::json;

use super::{Collector, Work, group_kind::GroupKind};
use crate::{
    discovery::Metadata,
    status::{is_not_found, is_object_not_found},
};

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// Identity of an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ObjectReference {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) namespace: Option<String>,
    pub(super) name: String,
    pub(super) uid: String,
}

/// State of an owner, in the words of kube-controller-manager's garbage collector.
enum OwnerState {
    /// The owner exists.
    Solid,
    /// The owner is deleted in the foreground and waits for its dependents.
    WaitingForDependents,
    /// The owner does not exist.
    Dangling,
}

impl ObjectReference {
    pub(super) fn of((api_version, kind): (&str, &str), object: &Metadata) -> Self {
        Self {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            namespace: object.namespace(),
            name: object.name_any(),
            uid: object.uid().unwrap_or_default(),
        }
    }

    /// Returns the identity of an owner, in the namespace of its dependent.
    pub(super) fn owner(owner: &OwnerReference, namespace: Option<String>) -> Self {
        Self {
            api_version: owner.api_version.clone(),
            kind: owner.kind.clone(),
            namespace,
            name: owner.name.clone(),
            uid: owner.uid.clone(),
        }
    }

    /// Returns the identity of an owner of this object.
    pub(super) fn to_owner(&self, owner: &OwnerReference) -> Self {
        Self::owner(owner, self.namespace.clone())
    }
}

/// Returns whether a deleted object waits for one of the collector's finalizers.
pub(super) fn waits_for_collector(object: &Metadata) -> bool {
    object.metadata.deletion_timestamp.is_some()
        && object.finalizers().iter().any(|finalizer| finalizer == ORPHAN || finalizer == FOREGROUND)
}

fn has_finalizer(object: &Metadata, finalizer: &str) -> bool {
    object.finalizers().iter().any(|known| known == finalizer)
}

impl Collector {
    /// Reads an object. `None` if it does not exist, or another of the same name does.
    async fn get(
        &self,
        reference: &ObjectReference,
    ) -> orlop_client::Result<Option<(Api<Metadata>, Metadata)>> {
        let Some(resource) = self.resource(&reference.api_version, &reference.kind).await? else {
            return Ok(None);
        };
        let objects = resource.objects(&self.client, reference.namespace.as_deref());
        match objects.get(&reference.name).await {
            Ok(object) if object.uid().as_deref() == Some(&reference.uid) => Ok(Some((objects, object))),
            Ok(_) => Ok(None),
            Err(error) if is_object_not_found(&error) => Ok(None),
            Err(error) => {
                // The resource is not served as it was: discovery is stale.
                if is_not_found(&error) {
                    self.invalidate_discovery();
                }
                Err(error)
            }
        }
    }

    /// Deletes an object whose owners are all absent. Of several owners, removes the references to absent ones.
    pub(super) async fn attempt_to_delete(&self, reference: &ObjectReference) -> orlop_client::Result<()> {
        let Some((objects, object)) = self.get(reference).await? else { return Ok(()) };
        if object.metadata.deletion_timestamp.is_some() && !waits_for_collector(&object) {
            return Ok(());
        }
        let owners = object.owner_references();
        let (mut solid, mut waiting, mut dangling) = (Vec::new(), Vec::new(), Vec::new());
        for owner in owners {
            match self.owner_state(reference, owner).await? {
                OwnerState::Solid => solid.push(owner),
                OwnerState::WaitingForDependents => waiting.push(owner),
                OwnerState::Dangling => dangling.push(owner),
            }
        }
        if owners.is_empty() || (!solid.is_empty() && waiting.is_empty() && dangling.is_empty()) {
            return Ok(());
        }
        if !solid.is_empty() {
            return self.set_owners(&objects, &object, &solid).await;
        }
        let policy = if has_finalizer(&object, ORPHAN) {
            PropagationPolicy::Orphan
        } else if has_finalizer(&object, FOREGROUND)
            || (!waiting.is_empty() && self.has_dependents(&reference.uid).await?)
        {
            PropagationPolicy::Foreground
        } else {
            PropagationPolicy::Background
        };
        if matches!(policy, PropagationPolicy::Foreground) {
            self.unblock_owners(&objects, &object).await?;
        }
        self.delete(&objects, &object, policy).await
    }

    /// Clears blockOwnerDeletion: an owner and a dependent that both wait for their dependents could form a
    /// cycle and wait for each other for ever.
    async fn unblock_owners(&self, objects: &Api<Metadata>, object: &Metadata) -> orlop_client::Result<()> {
        let owners = object.owner_references();
        if !owners.iter().any(|owner| owner.block_owner_deletion == Some(true)) {
            return Ok(());
        }
        let unblocked: Vec<OwnerReference> = owners
            .iter()
            .map(|owner| OwnerReference { block_owner_deletion: Some(false), ..owner.clone() })
            .collect();
        self.patch_metadata(objects, object, &json!({"ownerReferences": unblocked})).await
    }

    async fn owner_state(
        &self,
        dependent: &ObjectReference,
        owner: &OwnerReference,
    ) -> orlop_client::Result<OwnerState> {
        let known = dependent.to_owner(owner);
        if self.owners.is_absent(&known) {
            return Ok(OwnerState::Dangling);
        }
        let kind = GroupKind::of(&owner.api_version, &owner.kind);
        let is_covered = self.coverage().includes(&kind);
        let resource = self.resource(&owner.api_version, &owner.kind).await?;
        if resource.is_none() || !is_covered {
            self.kinds().remember_unless_watched(kind, dependent);
        }
        // An unknown kind may be defined soon: better to keep an object too long than to lose it.
        let Some(resource) = resource else { return Ok(OwnerState::Solid) };
        // A namespaced owner cannot own a cluster-scoped object.
        if resource.namespaced && dependent.namespace.is_none() {
            return Ok(OwnerState::Solid);
        }
        let namespace = dependent.namespace.clone().filter(|_| resource.namespaced);
        if is_covered {
            self.owners.request(&known);
        }
        Ok(match self.get(&ObjectReference::owner(owner, namespace)).await? {
            None => {
                self.owners.not_found(&known);
                OwnerState::Dangling
            }
            Some((_, owner))
                if owner.metadata.deletion_timestamp.is_some() && has_finalizer(&owner, FOREGROUND) =>
            {
                OwnerState::WaitingForDependents
            }
            Some(_) => {
                self.owners.found(&known);
                OwnerState::Solid
            }
        })
    }

    /// Deletes an object if it is still the version that was read.
    async fn delete(
        &self,
        objects: &Api<Metadata>,
        object: &Metadata,
        policy: PropagationPolicy,
    ) -> orlop_client::Result<()> {
        let preconditions = Preconditions { uid: object.uid(), resource_version: object.resource_version() };
        let params = DeleteParams {
            propagation_policy: Some(policy),
            preconditions: Some(preconditions),
            ..DeleteParams::default()
        };
        match objects.delete(&object.name_any(), &params).await {
            Err(error) if !is_not_found(&error) => Err(error),
            _ => Ok(()),
        }
    }

    async fn set_owners(
        &self,
        objects: &Api<Metadata>,
        object: &Metadata,
        owners: &[&OwnerReference],
    ) -> orlop_client::Result<()> {
        self.patch_metadata(objects, object, &json!({"ownerReferences": owners})).await
    }

    /// Patches an object's metadata if it is still the version that was read.
    async fn patch_metadata(
        &self,
        objects: &Api<Metadata>,
        object: &Metadata,
        metadata: &serde_json::Value,
    ) -> orlop_client::Result<()> {
        let mut metadata = metadata.clone();
        metadata["uid"] = json!(object.uid());
        metadata["resourceVersion"] = json!(object.resource_version());
        let patch = Patch::Merge(json!({"metadata": metadata}));
        match objects.patch(&object.name_any(), &PatchParams::default(), &patch).await {
            Err(error) if !is_not_found(&error) => Err(error),
            _ => Ok(()),
        }
    }

    /// Orphans the dependents of a deleted object, or deletes them, and removes the finalizer in the end.
    pub(super) async fn process_deleting(&self, reference: &ObjectReference) -> orlop_client::Result<()> {
        let Some((objects, object)) = self.get(reference).await? else { return Ok(()) };
        if !waits_for_collector(&object) {
            return Ok(());
        }
        let dependents = self.dependents(&reference.uid).await?;
        if has_finalizer(&object, ORPHAN) {
            for dependent in dependents {
                self.orphan(&dependent, &reference.uid).await?;
            }
            return self.remove_finalizer(&objects, &object, ORPHAN).await;
        }
        let mut blocked = false;
        for dependent in dependents {
            if let Some((_, found)) = self.get(&dependent).await? {
                let blocks = |owner: &OwnerReference| {
                    owner.uid == reference.uid && owner.block_owner_deletion == Some(true)
                };
                blocked |= found.owner_references().iter().any(blocks);
                if found.metadata.deletion_timestamp.is_none() {
                    self.queue.add(Work::AttemptToDelete(dependent));
                }
            }
        }
        // While some block, the deletion of each queues this object again.
        if blocked { Ok(()) } else { self.remove_finalizer(&objects, &object, FOREGROUND).await }
    }

    /// Removes the reference to an owner.
    async fn orphan(&self, dependent: &ObjectReference, owner_uid: &str) -> orlop_client::Result<()> {
        let Some((objects, object)) = self.get(dependent).await? else { return Ok(()) };
        let others: Vec<&OwnerReference> =
            object.owner_references().iter().filter(|owner| owner.uid != owner_uid).collect();
        self.set_owners(&objects, &object, &others).await
    }

    async fn remove_finalizer(
        &self,
        objects: &Api<Metadata>,
        object: &Metadata,
        finalizer: &str,
    ) -> orlop_client::Result<()> {
        let others: Vec<&String> = object.finalizers().iter().filter(|known| *known != finalizer).collect();
        self.patch_metadata(objects, object, &json!({"finalizers": others})).await
    }
}
