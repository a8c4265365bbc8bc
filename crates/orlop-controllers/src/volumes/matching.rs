//! The volume that suits a claim. Pure.

use std::sync::Arc;

use k8s_openapi::{
    api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim},
    apimachinery::pkg::api::resource::Quantity,
};
use orlop_client::ResourceExt;

use crate::workload::{node_match::matches_selector, resources::amount, selector::Labels};

/// Annotation of a claim's class before there was a field.
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

fn bytes(quantity: Option<&Quantity>) -> i64 {
    quantity.and_then(|quantity| amount("storage", quantity)).unwrap_or(0)
}

/// Returns the bytes that a claim requests.
pub(crate) fn requested(claim: &PersistentVolumeClaim) -> i64 {
    let requests = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref()?.requests.as_ref());
    bytes(requests.and_then(|requests| requests.get("storage")))
}

/// Returns the bytes of a volume.
pub(crate) fn capacity(volume: &PersistentVolume) -> i64 {
    let capacity = volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref());
    bytes(capacity.and_then(|capacity| capacity.get("storage")))
}

/// Returns a claim's class, empty without one.
pub(crate) fn claim_class(claim: &PersistentVolumeClaim) -> &str {
    let annotated = claim.annotations().get(CLASS_ANNOTATION).map(String::as_str);
    let named = || claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref());
    annotated.or_else(named).unwrap_or_default()
}

/// Returns a volume's class, empty without one.
pub(crate) fn volume_class(volume: &PersistentVolume) -> &str {
    let annotated = volume.annotations().get(CLASS_ANNOTATION).map(String::as_str);
    let named = || volume.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref());
    annotated.or_else(named).unwrap_or_default()
}

/// Returns a claim's phase, empty without one.
pub(crate) fn claim_phase(claim: &PersistentVolumeClaim) -> &str {
    claim.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// Returns a volume's phase, empty without one.
pub(crate) fn volume_phase(volume: &PersistentVolume) -> &str {
    volume.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// Returns the volume that a claim names.
pub(crate) fn volume_name(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.spec.as_ref()?.volume_name.as_deref().filter(|name| !name.is_empty())
}

/// Returns whether a volume is reserved for this claim, with or without its uid.
pub(crate) fn is_for(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let Some(reference) = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()) else { return false };
    let is_uid =
        reference.uid.as_ref().is_none_or(|uid| uid.is_empty() || Some(uid) == claim.metadata.uid.as_ref());
    reference.name == claim.metadata.name && reference.namespace == claim.metadata.namespace && is_uid
}

/// Returns the reason that a volume does not suit a claim which names it.
pub(crate) fn mismatch(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<&'static str> {
    if capacity(volume) < requested(claim) {
        return Some("requested PV is too small");
    }
    if volume_class(volume) != claim_class(claim) {
        return Some("storageClassName does not match");
    }
    if !is_same_mode(volume, claim) {
        return Some("incompatible volumeMode");
    }
    if !has_access_modes(volume, claim) {
        return Some("incompatible accessMode");
    }
    None
}

fn is_same_mode(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    const FILESYSTEM: &str = "Filesystem";
    let of_volume = volume.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref()).unwrap_or(FILESYSTEM);
    let of_claim = claim.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref()).unwrap_or(FILESYSTEM);
    of_volume == of_claim
}

fn has_access_modes(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let offered = volume.spec.as_ref().and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default();
    let wanted = claim.spec.as_ref().and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default();
    wanted.iter().all(|mode| offered.contains(mode))
}

/// Returns whether a node can reach a volume.
pub(crate) fn is_reachable(volume: &PersistentVolume, node: &Node) -> bool {
    let affinity = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref());
    let required = affinity.and_then(|affinity| affinity.required.as_ref());
    required.is_none_or(|required| matches_selector(required, node))
}

