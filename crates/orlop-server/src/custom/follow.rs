//! Following definitions: what the store has of them is what the registry serves.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    time::Duration,
};

use orlop_api::status::Status;
use orlop_store::{KeyRange, KeyValue, Read, Revision, Watch, Watcher};

use super::{cleanup, key, names, served::Served};
use crate::{
    cluster::{Cluster, Found, trouble},
    registry::{Kind, Kinds},
    selection::terms_of,
};

/// Definitions read at once: some are very long.
const PAGE: usize = 64;
/// How long to wait before trying again where the store does not answer.
const PAUSE: Duration = Duration::from_millis(500);

/// Serves every definition that there is, and follows them from then on until the cluster is closed.
pub(crate) async fn start(cluster: &Arc<Cluster>) -> Result<(), Status> {
    let watcher = load(cluster).await?;
    let closing = cluster.closing();
    let follower = follow(Arc::downgrade(cluster), watcher);
    tokio::spawn(async move {
        tokio::select! {
            () = follower => {}
            () = closing => {}
        }
    });
    Ok(())
}

async fn follow(cluster: Weak<Cluster>, mut watcher: Watcher) {
    loop {
        let batch = watcher.next().await;
        let Some(cluster) = cluster.upgrade() else { return };
        match batch {
            Ok(batch) => {
                let prefix = key(&cluster, "").len();
                let changes = batch.events().map(|seen| {
                    let kv = &seen.event.kv;
                    let name = String::from_utf8_lossy(kv.key.get(prefix..).unwrap_or_default()).into_owned();
                    (name, (!seen.event.deleted).then(|| kv.clone()))
                });
                let changes: BTreeMap<_, _> = changes.collect();
                apply(&cluster, changes, batch.revision()).await;
            }
            Err(error) => {
                tracing::warn!(%error, "definitions are read anew");
                watcher = loop {
                    match load(&cluster).await {
                        Ok(watcher) => break watcher,
                        Err(status) => tracing::warn!(message = status.message, "cannot read definitions"),
                    }
                    tokio::time::sleep(PAUSE).await;
                };
            }
        }
    }
}

/// Serves every definition that there is, and only those; a watch of what happens to them afterwards.
async fn load(cluster: &Arc<Cluster>) -> Result<Watcher, Status> {
    let all = KeyRange::prefix(key(cluster, ""));
    let prefix = key(cluster, "").len();
    let mut rest = all.clone();
    let mut gone: Vec<String> = cluster.custom.change(|definitions| definitions.keys().cloned().collect());
    let mut revision = None;
    loop {
        let read = Read { limit: PAGE, revision, ..Read::new(rest.clone()) };
        let page = cluster.store.read(read).await.map_err(|error| trouble(&error))?;
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
                return cluster.store.watch(watch).await.map_err(|error| trouble(&error));
            }
        }
        apply(cluster, changes, 0).await;
    }
}

/// Serves what definitions have become: a key and value for each that is there, none for one that went.
async fn apply(cluster: &Arc<Cluster>, changes: BTreeMap<String, Option<KeyValue>>, reached: Revision) {
    let mut groups = Vec::new();
    let mut present = Vec::new();
    let (mut old_kinds, mut new_kinds) = (Vec::new(), Vec::new());
    cluster.custom.change(|definitions| {
        for (name, kv) in changes {
            let before = definitions.remove(&name);
            let after = kv.and_then(|kv| {
                let read = Served::of(cluster, kv, before.as_deref());
                // Only what another program wrote can be unreadable: it is not served.
                read.inspect_err(|error| tracing::warn!(name, error, "a definition cannot be served")).ok()
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
    present.iter().filter(|served| served.ending).for_each(|served| cleanup::begin(cluster, served));
    if reached > 0 {
        cluster.custom.reached.send_modify(|known| *known = (*known).max(Some(reached)));
    }
    for group in groups {
        let waiting = cluster.custom.waiting(&group);
        if !waiting.is_empty() {
            tokio::spawn(names::look_again(cluster.clone(), waiting));
        }
    }
}

fn names_of(served: &Served) -> &orlop_crd::Names {
    &served.definition.accepted_names
}

/// Puts kinds into the registry in the place of others, and ends what hangs on those that are gone.
fn replace(cluster: &Cluster, old: &[Arc<Kind>], new: &[Arc<Kind>]) {
    let same = |kind: &Arc<Kind>, among: &[Arc<Kind>]| among.iter().any(|other| Arc::ptr_eq(kind, other));
    let gone: Vec<&Arc<Kind>> = old.iter().filter(|kind| !same(kind, new)).collect();
    let came: Vec<&Arc<Kind>> = new.iter().filter(|kind| !same(kind, old)).collect();
    if gone.is_empty() && came.is_empty() {
        return;
    }
    // Built-in kinds cannot be taken over.
    let is_built_in = |kinds: &Kinds, kind: &Kind| {
        let present = kinds.get(&kind.gvk.group, &kind.gvk.version, &kind.resource);
        present.is_some_and(|present| !present.rules.custom)
    };
    cluster.registry.change(|kinds| {
        for kind in gone.iter().filter(|kind| !is_built_in(kinds, kind)).copied().collect::<Vec<_>>() {
            kinds.remove(&kind.gvk.group, &kind.gvk.version, &kind.resource);
        }
        for kind in came.iter().filter(|kind| !is_built_in(kinds, kind)).copied().collect::<Vec<_>>() {
            kinds.insert(kind.clone());
        }
    });
    gone.iter().for_each(|kind| kind.retirement.retire());
}

/// Brings the index of a kind's objects up to date with the fields that selectors may name. Most kinds have
/// none, and cost nothing.
async fn declare_index(cluster: &Cluster, served: &Served) {
    let Some(kind) = served.stored_kind().filter(|kind| !kind.rules.selectable.is_empty()) else { return };
    let range = KeyRange::prefix(cluster.collection(kind, ""));
    // Every change counts: fields that went and came back missed what was written meanwhile.
    let declaration = format!("{}/{}", served.definition.uid, served.generation);
    let declared = cluster.store.declare_index(range, &declaration, |kv| {
        terms_of(kind, &Found::from(kv.clone()).as_stored().unwrap_or_default())
    });
    if let Err(error) = declared.await {
        tracing::warn!(%error, resource = %kind.group_resource(), "cannot bring the index up to date");
    }
}
