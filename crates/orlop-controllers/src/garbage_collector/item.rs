//! One object in the collector's hands.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{
    ResourceExt,
    api::{DeleteParams, Patch, PatchParams, Preconditions, PropagationPolicy},
};
use serde_json::json;

use super::{Collector, Work, kinds::GroupKind};
use crate::{
    discovered::{Api, Metadata},
    retry::{is_missing, is_missing_object},
};

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// Which object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Item {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) namespace: Option<String>,
    pub(super) name: String,
    pub(super) uid: String,
}

/// How an owner stands.
enum Owner {
    There,
    /// It goes once its dependents have gone.
    Waiting,
    Gone,
}

impl Item {
    /// An object of an apiVersion and kind.
    pub(super) fn of((api_version, kind): (&str, &str), object: &Metadata) -> Self {
        Self {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            namespace: object.namespace(),
            name: object.name_any(),
            uid: object.uid().unwrap_or_default(),
        }
    }

    /// Whether the object waits for the collector before it can go.
    pub(super) fn is_deleting_for_us(&self, object: &Metadata) -> bool {
        object.metadata.deletion_timestamp.is_some()
            && object.finalizers().iter().any(|finalizer| finalizer == ORPHAN || finalizer == FOREGROUND)
    }
}

impl Collector {
    /// The object, if it is still the same one.
    async fn find(&self, item: &Item) -> kube::Result<Option<(Api, Metadata)>> {
        let Some(resource) = self.resource(&item.api_version, &item.kind).await? else { return Ok(None) };
        let objects = resource.objects(&self.client, item.namespace.as_deref());
        match objects.get_metadata(&item.name).await {
            Ok(object) if object.uid().as_deref() == Some(&item.uid) => Ok(Some((objects, object))),
            Ok(_) => Ok(None),
            Err(error) if is_missing_object(&error) => Ok(None),
            Err(error) => {
                // Its kind is not served as it was: what is known of kinds is of yesterday.
                if is_missing(&error) {
                    self.doubt_kinds();
                }
                Err(error)
            }
        }
    }

    /// Deletes an object whose owners are all gone; forgets those of several that are.
    pub(super) async fn check_owners(&self, item: &Item) -> kube::Result<()> {
        let Some((objects, object)) = self.find(item).await? else { return Ok(()) };
        if object.metadata.deletion_timestamp.is_some() && !item.is_deleting_for_us(&object) {
            return Ok(());
        }
        let owners = object.owner_references();
        let (mut there, mut waiting, mut gone) = (Vec::new(), Vec::new(), Vec::new());
        for owner in owners {
            match self.owner(item, owner).await? {
                Owner::There => there.push(owner),
                Owner::Waiting => waiting.push(owner),
                Owner::Gone => gone.push(owner),
            }
        }
        if owners.is_empty() || (!there.is_empty() && waiting.is_empty() && gone.is_empty()) {
            return Ok(());
        }
        if !there.is_empty() {
            return self.keep_owners(&objects, &object, &there).await;
        }
        let has = |finalizer: &str| object.finalizers().iter().any(|known| known == finalizer);
        let policy = if has(ORPHAN) {
            PropagationPolicy::Orphan
        } else if has(FOREGROUND) || (!waiting.is_empty() && self.has_dependents(&item.uid).await?) {
            PropagationPolicy::Foreground
        } else {
            PropagationPolicy::Background
        };
        if matches!(policy, PropagationPolicy::Foreground) {
            self.break_circle(&objects, &object).await?;
        }
        self.delete(&objects, &object, policy).await
    }

    /// Owners that wait for an object which waits for them would wait for ever: they stop waiting.
    async fn break_circle(&self, objects: &Api, object: &Metadata) -> kube::Result<()> {
        let owners = object.owner_references();
        if !owners.iter().any(|owner| owner.block_owner_deletion == Some(true)) {
            return Ok(());
        }
        let unblocked: Vec<OwnerReference> = owners
            .iter()
            .map(|owner| OwnerReference { block_owner_deletion: Some(false), ..owner.clone() })
            .collect();
        self.patch(objects, object, &json!({"ownerReferences": unblocked})).await
    }

