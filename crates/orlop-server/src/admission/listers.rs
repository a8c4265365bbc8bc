//! Objects for admission plugins, from the store.
//!
//! A resource that a plugin lists is loaded when it is first listed, and followed from then on. A write of it waits until
//! this process has observed it, so that it is in force when it is answered; other servers on the same database follow
//! their own watch of the store.

use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use async_trait::async_trait;
use orlop_admission::listers::{Listers, Resource, Snapshot};
use orlop_api::{
    group_version::{GroupVersionKind, GroupVersionResource},
    status::Status,
};
use orlop_store::{KeyRange, Read, Revision};
use serde_json::Value;
use tokio::sync::{OnceCell, watch};

use crate::{
    registry::{Found, Kind},
    storage::{
        ObjectStore,
        follower::{Follower, Sink},
        status_from_store_error,
    },
};

/// The objects of one cluster that admission plugins read.
#[derive(Debug)]
pub(crate) struct ClusterListers {
    objects: Arc<ObjectStore>,
    /// Resources that are followed.
    followed: ArcSwap<Vec<Arc<Followed>>>,
    /// Held while a resource is added.
    adding: Mutex<()>,
    /// True once the server shuts down.
    closing: watch::Receiver<bool>,
}

/// All objects of a resource, as they are stored.
#[derive(Debug)]
struct Followed {
    group: String,
    resource: String,
    snapshot: ArcSwap<Snapshot>,
    /// Revision up to which the snapshot is complete.
    synced: watch::Sender<Revision>,
    /// Set once the snapshot is loaded.
    loaded: OnceCell<()>,
}

impl ClusterListers {
    pub(crate) fn new(objects: Arc<ObjectStore>, closing: watch::Receiver<bool>) -> Self {
        Self { objects, followed: ArcSwap::default(), adding: Mutex::default(), closing }
    }

    /// Waits until a revision of a kind's objects is in force in this process. Objects that are not loaded will contain
    /// it. There is no time-out but the request's: a write that is not in force is not answered as if it were.
    pub(crate) async fn wait_for(&self, kind: &Kind, revision: Revision) {
        let stored = kind.stored_kind();
        let Some(followed) = self.find(&stored.gvk.group, &stored.resource) else { return };
        if !followed.loaded.initialized() {
            return;
        }
        let (mut synced, mut closing) = (followed.synced.subscribe(), self.closing.clone());
        tokio::select! {
            _ = synced.wait_for(|synced| *synced >= revision) => {}
            // Nothing follows the store any more, and nobody is served.
            _ = closing.wait_for(|closing| *closing) => {}
        }
    }

    fn find(&self, group: &str, resource: &str) -> Option<Arc<Followed>> {
        let followed = self.followed.load();
        followed.iter().find(|followed| followed.resource == resource && followed.group == group).cloned()
    }

    fn find_or_add(&self, kind: &Kind) -> Arc<Followed> {
        let _adding = self.adding.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(followed) = self.find(&kind.gvk.group, &kind.resource) {
            return followed;
        }
        let added = Arc::new(Followed {
            group: kind.gvk.group.clone(),
            resource: kind.resource.clone(),
            snapshot: ArcSwap::default(),
            synced: watch::Sender::new(0),
            loaded: OnceCell::new(),
        });
        let mut all = Vec::clone(&self.followed.load());
        all.push(added.clone());
        self.followed.store(Arc::new(all));
        added
    }

    fn kind(&self, resource: Resource<'_>) -> Option<Arc<Kind>> {
        self.objects.registry.kinds().get(resource.group, resource.version, resource.resource).cloned()
    }
}

#[async_trait]
impl Listers for ClusterListers {
    async fn get(
        &self,
        resource: Resource<'_>,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Arc<Value>>, Status> {
        let Some(kind) = self.kind(resource) else { return Ok(None) };
        match self.objects.find(&kind, namespace, name).await? {
            Some(found) => Ok(Some(Arc::new(kind.read(&found).await?))),
            None => Ok(None),
        }
    }

    async fn list(&self, resource: Resource<'_>) -> Result<Arc<Snapshot>, Status> {
        if let Some(snapshot) = self.loaded(resource) {
            return Ok(snapshot);
        }
        let Some(kind) = self.kind(resource) else { return Ok(Arc::default()) };
        let followed = self.find_or_add(kind.stored_kind());
        let load = || async {
            let prefix = self.objects.collection(&kind, "");
            let sink = SnapshotSink { followed: followed.clone(), next: Snapshot::default() };
            Follower::start(&self.objects, prefix, self.closing.clone(), sink).await.map(drop)
        };
        followed.loaded.get_or_try_init(load).await?;
        Ok(followed.snapshot.load_full())
    }

    async fn list_namespace(
        &self,
        resource: Resource<'_>,
        namespace: &str,
    ) -> Result<Vec<Arc<Value>>, Status> {
        let Some(kind) = self.kind(resource) else { return Ok(Vec::new()) };
        let all = KeyRange::prefix(self.objects.collection(&kind, namespace));
        let mut pages =
            self.objects.store.pages(Read::new(all)).map_err(|error| status_from_store_error(&error))?;
        let mut objects = Vec::new();
        while let Some(page) = pages.next().await.map_err(|error| status_from_store_error(&error))? {
            let found: Vec<Found> = page.kvs.iter().cloned().map(Found::from).collect();
            objects.extend(kind.read_all(&found).await?.into_iter().map(Arc::new));
        }
        Ok(objects)
    }

    fn loaded(&self, resource: Resource<'_>) -> Option<Arc<Snapshot>> {
        let followed = self.followed.load();
        let found = followed
            .iter()
            .find(|followed| followed.resource == resource.resource && followed.group == resource.group)?;
        found.loaded.initialized().then(|| found.snapshot.load_full())
    }

    fn resource_of(&self, group: &str, version: &str, kind: &str) -> Option<(GroupVersionResource, bool)> {
        let kinds = self.objects.registry.kinds();
        let found = kinds.serving(&GroupVersionKind::new(group, version, kind))?;
        let gvr = GroupVersionResource::new(group, &found.gvk.version, &found.resource);
        Some((gvr, found.namespaced))
    }
}

/// Makes the next snapshot, and puts it in force once it is complete.
struct SnapshotSink {
    followed: Arc<Followed>,
    next: Snapshot,
}

impl Sink for SnapshotSink {
    fn reset(&mut self) {
        self.next.clear();
    }

    fn apply(&mut self, key: &str, object: Option<&Value>) {
        self.next.apply(key, object.cloned());
    }

    fn publish(&mut self, revision: Revision) {
        self.next.at(revision);
        self.followed.snapshot.store(Arc::new(self.next.clone()));
        self.followed.synced.send_modify(|synced| *synced = (*synced).max(revision));
    }
}
