//! Rewriting of stored objects that would be encrypted otherwise now: under a new key, for the first time, or in clear.
//!
//! Objects are replaced one by one if they have not changed meanwhile, so that servers may go on writing. An interrupted
//! run continues where it was: what is rewritten is no longer stale.

use std::sync::Arc;

use orlop_api::status::Status;
use orlop_store::{KeyRange, KeyValue, Put, Read, Select, Transformer, Txn};

use crate::{
    cluster::Cluster,
    definition_controllers,
    registry::{Found, Kind},
    storage::status_from_store_error,
};

/// Keys read at a time.
const PAGE_KEYS: usize = 512;
/// Attempts at an object that others write too.
const ATTEMPTS: usize = 64;

/// State of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Resource that is being looked at, as `resource.group`.
    pub resource: String,
    /// Objects looked at.
    pub seen: u64,
    /// Objects to look at.
    pub total: u64,
    /// Objects that were written again.
    pub rewritten: u64,
    /// Storage keys of objects that could not be read or written, with the reason.
    pub failed: Vec<(String, String)>,
}

/// Rewrites all stale objects of the resources that a transformer covers. Tells `report` of each object.
pub async fn rekey(
    cluster: &Arc<Cluster>,
    transformer: &dyn Transformer,
    mut report: impl FnMut(&Progress),
) -> Result<Progress, Status> {
    // Custom kinds are known by their definitions.
    definition_controllers::start(cluster).await?;
    let objects = &cluster.objects;
    let kinds = objects.registry.kinds();
    let covered = |kind: &&Arc<Kind>| {
        let is_stored = kind.storage.is_own() && kind.storage.remote_server().is_none();
        is_stored && transformer.covers(objects.collection(kind, "").as_bytes())
    };
    let mut kinds: Vec<&Arc<Kind>> = kinds.iter().filter(covered).collect();
    // Versions of a kind share their objects.
    kinds.dedup_by_key(|kind| kind.key_prefix());
    let mut progress = Progress::default();
    for kind in &kinds {
        let count = Read::count(KeyRange::prefix(objects.collection(kind, "")));
        let count = objects.store.read(count).await.map_err(|error| status_from_store_error(&error))?;
        progress.total += count.count.unwrap_or(0);
    }
    for kind in kinds {
        progress.resource = kind.group_resource().to_string();
        rekey_kind(cluster, kind, &mut progress, &mut report).await?;
    }
    Ok(progress)
}

async fn rekey_kind(
    cluster: &Cluster,
    kind: &Kind,
    progress: &mut Progress,
    report: &mut impl FnMut(&Progress),
) -> Result<(), Status> {
    let store = &cluster.objects.store;
    let mut rest = KeyRange::prefix(cluster.objects.collection(kind, ""));
    loop {
        let keys = Read { select: Select::Keys, limit: PAGE_KEYS, ..Read::new(rest.clone()) };
        let page = store.read(keys).await.map_err(|error| status_from_store_error(&error))?;
        for kv in &page.kvs {
            match rekey_object(cluster, kind, kv).await {
                Ok(rewritten) => progress.rewritten += u64::from(rewritten),
                Err(status) => {
                    let key = String::from_utf8_lossy(&kv.key).into_owned();
                    progress.failed.push((key, status.message));
                }
            }
            progress.seen += 1;
            report(progress);
        }
        match page.kvs.last() {
            Some(last) if page.more => rest = rest.after(&last.key),
            _ => return Ok(()),
        }
    }
}

/// Writes an object again if it is stale. Returns true if it was.
async fn rekey_object(cluster: &Cluster, kind: &Kind, listed: &KeyValue) -> Result<bool, Status> {
    let store = &cluster.objects.store;
    let read = store.read(Read::new(KeyRange::key(listed.key.clone()))).await;
    let mut current = read.map_err(|error| status_from_store_error(&error))?.kvs.into_iter().next();
    for _ in 0..ATTEMPTS {
        // Deleted or written by others meanwhile.
        let Some(kv) = current.take().filter(|kv| kv.stale) else { return Ok(false) };
        let object = kind.read(&Found::from(kv.clone())).await?;
        let encoded = kind.write(&object).await?;
        let put = Put { terms: encoded.terms, keep_lease: true, ..Put::new(kv.key.clone(), encoded.bytes) };
        let result = cluster.commit(kind, Txn::replace(put, kv.revision)).await?;
        if result.succeeded {
            return Ok(true);
        }
        current = result.found().cloned();
    }
    Err(Status::conflict_modified(&kind.group_resource(), &String::from_utf8_lossy(&listed.key)))
}
