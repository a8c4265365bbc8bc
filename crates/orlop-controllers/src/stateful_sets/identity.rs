//! The identity of a StatefulSet's pods: name, labels, claims. Pure.

use k8s_openapi::api::{
    apps::v1::StatefulSet,
    core::v1::{PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, Pod, PodTemplateSpec, Volume},
};
use orlop_client::{ResourceExt, api::ObjectMeta};

use crate::workload::ownership::controller_reference;

pub(super) const REVISION: &str = "controller-revision-hash";
const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
const POD_INDEX: &str = "apps.kubernetes.io/pod-index";

/// Returns the first ordinal.
pub(super) fn start(set: &StatefulSet) -> i32 {
    set.spec.ordinals.as_ref().and_then(|ordinals| ordinals.start).unwrap_or(0)
}

/// Returns the name of a pod.
pub(super) fn name(set: &StatefulSet, ordinal: i32) -> String {
    format!("{}-{ordinal}", set.name_any())
}

/// Returns a pod's ordinal, if its name is one of the set's.
pub(super) fn ordinal(set: &StatefulSet, pod: &Pod) -> Option<i32> {
    let name = pod.name_any();
    let (parent, ordinal) = name.rsplit_once('-')?;
    let is_number = !ordinal.is_empty() && ordinal.bytes().all(|byte| byte.is_ascii_digit());
    (parent == set.name_any() && is_number).then(|| ordinal.parse().ok())?
}

/// Returns the name of a pod's revision.
pub(super) fn revision(pod: &Pod) -> Option<&str> {
    pod.labels().get(REVISION).map(String::as_str)
}

/// Returns the name of a claim.
pub(super) fn claim_name(set: &StatefulSet, template: &PersistentVolumeClaim, ordinal: i32) -> String {
    format!("{}-{}-{ordinal}", template.name_any(), set.name_any())
}

/// Returns the claims of a pod.
pub(super) fn claims(set: &StatefulSet, ordinal: i32) -> Vec<PersistentVolumeClaim> {
    let templates = set.spec.volume_claim_templates.iter().flatten();
    templates
        .map(|template| {
            let mut claim = template.clone();
            claim.metadata = ObjectMeta {
                name: Some(claim_name(set, template, ordinal)),
                namespace: set.namespace(),
                labels: template.metadata.labels.clone(),
                annotations: template.metadata.annotations.clone(),
                ..ObjectMeta::default()
            };
            let labels = claim.metadata.labels.get_or_insert_default();
            labels.extend(set.spec.selector.match_labels.clone().unwrap_or_default());
            claim.status = None;
            claim
        })
        .collect()
}

/// Returns a pod of a revision's template.
pub(super) fn pod(set: &StatefulSet, template: &PodTemplateSpec, ordinal: i32, revision: &str) -> Pod {
    let meta = template.metadata.clone().unwrap_or_default();
    let mut pod = Pod {
        metadata: ObjectMeta {
            name: Some(name(set, ordinal)),
            namespace: set.namespace(),
            labels: meta.labels,
            annotations: meta.annotations,
            finalizers: meta.finalizers,
            owner_references: Some(vec![controller_reference(set)]),
            ..ObjectMeta::default()
        },
        spec: template.spec.clone(),
        ..Pod::default()
    };
    label(set, &mut pod);
    pod.metadata.labels.get_or_insert_default().insert(REVISION.to_owned(), revision.to_owned());
    let spec = pod.spec.get_or_insert_default();
    spec.hostname = Some(name(set, ordinal));
    spec.subdomain = set.spec.service_name.clone().filter(|name| !name.is_empty());
    let volumes = spec.volumes.get_or_insert_default();
    for template in set.spec.volume_claim_templates.iter().flatten() {
        let volume = template.name_any();
        volumes.retain(|known| known.name != volume);
        volumes.push(Volume {
            name: volume,
            persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
                claim_name: claim_name(set, template, ordinal),
                read_only: None,
            }),
            ..Volume::default()
        });
    }
    pod
}

/// Gives a pod the labels of its name and index.
pub(super) fn label(set: &StatefulSet, pod: &mut Pod) {
    let name = pod.name_any();
    let ordinal = ordinal(set, pod);
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(POD_NAME.to_owned(), name);
    if let Some(ordinal) = ordinal {
        labels.insert(POD_INDEX.to_owned(), ordinal.to_string());
    }
}

/// Returns whether a pod has the labels of its identity.
pub(super) fn is_labelled(pod: &Pod) -> bool {
    pod.labels().get(POD_NAME) == Some(&pod.name_any())
}
