//! The cache of an informer: what the watch delivered, and own writes that it has not delivered yet. Pure.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use orlop_client::{ResourceExt, watcher::Event};
use tokio::time::{Duration, Instant};

use super::{Cached, Key};

/// A change of one object: created without `old`, deleted without `new`.
#[derive(Clone, Debug)]
pub struct Change<K> {
    /// The object as it was.
    pub old: Option<Arc<K>>,
    /// The object as it is.
    pub new: Option<Arc<K>>,
}

impl<K> Change<K> {
    /// Returns the object as it is, or was when it was deleted.
    pub fn latest(&self) -> Option<&Arc<K>> {
        self.new.as_ref().or(self.old.as_ref())
    }

    /// Returns the object as it was and as it is.
    pub fn both(&self) -> impl Iterator<Item = &Arc<K>> {
        self.old.iter().chain(&self.new)
    }
}

/// An own write that the watch has not delivered.
#[derive(Debug)]
struct Unconfirmed {
    uid: Option<String>,
    /// resourceVersion of the write; of a delete, the last one of the object.
    resource_version: u64,
    is_delete: bool,
    at: Instant,
}

/// A list that has begun: its objects so far, and the own writes before it, which it must contain.
type Listing<K> = (BTreeMap<Key, Arc<K>>, BTreeSet<Key>);

/// Objects of one kind.
#[derive(Debug)]
pub(super) struct Cache<K> {
    objects: BTreeMap<Key, Arc<K>>,
    /// Keys by the uid of their controller; those without one by `/` and their namespace.
    controlled: HashMap<String, BTreeSet<Key>>,
    /// Newest resourceVersion that the watch has delivered.
    seen: u64,
    unconfirmed: HashMap<Key, Unconfirmed>,
    /// A list that has begun.
    listing: Option<Listing<K>>,
}

impl<K> Default for Cache<K> {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            controlled: HashMap::new(),
            seen: 0,
            unconfirmed: HashMap::new(),
            listing: None,
        }
    }
}

