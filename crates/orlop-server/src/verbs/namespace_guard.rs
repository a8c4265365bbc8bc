//! What must still be so when a new object is written: its namespace is there, and is not on its way out.
//!
//! A namespace that was open when it was last looked at is not looked at again: the write compares its
//! revision, and only if that fails is there anything to find out.

use orlop_api::status::Status;
use orlop_store::{Compare, Comparison, KeyRange, Revision, Target};

use super::Request;
use crate::{cluster::is_terminating, registry::Kind};

/// The condition of a write, if it is known without looking.
pub(super) fn recall(request: &Request) -> Option<Compare> {
    let revision = request.cluster.open_namespace(&request.about.namespace)?;
    let kinds = request.cluster.registry.kinds();
    let kind = kinds.get("", "v1", "namespaces").filter(|_| request.kind.namespaced)?;
    Some(unchanged(request, kind, revision))
}

/// Looks whether the namespace takes new objects; the condition that it still does.
pub(super) async fn look(request: &Request, name: &str) -> Result<Option<Compare>, Status> {
    let (cluster, namespace) = (&request.cluster, &request.about.namespace);
    if !request.kind.namespaced {
        return Ok(None);
    }
    let kinds = cluster.registry.kinds();
    let Some(kind) = kinds.get("", "v1", "namespaces") else { return Ok(None) };
    cluster.remember_namespace(namespace, None);
    let found = cluster.get(kind, "", namespace).await?;
    // Most namespaces are not terminating, and telling that needs no decoding.
    const MARK: &[u8] = b"\"deletionTimestamp\"";
    if found.bytes.windows(MARK.len()).any(|window| window == MARK) && is_terminating(&found.as_stored()?) {
        let why =
            format!("unable to create new content in namespace {namespace} because it is being terminated");
        let message = format!("namespace {namespace} is being terminated");
        return Err(Status::forbidden(&request.kind.group_resource(), name, &why).with_cause(
            "NamespaceTerminating",
            message,
            "metadata.namespace",
        ));
    }
    cluster.remember_namespace(namespace, Some(found.revision));
    Ok(Some(unchanged(request, kind, found.revision)))
}

fn unchanged(request: &Request, namespaces: &Kind, revision: Revision) -> Compare {
    let key = request.cluster.key(namespaces, "", &request.about.namespace);
    Compare::new(KeyRange::key(key), Comparison::Equal, Target::Revision(revision))
}
