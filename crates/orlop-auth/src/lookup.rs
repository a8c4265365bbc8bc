//! Lookups of objects that credentials depend on: service accounts, secrets, pods and nodes.

use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    sync::atomic::{AtomicU64, Ordering},
};

use async_trait::async_trait;
use orlop_api::status::Status;
use serde_json::Value;

/// Number of counters of [`ObjectChanges`].
const COUNTERS: usize = 4096;

/// Kinds of objects that credentials depend on, of the core group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Resource {
    /// `nodes`.
    Nodes,
    /// `pods`.
    Pods,
    /// `secrets`.
    Secrets,
    /// `serviceaccounts`.
    ServiceAccounts,
}

impl Resource {
    /// Returns the resource's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Nodes => "nodes",
            Self::Pods => "pods",
            Self::Secrets => "secrets",
            Self::ServiceAccounts => "serviceaccounts",
        }
    }
}

/// Reads objects.
#[async_trait]
pub trait ObjectLookup: fmt::Debug + Send + Sync {
    /// Returns an object, if it exists.
    async fn get(&self, resource: Resource, namespace: &str, name: &str) -> Result<Option<Value>, Status>;

    /// Observes an object that is about to be read.
    fn observe(&self, resource: Resource, namespace: &str, name: &str) -> Observation;
}

/// Counters of changes of objects. Several objects share a counter, so that the number of objects does not matter.
///
/// A cached result remembers the counters of the objects that it depends on: it is void once one of them counts on.
pub struct ObjectChanges {
    counters: Box<[AtomicU64]>,
    /// Objects cannot be named so that they share a counter on purpose.
    hasher: RandomState,
}

impl fmt::Debug for ObjectChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectChanges").finish_non_exhaustive()
    }
}

impl Default for ObjectChanges {
    fn default() -> Self {
        let counters = std::iter::repeat_with(AtomicU64::default).take(COUNTERS).collect();
        Self { counters, hasher: RandomState::new() }
    }
}

/// State of an object's counter at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation {
    counter: usize,
    count: u64,
}

impl ObjectChanges {
    /// Records that the object of a key was written or deleted.
    pub fn record(&self, key: &[u8]) {
        let counter = self.counter(key);
        if let Some(counter) = self.counters.get(counter) {
            counter.fetch_add(1, Ordering::Release);
        }
    }

    /// Records that any object may have changed.
    pub fn record_all(&self) {
        for counter in &self.counters {
            counter.fetch_add(1, Ordering::Release);
        }
    }

    /// Observes the object of a key, which is about to be read.
    pub fn observe(&self, key: &[u8]) -> Observation {
        let counter = self.counter(key);
        Observation { counter, count: self.count(counter) }
    }

    /// Returns true if the object has not changed since.
    pub fn is_current(&self, observation: &Observation) -> bool {
        self.count(observation.counter) == observation.count
    }

    fn count(&self, counter: usize) -> u64 {
        self.counters.get(counter).map_or(0, |counter| counter.load(Ordering::Acquire))
    }

    fn counter(&self, key: &[u8]) -> usize {
        // In range: the remainder is below the number of counters.
        (self.hasher.hash_one(key) % COUNTERS as u64) as usize
    }
}
