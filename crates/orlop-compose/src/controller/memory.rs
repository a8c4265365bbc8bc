//! State of each instance between passes: enough to tell news from echoes, and no objects.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use orlop_api::labels::Selector;
use serde_json::{Map, Value as Json};

use super::watches::Metadata;
use crate::kinds::Gvk;
use crate::metrics::{Level, Metrics};

/// First and longest wait before an instance is tried again that no event brings back.
const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(30);

/// An instance.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct InstanceKey {
    pub(crate) group: String,
    pub(crate) kind: String,
    /// Empty for instances without a namespace.
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl InstanceKey {
    /// The kind, as metrics name it.
    fn parent(&self) -> String {
        format!("{}, Kind={}", self.group, self.kind)
    }

    pub(crate) fn namespace(&self) -> Option<&str> {
        Some(self.namespace.as_str()).filter(|namespace| !namespace.is_empty())
    }
}

/// A child of an instance.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ChildKey {
    pub(crate) group_kind: String,
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
}

/// A child as the last pass left it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Child {
    pub(crate) version: String,
    /// Hash of the manifest applied; 0 if it was not applied.
    pub(crate) applied: u64,
}

/// Objects of others that an instance reads.
#[derive(Clone, Debug)]
pub(crate) enum Subscription {
    Named { namespace: Option<String>, name: String },
    Selected { namespace: Option<String>, selector: Selector, matched: HashSet<(Option<String>, String)> },
}

#[derive(Debug, Default)]
struct Memory {
    children: HashMap<ChildKey, Child>,
    /// Hashes of the children in the index of owners.
    indexed: Vec<u64>,
    /// The instance's own metadata after the last pass.
    seen: Option<Seen>,
    running: bool,
    /// Passes in a row that have to be tried again.
    failures: u32,
    /// News that came during a pass.
    news: Vec<News>,
}

#[derive(Debug)]
enum News {
    Child { key: ChildKey, version: String },
    Instance(Seen),
}

/// All instances.
#[derive(Debug, Default)]
pub(crate) struct Memories {
    state: Mutex<State>,
    metrics: Metrics,
}

#[derive(Debug, Default)]
struct State {
    instances: HashMap<InstanceKey, Memory>,
    /// Instances by the hashes of their children: a child whose labels somebody changed is still known.
    owners: HashMap<u64, Arc<InstanceKey>>,
    external: HashMap<Gvk, HashMap<InstanceKey, Vec<Subscription>>>,
}

impl Memories {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn new(metrics: Metrics) -> Self {
        Self { state: Mutex::default(), metrics }
    }

