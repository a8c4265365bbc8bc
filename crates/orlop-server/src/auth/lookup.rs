//! Objects of a cluster that credentials depend on.

use std::sync::Arc;

use async_trait::async_trait;
use orlop_api::status::Status;
use orlop_auth::lookup::{ObjectChanges, ObjectLookup, Observation, Resource};
use orlop_store::{Op, Txn};
use serde_json::Value;

use crate::{registry::Kind, storage::ObjectStore};

/// Reads objects from the store.
#[derive(Debug)]
pub(crate) struct ClusterObjects {
    objects: Arc<ObjectStore>,
    changes: Arc<ObjectChanges>,
}

impl ClusterObjects {
    pub(crate) fn new(objects: Arc<ObjectStore>, changes: Arc<ObjectChanges>) -> Self {
        Self { objects, changes }
    }
}

#[async_trait]
impl ObjectLookup for ClusterObjects {
    async fn get(&self, resource: Resource, namespace: &str, name: &str) -> Result<Option<Value>, Status> {
        let kinds = self.objects.registry.kinds();
        let Some(kind) = kinds.get("", "v1", resource.as_str()) else { return Ok(None) };
        match self.objects.find(kind, namespace, name).await? {
            Some(found) => kind.read(&found).await.map(Some),
            None => Ok(None),
        }
    }

    fn observe(&self, resource: Resource, namespace: &str, name: &str) -> Observation {
        let kinds = self.objects.registry.kinds();
        let kind = kinds.get("", "v1", resource.as_str());
        let key = kind.map(|kind| self.objects.key(kind, namespace, name)).unwrap_or_default();
        self.changes.observe(key.as_bytes())
    }
}

/// Returns the keys that a transaction writes, if credentials may depend on objects of the kind.
pub(crate) fn keys_of_credentials(kind: &Kind, txn: &Txn) -> Vec<Vec<u8>> {
    let resource = kind.resource.as_str();
    if !kind.gvk.group.is_empty() || !matches!(resource, "nodes" | "pods" | "secrets" | "serviceaccounts") {
        return Vec::new();
    }
    let key = |op: &Op| match op {
        Op::Put(put) => Some(put.key.to_vec()),
        Op::Delete(delete) => Some(delete.range.start().to_vec()),
        _ => None,
    };
    txn.then.iter().filter_map(key).collect()
}