impl<K: Cached> Cache<K> {
    pub(super) fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.objects.get(key).cloned()
    }

    pub(super) fn all(&self) -> Vec<Arc<K>> {
        self.objects.values().cloned().collect()
    }

    pub(super) fn in_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        let first = Key::new(namespace, "");
        let objects = self.objects.range(first..).take_while(|(key, _)| key.namespace == namespace);
        objects.map(|(_, object)| object.clone()).collect()
    }

    pub(super) fn controlled_by(&self, uid: &str) -> Vec<Arc<K>> {
        let keys = self.controlled.get(uid).into_iter().flatten();
        keys.filter_map(|key| self.objects.get(key).cloned()).collect()
    }

    pub(super) fn without_controller(&self, namespace: &str) -> Vec<Arc<K>> {
        self.controlled_by(&format!("/{namespace}"))
    }

    /// Takes an event of the watch into account.
    pub(super) fn observe(&mut self, event: Event<K>) -> Vec<Change<K>> {
        match event {
            Event::Init => {
                self.listing = Some((BTreeMap::new(), self.unconfirmed.keys().cloned().collect()));
                Vec::new()
            }
            Event::InitApply(object) => {
                self.seen = self.seen.max(resource_version(&object));
                if let Some((listed, _)) = &mut self.listing {
                    listed.insert(Key::of(&object), Arc::new(trimmed(object)));
                }
                Vec::new()
            }
            Event::InitDone => self.listed(),
            Event::Apply(object) => {
                let key = Key::of(&object);
                self.seen = self.seen.max(resource_version(&object));
                if let Some(own) = self.unconfirmed.get(&key) {
                    let reached = resource_version(&object) >= own.resource_version;
                    if own.is_delete && own.uid == object.uid() || !own.is_delete && !reached {
                        // The watch is still behind the own write.
                        return Vec::new();
                    }
                    self.unconfirmed.remove(&key);
                }
                self.put(key, object).into_iter().collect()
            }
            Event::Delete(object) => {
                let key = Key::of(&object);
                self.seen = self.seen.max(resource_version(&object));
                if let Some(own) = self.unconfirmed.get(&key) {
                    if !own.is_delete && own.uid != object.uid() {
                        // Its successor of the same name is in the cache already.
                        return Vec::new();
                    }
                    self.unconfirmed.remove(&key);
                }
                self.take(&key).into_iter().collect()
            }
        }
    }

    /// Replaces everything by a complete list, except own writes that are younger than the list.
    fn listed(&mut self) -> Vec<Change<K>> {
        let Some((listed, known)) = self.listing.take() else { return Vec::new() };
        self.unconfirmed.retain(|key, _| !known.contains(key));
        let gone = self.objects.keys().filter(|key| !listed.contains_key(key));
        let gone: Vec<Key> = gone.filter(|key| !self.unconfirmed.contains_key(key)).cloned().collect();
        let mut changes: Vec<_> = gone.iter().filter_map(|key| self.take(key)).collect();
        for (key, object) in listed {
            if !self.unconfirmed.contains_key(&key) {
                changes.extend(self.put_shared(key, object));
            }
        }
        changes
    }

    /// Puts the answer to an own write into the cache, unless the watch is as far.
    pub(super) fn wrote(&mut self, object: K, at: Instant) -> Vec<Change<K>> {
        let (key, resource_version) = (Key::of(&object), resource_version(&object));
        if resource_version <= self.seen {
            return Vec::new();
        }
        let uid = object.uid();
        self.unconfirmed.insert(key.clone(), Unconfirmed { uid, resource_version, is_delete: false, at });
        self.put(key, object).into_iter().collect()
    }

    /// Removes an object that an own delete has removed, unless its name belongs to another by now.
    pub(super) fn deleted(&mut self, object: &K, at: Instant) -> Vec<Change<K>> {
        let key = Key::of(object);
        let (uid, resource_version) = (object.uid(), resource_version(object));
        if self.objects.get(&key).is_none_or(|known| known.uid() != uid) {
            return Vec::new();
        }
        self.unconfirmed.insert(key.clone(), Unconfirmed { uid, resource_version, is_delete: true, at });
        self.take(&key).into_iter().collect()
    }

    /// Drops own writes that the watch has not confirmed in time: they are gone, or the watch is.
    pub(super) fn expire(&mut self, now: Instant, max: Duration) -> Vec<Change<K>> {
        if self.unconfirmed.is_empty() {
            return Vec::new();
        }
        let old = self.unconfirmed.iter().filter(|(_, own)| now.duration_since(own.at) > max);
        let old: Vec<(Key, bool)> = old.map(|(key, own)| (key.clone(), own.is_delete)).collect();
        let mut changes = Vec::new();
        for (key, is_delete) in old {
            self.unconfirmed.remove(&key);
            if !is_delete {
                changes.extend(self.take(&key));
            }
        }
        changes
    }

    fn put(&mut self, key: Key, object: K) -> Option<Change<K>> {
        self.put_shared(key, Arc::new(trimmed(object)))
    }

    fn put_shared(&mut self, key: Key, object: Arc<K>) -> Option<Change<K>> {
        if let Some(known) = self.objects.get(&key)
            && known.resource_version() == object.resource_version()
            && known.uid() == object.uid()
        {
            return None;
        }
        let old = self.take(&key).and_then(|change| change.old);
        self.controlled.entry(owner(&*object)).or_default().insert(key.clone());
        self.objects.insert(key, object.clone());
        Some(Change { old, new: Some(object) })
    }

    fn take(&mut self, key: &Key) -> Option<Change<K>> {
        let old = self.objects.remove(key)?;
        let owner = owner(&*old);
        if let Some(keys) = self.controlled.get_mut(&owner) {
            keys.remove(key);
            if keys.is_empty() {
                self.controlled.remove(&owner);
            }
        }
        Some(Change { old: Some(old), new: None })
    }
}

/// Returns an object without what no controller reads and most memory goes to.
fn trimmed<K: Cached>(mut object: K) -> K {
    object.meta_mut().managed_fields = None;
    object
}

