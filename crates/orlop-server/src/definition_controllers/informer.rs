//! Informer of definitions: keeps the kinds in the registry equal to the definitions in the store.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    time::Duration,
};

use orlop_api::status::Status;
use orlop_store::{KeyRange, KeyValue, Read, Revision, Watch, Watcher};

use super::{finalizer, naming};
use crate::{
    cluster::Cluster,
    definitions::{ServedDefinition, key},
    registry::{Found, Kind, Kinds, index::terms_of},
    storage::status_from_store_error,
};

/// Definitions per page: some are very long.
const PAGE: usize = 64;
/// Pause before definitions are listed again after an error.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// Serves all definitions, and watches them until the cluster is closed.
pub(crate) async fn start(cluster: &Arc<Cluster>) -> Result<(), Status> {
    let watcher = list(cluster).await?;
    let closing = cluster.closing();
    let informer = watch(Arc::downgrade(cluster), watcher);
    tokio::spawn(async move {
        tokio::select! {
            () = informer => {}
            () = closing => {}
        }
    });
    Ok(())
}

async fn watch(cluster: Weak<Cluster>, mut watcher: Watcher) {
    loop {
        let batch = watcher.next().await;
        let Some(cluster) = cluster.upgrade() else { return };
        match batch {
            Ok(batch) => {
                let prefix = key(&cluster.objects, "").len();
                let changes = batch.events().map(|seen| {
                    let kv = &seen.event.kv;
                    let name = String::from_utf8_lossy(kv.key.get(prefix..).unwrap_or_default()).into_owned();
                    (name, (!seen.event.deleted).then(|| kv.clone()))
                });
                let changes: BTreeMap<_, _> = changes.collect();
                apply(&cluster, changes, batch.revision()).await;
            }
            Err(error) => {
                tracing::warn!(%error, "definition watch failed, listing again");
                watcher = loop {
                    match list(&cluster).await {
                        Ok(watcher) => break watcher,
                        Err(status) => tracing::warn!(message = status.message, "cannot list definitions"),
                    }
                    tokio::time::sleep(RETRY_PAUSE).await;
                };
            }
        }
    }
}

/// Serves all definitions, and only those. Returns a watch from that revision on.
async fn list(cluster: &Arc<Cluster>) -> Result<Watcher, Status> {
    let all = KeyRange::prefix(key(&cluster.objects, ""));
    let prefix = key(&cluster.objects, "").len();
    let mut rest = all.clone();
    let mut gone: Vec<String> =
        cluster.definitions.change(|definitions| definitions.keys().cloned().collect());
    let mut revision = None;
    loop {
        let read = Read { limit: PAGE, revision, ..Read::new(rest.clone()) };
        let page = cluster.objects.store.read(read).await.map_err(|error| status_from_store_error(&error))?;
        let at = *revision.get_or_insert(page.revision);
        let last = page.kvs.last().map(|kv| kv.key.clone());
        let named = page.kvs.into_iter().map(|kv| {
            (String::from_utf8_lossy(kv.key.get(prefix..).unwrap_or_default()).into_owned(), Some(kv))
        });
        let mut changes: BTreeMap<_, _> = named.collect();
        gone.retain(|name| !changes.contains_key(name));
        match last {
            Some(last) if page.more => rest = rest.after(&last),
            _ => {
                changes.extend(gone.into_iter().map(|name| (name, None)));
                apply(cluster, changes, at).await;
                let watch = Watch::new(all).after(at);
                return cluster
                    .objects
                    .store
                    .watch(watch)
                    .await
                    .map_err(|error| status_from_store_error(&error));
            }
        }
        apply(cluster, changes, 0).await;
    }
}

