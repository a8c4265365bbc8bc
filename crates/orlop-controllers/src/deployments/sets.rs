//! The ReplicaSets of a Deployment. Pure.

use std::sync::Arc;

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, ReplicaSet},
        core::v1::PodTemplateSpec,
    },
    jiff::Timestamp,
};
use orlop_client::ResourceExt;

use super::strategy::replicas;
use crate::workload::hash::canonical;

/// Label of the hash of a ReplicaSet's template.
pub(super) const TEMPLATE_HASH: &str = "pod-template-hash";
/// Annotation of the Deployment's replicas when the ReplicaSet was scaled.
pub(super) const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";
/// Annotation of the most replicas that the Deployment could have then.
pub(super) const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";

/// Returns the number of pods that a ReplicaSet shall have.
pub(super) fn size(set: &ReplicaSet) -> i32 {
    set.spec.replicas.unwrap_or(0)
}

/// Returns the number of pods that it has.
pub(super) fn actual(set: &ReplicaSet) -> i32 {
    set.status.as_ref().map_or(0, |status| status.replicas)
}

/// Returns the number of its pods that are available.
pub(super) fn available(set: &ReplicaSet) -> i32 {
    set.status.as_ref().and_then(|status| status.available_replicas).unwrap_or(0)
}

pub(super) fn total<'a>(
    sets: impl IntoIterator<Item = &'a ReplicaSet>,
    count: fn(&ReplicaSet) -> i32,
) -> i32 {
    sets.into_iter().map(count).sum()
}

/// Returns a number in an annotation.
pub(super) fn number(set: &ReplicaSet, annotation: &str) -> Option<i32> {
    set.annotations().get(annotation)?.parse().ok()
}

pub(super) fn created(set: &ReplicaSet) -> (Option<Timestamp>, String) {
    (set.metadata.creation_timestamp.as_ref().map(|time| time.0), set.name_any())
}

/// Returns whether two templates are equal but for the hash.
pub(super) fn is_same_template(one: &PodTemplateSpec, other: &PodTemplateSpec) -> bool {
    let without_hash = |template: &PodTemplateSpec| {
        let mut template = template.clone();
        if let Some(labels) = template.metadata.as_mut().and_then(|meta| meta.labels.as_mut()) {
            labels.remove(TEMPLATE_HASH);
        }
        template
    };
    let (one, other) = (without_hash(one), without_hash(other));
    one == other || canonical(&one) == canonical(&other)
}

/// Returns the ReplicaSet of the current template, the oldest if there are several, and all others by age.
pub(super) fn split(
    deployment: &Deployment,
    mut sets: Vec<Arc<ReplicaSet>>,
) -> (Option<Arc<ReplicaSet>>, Vec<Arc<ReplicaSet>>) {
    sets.sort_by_key(|set| created(set));
    let template = &deployment.spec.template;
    let is_new =
        |set: &Arc<ReplicaSet>| set.spec.template.as_ref().is_some_and(|own| is_same_template(own, template));
    let new = sets.iter().position(is_new).map(|position| sets.remove(position));
    (new, sets)
}

/// Returns all of them.
pub(super) fn all(old: &[Arc<ReplicaSet>], new: Option<&Arc<ReplicaSet>>) -> Vec<Arc<ReplicaSet>> {
    old.iter().chain(new).cloned().collect()
}

/// Returns whether the Deployment's replicas have changed since its ReplicaSets were scaled.
pub(super) fn is_scaling(deployment: &Deployment, sets: &[Arc<ReplicaSet>]) -> bool {
    sets.iter()
        .filter(|set| size(set) > 0)
        .any(|set| number(set, DESIRED_REPLICAS).is_some_and(|desired| desired != replicas(deployment)))
}

/// Returns whether a ReplicaSet has all the pods that the Deployment wants, available.
pub(super) fn is_saturated(deployment: &Deployment, set: &ReplicaSet) -> bool {
    let wanted = replicas(deployment);
    size(set) == wanted && number(set, DESIRED_REPLICAS) == Some(wanted) && available(set) == wanted
}
