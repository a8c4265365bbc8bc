//! Pods of this node: one worker each, and the pure rules that it follows.
//!
//! `containers` → `back_off`, `restart` → `plan`, `phase` → `status`: pure, and tested without a process. `worker` runs
//! what `plan` decides.

pub(crate) mod admission;
pub(crate) mod back_off;
pub(crate) mod containers;
pub(crate) mod phase;
pub(crate) mod plan;
pub(crate) mod resize;
pub(crate) mod restart;
pub(crate) mod status;
pub(crate) mod storage;
pub(crate) mod sysctls;

/// Returns true for a pod from a manifest of the node, which the API does not decide about.
pub(crate) fn is_static(pod: &k8s_openapi::api::core::v1::Pod) -> bool {
    let annotations = pod.metadata.annotations.as_ref();
    let source = annotations.and_then(|annotations| annotations.get("kubernetes.io/config.source"));
    source.is_some_and(|source| source != "api")
}
