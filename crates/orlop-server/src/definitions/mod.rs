//! CustomResourceDefinitions and the kinds they define, on the same registry as built-in kinds.
//!
//! `definition_controllers` watches definitions in the store and puts their kinds into the registry, whoever
//! wrote them. A request that writes a definition waits until this process has caught up with it, so that
//! routes, discovery and OpenAPI are there before the response. All servers on one database do the same.
//!
//! `orlop-crd` interprets definitions. This module holds:
//!
//! - [`served`]: a definition and its kinds; [`object`]: the strategy of their objects;
//! - [`conversion`]: objects between versions, by renaming or by webhook;
//! - [`names`]: names, claimed in the transaction that writes the definition.

mod conversion;
pub(crate) mod names;
mod object;
mod served;

use std::{
    collections::{BTreeMap, HashSet},
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::Duration,
};

use orlop_api::status::Status;
use orlop_store::{Compare, Comparison, KeyRange, Revision, Target};
use tokio::sync::watch;

pub(crate) use served::ServedDefinition;

use crate::{registry::Kind, storage::ObjectStore};

/// Group, version and resource of CustomResourceDefinitions.
pub(crate) const GROUP: &str = "apiextensions.k8s.io";
pub(crate) const VERSION: &str = "v1";
pub(crate) const RESOURCE: &str = "customresourcedefinitions";
/// Time that a write waits for its definition to be served. Past it, the informer is broken, and the
/// response matters more.
const SERVED_TIMEOUT: Duration = Duration::from_secs(10);

/// The definitions of one cluster that this process serves.
#[derive(Debug, Default)]
pub(crate) struct Definitions {
    served: RwLock<BTreeMap<String, Arc<ServedDefinition>>>,
    /// Revision up to which definitions are served; `None` before the informer starts.
    synced: watch::Sender<Option<Revision>>,
    /// The uids of definitions that this process finalizes.
    finalizing: Mutex<HashSet<String>>,
}

impl Definitions {
    /// Waits until the definitions of a revision are served.
    pub(crate) async fn wait_for(&self, revision: Revision) {
        let mut synced = self.synced.subscribe();
        let reached = synced.wait_for(|synced| synced.is_none_or(|synced| synced >= revision));
        if tokio::time::timeout(SERVED_TIMEOUT, reached).await.is_err() {
            tracing::warn!(revision, "CustomResourceDefinition informer lags");
        }
    }

    /// Records that definitions are served up to a revision.
    pub(crate) fn set_synced(&self, revision: Revision) {
        self.synced.send_modify(|synced| *synced = (*synced).max(Some(revision)));
    }

    /// Returns a receiver that changes with what is served.
    pub(crate) fn changes(&self) -> watch::Receiver<Option<Revision>> {
        self.synced.subscribe()
    }

    /// Returns a definition by its name, `foos.example.com`.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<ServedDefinition>> {
        self.served.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// Changes the definitions that are served.
    pub(crate) fn change<T>(
        &self,
        change: impl FnOnce(&mut BTreeMap<String, Arc<ServedDefinition>>) -> T,
    ) -> T {
        change(&mut self.served.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Marks a definition as being finalized by this process; false if it is already.
    pub(crate) fn begin_finalizing(&self, uid: &str) -> bool {
        self.finalizing.lock().unwrap_or_else(PoisonError::into_inner).insert(uid.to_owned())
    }

    /// Unmarks a definition that this process no longer finalizes.
    pub(crate) fn end_finalizing(&self, uid: &str) {
        self.finalizing.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
    }

    /// Returns the names of definitions of a group whose names are not accepted.
    pub(crate) fn with_name_conflicts(&self, group: &str) -> Vec<String> {
        let served = self.served.read().unwrap_or_else(PoisonError::into_inner);
        let in_group = served.values().filter(|served| served.definition.group == group);
        let conflicting =
            in_group.filter(|served| !served.definition.conditions.is_true(orlop_crd::NAMES_ACCEPTED));
        conflicting.map(|served| served.definition.name.clone()).collect()
    }

    /// Returns the precondition of creating an object of a custom kind: its definition exists. Forbidden if
    /// the definition is terminating.
    pub(crate) fn precondition(
        &self,
        objects: &ObjectStore,
        kind: &Kind,
        name: &str,
    ) -> Result<Option<Compare>, Status> {
        if !kind.flags.custom {
            return Ok(None);
        }
        let served = self.get(&kind.group_resource().to_string());
        if kind.retirement.is_retired() && served.is_none() {
            return Err(Status::resource_unknown());
        }
        // A custom kind that a library's user registered has no definition.
        let Some(served) = served else { return Ok(None) };
        if served.definition.terminating {
            let why = "create not allowed while custom resource definition is terminating";
            return Err(Status::forbidden(&kind.group_resource(), name, why));
        }
        let key = KeyRange::key(key(objects, &served.definition.name));
        Ok(Some(Compare::new(key, Comparison::Equal, Target::CreateRevision(served.create_revision))))
    }
}

/// Returns true if a kind is CustomResourceDefinition.
pub(crate) fn is_definition(kind: &Kind) -> bool {
    kind.gvk.group == GROUP && kind.resource == RESOURCE
}

/// Returns the key of a definition; the prefix of all of them for an empty name.
pub(crate) fn key(objects: &ObjectStore, name: &str) -> String {
    objects.own_key(&format!("{GROUP}/{RESOURCE}/{name}"))
}
