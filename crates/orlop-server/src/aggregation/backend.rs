//! An extension API server: the way to it, and what it says about its resources.

use std::{collections::HashMap, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use orlop_aggregator::{
    BackendKey, client::Client, discovery::Resource, open_api::Spec, routing::ServiceState,
};
use orlop_auth::pki::Credential;
use tokio::sync::watch;

/// Time that a request waits for the Service and its endpoints to be loaded, after a start.
const LOAD_TIMEOUT: Duration = Duration::from_secs(2);

/// An extension API server.
#[derive(Debug)]
pub(crate) struct Backend {
    pub(crate) key: BackendKey,
    client: ArcSwap<Client>,
    /// The Service and its endpoints; `None` until they are loaded.
    state: watch::Sender<Option<ServiceState>>,
    documents: ArcSwap<Documents>,
}

impl Backend {
    pub(super) fn new(key: BackendKey, identity: Option<Credential>) -> Self {
        Self {
            client: ArcSwap::from_pointee(Client::new(&key, identity)),
            key,
            state: watch::Sender::new(None),
            documents: ArcSwap::default(),
        }
    }

    pub(super) fn set_identity(&self, identity: Option<Credential>) {
        self.client.store(Arc::new(Client::new(&self.key, identity)));
    }

    /// Returns the connections.
    pub(crate) fn client(&self) -> Arc<Client> {
        self.client.load_full()
    }

    /// Sets the Service and its endpoints.
    pub(crate) fn set_state(&self, state: &ServiceState) {
        self.state.send_if_modified(|known| {
            let is_new = known.as_ref() != Some(state);
            if is_new {
                *known = Some(state.clone());
            }
            is_new
        });
    }

    /// Returns a receiver of the Service and its endpoints.
    pub(crate) fn states(&self) -> watch::Receiver<Option<ServiceState>> {
        self.state.subscribe()
    }

    /// Returns the address of the server.
    pub(crate) async fn resolve(&self) -> Result<(String, u16), String> {
        let resolve = |state: &ServiceState| state.resolve(&self.key.name, self.key.port);
        if let Some(state) = &*self.state.borrow() {
            return resolve(state);
        }
        let mut states = self.state.subscribe();
        match tokio::time::timeout(LOAD_TIMEOUT, states.wait_for(Option::is_some)).await {
            Ok(Ok(state)) => state.as_ref().map_or_else(|| Err("not loaded".to_owned()), resolve),
            _ => Err(format!("service {:?} is not loaded yet", self.key.name)),
        }
    }

    /// Returns what the server says about its resources.
    pub(crate) fn documents(&self) -> Arc<Documents> {
        self.documents.load_full()
    }

    /// Sets what the server says about its resources.
    pub(crate) fn set_documents(&self, documents: Documents) {
        self.documents.store(Arc::new(documents));
    }
}

/// Documents of an extension API server, by `group/version`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Documents(pub(crate) HashMap<String, VersionDocuments>);

/// Documents of an extension API server about a group version.
#[derive(Clone, Debug)]
pub(crate) struct VersionDocuments {
    /// The resources, as far as they are known.
    pub(crate) resources: Arc<Vec<Resource>>,
    /// The last attempt to fetch them failed.
    pub(crate) is_stale: bool,
    /// The part of its OpenAPI version 2 document, and a tag that changes with it.
    pub(crate) spec: Option<(Arc<Spec>, Arc<str>)>,
    /// Its OpenAPI version 3 document.
    pub(crate) v3: OpenApiV3,
}

impl Default for VersionDocuments {
    fn default() -> Self {
        // Nothing is known yet.
        Self { resources: Arc::default(), is_stale: true, spec: None, v3: OpenApiV3::Unknown }
    }
}

/// The OpenAPI version 3 document of a group version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OpenApiV3 {
    /// It has not been found.
    Unknown,
    /// The extension API server serves it, at this address.
    Served(Arc<str>),
    /// The server has none: it is made from version 2.
    Converted,
}

impl Documents {
    /// Returns the documents of a group version.
    pub(crate) fn of(&self, group: &str, version: &str) -> Option<&VersionDocuments> {
        self.0.get(&format!("{group}/{version}"))
    }

    /// Returns true if the server itself serves the version 3 document of `group/version`.
    pub(crate) fn serves_v3(&self, group_version: &str) -> bool {
        self.0.get(group_version).is_some_and(|known| matches!(known.v3, OpenApiV3::Served(_)))
    }
}
