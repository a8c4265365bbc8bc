//! What each built-in kind does beyond its schema: a file a kind.

mod namespace;

use orlop_api::{group_version::GroupResource, status::Status};
use serde_json::Value;

use crate::registry::{Hooks, Kind, Plain};

pub(crate) use namespace::{has_content, holds_namespace, mark_deleted};

/// The hooks of a built-in kind.
pub(crate) fn hooks(group: &str, resource: &str) -> Box<dyn Hooks> {
    match (group, resource) {
        ("", "namespaces") => Box::new(namespace::Namespace),
        _ => Box::new(Plain),
    }
}

/// Refuses the deletion of what the cluster cannot be without.
pub(crate) fn may_delete(kind: &Kind, name: &str) -> Result<(), Status> {
    let standing = matches!(name, "default" | "kube-system" | "kube-public");
    if kind.gvk.group.is_empty() && kind.resource == "namespaces" && standing {
        let resource = GroupResource::new("", "namespaces");
        return Err(Status::forbidden(&resource, name, "this namespace may not be deleted"));
    }
    Ok(())
}

/// How long a deleted object is given to end. Only pods end gracefully.
pub(crate) fn grace_seconds(kind: &Kind, object: &Value, asked: Option<i64>) -> i64 {
    if !(kind.gvk.group.is_empty() && kind.resource == "pods") {
        return 0;
    }
    // A pod that no node runs has nobody to wait for.
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
    if text("/spec/nodeName").is_empty() || matches!(text("/status/phase"), "Succeeded" | "Failed") {
        return 0;
    }
    let own = object.pointer("/spec/terminationGracePeriodSeconds").and_then(Value::as_i64);
    asked.or(own).unwrap_or(30).max(0)
}
