//! Controller references.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use orlop_client::{Resource, ResourceExt};

/// Returns the reference to an object's controller.
pub(crate) fn controller_of<K: Resource>(object: &K) -> Option<&OwnerReference> {
    object.owner_references().iter().find(|owner| owner.controller == Some(true))
}

/// Returns whether an object's controller has this uid.
pub(crate) fn is_controlled_by<K: Resource>(object: &K, uid: &str) -> bool {
    controller_of(object).is_some_and(|owner| owner.uid == uid)
}

/// Returns a reference that makes `owner` the controller of an object.
pub(crate) fn controller_reference<K: Resource<DynamicType = ()>>(owner: &K) -> OwnerReference {
    OwnerReference {
        api_version: K::api_version(&()).into_owned(),
        kind: K::kind(&()).into_owned(),
        name: owner.name_any(),
        uid: owner.uid().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// Returns whether a reference is to the kind `K`, in whatever version.
pub(crate) fn refers_to<K: Resource<DynamicType = ()>>(owner: &OwnerReference) -> bool {
    let group = owner.api_version.rsplit_once('/').map_or("", |(group, _)| group);
    owner.kind == K::kind(&()) && group == K::group(&())
}
