//! PersistentVolumeClaimResize: claims grow only where their storage class allows it.

use std::sync::Arc;

use async_trait::async_trait;
use orlop_api::status::Status;
use orlop_kinds::accessors::{flag, text};
use orlop_quota::{ResourceList, evaluator::claim_class};
use serde_json::Value;

use crate::{
    Admission, AdmissionRequest, Operation, Phase, Resources,
    listers::{Listers, STORAGE_CLASSES},
};

/// Refuses to grow claims.
#[derive(Debug)]
pub(super) struct PersistentVolumeClaimResize {
    listers: Arc<dyn Listers>,
}

impl PersistentVolumeClaimResize {
    pub(super) fn new(listers: Arc<dyn Listers>) -> Self {
        Self { listers }
    }

    async fn allows(&self, claim: &Value, old: &Value) -> Result<bool, Status> {
        let class = claim_class(claim);
        if class.is_empty() || class != claim_class(old) {
            return Ok(false);
        }
        let classes = self.listers.list(STORAGE_CLASSES).await?;
        Ok(classes.get("", class).is_some_and(|class| flag(class, "/allowVolumeExpansion")))
    }
}

#[async_trait]
impl Admission for PersistentVolumeClaimResize {
    fn resources(&self) -> Resources {
        Resources::Only(&[("", "persistentvolumeclaims")])
    }

    fn handles(&self, phase: Phase, operation: Operation) -> bool {
        (phase, operation) == (Phase::Validating, Operation::Update)
    }

    async fn validate(
        &self,
        request: &AdmissionRequest<'_>,
        claim: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let (Some(claim), Some(old), "") = (claim, old, request.subresource()) else { return Ok(()) };
        let size = |claim: &Value| ResourceList::of(claim, "/spec/resources/requests").get("storage");
        if size(claim) <= size(old) {
            return Ok(());
        }
        if text(old, "/status/phase") != "Bound" {
            return Err(request.forbidden(claim, "Only bound persistent volume claims can be expanded"));
        }
        if !self.allows(claim, old).await? {
            let why = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc \
                       must support resize";
            return Err(request.forbidden(claim, why));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::plugins::testing::{FakeListers, Run, message};

    #[tokio::test]
    async fn only_bound_claims_of_expandable_classes_grow() {
        let listers = FakeListers::with(&[
            (STORAGE_CLASSES, "", json!({"metadata": {"name": "gold"}, "allowVolumeExpansion": true})),
            (STORAGE_CLASSES, "", json!({"metadata": {"name": "iron"}})),
        ]);
        let plugin = PersistentVolumeClaimResize::new(listers);
        let claim = |class: &str, size: &str, phase: &str| {
            json!({"metadata": {"name": "c"}, "status": {"phase": phase},
                "spec": {"storageClassName": class, "resources": {"requests": {"storage": size}}}})
        };
        let resized = |class: &'static str, size: &'static str, phase: &'static str| {
            let run = Run::update("", "persistentvolumeclaims", claim(class, "1Gi", phase));
            let (plugin, claim) = (&plugin, claim(class, size, phase));
            async move { message(run.mutate(plugin, claim).await) }
        };
        assert_eq!(resized("gold", "2Gi", "Bound").await, "");
        assert_eq!(resized("iron", "1Gi", "Bound").await, "");
        assert!(
            resized("gold", "2Gi", "Pending")
                .await
                .ends_with("Only bound persistent volume claims can be expanded")
        );
        assert!(
            resized("iron", "2Gi", "Bound").await.contains("only dynamically provisioned pvc can be resized")
        );
    }
}
