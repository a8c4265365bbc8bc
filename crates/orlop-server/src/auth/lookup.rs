//! Objects of a cluster that credentials depend on.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use orlop_api::status::Status;
use orlop_auth::lookup::{ObjectChanges, ObjectLookup, Observation, Resource};
use orlop_store::{KeyRange, Op, Txn, Watch};
use serde_json::Value;

use crate::{registry::Kind, storage::ObjectStore};

/// Resources of objects that credentials depend on.
const RESOURCES: [Resource; 4] =
    [Resource::Nodes, Resource::Pods, Resource::Secrets, Resource::ServiceAccounts];
/// Pause before a watch that failed begins again.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// Records what other servers of the cluster write, for ever. What this one writes it records itself, at once.
pub(crate) async fn follow(objects: Arc<ObjectStore>, changes: Arc<ObjectChanges>) {
    let follow = |resource| follow_resource(&objects, &changes, resource);
    futures_util::future::join_all(RESOURCES.map(follow)).await;
}

async fn follow_resource(objects: &ObjectStore, changes: &ObjectChanges, resource: Resource) {
    loop {
        let collection = {
            let kinds = objects.registry.kinds();
            kinds.get("", "v1", resource.as_str()).map(|kind| objects.collection(kind, ""))
        };
        let Some(collection) = collection else { return };
        match objects.store.watch(Watch::new(KeyRange::prefix(collection))).await {
            Ok(mut watcher) => {
                // Nobody watched before.
                changes.record_all();
                while let Ok(batch) = watcher.next().await {
                    batch.events().for_each(|seen| changes.record(&seen.event.kv.key));
                }
            }
            Err(error) => tracing::warn!(%error, resource = resource.as_str(), "cannot watch credentials"),
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}

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
