//! Adoption and release: which objects belong to a controller.

use std::{fmt::Debug, sync::Arc};

use orlop_client::{
    Api, Client, Resource, ResourceExt,
    api::{Patch, PatchParams},
    core::NamespaceResourceScope,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{
    ownership::{controller_of, controller_reference},
    selector::Labels,
};
use crate::{
    runtime::{Cached, Informer},
    status::{is_invalid, is_not_found},
};

/// Treatment of an object that a controller may own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// It is owned.
    Keep,
    /// It is an orphan that the selector matches.
    Adopt,
    /// It is owned and the selector does not match any more.
    Release,
    /// It is not this controller's business.
    Ignore,
}

/// Decides on an object.
pub(crate) fn decide<K: Resource>(
    object: &K,
    owner_uid: &str,
    owner_is_deleting: bool,
    is_selected: bool,
) -> Claim {
    match controller_of(object) {
        Some(controller) if controller.uid != owner_uid => Claim::Ignore,
        Some(_) if is_selected => Claim::Keep,
        Some(_) if owner_is_deleting => Claim::Ignore,
        Some(_) => Claim::Release,
        None if !is_selected || owner_is_deleting => Claim::Ignore,
        None if object.meta().deletion_timestamp.is_some() => Claim::Ignore,
        None => Claim::Adopt,
    }
}

/// Claims the objects of `owner`: returns those that are its own, after it has adopted orphans and released others.
/// `finalizer` is one that comes and goes with the ownership. Objects that `is_candidate` denies are not adopted.
pub(crate) async fn claim<O, K>(
    client: &Client,
    informer: &Informer<K>,
    owner: &O,
    selector: &Labels,
    finalizer: Option<&str>,
    is_candidate: impl Fn(&K) -> bool,
) -> orlop_client::Result<Vec<Arc<K>>>
where
    O: Cached + Resource<Scope = NamespaceResourceScope>,
    K: Cached + Resource<Scope = NamespaceResourceScope>,
{
    let namespace = owner.namespace().unwrap_or_default();
    let uid = owner.uid().unwrap_or_default();
    let is_deleting = owner.meta().deletion_timestamp.is_some();
    let candidates = informer.controlled_by(&uid).into_iter().chain(informer.without_controller(&namespace));
    let mut claimed = Vec::new();
    let mut may_adopt = None;
    let objects: Api<K> = Api::namespaced(client.clone(), &namespace);
    for object in candidates {
        let is_selected = selector.selects(&*object) && is_candidate(&object);
        match decide(&*object, &uid, is_deleting, is_selected) {
            Claim::Keep => claimed.push(object),
            Claim::Ignore => {}
            Claim::Release => {
                release(&objects, informer, &object, &uid, finalizer).await?;
            }
            Claim::Adopt => {
                // The cache may lag: only the live object tells that it still exists.
                if may_adopt.is_none() {
                    may_adopt = Some(is_alive(client, owner).await?);
                }
                if may_adopt == Some(true)
                    && let Some(adopted) = adopt(&objects, informer, &*object, owner, finalizer).await?
                {
                    claimed.push(adopted);
                }
            }
        }
    }
    Ok(claimed)
}

/// Returns whether an owner exists under the same uid and is not being deleted.
async fn is_alive<O>(client: &Client, owner: &O) -> orlop_client::Result<bool>
where
    O: Cached + Resource<Scope = NamespaceResourceScope>,
{
    let owners: Api<O> = Api::namespaced(client.clone(), &owner.namespace().unwrap_or_default());
    let live = owners.get_opt(&owner.name_any()).await?;
    Ok(live.is_some_and(|live| live.uid() == owner.uid() && live.meta().deletion_timestamp.is_none()))
}

async fn adopt<O, K>(
    objects: &Api<K>,
    informer: &Informer<K>,
    object: &K,
    owner: &O,
    finalizer: Option<&str>,
) -> orlop_client::Result<Option<Arc<K>>>
where
    O: Resource<DynamicType = ()>,
    K: Cached,
{
    let mut metadata = json!({"uid": object.uid(), "ownerReferences": [controller_reference(owner)]});
    if let Some(finalizer) = finalizer {
        metadata["finalizers"] = json!([finalizer]);
    }
    let patched = patch(objects, &object.name_any(), json!({"metadata": metadata})).await;
    match patched {
        Ok(adopted) => {
            informer.wrote(adopted.clone());
            Ok(Some(Arc::new(adopted)))
        }
        Err(error) if is_not_found(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

async fn release<K: Cached>(
    objects: &Api<K>,
    informer: &Informer<K>,
    object: &K,
    owner_uid: &str,
    finalizer: Option<&str>,
) -> orlop_client::Result<()> {
    let mut metadata =
        json!({"uid": object.uid(), "ownerReferences": [{"$patch": "delete", "uid": owner_uid}]});
    if let Some(finalizer) = finalizer {
        metadata["$deleteFromPrimitiveList/finalizers"] = json!([finalizer]);
    }
    match patch(objects, &object.name_any(), json!({"metadata": metadata})).await {
        Ok(released) => {
            informer.wrote(released);
            Ok(())
        }
        // Gone, or it has no such owner any more.
        Err(error) if is_not_found(&error) || is_invalid(&error) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Sends a strategic merge patch.
pub(crate) async fn patch<K>(objects: &Api<K>, name: &str, patch: Value) -> orlop_client::Result<K>
where
    K: orlop_client::Resource<DynamicType = ()> + Clone + DeserializeOwned,
{
    objects.patch(name, &PatchParams::default(), &Patch::Strategic(patch)).await
}

#[cfg(test)]
mod tests {
    use k8s_openapi::{
        api::core::v1::Pod,
        apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time},
        jiff::Timestamp,
    };

    use super::*;

    fn pod(owner: Option<&str>, deleting: bool) -> Pod {
        let reference = |uid: &str| OwnerReference {
            uid: uid.to_owned(),
            controller: Some(true),
            ..OwnerReference::default()
        };
        let metadata = ObjectMeta {
            owner_references: owner.map(|uid| vec![reference(uid)]),
            deletion_timestamp: deleting.then_some(Time(Timestamp::UNIX_EPOCH)),
            ..ObjectMeta::default()
        };
        Pod { metadata, ..Pod::default() }
    }

    #[test]
    fn claim_decisions_match_kubernetes() {
        let cases = [
            (Some("me"), false, false, true, Claim::Keep),
            (Some("me"), true, false, true, Claim::Keep),
            (Some("me"), false, false, false, Claim::Release),
            (Some("me"), false, true, false, Claim::Ignore),
            (Some("other"), false, false, true, Claim::Ignore),
            (None, false, false, true, Claim::Adopt),
            (None, true, false, true, Claim::Ignore),
            (None, false, true, true, Claim::Ignore),
            (None, false, false, false, Claim::Ignore),
        ];
        for (owner, deleting, owner_deleting, selected, wanted) in cases {
            assert_eq!(
                decide(&pod(owner, deleting), "me", owner_deleting, selected),
                wanted,
                "{owner:?} deleting={deleting} owner deleting={owner_deleting} selected={selected}"
            );
        }
    }
}
