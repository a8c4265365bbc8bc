//! Objects in the store: keys, reads, selection, leases, and the preconditions of writes.
//!
//! Knows kinds, and nothing of requests, verbs or users.

pub(crate) mod allocation;
pub(crate) mod follower;
pub mod generated_name;
pub(crate) mod namespace;
pub(crate) mod selection;
pub mod service_ranges;
pub(crate) mod turns;

use std::{
    collections::HashMap,
    sync::{Mutex, OnceLock, PoisonError},
    time::{Duration, Instant},
};

use orlop_api::status::Status;
use orlop_store::{Compare, Error, KeyRange, LeaseId, Op, Read, Revision, Store};
use serde_json::Value;

use self::service_ranges::ServiceRanges;
use crate::registry::{Found, Kind, Registry};

/// Time that a read waits for a revision that this process has not seen yet.
const FRESHNESS_TIMEOUT: Duration = Duration::from_secs(3);
/// Objects with the same time to live share a lease for this long, and expire up to this much late.
const LEASE_SHARED_FOR: Duration = Duration::from_secs(60);

/// The objects of one cluster below a prefix of a store.
#[derive(Debug)]
pub struct ObjectStore {
    /// The store.
    pub store: Store,
    /// Kinds that are served.
    pub registry: Registry,
    prefix: String,
    /// The current shared lease for each time to live in seconds.
    leases: Mutex<HashMap<u64, (LeaseId, Instant)>>,
    namespaces: namespace::ActiveNamespaces,
    service_ranges: OnceLock<ServiceRanges>,
}

/// Compares and operations that a precondition adds to the transaction of a write.
#[derive(Debug, Default)]
pub(crate) struct Contribution {
    pub(crate) compares: Vec<Compare>,
    pub(crate) ops: Vec<Op>,
}

impl Contribution {
    /// Adds the compares and operations of another precondition.
    pub(crate) fn merge(&mut self, other: Self) {
        self.compares.extend(other.compares);
        self.ops.extend(other.ops);
    }
}

impl ObjectStore {
    /// Returns the objects below `/registry/` of a store.
    pub(crate) fn new(store: Store, registry: Registry) -> Self {
        Self {
            store,
            registry,
            prefix: "/registry/".to_owned(),
            leases: Mutex::default(),
            namespaces: namespace::ActiveNamespaces::default(),
            service_ranges: OnceLock::new(),
        }
    }

    /// Returns the ranges that services are allocated from.
    pub(crate) fn service_ranges(&self) -> &ServiceRanges {
        self.service_ranges.get_or_init(ServiceRanges::default)
    }

    /// Sets the ranges. The first call counts.
    pub(crate) fn set_service_ranges(&self, ranges: ServiceRanges) {
        self.service_ranges.get_or_init(|| ranges);
    }

    /// Returns the key of an object.
    pub fn key(&self, kind: &Kind, namespace: &str, name: &str) -> String {
        match kind.storage_key(namespace, name) {
            None => self.join(kind, namespace, name),
            Some((namespace, name)) => self.join(kind, &namespace, &name),
        }
    }

    /// Returns the key prefix of a collection, in one namespace or in all.
    pub fn collection(&self, kind: &Kind, namespace: &str) -> String {
        let key = kind.storage_key(namespace, "");
        self.join(kind, key.as_ref().map_or(namespace, |(namespace, _)| namespace), "")
    }

    fn join(&self, kind: &Kind, namespace: &str, name: &str) -> String {
        let slash = if namespace.is_empty() { "" } else { "/" };
        [&self.prefix, kind.key_prefix().as_str(), namespace, slash, name].concat()
    }

    /// Returns a key below the prefix of the cluster.
    pub(crate) fn own_key(&self, rest: &str) -> String {
        format!("{}{rest}", self.prefix)
    }

    /// Reads the newest version of an object, if there is one.
    pub async fn find(&self, kind: &Kind, namespace: &str, name: &str) -> Result<Option<Found>, Status> {
        let key = self.key(kind, namespace, name);
        let read = self.store.read(Read::new(KeyRange::key(key)));
        let read = orlop_trace::in_span("store read", Vec::new, read).await;
        let read = read.map_err(|error| status_from_store_error(&error))?;
        Ok(read.kvs.into_iter().next().map(Found::from))
    }

    /// Reads the newest version of an object; NotFound if there is none.
    pub async fn get(&self, kind: &Kind, namespace: &str, name: &str) -> Result<Found, Status> {
        let found = self.find(kind, namespace, name).await?;
        found.ok_or_else(|| Status::not_found(&kind.group_resource(), name))
    }

    /// Reads the newest version of an object and decodes it in the served version.
    pub async fn object(&self, kind: &Kind, namespace: &str, name: &str) -> Result<Value, Status> {
        kind.read(&self.get(kind, namespace, name).await?).await
    }

    /// Returns a lease for objects that expire after `seconds`. Objects of the same minute share one.
    pub(crate) async fn lease(&self, seconds: u64) -> Result<LeaseId, Status> {
        let shared = self.leases.lock().unwrap_or_else(PoisonError::into_inner).get(&seconds).copied();
        if let Some((lease, granted)) = shared
            && granted.elapsed() < LEASE_SHARED_FOR
        {
            return Ok(lease);
        }
        let ttl = Duration::from_secs(seconds) + LEASE_SHARED_FOR;
        let lease = self.store.grant(None, ttl).await.map_err(|error| status_from_store_error(&error))?.id;
        self.leases.lock().unwrap_or_else(PoisonError::into_inner).insert(seconds, (lease, Instant::now()));
        Ok(lease)
    }

    /// Waits until reads are not older than a revision.
    pub async fn not_older_than(&self, revision: Revision) -> Result<(), Status> {
        let reached = self.store.wait_for_revision(revision, FRESHNESS_TIMEOUT).await;
        reached.map_err(|error| status_from_store_error(&error))
    }
}

/// Returns the Status of an error of the store.
pub fn status_from_store_error(error: &Error) -> Status {
    match error {
        Error::Expired { .. } => Status::expired("The resourceVersion for the provided list is too old."),
        Error::FutureRevision { requested, current } => {
            Status::too_large_resource_version((*requested).max(0) as u64, (*current).max(0) as u64)
        }
        Error::TooLarge { .. } => Status::request_entity_too_large(&error.to_string()),
        Error::Full(_) => Status::internal(&format!("etcdserver: mvcc: database space exceeded ({error})")),
        Error::Unavailable(_) => Status::service_unavailable(error.to_string()),
        Error::AmbiguousCommit(_) => Status::timeout(&error.to_string(), 1),
        _ => Status::internal(&error.to_string()),
    }
}