    async fn owner(&self, item: &Item, owner: &OwnerReference) -> kube::Result<Owner> {
        let kind = GroupKind::of(&owner.api_version, &owner.kind);
        let known = self.resource(&owner.api_version, &owner.kind).await?.map(|resource| resource.namespaced);
        if known.is_none() || !self.coverage().has(&kind) {
            self.kinds().asked(kind, item);
        }
        // A kind that is not known may be on its way: better to keep an object too long than to lose it.
        let Some(namespaced) = known else { return Ok(Owner::There) };
        // An owner in a namespace cannot own what is in none.
        if namespaced && item.namespace.is_none() {
            return Ok(Owner::There);
        }
        let owner_item = Item {
            api_version: owner.api_version.clone(),
            kind: owner.kind.clone(),
            namespace: item.namespace.clone().filter(|_| namespaced),
            name: owner.name.clone(),
            uid: owner.uid.clone(),
        };
        Ok(match self.find(&owner_item).await? {
            None => Owner::Gone,
            Some((_, found))
                if found.metadata.deletion_timestamp.is_some()
                    && found.finalizers().iter().any(|finalizer| finalizer == FOREGROUND) =>
            {
                Owner::Waiting
            }
            Some(_) => Owner::There,
        })
    }

    async fn delete(&self, objects: &Api, object: &Metadata, policy: PropagationPolicy) -> kube::Result<()> {
        let same = Preconditions { uid: object.uid(), resource_version: object.resource_version() };
        let params = DeleteParams {
            propagation_policy: Some(policy),
            preconditions: Some(same),
            ..DeleteParams::default()
        };
        match objects.delete(&object.name_any(), &params).await {
            Err(error) if !is_missing(&error) => Err(error),
            _ => Ok(()),
        }
    }

    async fn keep_owners(
        &self,
        objects: &Api,
        object: &Metadata,
        kept: &[&OwnerReference],
    ) -> kube::Result<()> {
        self.patch(objects, object, &json!({"ownerReferences": kept})).await
    }

    /// Changes an object's metadata, if it is still the version that was looked at.
    async fn patch(
        &self,
        objects: &Api,
        object: &Metadata,
        metadata: &serde_json::Value,
    ) -> kube::Result<()> {
        let mut metadata = metadata.clone();
        metadata["uid"] = json!(object.uid());
        metadata["resourceVersion"] = json!(object.resource_version());
        let patch = Patch::Merge(json!({"metadata": metadata}));
        match objects.patch_metadata(&object.name_any(), &PatchParams::default(), &patch).await {
            Err(error) if !is_missing(&error) => Err(error),
            _ => Ok(()),
        }
    }

    /// Sees an object through that waits for the collector.
    pub(super) async fn finish_deleting(&self, item: &Item) -> kube::Result<()> {
        let Some((objects, object)) = self.find(item).await? else { return Ok(()) };
        if !item.is_deleting_for_us(&object) {
            return Ok(());
        }
        let has = |finalizer: &str| object.finalizers().iter().any(|known| known == finalizer);
        if has(ORPHAN) {
            for dependent in self.dependents(&item.uid).await? {
                self.orphan(&dependent, &item.uid).await?;
            }
            return self.drop_finalizer(&objects, &object, ORPHAN).await;
        }
        let dependents = self.dependents(&item.uid).await?;
        let mut blocking = false;
        for dependent in dependents {
            if let Some((_, found)) = self.find(&dependent).await? {
                let blocks = |owner: &OwnerReference| {
                    owner.uid == item.uid && owner.block_owner_deletion == Some(true)
                };
                blocking |= found.owner_references().iter().any(blocks);
                if found.metadata.deletion_timestamp.is_none() {
                    self.add(Work::Owners(dependent));
                }
            }
        }
        // While some block, the deletion of each brings this object up again.
        if blocking { Ok(()) } else { self.drop_finalizer(&objects, &object, FOREGROUND).await }
    }

    /// Makes an object forget an owner.
    async fn orphan(&self, item: &Item, owner_uid: &str) -> kube::Result<()> {
        let Some((objects, object)) = self.find(item).await? else { return Ok(()) };
        let kept: Vec<&OwnerReference> =
            object.owner_references().iter().filter(|owner| owner.uid != owner_uid).collect();
        self.keep_owners(&objects, &object, &kept).await
    }

    async fn drop_finalizer(&self, objects: &Api, object: &Metadata, finalizer: &str) -> kube::Result<()> {
        let kept: Vec<&String> = object.finalizers().iter().filter(|known| *known != finalizer).collect();
        self.patch(objects, object, &json!({"finalizers": kept})).await
    }
}