/// Returns the volume that a claim gets: one that is reserved for it, or else the smallest that suits. With a node
/// only those that it can reach. A claim whose binding is delayed and that has no node yet gets a reserved one only.
pub(crate) fn find<'a>(
    claim: &PersistentVolumeClaim,
    volumes: &'a [Arc<PersistentVolume>],
    node: Option<&Node>,
    is_delayed: bool,
) -> Option<&'a Arc<PersistentVolume>> {
    let attributes = claim.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.as_deref());
    let selector = claim.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    let labels = Labels::of(selector);
    let suits = |volume: &&Arc<PersistentVolume>| {
        let spec = volume.spec.as_ref();
        volume.metadata.deletion_timestamp.is_none()
            && is_same_mode(volume, claim)
            && capacity(volume) >= requested(claim)
            && node.is_none_or(|node| is_reachable(volume, node))
            && spec.and_then(|spec| spec.volume_attributes_class_name.as_deref()).unwrap_or_default()
                == attributes.unwrap_or_default()
    };
    if let Some(reserved) = volumes.iter().filter(suits).find(|volume| is_for(volume, claim)) {
        return Some(reserved);
    }
    if node.is_none() && is_delayed {
        return None;
    }
    volumes
        .iter()
        .filter(suits)
        .filter(|volume| {
            volume_phase(volume) == "Available"
                && volume.spec.as_ref().is_some_and(|spec| spec.claim_ref.is_none())
                && volume_class(volume) == claim_class(claim)
                && has_access_modes(volume, claim)
                && (selector.is_none() || labels.as_ref().is_some_and(|labels| labels.selects(&***volume)))
        })
        .min_by_key(|volume| {
            let modes = volume.spec.as_ref().and_then(|spec| spec.access_modes.as_ref()).map_or(0, Vec::len);
            (capacity(volume), modes, volume.name_any())
        })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn volume(name: &str, size: &str, change: Value) -> Arc<PersistentVolume> {
        let mut volume = json!({"metadata": {"name": name, "labels": {"name": name}},
            "spec": {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "storageClassName": "a"},
            "status": {"phase": "Available"}});
        for (key, value) in change.as_object().into_iter().flatten() {
            volume["spec"][key] = value.clone();
        }
        Arc::new(serde_json::from_value(volume).unwrap())
    }

    fn claim(change: Value) -> PersistentVolumeClaim {
        let mut claim = json!({"metadata": {"name": "c", "namespace": "n", "uid": "1"},
            "spec": {"resources": {"requests": {"storage": "2Gi"}}, "accessModes": ["ReadWriteOnce"],
                "storageClassName": "a"}});
        for (key, value) in change.as_object().into_iter().flatten() {
            claim["spec"][key] = value.clone();
        }
        serde_json::from_value(claim).unwrap()
    }

    fn found(change: Value, volumes: &[Arc<PersistentVolume>]) -> Option<String> {
        find(&claim(change), volumes, None, false).map(|volume| volume.name_any())
    }

    #[test]
    fn smallest_volume_that_suits_is_found() {
        let reference = json!({"claimRef": {"name": "c", "namespace": "n"}, "storageClassName": "b"});
        let volumes = [
            volume("small", "1Gi", json!({})),
            volume("large", "10Gi", json!({})),
            volume("right", "3Gi", json!({})),
            volume("taken", "2Gi", json!({"claimRef": {"name": "other", "namespace": "n"}})),
            volume("class", "2Gi", json!({"storageClassName": "b"})),
            volume("block", "2Gi", json!({"volumeMode": "Block"})),
        ];
        assert_eq!(found(json!({}), &volumes).as_deref(), Some("right"));
        assert_eq!(found(json!({"accessModes": ["ReadWriteMany"]}), &volumes), None);
        let selector = json!({"selector": {"matchLabels": {"name": "large"}}});
        assert_eq!(found(selector, &volumes).as_deref(), Some("large"));
        let reserved = [volumes.to_vec(), vec![volume("mine", "20Gi", reference)]].concat();
        assert_eq!(found(json!({}), &reserved).as_deref(), Some("mine"));
        assert_eq!(find(&claim(json!({})), &volumes, None, true), None, "binding is delayed");
        let text = mismatch(&volumes[0], &claim(json!({})));
        assert_eq!(text, Some("requested PV is too small"));
    }
}
