//! Escalation checks of writes of roles and bindings: nobody grants what they do not hold, unless they may
//! `escalate` the role or `bind` it.

use orlop_api::{group_version::GroupResource, object_meta, status::Status};
use orlop_auth::rbac::{GROUP, PolicyRule, RoleRef, escalation};
use serde_json::Value;

use super::Request;
use crate::{
    auth::Decision,
    object::metadata_mut,
    rbac,
    request::{Attributes, Verb},
};

/// Refuses a role or binding that grants more than its writer holds. `old` is absent on create.
pub(super) async fn check(request: &Request, object: &Value, old: Option<&Value>) -> Result<(), Status> {
    if !rbac::is_rbac(&request.kind)
        || request.attributes.user.is_master()
        || old.is_some_and(|old| only_garbage_collection_changes(object, old))
    {
        return Ok(());
    }
    match request.kind.resource.as_str() {
        "roles" | "clusterroles" => check_role(request, object, old).await,
        _ => check_binding(request, object).await,
    }
}

async fn check_role(request: &Request, role: &Value, old: Option<&Value>) -> Result<(), Status> {
    let Attributes { resource, namespace, name, .. } = &*request.attributes;
    if is_allowed(request, "escalate", GroupResource::new(GROUP, resource), namespace, name).await {
        return Ok(());
    }
    let forbidden = |why: &str| {
        let name = object_meta::text(object_meta::of(role), "name");
        Status::forbidden(&request.kind.group_resource(), name, why)
    };
    let (index, user) = (request.cluster.policy.index().await?, &request.attributes.user);
    escalation::check(&index, user, namespace, &PolicyRule::all_of(role)).map_err(|why| forbidden(&why))?;
    if aggregates(role) || old.is_some_and(aggregates) {
        escalation::check(&index, user, namespace, &escalation::full_authority())
            .map_err(|_| forbidden("must have cluster-admin privileges to use the aggregationRule"))?;
    }
    Ok(())
}

async fn check_binding(request: &Request, binding: &Value) -> Result<(), Status> {
    let namespace = &request.attributes.namespace;
    let role = RoleRef::of(binding);
    let (resource, role_namespace) = match &*role.kind {
        "ClusterRole" => ("clusterroles", ""),
        "Role" => ("roles", namespace.as_str()),
        other => return Err(Status::internal(&format!("unsupported role reference kind: {other:?}"))),
    };
    if is_allowed(request, "bind", GroupResource::new(GROUP, resource), namespace, &role.name).await {
        return Ok(());
    }
    // Read from the store: another server may have changed the role a moment ago.
    let objects = &request.cluster.objects;
    let kinds = objects.registry.kinds();
    let Some(kind) = kinds.get(GROUP, "v1", resource) else {
        return Err(Status::not_found(&GroupResource::new(GROUP, resource), &role.name));
    };
    let rules = PolicyRule::all_of(&objects.object(kind, role_namespace, &role.name).await?);
    let index = request.cluster.policy.index().await?;
    escalation::check(&index, &request.attributes.user, namespace, &rules).map_err(|why| {
        let name = object_meta::text(object_meta::of(binding), "name");
        Status::forbidden(&request.kind.group_resource(), name, &why)
    })
}

/// Returns true if the user has a verb on an object.
pub(super) async fn is_allowed(
    request: &Request,
    verb: &str,
    resource: GroupResource,
    namespace: &str,
    name: &str,
) -> bool {
    let attributes = Attributes {
        verb: Verb::from(verb),
        ..request.attributes.for_object(resource, "*", namespace, name)
    };
    matches!(request.cluster.authorizer().authorize(&attributes).await, Decision::Allow(_))
}

fn aggregates(role: &Value) -> bool {
    let selectors = role.pointer("/aggregationRule/clusterRoleSelectors").and_then(Value::as_array);
    selectors.is_some_and(|selectors| !selectors.is_empty())
}

/// Returns true if nothing but the fields differ that garbage collection changes.
fn only_garbage_collection_changes(object: &Value, old: &Value) -> bool {
    let (mut object, mut old) = (object.clone(), old.clone());
    for object in [&mut object, &mut old] {
        let metadata = metadata_mut(object);
        for field in ["ownerReferences", "finalizers", "managedFields", "resourceVersion", "selfLink"] {
            metadata.remove(field);
        }
    }
    object == old
}
