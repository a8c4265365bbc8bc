//! Claims of a pod: where their volumes can be reached, or made. Pure.

use std::sync::Arc;

use k8s_openapi::api::{
    core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod},
    storage::v1::StorageClass,
};
use orlop_client::ResourceExt;

use super::{
    cluster::{Cluster, NodeInfo},
    rejection::Rejection,
};
use crate::{
    runtime::Key,
    volumes::{claim_names, ephemeral::not_owner, ephemeral_claim_names, matching},
};

/// Provisioner of classes whose volumes only an administrator makes.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// Claims that wait for a node, with the volumes chosen for them; one without is to be made.
pub(super) type DelayedVolumes = Vec<(Arc<PersistentVolumeClaim>, Option<Arc<PersistentVolume>>)>;

/// Objects of storage.
pub(super) trait Storage {
    fn claim(&self, key: &Key) -> Option<Arc<PersistentVolumeClaim>>;
    fn volume(&self, name: &str) -> Option<Arc<PersistentVolume>>;
    fn volumes(&self) -> Vec<Arc<PersistentVolume>>;
    fn class(&self, name: &str) -> Option<Arc<StorageClass>>;
}

/// Claims of one pod.
#[derive(Debug, Default)]
pub(super) struct VolumeNeeds {
    bound: Vec<Arc<PersistentVolume>>,
    /// A claim is bound to a volume that does not exist.
    is_volume_missing: bool,
    /// Claims that wait for their first consumer.
    delayed: Vec<Arc<PersistentVolumeClaim>>,
    /// Their class makes volumes on demand.
    provisioned: Vec<bool>,
    available: Vec<Arc<PersistentVolume>>,
    /// A claim that only one pod may use is in use.
    is_in_use: bool,
}

impl VolumeNeeds {
    /// Collects the claims of a pod. The error is the reason that no node can run it.
    pub(super) fn new(pod: &Pod, storage: &impl Storage, cluster: &Cluster) -> Result<Self, String> {
        let mut needs = Self::default();
        let namespace = pod.namespace().unwrap_or_default();
        let ephemeral: Vec<String> = ephemeral_claim_names(pod).collect();
        for name in claim_names(pod) {
            let is_ephemeral = ephemeral.contains(&name);
            let Some(claim) = storage.claim(&Key::new(namespace.clone(), name.clone())) else {
                return Err(match is_ephemeral {
                    // It is about to come.
                    true => format!(
                        "waiting for ephemeral volume controller to create the persistentvolumeclaim {name:?}"
                    ),
                    false => format!("persistentvolumeclaim {name:?} not found"),
                });
            };
            if matching::claim_phase(&claim) == "Lost" {
                let volume = matching::volume_name(&claim).unwrap_or_default();
                return Err(format!(
                    "persistentvolumeclaim {name:?} bound to non-existent persistentvolume {volume:?}"
                ));
            }
            if let (true, Some(reason)) = (is_ephemeral, not_owner(pod, &claim)) {
                return Err(reason);
            }
            if claim.metadata.deletion_timestamp.is_some() {
                return Err(format!("persistentvolumeclaim {name:?} is being deleted"));
            }
            let modes = claim.spec.as_ref().and_then(|spec| spec.access_modes.as_ref());
            if modes.is_some_and(|modes| modes.iter().any(|mode| mode == "ReadWriteOncePod")) {
                needs.is_in_use |= is_used(cluster, &namespace, &name);
            }
            if let Some(volume) = matching::volume_name(&claim) {
                if matching::claim_phase(&claim) != "Bound" {
                    return Err("pod has unbound immediate PersistentVolumeClaims".to_owned());
                }
                match storage.volume(volume) {
                    Some(volume) => needs.bound.push(volume),
                    None => needs.is_volume_missing = true,
                }
                continue;
            }
            let class = storage.class(matching::claim_class(&claim));
            let is_delayed = class
                .as_ref()
                .is_some_and(|class| class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"));
            if !is_delayed {
                return Err("pod has unbound immediate PersistentVolumeClaims".to_owned());
            }
            needs.provisioned.push(class.is_some_and(|class| class.provisioner != NO_PROVISIONER));
            needs.delayed.push(claim);
        }
        if !needs.delayed.is_empty() {
            needs.available = storage.volumes();
        }
        Ok(needs)
    }

    /// Filters a node.
    pub(super) fn filter(&self, info: &NodeInfo) -> Result<(), Rejection> {
        if self.is_in_use {
            return Err(Rejection::passing(
                "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod",
            ));
        }
        if self.is_volume_missing {
            return Err(Rejection::final_reason(
                "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
            ));
        }
        if !self.bound.iter().all(|volume| matching::is_reachable(volume, &info.node)) {
            return Err(Rejection::final_reason("node(s) didn't match PersistentVolume's node affinity"));
        }
        if self.choose(&info.node).is_none() {
            return Err(Rejection::final_reason("node(s) didn't find available persistent volumes to bind"));
        }
        Ok(())
    }

    /// Returns the volume of every claim that waits for its first consumer, for this node; one without a volume is to
    /// be made. `None` if there is neither.
    pub(super) fn choose(&self, node: &Node) -> Option<DelayedVolumes> {
        let mut available = self.available.clone();
        let mut chosen = Vec::new();
        for (claim, is_provisioned) in self.delayed.iter().zip(&self.provisioned) {
            let volume = matching::find(claim, &available, Some(node), true).cloned();
            match &volume {
                // No second claim of the pod gets it.
                Some(volume) => available.retain(|other| other.name_any() != volume.name_any()),
                None if *is_provisioned => {}
                None => return None,
            }
            chosen.push((claim.clone(), volume));
        }
        Some(chosen)
    }
}

/// Returns whether a pod on some node uses a claim.
fn is_used(cluster: &Cluster, namespace: &str, claim: &str) -> bool {
    let mut pods = cluster.nodes.values().flat_map(|info| info.pods.values());
    pods.any(|other| {
        other.pod.metadata.namespace.as_deref() == Some(namespace)
            && claim_names(&other.pod).any(|name| name == claim)
    })
}
