//! The aggregator: APIServices of a cluster, and the extension API servers behind them.
//!
//! The APIServices in the store are followed into an immutable catalog. A request whose path belongs to a remote one is
//! sent on by the chain, after authorization; a cluster without any pays one load of a pointer for that. What extension
//! API servers say about their resources is kept per server and merged into discovery and OpenAPI.
//!
//! `aggregation_controllers` registers the server's own group versions, checks availability and fetches documents.

mod backend;
mod catalog;
mod forward;
mod metrics;

use std::sync::Arc;

use arc_swap::ArcSwap;
use orlop_aggregator::{
    ApiService,
    api_service::{GROUP, RESOURCE},
};
use orlop_api::status::Status;
use orlop_auth::pki::Credential;
use orlop_store::Revision;
use serde_json::Value;
use tokio::sync::{OnceCell, watch};

pub(crate) use backend::{Backend, Documents, OpenApiV3, VersionDocuments};
pub(crate) use catalog::{Catalog, Remote};
pub(crate) use forward::{Received, forward};
pub(crate) use metrics::AvailabilityMetrics;

use crate::{
    registry::Kind,
    storage::{
        ObjectStore,
        follower::{Follower, Sink},
    },
};

/// The aggregator of one cluster.
#[derive(Debug)]
pub(crate) struct Aggregator {
    objects: Arc<ObjectStore>,
    catalog: ArcSwap<Catalog>,
    /// Revision up to which the catalog is complete.
    synced: watch::Sender<Revision>,
    /// Set once the catalog is loaded.
    loaded: OnceCell<()>,
    /// Client certificate towards extension API servers.
    identity: ArcSwap<Option<Credential>>,
    pub(crate) metrics: AvailabilityMetrics,
    /// True once the server shuts down.
    closing: watch::Receiver<bool>,
}

impl Aggregator {
    pub(crate) fn new(objects: Arc<ObjectStore>, closing: watch::Receiver<bool>) -> Self {
        Self {
            objects,
            catalog: ArcSwap::default(),
            synced: watch::Sender::new(0),
            loaded: OnceCell::new(),
            identity: ArcSwap::default(),
            metrics: AvailabilityMetrics::default(),
            closing,
        }
    }

    /// Loads the catalog, and follows the store from then on. Does nothing if it is loaded.
    pub(crate) async fn load(self: &Arc<Self>) -> Result<(), Status> {
        let follow = || async {
            let prefix = self.objects.own_key(&format!("{GROUP}/{RESOURCE}/"));
            let sink = CatalogSink { aggregator: self.clone(), catalog: Catalog::default(), is_dirty: true };
            Follower::start(&self.objects, prefix, self.closing.clone(), sink).await.map(drop)
        };
        self.loaded.get_or_try_init(follow).await.copied()
    }

    /// Returns the current catalog.
    pub(crate) fn catalog(&self) -> arc_swap::Guard<Arc<Catalog>> {
        self.catalog.load()
    }

    /// Returns the extension API server that a path belongs to.
    pub(crate) fn route(&self, path: &str) -> Option<Arc<Remote>> {
        let catalog = self.catalog.load();
        if catalog.has_remotes() { catalog.find(path) } else { None }
    }

    /// Returns a receiver that changes with the catalog.
    pub(crate) fn changes(&self) -> watch::Receiver<Revision> {
        self.synced.subscribe()
    }

    /// Waits until the APIServices of a revision are in force in this process.
    pub(crate) async fn wait_for(&self, revision: Revision) {
        if !self.loaded.initialized() {
            return;
        }
        let (mut synced, mut closing) = (self.synced.subscribe(), self.closing.clone());
        tokio::select! {
            _ = synced.wait_for(|synced| *synced >= revision) => {}
            _ = closing.wait_for(|closing| *closing) => {}
        }
    }

    /// Sets the client certificate towards extension API servers. Connections that are open keep theirs.
    pub(crate) fn set_identity(&self, identity: Credential) {
        self.identity.store(Arc::new(Some(identity)));
        let identity = self.identity.load();
        for backend in self.catalog.load().backends() {
            backend.set_identity(identity.as_ref().clone());
        }
    }
}

/// Returns true if a kind is APIService.
pub(crate) fn is_api_service(kind: &Kind) -> bool {
    kind.gvk.group == GROUP && kind.resource == RESOURCE
}

/// Makes the next catalog, and puts it in force once it is complete.
struct CatalogSink {
    aggregator: Arc<Aggregator>,
    catalog: Catalog,
    is_dirty: bool,
}

impl Sink for CatalogSink {
    fn reset(&mut self) {
        self.catalog.clear();
        self.is_dirty = true;
    }

    fn apply(&mut self, key: &str, object: Option<&Value>) {
        let service = object.map(|object| ApiService::parse(key, object));
        self.catalog.set(key, service, || self.aggregator.identity.load().as_ref().clone());
        self.is_dirty = true;
    }

    fn publish(&mut self, revision: Revision) {
        if std::mem::take(&mut self.is_dirty) {
            self.catalog.forget_unused();
            self.aggregator.catalog.store(Arc::new(self.catalog.clone()));
        }
        self.aggregator.synced.send_modify(|synced| *synced = (*synced).max(revision));
    }
}