fn owner<K: Cached>(object: &K) -> String {
    let controller = object.owner_references().iter().find(|owner| owner.controller == Some(true));
    match controller {
        Some(controller) => controller.uid.clone(),
        None => format!("/{}", object.namespace().unwrap_or_default()),
    }
}

/// Returns an object's resourceVersion. They are comparable numbers in Kubernetes since 1.35.
fn resource_version<K: Cached>(object: &K) -> u64 {
    object.meta().resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::OwnerReference};
    use orlop_client::api::ObjectMeta;

    use super::*;

    fn pod(name: &str, uid: &str, resource_version: u64) -> Pod {
        let owner =
            OwnerReference { controller: Some(true), uid: "rs".to_owned(), ..OwnerReference::default() };
        let metadata = ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some("default".to_owned()),
            uid: Some(uid.to_owned()),
            resource_version: Some(resource_version.to_string()),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        };
        Pod { metadata, ..Pod::default() }
    }

    fn listed(objects: Vec<Pod>) -> Cache<Pod> {
        let mut cache = Cache::default();
        cache.observe(Event::Init);
        for object in objects {
            cache.observe(Event::InitApply(object));
        }
        cache.observe(Event::InitDone);
        cache
    }

    fn names(cache: &Cache<Pod>) -> Vec<String> {
        cache.controlled_by("rs").iter().map(|pod| pod.name_any()).collect()
    }

    #[test]
    fn own_create_is_read_before_the_watch_delivers_it() {
        let mut cache = listed(vec![pod("a", "1", 10)]);
        assert_eq!(cache.wrote(pod("b", "2", 11), Instant::now()).len(), 1);
        assert_eq!(names(&cache), ["a", "b"]);
        assert!(cache.observe(Event::Apply(pod("b", "2", 11))).is_empty(), "it is known");
        assert!(cache.unconfirmed.is_empty());
    }

    #[test]
    fn late_answer_to_a_create_does_not_revive_a_deleted_object() {
        let mut cache = listed(vec![]);
        cache.observe(Event::Apply(pod("a", "1", 11)));
        cache.observe(Event::Delete(pod("a", "1", 12)));
        assert!(cache.wrote(pod("a", "1", 11), Instant::now()).is_empty());
        assert!(names(&cache).is_empty());
    }

    #[test]
    fn watch_that_lags_behind_an_own_write_does_not_undo_it() {
        let mut cache = listed(vec![pod("a", "1", 10)]);
        cache.wrote(pod("a", "1", 15), Instant::now());
        assert!(cache.observe(Event::Apply(pod("a", "1", 12))).is_empty());
        assert_eq!(cache.objects.values().next().unwrap().resource_version().unwrap(), "15");
        cache.deleted(&pod("a", "1", 15), Instant::now());
        assert!(cache.observe(Event::Apply(pod("a", "1", 16))).is_empty(), "it is deleted");
        assert!(names(&cache).is_empty());
        cache.observe(Event::Delete(pod("a", "1", 17)));
        assert_eq!(cache.observe(Event::Apply(pod("a", "2", 18))).len(), 1, "a new object of that name");
    }

    #[test]
    fn list_replaces_all_but_younger_own_writes() {
        let mut cache = listed(vec![pod("a", "1", 10), pod("b", "2", 11)]);
        cache.wrote(pod("old", "3", 12), Instant::now());
        cache.observe(Event::Init);
        cache.wrote(pod("young", "4", 13), Instant::now());
        cache.observe(Event::InitApply(pod("b", "2", 11)));
        let changes = cache.observe(Event::InitDone);
        assert_eq!(names(&cache), ["b", "young"]);
        assert_eq!(changes.len(), 2, "a and old are gone: {changes:?}");
    }

    #[test]
    fn unconfirmed_writes_expire() {
        let mut cache = listed(vec![]);
        let then = Instant::now();
        cache.wrote(pod("a", "1", 10), then);
        assert!(cache.expire(then, Duration::from_secs(300)).is_empty());
        assert_eq!(cache.expire(then + Duration::from_secs(301), Duration::from_secs(300)).len(), 1);
        assert!(cache.all().is_empty());
    }
}
