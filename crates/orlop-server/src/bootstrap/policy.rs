//! The bootstrap policy: the default roles and bindings, created or completed at start.
//!
//! As in Kubernetes, a start only adds: rules, subjects and labels that are missing. Servers of different versions on
//! one database therefore do not undo each other's work, and what a person added or protected stays.

use futures_util::future::try_join_all;
use orlop_auth::rbac::{
    GROUP, bootstrap,
    reconcile::{Reconciled, reconcile},
};
use serde_json::Value;

use super::{BootstrapError, send};
use crate::chain::Chain;

/// Attempts at an object that others write at the same time, such as another server that starts.
const ATTEMPTS: usize = 8;

/// Creates missing roles and bindings, and adds what existing ones lack. Their namespaces must exist.
pub(super) async fn ensure(chain: &Chain) -> Result<(), BootstrapError> {
    // Concurrent writes share a group commit.
    try_join_all(bootstrap::roles().iter().map(|role| ensure_object(chain, role))).await?;
    try_join_all(bootstrap::bindings().iter().map(|binding| ensure_object(chain, binding))).await?;
    Ok(())
}

async fn ensure_object(chain: &Chain, expected: &Value) -> Result<(), BootstrapError> {
    let text = |path: &str| expected.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
    let resource = match text("/kind") {
        "Role" => "roles",
        "ClusterRole" => "clusterroles",
        "RoleBinding" => "rolebindings",
        _ => "clusterrolebindings",
    };
    let scope = if namespace.is_empty() { String::new() } else { format!("/namespaces/{namespace}") };
    let collection = format!("/apis/{GROUP}/v1{scope}/{resource}");
    let path = format!("{collection}/{name}");
    let failed = |code| Err(BootstrapError::Response { path: path.clone(), code });
    let mut code = 0;
    for _ in 0..ATTEMPTS {
        let existing = find(chain, resource, namespace, name).await?;
        let write = match existing.map(|existing| reconcile(&existing, expected)) {
            Some(Reconciled::Unchanged) => return Ok(()),
            Some(Reconciled::Update(object)) => ("PUT", path.as_str(), object.to_string()),
            Some(Reconciled::Recreate) => ("DELETE", path.as_str(), String::new()),
            None => ("POST", collection.as_str(), expected.to_string()),
        };
        let (method, target, body) = write;
        code = send(chain, method, target, "application/json", body).await?;
        match code {
            // After a delete it is created.
            200..300 if method != "DELETE" => return Ok(()),
            200..300 | 404 | 409 => {}
            code => return failed(code),
        }
    }
    failed(code)
}

async fn find(
    chain: &Chain,
    resource: &str,
    namespace: &str,
    name: &str,
) -> Result<Option<Value>, BootstrapError> {
    let objects = &chain.cluster().objects;
    let kinds = objects.registry.kinds();
    let failed = |message: String| BootstrapError::Policy(message);
    let kind =
        kinds.get(GROUP, "v1", resource).ok_or_else(|| failed(format!("{resource} are not served")))?;
    match objects.find(kind, namespace, name).await {
        Ok(None) => Ok(None),
        Ok(Some(found)) => kind.read(&found).await.map(Some).map_err(|status| failed(status.message)),
        Err(status) => Err(failed(status.message)),
    }
}
