//! State of each instance between passes: enough to tell news from echoes, and no objects.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

use orlop_api::labels::Selector;
use serde_json::{Map, Value as Json};

use super::watches::Metadata;
use crate::kinds::Gvk;

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
    /// Fingerprint of the instance's own metadata after the last pass.
    seen: Option<u64>,
    running: bool,
    /// News that came during a pass.
    news: Vec<News>,
}

#[derive(Debug)]
enum News {
    Child { key: ChildKey, version: String },
    Instance { fingerprint: u64 },
}

/// All instances.
#[derive(Debug, Default)]
pub(crate) struct Memories {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    instances: HashMap<InstanceKey, Memory>,
    external: HashMap<Gvk, HashMap<InstanceKey, Vec<Subscription>>>,
}

impl Memories {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A pass begins; returns the children as the last one left them.
    pub(crate) fn begin(&self, key: &InstanceKey) -> HashMap<ChildKey, Child> {
        let mut state = self.lock();
        let memory = state.instances.entry(key.clone()).or_default();
        memory.running = true;
        memory.news.clear();
        std::mem::take(&mut memory.children)
    }

    /// A pass ends; returns whether something happened meanwhile that it did not see.
    pub(crate) fn finish(
        &self,
        key: &InstanceKey,
        children: HashMap<ChildKey, Child>,
        seen: Option<u64>,
    ) -> bool {
        let mut state = self.lock();
        let Some(memory) = state.instances.get_mut(key) else { return false };
        memory.running = false;
        memory.children = children;
        memory.seen = seen;
        let news = std::mem::take(&mut memory.news);
        news.iter().any(|news| match news {
            News::Child { key, version } => is_news(memory.children.get(key), version),
            News::Instance { fingerprint } => memory.seen != Some(*fingerprint),
        })
    }

    /// Forgets an instance.
    pub(crate) fn forget(&self, key: &InstanceKey) {
        let mut state = self.lock();
        state.instances.remove(key);
        for subscribers in state.external.values_mut() {
            subscribers.remove(key);
        }
        state.external.retain(|_, subscribers| !subscribers.is_empty());
    }

    /// Returns whether an instance needs a pass because its metadata is not what the last pass left.
    pub(crate) fn observe_instance(&self, key: &InstanceKey, fingerprint: u64) -> bool {
        let mut state = self.lock();
        let memory = state.instances.entry(key.clone()).or_default();
        if memory.running {
            memory.news.push(News::Instance { fingerprint });
            return false;
        }
        memory.seen != Some(fingerprint)
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
        for subscribers in state.external.values_mut() {
            subscribers.remove(key);
        }
        for (gvk, list) in subscriptions {
            state.external.entry(gvk).or_default().insert(key.clone(), list);
        }
        state.external.retain(|_, subscribers| !subscribers.is_empty());
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

/// Returns true if an event is newer than what a pass saw. Versions of one resource can be compared as numbers.
fn is_news(child: Option<&Child>, version: &str) -> bool {
    let Some(child) = child else { return true };
    match (child.version.parse::<u64>(), version.parse::<u64>()) {
        (Ok(seen), Ok(found)) => found > seen,
        _ => child.version != version,
    }
}

/// Fingerprint of what a pass depends on in an instance's metadata.
pub(crate) fn fingerprint(metadata: &Json) -> u64 {
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

/// Hash of a manifest.
pub(crate) fn manifest_hash(manifest: &Json) -> u64 {
    let mut hasher = DefaultHasher::new();
    manifest.to_string().hash(&mut hasher);
    // Zero stands for: not applied.
    hasher.finish().max(1)
}
