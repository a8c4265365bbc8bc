//! OwnerReferencesPermissionEnforcement: who sets an owner may delete the object, and who blocks the deletion of an owner
//! may set its finalizers.

use std::sync::Arc;

use async_trait::async_trait;
use orlop_api::{group_version::GroupVersion, status::Status};
use orlop_auth::{Decision, UnionAuthorizer};
use orlop_kinds::accessors::{flag, list, text};
use serde_json::Value;

use super::authorization::{Permission, explain};
use crate::{Admission, AdmissionRequest, Operation, Phase, listers::Listers};

/// Checks permissions for owner references.
#[derive(Debug)]
pub(super) struct OwnerReferencesPermissionEnforcement {
    authorizer: UnionAuthorizer,
    listers: Arc<dyn Listers>,
}

impl OwnerReferencesPermissionEnforcement {
    pub(super) fn new(authorizer: UnionAuthorizer, listers: Arc<dyn Listers>) -> Self {
        Self { authorizer, listers }
    }

    async fn check_blocking(
        &self,
        request: &AdmissionRequest<'_>,
        object: &Value,
        owner: &Value,
    ) -> Result<(), Status> {
        let (api_version, kind) = (text(owner, "/apiVersion"), text(owner, "/kind"));
        let version = GroupVersion::parse(api_version).unwrap_or_default();
        let Some((resource, namespaced)) = self.listers.resource_of(&version.group, &version.version, kind)
        else {
            let group = if version.group.is_empty() { String::new() } else { format!(".{}", version.group) };
            let why = format!(
                "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion \
                 {api_version} Kind {kind}: no matches for kind \"{kind}{group}\" in version {api_version:?}"
            );
            return Err(request.forbidden(object, why));
        };
        let permission = Permission {
            verb: "update",
            group: &resource.group,
            version: &resource.version,
            resource: &resource.resource,
            subresource: "finalizers",
            namespace: if namespaced { request.namespace() } else { "" },
            name: text(owner, "/name"),
        };
        let evaluation = permission.evaluate(&self.authorizer, request).await;
        if matches!(evaluation.decision, Decision::Allow(_)) {
            return Ok(());
        }
        let why = format!(
            "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: {}",
            explain(&evaluation)
        );
        Err(request.forbidden(object, why))
    }
}

fn owners(object: &Value) -> &[Value] {
    list(object, "/metadata/ownerReferences")
}

/// Returns the owners whose deletion is blocked now and was not before.
fn newly_blocking<'a>(object: &'a Value, old: Option<&Value>) -> Vec<&'a Value> {
    let was_blocking = |owner: &Value| {
        let known = old.map(owners).unwrap_or_default();
        known.iter().any(|known| known.get("uid") == owner.get("uid") && flag(known, "/blockOwnerDeletion"))
    };
    owners(object).iter().filter(|owner| flag(owner, "/blockOwnerDeletion") && !was_blocking(owner)).collect()
}

#[async_trait]
impl Admission for OwnerReferencesPermissionEnforcement {
    fn handles(&self, phase: Phase, operation: Operation) -> bool {
        phase == Phase::Validating && matches!(operation, Operation::Create | Operation::Update)
    }

    async fn validate(
        &self,
        request: &AdmissionRequest<'_>,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let Some(object) = object else { return Ok(()) };
        // The status of a pod cannot change its owners.
        if request.is_for("", "pods") && request.subresource() == "status" {
            return Ok(());
        }
        if owners(object) == old.map(owners).unwrap_or_default() {
            return Ok(());
        }
        if request.operation != Operation::Create {
            let permission = Permission {
                verb: "delete",
                group: &request.attributes.group,
                version: &request.attributes.version,
                resource: &request.attributes.resource,
                subresource: request.subresource(),
                namespace: request.namespace(),
                name: &request.name,
            };
            let evaluation = permission.evaluate(&self.authorizer, request).await;
            if !matches!(evaluation.decision, Decision::Allow(_)) {
                let why = format!(
                    "cannot set an ownerRef on a resource you can't delete: {}",
                    explain(&evaluation)
                );
                return Err(request.forbidden(object, why));
            }
        }
        let blocking = newly_blocking(object, old);
        let anything = Permission {
            verb: "update",
            group: "*",
            version: "*",
            resource: "*",
            subresource: "finalizers",
            name: "*",
            ..Permission::default()
        };
        if blocking.is_empty() || anything.is_granted(&self.authorizer, request).await {
            return Ok(());
        }
        for owner in blocking {
            self.check_blocking(request, object, owner).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::plugins::testing::{FakeListers, Grants, Run, message};

    fn plugin(grants: &[(&str, &str)]) -> OwnerReferencesPermissionEnforcement {
        OwnerReferencesPermissionEnforcement::new(
            Grants::authorizer(grants),
            Arc::new(FakeListers::default()),
        )
    }

    fn owned(blocking: bool) -> Value {
        json!({"metadata": {"name": "o", "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "owner",
            "uid": "u", "blockOwnerDeletion": blocking}]}})
    }

    #[tokio::test]
    async fn new_owner_needs_delete() {
        let run = Run::update("", "configmaps", json!({"metadata": {"name": "o"}}));
        assert_eq!(message(run.mutate(&plugin(&[("delete", "o")]), owned(false)).await), "");
        assert_eq!(
            message(run.mutate(&plugin(&[]), owned(false)).await),
            "configmaps \"o\" is forbidden: cannot set an ownerRef on a resource you can't delete: , <nil>"
        );
        assert_eq!(message(Run::create("", "configmaps").mutate(&plugin(&[]), owned(false)).await), "");
    }

    #[tokio::test]
    async fn blocking_an_owner_needs_its_finalizers() {
        let run = Run::create("", "configmaps");
        assert_eq!(message(run.mutate(&plugin(&[("update", "owner")]), owned(true)).await), "");
        assert_eq!(
            message(run.mutate(&plugin(&[]), owned(true)).await),
            "configmaps \"o\" is forbidden: cannot set blockOwnerDeletion if an ownerReference refers to a resource you \
             can't set finalizers on: , <nil>"
        );
        let update = Run::update("", "configmaps", owned(true));
        assert_eq!(message(update.mutate(&plugin(&[]), owned(true)).await), "");
    }
}
