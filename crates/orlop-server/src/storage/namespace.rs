//! Precondition of creates in a namespace: it exists and is not terminating.
//!
//! A namespace that was active when it was last read is not read again: the write compares its revision,
//! and only a failed compare needs another read.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use orlop_api::status::Status;
use orlop_store::{Compare, Comparison, KeyRange, Revision, Target};

use super::ObjectStore;
use crate::{object::is_terminating, registry::Kind};

/// Namespaces that the cache holds.
const CACHED_MAX: usize = 1024;

/// Revisions at which namespaces were last seen active.
#[derive(Debug, Default)]
pub(super) struct ActiveNamespaces(Mutex<HashMap<String, Revision>>);

impl ActiveNamespaces {
    fn get(&self, namespace: &str) -> Option<Revision> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(namespace).copied()
    }

    fn forget(&self, namespace: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(namespace);
    }

    fn insert(&self, namespace: &str, revision: Revision) {
        let mut cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if cached.len() >= CACHED_MAX {
            cached.clear();
        }
        cached.insert(namespace.to_owned(), revision);
    }
}

/// Returns the precondition from the cache, without a read.
pub(crate) fn cached(objects: &ObjectStore, kind: &Kind, namespace: &str) -> Option<Compare> {
    let revision = objects.namespaces.get(namespace)?;
    let kinds = objects.registry.kinds();
    let namespaces = kinds.get("", "v1", "namespaces").filter(|_| kind.namespaced)?;
    Some(unchanged(objects, namespaces, namespace, revision))
}

/// Reads the namespace and returns the precondition; Forbidden if it is terminating. `name` is that of the
/// object to create.
pub(crate) async fn read(
    objects: &ObjectStore,
    kind: &Kind,
    namespace: &str,
    name: &str,
) -> Result<Option<Compare>, Status> {
    if !kind.namespaced {
        return Ok(None);
    }
    let kinds = objects.registry.kinds();
    let Some(namespaces) = kinds.get("", "v1", "namespaces") else { return Ok(None) };
    objects.namespaces.forget(namespace);
    let found = objects.get(namespaces, "", namespace).await?;
    // Most namespaces have no such field, and finding that out needs no decoding.
    const FIELD: &[u8] = b"\"deletionTimestamp\"";
    if found.bytes.windows(FIELD.len()).any(|window| window == FIELD) && is_terminating(&found.as_stored()?) {
        let why =
            format!("unable to create new content in namespace {namespace} because it is being terminated");
        let message = format!("namespace {namespace} is being terminated");
        return Err(Status::forbidden(&kind.group_resource(), name, &why).with_cause(
            "NamespaceTerminating",
            message,
            "metadata.namespace",
        ));
    }
    objects.namespaces.insert(namespace, found.revision);
    Ok(Some(unchanged(objects, namespaces, namespace, found.revision)))
}

fn unchanged(objects: &ObjectStore, namespaces: &Kind, namespace: &str, revision: Revision) -> Compare {
    let key = objects.key(namespaces, "", namespace);
    Compare::new(KeyRange::key(key), Comparison::Equal, Target::Revision(revision))
}
