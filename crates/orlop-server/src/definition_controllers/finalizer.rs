//! Finalizer of definitions: deletes all objects of a terminating definition, then the definition.

use std::{sync::Arc, time::Duration};

use orlop_api::{object_meta, status::Status};
use orlop_kinds::apiextensions::{FINALIZER, is_finalizing, set_terminating};
use orlop_store::{Compare, Comparison, Delete, KeyRange, Op, Put, Read, Select, Target, Txn, Watch};
use serde_json::Value;

use super::{definition_request, request};
use crate::{
    cluster::Cluster,
    definitions::{ServedDefinition, key, names},
    endpoints::{delete, update},
    object::now,
    registry::{Encoded, Kind},
    storage::status_from_store_error,
};

/// Time that objects may wait for their finalizers before the condition says so.
const FINALIZERS_TIMEOUT: Duration = Duration::from_secs(60);
/// Pause before a retry.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Finalizes a definition in the background, unless this process does already.
pub(super) fn start(cluster: &Arc<Cluster>, served: &Arc<ServedDefinition>) {
    let uid = served.definition.uid.clone();
    if !cluster.definitions.begin_finalizing(&uid) {
        return;
    }
    let (cluster, served, closing) = (cluster.clone(), served.clone(), cluster.closing());
    tokio::spawn(async move {
        tokio::select! {
            () = finalize(&cluster, &served) => {}
            () = closing => {}
        }
        cluster.definitions.end_finalizing(&uid);
    });
}

async fn finalize(cluster: &Arc<Cluster>, served: &ServedDefinition) {
    let name = &served.definition.name;
    loop {
        let why = match attempt(cluster, served).await {
            Ok(()) => return,
            // Somebody else removed the finalizer.
            Err(status) if status.code == 404 => return,
            Err(status) => format!("could not issue all deletes: {}", status.message),
        };
        tracing::warn!(name, why, "cannot finalize definition");
        let _ = set_status(cluster, served, "InstanceDeletionFailed", &why).await;
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}

async fn attempt(cluster: &Arc<Cluster>, served: &ServedDefinition) -> Result<(), Status> {
    set_status(cluster, served, "InstanceDeletionInProgress", "CustomResource deletion is in progress")
        .await?;
    match served.stored_kind().filter(|_| served.definition.is_established()) {
        None => finish(cluster, served, None, "NeverEstablished", "resource was never established").await,
        // Objects of a built-in kind are not this definition's.
        Some(kind) if is_shadowed(cluster, kind) => {
            let why = "instances overlap with built-in resources in storage";
            finish(cluster, served, None, "OverlappingBuiltInResource", why).await
        }
        Some(kind) => {
            delete_objects(cluster, kind, served).await?;
            finish(cluster, served, Some(kind), "InstanceDeletionCompleted", "removed all instances").await
        }
    }
}

fn is_shadowed(cluster: &Cluster, kind: &Kind) -> bool {
    let kinds = cluster.objects.registry.kinds();
    let present = kinds.get(&kind.gvk.group, &kind.gvk.version, &kind.resource);
    present.is_some_and(|present| !present.flags.custom)
}

/// Returns NotFound unless the definition is still the one being finalized: it may have been deleted or lost
/// its finalizer, and a new one of the same name may exist.
fn check(kind: &Kind, served: &ServedDefinition, object: &Value) -> Result<(), Status> {
    let same = object_meta::text(object_meta::of(object), "uid") == served.definition.uid;
    match same && is_finalizing(object) {
        true => Ok(()),
        false => Err(Status::not_found(&kind.group_resource(), &served.definition.name)),
    }
}

/// Writes the Terminating condition.
async fn set_status(
    cluster: &Arc<Cluster>,
    served: &ServedDefinition,
    reason: &str,
    message: &str,
) -> Result<(), Status> {
    let Some(request) = definition_request(cluster, &served.definition.name) else { return Ok(()) };
    loop {
        let written = update::change(&request, false, |old| {
            check(&request.kind, served, old)?;
            let mut object = old.clone();
            set_terminating(&mut object, "True", reason, message, now());
            Ok(object)
        });
        match written.await {
            Ok(_) => return Ok(()),
            // Lost a race to another writer.
            Err(status) if status.code == 409 => {}
            Err(status) => return Err(status),
        }
    }
}

/// Deletes all objects, and waits until the last is removed.
async fn delete_objects(
    cluster: &Arc<Cluster>,
    kind: &Arc<Kind>,
    served: &ServedDefinition,
) -> Result<(), Status> {
    let is_same =
        |present: &ServedDefinition| present.finalizing && present.create_revision == served.create_revision;
    let prefix = cluster.objects.collection(kind, "");
    let range = KeyRange::prefix(prefix.clone());
    loop {
        let read = Read { select: Select::Keys, ..Read::new(range.clone()) };
        let found =
            cluster.objects.store.read(read).await.map_err(|error| status_from_store_error(&error))?;
        if found.kvs.is_empty() {
            return Ok(());
        }
        let watch = Watch::new(range.clone()).after(found.revision);
        let mut watcher =
            cluster.objects.store.watch(watch).await.map_err(|error| status_from_store_error(&error))?;
        for kv in &found.kvs {
            if !cluster.definitions.get(&served.definition.name).is_some_and(|present| is_same(&present)) {
                return Err(Status::not_found(&kind.group_resource(), &served.definition.name));
            }
            let rest = String::from_utf8_lossy(kv.key.get(prefix.len()..).unwrap_or_default());
            let (namespace, object) = rest.split_once('/').unwrap_or(("", &rest));
            let request = request(cluster, kind.clone(), namespace, object);
            match delete::delete_named(&request, &delete::DeleteOptions::default(), namespace, object).await {
                Ok(_) => {}
                Err(status) if status.code == 404 => {}
                Err(status) => return Err(status),
            }
        }
        if is_empty(cluster, &range).await? {
            return Ok(());
        }
        // The rest wait for finalizers. Each event may be the last deletion.
        while !is_empty(cluster, &range).await? {
            match tokio::time::timeout(FINALIZERS_TIMEOUT, watcher.next()).await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => return Err(status_from_store_error(&error)),
                Err(_) => {
                    let why = "could not confirm zero CustomResources remaining: \
                               timed out waiting for the condition";
                    set_status(cluster, served, "InstanceDeletionCheck", why).await?;
                    break;
                }
            }
        }
    }
}