    fn follow<'s>(&self, state: &'s mut State, key: &InstanceKey) -> &'s mut Memory {
        state.instances.entry(key.clone()).or_insert_with(|| {
            self.metrics.change(Level::InstanceWatches, &[("parent_gvr", &key.parent())], 1);
            Memory::default()
        })
    }

    /// Counts a pass that has to be tried again, or a success; returns the time until the next attempt.
    pub(crate) fn retry(&self, key: &InstanceKey, failed: bool) -> Option<Duration> {
        let mut state = self.lock();
        let memory = state.instances.get_mut(key)?;
        if !failed {
            memory.failures = 0;
            return None;
        }
        let wait = RETRY_FIRST.saturating_mul(1 << memory.failures.min(16)).min(RETRY_MAX);
        memory.failures = memory.failures.saturating_add(1);
        Some(wait)
    }

    /// A pass begins; returns the children as the last one left them.
    pub(crate) fn begin(&self, key: &InstanceKey) -> HashMap<ChildKey, Child> {
        let mut state = self.lock();
        let memory = self.follow(&mut state, key);
        memory.running = true;
        memory.news.clear();
        std::mem::take(&mut memory.children)
    }

    /// A pass ends; returns whether something happened meanwhile that it did not see.
    pub(crate) fn finish(
        &self,
        key: &InstanceKey,
        children: HashMap<ChildKey, Child>,
        seen: Option<Seen>,
    ) -> bool {
        let mut state = self.lock();
        let State { instances, owners, .. } = &mut *state;
        let Some(memory) = instances.get_mut(key) else { return false };
        memory.running = false;
        memory.children = children;
        memory.seen = seen;
        let mut hashes: Vec<u64> = memory.children.keys().map(child_hash).collect();
        hashes.sort_unstable();
        if hashes != memory.indexed {
            let owner = Arc::new(key.clone());
            disown(owners, key, &memory.indexed);
            owners.extend(hashes.iter().map(|hash| (*hash, owner.clone())));
            memory.indexed = hashes;
        }
        let news = std::mem::take(&mut memory.news);
        news.iter().any(|news| match news {
            News::Child { key, version } => is_news(memory.children.get(key), version),
            News::Instance(found) => found.is_news(memory.seen.as_ref()),
        })
    }

    /// Forgets an instance.
    pub(crate) fn forget(&self, key: &InstanceKey) {
        let mut state = self.lock();
        let forgotten = state.instances.remove(key);
        if let Some(memory) = &forgotten {
            disown(&mut state.owners, key, &memory.indexed);
        }
        drop(state);
        if forgotten.is_some() {
            self.metrics.change(Level::InstanceWatches, &[("parent_gvr", &key.parent())], -1);
        }
        self.subscribe(key, BTreeMap::new());
    }

    /// Returns whether an instance needs a pass because its metadata is not what the last pass left.
    pub(crate) fn observe_instance(&self, key: &InstanceKey, found: Seen) -> bool {
        let mut state = self.lock();
        let memory = self.follow(&mut state, key);
        if memory.running {
            memory.news.push(News::Instance(found));
            return false;
        }
        found.is_news(memory.seen.as_ref())
    }

    /// Returns whether an instance needs a pass because a child is not what the last pass left.
    pub(crate) fn observe_child(&self, instance: &InstanceKey, key: ChildKey, version: &str) -> bool {
        let mut state = self.lock();
        let Some(memory) = state.instances.get_mut(instance) else { return true };
        if memory.running {
            memory.news.push(News::Child { key, version: version.to_owned() });
            return false;
        }
        is_news(memory.children.get(&key), version)
    }

    /// Returns the instance that has a child, whatever the child's labels say.
    pub(crate) fn owner(&self, child: &ChildKey) -> Option<InstanceKey> {
        let state = self.lock();
        state.owners.get(&child_hash(child)).map(|owner| (**owner).clone())
    }

    /// Returns instances with children of a group-kind that a complete list did not name.
    pub(crate) fn missing(
        &self,
        group_kind: &str,
        listed: &HashSet<(Option<String>, String)>,
    ) -> Vec<InstanceKey> {
        let state = self.lock();
        let lost = state.instances.iter().filter(|(_, memory)| {
            memory.children.keys().any(|child| {
                child.group_kind == group_kind
                    && !listed.contains(&(child.namespace.clone(), child.name.clone()))
            })
        });
        lost.map(|(key, _)| key.clone()).collect()
    }

    /// The instances of a kind.
    pub(crate) fn instances(&self, group: &str, kind: &str) -> Vec<InstanceKey> {
        let state = self.lock();
        state.instances.keys().filter(|key| key.group == group && key.kind == kind).cloned().collect()
    }

    /// Returns true if any instance has children of a group-kind or reads such objects of others.
    pub(crate) fn uses(&self, gvk: &Gvk) -> bool {
        let state = self.lock();
        let group_kind = gvk.group_kind();
        state.external.contains_key(gvk)
            || state
                .instances
                .values()
                .any(|memory| memory.children.keys().any(|child| child.group_kind == group_kind))
    }

    /// Replaces what an instance reads of others.
    pub(crate) fn subscribe(&self, key: &InstanceKey, subscriptions: BTreeMap<Gvk, Vec<Subscription>>) {
        let mut state = self.lock();
        for (gvk, subscribers) in &mut state.external {
            self.count(gvk, &subscribers.remove(key).unwrap_or_default(), -1);
        }
        for (gvk, list) in subscriptions {
            self.count(&gvk, &list, 1);
            state.external.entry(gvk).or_default().insert(key.clone(), list);
        }
        state.external.retain(|_, subscribers| !subscribers.is_empty());
    }

    fn count(&self, gvk: &Gvk, subscriptions: &[Subscription], by: i64) {
        for subscription in subscriptions {
            let shape = match subscription {
                Subscription::Named { .. } => "scalar",
                Subscription::Selected { .. } => "collection",
            };
            self.metrics.change(Level::WatchRequests, &[("gvr", &gvk.to_string()), ("type", shape)], by);
        }
    }

    /// Returns the instances that read an object of others.
    pub(crate) fn readers(&self, gvk: &Gvk, object: &Metadata) -> Vec<InstanceKey> {
        let state = self.lock();
        let Some(subscribers) = state.external.get(gvk) else { return Vec::new() };
        let at = (object.metadata.namespace.clone(), object.metadata.name.clone().unwrap_or_default());
        let labels: Map<String, Json> = object
            .metadata
            .labels
            .iter()
            .flatten()
            .map(|(key, value)| (key.clone(), Json::String(value.clone())))
            .collect();
        let reads = |subscription: &Subscription| match subscription {
            Subscription::Named { namespace, name } => *namespace == at.0 && *name == at.1,
            Subscription::Selected { namespace, selector, matched } => {
                let within = namespace.is_none() || *namespace == at.0;
                matched.contains(&at) || (within && selector.matches(Some(&labels)))
            }
        };
        let readers = subscribers.iter().filter(|(_, list)| list.iter().any(reads));
        readers.map(|(key, _)| key.clone()).collect()
    }

    /// Returns all instances that read objects of a kind of others.
    pub(crate) fn all_readers(&self, gvk: &Gvk) -> Vec<InstanceKey> {
        let state = self.lock();
        state.external.get(gvk).into_iter().flat_map(HashMap::keys).cloned().collect()
    }
}

