//! Persistent volumes and claims.

pub(crate) mod attach_detach;
pub(crate) mod binder;
pub(crate) mod ephemeral;
pub(crate) mod local_path;
pub(crate) mod matching;
pub(crate) mod protection;

use k8s_openapi::api::core::v1::Pod;
use orlop_client::ResourceExt;

/// Annotation by which the scheduler tells a provisioner the node of a claim's first consumer.
pub(crate) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// Returns the names of the claims of a pod's generic ephemeral volumes.
pub(crate) fn ephemeral_claim_names(pod: &Pod) -> impl Iterator<Item = String> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let ephemeral =
        volumes.filter(|volume| volume.persistent_volume_claim.is_none() && volume.ephemeral.is_some());
    ephemeral.map(|volume| format!("{}-{}", pod.name_any(), volume.name))
}

/// Returns the names of a pod's claims. A generic ephemeral volume's is made of the pod's name.
pub(crate) fn claim_names(pod: &Pod) -> impl Iterator<Item = String> {
    let name = pod.name_any();
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(move |volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(claim), _) => Some(claim.claim_name.clone()),
        (None, Some(_)) => Some(format!("{name}-{}", volume.name)),
        (None, None) => None,
    })
}

/// Annotation of a binding that a controller made, not a user.
pub(crate) const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// Annotation of the class of claims that name none.
pub(crate) const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
/// Annotation of the provisioner that made a volume.
pub(crate) const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