/// Serves changed definitions; `None` for a deleted one. `revision` is what is served afterwards; 0 for none yet.
async fn apply(cluster: &Arc<Cluster>, changes: BTreeMap<String, Option<KeyValue>>, revision: Revision) {
    let mut groups = Vec::new();
    let mut present = Vec::new();
    let (mut old_kinds, mut new_kinds) = (Vec::new(), Vec::new());
    cluster.definitions.change(|definitions| {
        for (name, kv) in changes {
            let before = definitions.remove(&name);
            let after = kv.and_then(|kv| {
                let read = ServedDefinition::of(&cluster.objects, kv, before.as_deref());
                // Only another program can have written an unreadable one: it is not served.
                read.inspect_err(|error| tracing::warn!(name, error, "cannot serve definition")).ok()
            });
            old_kinds.extend(before.iter().flat_map(|served| served.offered().cloned()));
            if let Some(before) = &before
                && after.as_ref().is_none_or(|after| names_of(after) != names_of(before))
            {
                groups.push(before.definition.group.clone());
            }
            if let Some(after) = after.map(Arc::new) {
                new_kinds.extend(after.offered().cloned());
                definitions.insert(name, after.clone());
                present.push(after);
            }
        }
    });
    replace(cluster, &old_kinds, &new_kinds);
    for served in &present {
        declare_index(cluster, served).await;
    }
    present.iter().filter(|served| served.finalizing).for_each(|served| finalizer::start(cluster, served));
    if revision > 0 {
        cluster.definitions.set_synced(revision);
    }
    for group in groups {
        let conflicting = cluster.definitions.with_name_conflicts(&group);
        if !conflicting.is_empty() {
            tokio::spawn(naming::resync(cluster.clone(), conflicting));
        }
    }
}

fn names_of(served: &ServedDefinition) -> &orlop_crd::Names {
    &served.definition.accepted_names
}

/// Replaces kinds in the registry, and retires those that are removed.
fn replace(cluster: &Cluster, old: &[Arc<Kind>], new: &[Arc<Kind>]) {
    let same = |kind: &Arc<Kind>, among: &[Arc<Kind>]| among.iter().any(|other| Arc::ptr_eq(kind, other));
    let gone: Vec<&Arc<Kind>> = old.iter().filter(|kind| !same(kind, new)).collect();
    let came: Vec<&Arc<Kind>> = new.iter().filter(|kind| !same(kind, old)).collect();
    if gone.is_empty() && came.is_empty() {
        return;
    }
    // A definition cannot replace a built-in kind.
    let is_built_in = |kinds: &Kinds, kind: &Kind| {
        let present = kinds.get(&kind.gvk.group, &kind.gvk.version, &kind.resource);
        present.is_some_and(|present| !present.flags.custom)
    };
    cluster.objects.registry.change(|kinds| {
        for kind in gone.iter().filter(|kind| !is_built_in(kinds, kind)).copied().collect::<Vec<_>>() {
            kinds.remove(&kind.gvk.group, &kind.gvk.version, &kind.resource);
        }
        for kind in came.iter().filter(|kind| !is_built_in(kinds, kind)).copied().collect::<Vec<_>>() {
            kinds.insert(kind.clone());
        }
    });
    gone.iter().for_each(|kind| kind.retirement.retire());
}

/// Backfills the index of a kind's objects for its selectable fields. Most kinds have none, and cost nothing.
async fn declare_index(cluster: &Cluster, served: &ServedDefinition) {
    let Some(kind) = served.stored_kind().filter(|kind| !kind.selectable_fields.is_empty()) else { return };
    let range = KeyRange::prefix(cluster.objects.collection(kind, ""));
    // By generation: a field that was removed and came back missed what was written in between.
    let declaration = format!("{}/{}", served.definition.uid, served.generation);
    let declared = cluster.objects.store.declare_index(range, &declaration, |kv| {
        terms_of(kind, &Found::from(kv.clone()).as_stored().unwrap_or_default())
    });
    if let Err(error) = declared.await {
        tracing::warn!(%error, resource = %kind.group_resource(), "cannot backfill the index");
    }
}