/// Removes an instance's children from the index, except those that another instance has by now.
fn disown(owners: &mut HashMap<u64, Arc<InstanceKey>>, key: &InstanceKey, hashes: &[u64]) {
    for hash in hashes {
        if owners.get(hash).is_some_and(|owner| **owner == *key) {
            owners.remove(hash);
        }
    }
}

pub(super) fn child_hash(child: &ChildKey) -> u64 {
    let mut hasher = DefaultHasher::new();
    child.hash(&mut hasher);
    hasher.finish()
}

/// Returns true if an event is newer than what a pass saw.
fn is_news(child: Option<&Child>, version: &str) -> bool {
    child.is_none_or(|child| is_newer(version, &child.version))
}

/// Versions of one resource can be compared as numbers.
fn is_newer(found: &str, seen: &str) -> bool {
    match (seen.parse::<u64>(), found.parse::<u64>()) {
        (Ok(seen), Ok(found)) => found > seen,
        _ => seen != found,
    }
}

/// Metadata of an object as a pass, or an event, saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    version: String,
    fingerprint: u64,
}

impl Seen {
    pub(crate) fn of(metadata: &Json) -> Self {
        let version = metadata.get("resourceVersion").and_then(Json::as_str).unwrap_or_default().to_owned();
        Self { version, fingerprint: fingerprint(metadata) }
    }

    /// Returns true if this calls for a pass: newer than what the last one saw, and different in what counts. Echoes of a
    /// pass's own writes may come after it has ended.
    pub(crate) fn is_news(&self, seen: Option<&Self>) -> bool {
        seen.is_none_or(|seen| self.fingerprint != seen.fingerprint && is_newer(&self.version, &seen.version))
    }
}

/// Fingerprint of what a pass depends on in an instance's metadata.
fn fingerprint(metadata: &Json) -> u64 {
    let mut hasher = DefaultHasher::new();
    for field in ["generation", "deletionTimestamp", "labels", "annotations", "finalizers", "uid"] {
        let value = metadata.get(field).filter(|value| match value {
            Json::Object(map) => !map.is_empty(),
            Json::Array(list) => !list.is_empty(),
            Json::Null => false,
            _ => true,
        });
        value.map(Json::to_string).hash(&mut hasher);
    }
    hasher.finish()
}