async fn is_empty(cluster: &Cluster, range: &KeyRange) -> Result<bool, Status> {
    let read = Read { select: Select::Keys, limit: 1, ..Read::new(range.clone()) };
    Ok(cluster
        .objects
        .store
        .read(read)
        .await
        .map_err(|error| status_from_store_error(&error))?
        .kvs
        .is_empty())
}

/// Removes the finalizer, and the definition unless it has others. The transaction compares that there is
/// still no object: one created meanwhile must not be left behind.
async fn finish(
    cluster: &Arc<Cluster>,
    served: &ServedDefinition,
    kind: Option<&Arc<Kind>>,
    reason: &str,
    message: &str,
) -> Result<(), Status> {
    let name = served.definition.name.as_str();
    let Some(request) = definition_request(cluster, name) else { return Ok(()) };
    let found = cluster.objects.get(&request.kind, "", name).await?;
    let mut object = request.kind.read(&found).await?;
    check(&request.kind, served, &object)?;
    if let Some(list) = object["metadata"]["finalizers"].as_array_mut() {
        list.retain(|finalizer| finalizer != FINALIZER);
    }
    set_terminating(&mut object, "False", reason, message, now());
    let key = key(&cluster.objects, name);
    let range = KeyRange::key(key.clone());
    let others = object["metadata"]["finalizers"].as_array().is_some_and(|list| !list.is_empty());
    let then = if others {
        let Encoded { bytes, terms } = request.kind.write(&object).await?;
        vec![Op::Put(Put { terms, ..Put::new(key, bytes) })]
    } else {
        let mut ops = names::release(&cluster.objects, &object);
        ops.push(Op::Delete(Delete { range: range.clone(), previous: false }));
        ops
    };
    let mut compares = vec![Compare::new(range, Comparison::Equal, Target::Revision(found.revision))];
    if let Some(kind) = kind {
        let objects = KeyRange::prefix(cluster.objects.collection(kind, ""));
        compares.push(Compare::new(objects, Comparison::Equal, Target::Revision(0)));
    }
    let result = cluster.commit(&request.kind, Txn { compares, then, otherwise: Vec::new() }).await?;
    match result.succeeded {
        true => Ok(()),
        false => Err(Status::conflict_modified(&request.kind.group_resource(), name)),
    }
}
