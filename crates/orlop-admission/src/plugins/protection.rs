//! StorageObjectInUseProtection and PodGroupProtection: finalizers that keep objects while they are used.

use async_trait::async_trait;
use orlop_api::status::Status;
use orlop_kinds::accessors::texts;
use serde_json::Value;

use super::pods::{map_mut, push};
use crate::{Admission, AdmissionRequest, Operation, Phase, Resources};

/// Resources and the finalizers of their objects.
type Finalizers = &'static [((&'static str, &'static str), &'static str)];

const STORAGE: Finalizers = &[
    (("", "persistentvolumes"), "kubernetes.io/pv-protection"),
    (("", "persistentvolumeclaims"), "kubernetes.io/pvc-protection"),
    (("storage.k8s.io", "volumeattributesclasses"), "kubernetes.io/vac-protection"),
];
const POD_GROUPS: Finalizers =
    &[(("scheduling.k8s.io", "podgroups"), "scheduling.k8s.io/podgroup-protection")];

/// Adds a finalizer to new objects.
#[derive(Debug)]
pub(super) struct Protection {
    finalizers: Finalizers,
    resources: &'static [(&'static str, &'static str)],
}

impl Protection {
    pub(super) fn of_storage() -> Self {
        Self {
            finalizers: STORAGE,
            resources: &[
                ("", "persistentvolumes"),
                ("", "persistentvolumeclaims"),
                ("storage.k8s.io", "volumeattributesclasses"),
            ],
        }
    }

    pub(super) fn of_pod_groups() -> Self {
        Self { finalizers: POD_GROUPS, resources: &[("scheduling.k8s.io", "podgroups")] }
    }
}

#[async_trait]
impl Admission for Protection {
    fn resources(&self) -> Resources {
        Resources::Only(self.resources)
    }

    fn handles(&self, phase: Phase, operation: Operation) -> bool {
        (phase, operation) == (Phase::Mutating, Operation::Create)
    }

    async fn mutate(
        &self,
        request: &AdmissionRequest<'_>,
        object: &mut Value,
        _old: Option<&Value>,
    ) -> Result<(), Status> {
        let own = self.finalizers.iter().find(|((group, resource), _)| request.is_for(group, resource));
        let Some((_, finalizer)) = own.filter(|_| request.subresource().is_empty()) else { return Ok(()) };
        if !texts(object, "/metadata/finalizers").contains(finalizer) {
            let metadata = map_mut(map_mut(object).entry("metadata").or_insert(Value::Null));
            push(metadata, "finalizers", (*finalizer).into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::plugins::testing::Run;

    #[tokio::test]
    async fn new_claims_and_volumes_get_a_finalizer_once() {
        for (resource, finalizer) in [
            ("persistentvolumes", "kubernetes.io/pv-protection"),
            ("persistentvolumeclaims", "kubernetes.io/pvc-protection"),
        ] {
            let run = Run::create("", resource);
            let created = run.mutate(&Protection::of_storage(), json!({})).await.unwrap();
            assert_eq!(created["metadata"]["finalizers"], json!([finalizer]));
            assert_eq!(run.mutate(&Protection::of_storage(), created.clone()).await.unwrap(), created);
        }
    }
}
