//! Kinds that users define: CustomResourceDefinitions, served on the same registry as built-in kinds.
//!
//! A definition takes effect in one way, whoever writes it: [`follow`] watches definitions in the store and
//! puts the kinds they define into the registry. A request that writes a definition waits until this
//! process has followed it so far, so that routes, discovery and OpenAPI are there before the answer.
//! Several servers on one database follow the same definitions.
//!
//! What a definition means is `orlop-crd`'s to say, which builds what a version needs when it is first used.
//! Here is what the server does with it:
//!
//! - [`crd`]: the hooks of definitions themselves; [`names`]: names, claimed in the transaction that writes
//!   the definition; [`cleanup`]: how a definition ends;
//! - [`served`]: a definition and the kinds that are made of it; [`object`]: the hooks of their objects;
//!   [`conversion`]: their objects from one version to another.

mod cleanup;
mod conversion;
mod crd;
mod follow;
mod names;
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

pub(crate) use crd::CustomResourceDefinition;
pub(crate) use follow::start;
pub(crate) use names::{claim, release};

use crate::{
    User,
    cluster::Cluster,
    registry::Kind,
    request_info::ResourceInfo,
    verbs::{Request, Warnings},
};
use served::Served;

/// The group, version and plural name of definitions.
const GROUP: &str = "apiextensions.k8s.io";
const VERSION: &str = "v1";
const RESOURCE: &str = "customresourcedefinitions";
/// Keeps a definition until its objects are gone.
const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";
/// How long a write waits for its definition to be served. Longer means that something is broken, and then
/// the answer matters more than what it promises.
const PATIENCE: Duration = Duration::from_secs(10);

/// The definitions of one cluster, as far as this process has followed them.
#[derive(Debug, Default)]
pub(crate) struct Customs {
    definitions: RwLock<BTreeMap<String, Arc<Served>>>,
    /// Up to which revision definitions are served; none while nobody follows them.
    reached: watch::Sender<Option<Revision>>,
    /// The uids of definitions whose objects are being deleted by this process.
    ending: Mutex<HashSet<String>>,
}

impl Customs {
    /// Waits until the definitions of a revision are served.
    pub(crate) async fn wait_for(&self, revision: Revision) {
        let mut reached = self.reached.subscribe();
        let enough = reached.wait_for(|reached| reached.is_none_or(|reached| reached >= revision));
        if tokio::time::timeout(PATIENCE, enough).await.is_err() {
            tracing::warn!(revision, "a definition is not served yet");
        }
    }

    /// A definition by its name, `foos.example.com`.
    fn get(&self, name: &str) -> Option<Arc<Served>> {
        self.definitions.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    fn change<T>(&self, change: impl FnOnce(&mut BTreeMap<String, Arc<Served>>) -> T) -> T {
        change(&mut self.definitions.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Definitions that wait for a name of their group to become free.
    fn waiting(&self, group: &str) -> Vec<String> {
        let definitions = self.definitions.read().unwrap_or_else(PoisonError::into_inner);
        let of_group = definitions.values().filter(|served| served.definition.group == group);
        let waiting =
            of_group.filter(|served| !served.definition.conditions.is_true(orlop_crd::NAMES_ACCEPTED));
        waiting.map(|served| served.definition.name.clone()).collect()
    }
}

/// Whether a kind is that of definitions.
pub(crate) fn is_definition(kind: &Kind) -> bool {
    kind.gvk.group == GROUP && kind.resource == RESOURCE
}

/// What must still be so when an object of a custom kind is created: its definition is there. One that is on
/// its way out takes no new objects.
pub(crate) fn guard(request: &Request, name: &str) -> Result<Option<Compare>, Status> {
    let (kind, cluster) = (&request.kind, &request.cluster);
    if !kind.rules.custom {
        return Ok(None);
    }
    if kind.retirement.is_retired() && cluster.custom.get(&kind.group_resource().to_string()).is_none() {
        return Err(Status::resource_unknown());
    }
    // A custom kind that a library's user registered has no definition.
    let Some(served) = cluster.custom.get(&kind.group_resource().to_string()) else { return Ok(None) };
    if served.definition.terminating {
        let why = "create not allowed while custom resource definition is terminating";
        return Err(Status::forbidden(&kind.group_resource(), name, why));
    }
    let key = KeyRange::key(key(cluster, &served.definition.name));
    Ok(Some(Compare::new(key, Comparison::Equal, Target::CreateRevision(served.created))))
}

/// The key of a definition; the beginning of all of them without a name.
fn key(cluster: &Cluster, name: &str) -> String {
    cluster.own_key(&format!("{GROUP}/{RESOURCE}/{name}"))
}

/// A request of the server's own about an object of a kind.
fn request(cluster: &Arc<Cluster>, kind: Arc<Kind>, namespace: &str, name: &str) -> Request {
    Request {
        cluster: cluster.clone(),
        about: ResourceInfo {
            group: kind.gvk.group.clone(),
            version: kind.gvk.version.clone(),
            resource: kind.resource.clone(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            ..ResourceInfo::default()
        },
        kind,
        query: crate::query::Query::default(),
        uri: http::Uri::default(),
        headers: http::HeaderMap::new(),
        body: bytes::Bytes::new(),
        negotiated: crate::negotiation::Negotiated::default(),
        user: User::authenticated("system:apiserver", ["system:masters".to_owned()]).into(),
        warnings: Warnings::default(),
    }
}

/// A request of the server's own about the status of a definition: what the definition asks for is not
/// looked at again, so that one which would no longer be accepted can still end.
fn definition_request(cluster: &Arc<Cluster>, name: &str) -> Option<Request> {
    let kind = cluster.registry.kinds().get(GROUP, VERSION, RESOURCE)?.clone();
    let mut request = request(cluster, kind, "", name);
    request.about.subresource = "status".to_owned();
    Some(request)
}
