//! How a definition ends: its objects are deleted, as their finalizers allow, and then it goes.

use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};

use orlop_api::{object_meta, status::Status};
use orlop_store::{Compare, Comparison, Delete, KeyRange, Op, Put, Read, Select, Target, Txn, Watch};
use serde_json::Value;

use super::{FINALIZER, crd, definition_request, key, names, request, served::Served};
use crate::{
    cluster::{Cluster, trouble},
    registry::{Encoded, Kind},
    verbs::{delete, update},
};

/// How long to wait for objects before the status says so.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long to wait before trying again where something failed.
const PAUSE: Duration = Duration::from_secs(1);

/// Begins to end a definition, unless that is under way.
pub(super) fn begin(cluster: &Arc<Cluster>, served: &Arc<Served>) {
    let uid = served.definition.uid.clone();
    if !cluster.custom.ending.lock().unwrap_or_else(PoisonError::into_inner).insert(uid.clone()) {
        return;
    }
    let (cluster, served, closing) = (cluster.clone(), served.clone(), cluster.closing());
    tokio::spawn(async move {
        tokio::select! {
            () = end(&cluster, &served) => {}
            () = closing => {}
        }
        cluster.custom.ending.lock().unwrap_or_else(PoisonError::into_inner).remove(&uid);
    });
}

async fn end(cluster: &Arc<Cluster>, served: &Served) {
    let name = &served.definition.name;
    loop {
        let why = match attempt(cluster, served).await {
            Ok(()) => return,
            // Whoever removed the finalizer takes what is left upon himself.
            Err(status) if status.code == 404 => return,
            Err(status) => format!("could not issue all deletes: {}", status.message),
        };
        tracing::warn!(name, why, "a definition cannot end yet");
        let _ = say(cluster, served, "InstanceDeletionFailed", &why).await;
        tokio::time::sleep(PAUSE).await;
    }
}

async fn attempt(cluster: &Arc<Cluster>, served: &Served) -> Result<(), Status> {
    say(cluster, served, "InstanceDeletionInProgress", "CustomResource deletion is in progress").await?;
    match served.stored_kind().filter(|_| served.definition.is_established()) {
        None => finish(cluster, served, None, "NeverEstablished", "resource was never established").await,
        // A kind that is built in keeps its objects: they were never this definition's.
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
    let kinds = cluster.registry.kinds();
    let present = kinds.get(&kind.gvk.group, &kind.gvk.version, &kind.resource);
    present.is_some_and(|present| !present.rules.custom)
}

/// Refuses to go on if the definition is no longer the one that ends: it is gone, or somebody took its
/// finalizer away, and one of the same name may have taken its place.
fn check(kind: &Kind, served: &Served, object: &Value) -> Result<(), Status> {
    let same = object_meta::text(object_meta::of(object), "uid") == served.definition.uid;
    match same && crd::is_ending(object) {
        true => Ok(()),
        false => Err(Status::not_found(&kind.group_resource(), &served.definition.name)),
    }
}

/// Writes how far it is into the status.
async fn say(cluster: &Arc<Cluster>, served: &Served, reason: &str, message: &str) -> Result<(), Status> {
    let Some(request) = definition_request(cluster, &served.definition.name) else { return Ok(()) };
    loop {
        let written = update::change(&request, false, |old| {
            check(&request.kind, served, old)?;
            let mut object = old.clone();
            crd::terminating(&mut object, "True", reason, message);
            Ok(object)
        });
        match written.await {
            Ok(_) => return Ok(()),
            // Somebody else was faster.
            Err(status) if status.code == 409 => {}
            Err(status) => return Err(status),
        }
    }
}

/// Deletes every object, and waits until the last is gone.
async fn delete_objects(cluster: &Arc<Cluster>, kind: &Arc<Kind>, served: &Served) -> Result<(), Status> {
    let is_same = |present: &Served| present.ending && present.created == served.created;
    let prefix = cluster.collection(kind, "");
    let range = KeyRange::prefix(prefix.clone());
    loop {
        let read = Read { select: Select::Keys, ..Read::new(range.clone()) };
        let found = cluster.store.read(read).await.map_err(|error| trouble(&error))?;
        if found.kvs.is_empty() {
            return Ok(());
        }
        let watch = Watch::new(range.clone()).after(found.revision);
        let mut watcher = cluster.store.watch(watch).await.map_err(|error| trouble(&error))?;
        for kv in &found.kvs {
            if !cluster.custom.get(&served.definition.name).is_some_and(|present| is_same(&present)) {
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
        // What is left waits for finalizers. Each change may have been the last.
        while !is_empty(cluster, &range).await? {
            match tokio::time::timeout(PATIENCE, watcher.next()).await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => return Err(trouble(&error)),
                Err(_) => {
                    let why = "could not confirm zero CustomResources remaining: \
                               timed out waiting for the condition";
                    say(cluster, served, "InstanceDeletionCheck", why).await?;
                    break;
                }
            }
        }
    }
}

async fn is_empty(cluster: &Cluster, range: &KeyRange) -> Result<bool, Status> {
    let read = Read { select: Select::Keys, limit: 1, ..Read::new(range.clone()) };
    Ok(cluster.store.read(read).await.map_err(|error| trouble(&error))?.kvs.is_empty())
}

/// Takes the finalizer away, and the definition with it unless there are others, if there is still no
/// object: one that was created meanwhile must not be left behind.
async fn finish(
    cluster: &Arc<Cluster>,
    served: &Served,
    kind: Option<&Arc<Kind>>,
    reason: &str,
    message: &str,
) -> Result<(), Status> {
    let name = served.definition.name.as_str();
    let Some(request) = definition_request(cluster, name) else { return Ok(()) };
    let found = cluster.get(&request.kind, "", name).await?;
    let mut object = request.kind.read(&found).await?;
    check(&request.kind, served, &object)?;
    if let Some(list) = object["metadata"]["finalizers"].as_array_mut() {
        list.retain(|finalizer| finalizer != FINALIZER);
    }
    crd::terminating(&mut object, "False", reason, message);
    let key = key(cluster, name);
    let range = KeyRange::key(key.clone());
    let others = object["metadata"]["finalizers"].as_array().is_some_and(|list| !list.is_empty());
    let then = if others {
        let Encoded { bytes, terms } = request.kind.write(&object).await?;
        vec![Op::Put(Put { terms, ..Put::new(key, bytes) })]
    } else {
        let mut ops = names::released(cluster, &object);
        ops.push(Op::Delete(Delete { range: range.clone(), previous: false }));
        ops
    };
    let mut compares = vec![Compare::new(range, Comparison::Equal, Target::Revision(found.revision))];
    if let Some(kind) = kind {
        let objects = KeyRange::prefix(cluster.collection(kind, ""));
        compares.push(Compare::new(objects, Comparison::Equal, Target::Revision(0)));
    }
    let result = cluster.commit(&request.kind, Txn { compares, then, otherwise: Vec::new() }).await?;
    match result.succeeded {
        true => Ok(()),
        false => Err(Status::conflict_modified(&request.kind.group_resource(), name)),
    }
}
