//! Claims of a StatefulSet's pods, and who owns them.

use k8s_openapi::{
    api::{
        apps::v1::StatefulSet,
        core::v1::{PersistentVolumeClaim, Pod},
    },
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use orlop_client::{Api, ResourceExt, api::PostParams};

use super::{Controller, identity};
use crate::{
    runtime::Key,
    status::{is_already_exists, message},
    workload::{ownership::controller_reference, pods},
};

/// Owner that a claim should have by the set's retention policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    None,
    Set,
    Pod,
}

/// Returns the owner of a claim, whose pod is in range or condemned.
fn owner(set: &StatefulSet, is_condemned: bool) -> Owner {
    let policy = set.spec.persistent_volume_claim_retention_policy.as_ref();
    let deletes = |when: Option<&String>| when.is_some_and(|when| when == "Delete");
    let when_deleted = deletes(policy.and_then(|policy| policy.when_deleted.as_ref()));
    let when_scaled = deletes(policy.and_then(|policy| policy.when_scaled.as_ref()));
    match (when_deleted, when_scaled, is_condemned) {
        (_, true, true) => Owner::Pod,
        (true, _, _) => Owner::Set,
        (false, _, _) => Owner::None,
    }
}

impl Controller {
    /// Returns whether a claim of an ordinal is still owned by the pod that was there before: garbage collection is about to
    /// delete it, and a new pod would be left without.
    pub(super) fn has_stale_claim(&self, set: &StatefulSet, ordinal: i32) -> bool {
        let policy = set.spec.persistent_volume_claim_retention_policy.as_ref();
        if policy.and_then(|policy| policy.when_scaled.as_deref()) != Some("Delete") {
            return false;
        }
        let namespace = set.namespace().unwrap_or_default();
        let pod = identity::name(set, ordinal);
        let mut templates = set.spec.volume_claim_templates.iter().flatten();
        templates.any(|template| {
            let name = identity::claim_name(set, template, ordinal);
            let claim = self.claims.get(&Key::new(namespace.clone(), name));
            claim.is_some_and(|claim| {
                claim.owner_references().iter().any(|owner| owner.kind == "Pod" && owner.name == pod)
            })
        })
    }

    /// Creates the claims of a pod that do not exist.
    pub(super) async fn create_claims(
        &self,
        set: &StatefulSet,
        ordinal: i32,
        pod: &str,
    ) -> orlop_client::Result<()> {
        let namespace = set.namespace().unwrap_or_default();
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client().clone(), &namespace);
        for mut claim in identity::claims(set, ordinal) {
            let name = claim.name_any();
            if let Some(existing) = self.claims.get(&Key::new(namespace.clone(), name.clone())) {
                if existing.metadata.deletion_timestamp.is_some() {
                    let text = format!(
                        "create Claim {name} for Pod {pod} in StatefulSet {} failed error: pvc {name} is being deleted",
                        set.name_any()
                    );
                    self.recorder.warning(set, "FailedCreate", text.clone());
                    return Err(orlop_client::Error::Service(text.into()));
                }
                continue;
            }
            if owner(set, false) == Owner::Set {
                claim.metadata.owner_references = Some(vec![controller_reference(set)]);
            }
            match api.create(&PostParams::default(), &claim).await {
                Ok(created) => {
                    self.claims.wrote(created);
                    let text =
                        format!("create Claim {name} Pod {pod} in StatefulSet {} success", set.name_any());
                    self.recorder.normal(set, "SuccessfulCreate", text);
                }
                Err(error) if is_already_exists(&error) => {}
                Err(error) => {
                    let text = format!(
                        "create Claim {name} for Pod {pod} in StatefulSet {} failed error: {}",
                        set.name_any(),
                        message(&error)
                    );
                    self.recorder.warning(set, "FailedCreate", text);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Sets the owner references of a pod's claims by the retention policy, before the pod is deleted.
    pub(super) async fn update_claim_owners(&self, set: &StatefulSet, pod: &Pod) -> orlop_client::Result<()> {
        let Some(ordinal) = identity::ordinal(set, pod) else { return Ok(()) };
        let index = ordinal - identity::start(set);
        let is_condemned = !(0..set.spec.replicas.unwrap_or(1)).contains(&index);
        let namespace = set.namespace().unwrap_or_default();
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client().clone(), &namespace);
        for template in set.spec.volume_claim_templates.iter().flatten() {
            let name = identity::claim_name(set, template, ordinal);
            let Some(claim) = self.claims.get(&Key::new(namespace.clone(), name)) else { continue };
            let mut changed = PersistentVolumeClaim::clone(&claim);
            let references = changed.metadata.owner_references.get_or_insert_default();
            if references.iter().any(|other| other.controller == Some(true) && !is_own(other, set, pod)) {
                let text = format!("PersistentVolumeClaim {} has a conflicting controller", claim.name_any());
                self.recorder.warning(set, "ConflictingController", text);
                continue;
            }
            references.retain(|other| !is_own(other, set, pod));
            match owner(set, is_condemned) {
                Owner::None => {}
                Owner::Set => references.push(controller_reference(set)),
                Owner::Pod => references.push(controller_reference(pod)),
            }
            let before = claim.metadata.owner_references.as_deref().unwrap_or_default();
            if before != references.as_slice() {
                let written = api.replace(&claim.name_any(), &PostParams::default(), &changed).await?;
                self.claims.wrote(written);
            }
        }
        Ok(())
    }
}

/// Returns whether a reference is to the set or one of its pods of this name.
fn is_own(reference: &OwnerReference, set: &StatefulSet, pod: &Pod) -> bool {
    Some(&reference.uid) == set.metadata.uid.as_ref()
        || reference.uid == pods::uid(pod)
        || reference.kind == "Pod" && reference.name == pod.name_any()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn retention_policy_decides_on_the_owner() {
        let set = |deleted: &str, scaled: &str| -> StatefulSet {
            serde_json::from_value(json!({"spec": {"selector": {}, "template": {}, "serviceName": "",
                "persistentVolumeClaimRetentionPolicy": {"whenDeleted": deleted, "whenScaled": scaled}}}))
            .unwrap()
        };
        let owners = |set: StatefulSet| (owner(&set, false), owner(&set, true));
        assert_eq!(owners(set("Retain", "Retain")), (Owner::None, Owner::None));
        assert_eq!(owners(set("Delete", "Retain")), (Owner::Set, Owner::Set));
        assert_eq!(owners(set("Retain", "Delete")), (Owner::None, Owner::Pod));
        assert_eq!(owners(set("Delete", "Delete")), (Owner::Set, Owner::Pod));
    }
}
