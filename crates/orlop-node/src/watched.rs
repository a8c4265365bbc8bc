//! Objects of a kind in all namespaces, as a watch keeps them.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::StreamExt;
use orlop_client::{
    Api, Client, Resource, ResourceExt, watch_kind,
    watcher::{self, Event},
};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

/// Longest wait for the first list.
const SYNC_TIMEOUT: Duration = Duration::from_secs(10);

/// Namespace and name of an object.
pub(crate) type Key = (String, String);

type Map<K> = BTreeMap<Key, Arc<K>>;

/// Objects of a kind by namespace and name.
#[derive(Debug)]
pub(crate) struct Watched<K> {
    all: Arc<Mutex<Map<K>>>,
    /// Counts changes; 0 until the first list is complete.
    changes: Arc<watch::Sender<u64>>,
}

impl<K> Clone for Watched<K> {
    fn clone(&self) -> Self {
        Self { all: self.all.clone(), changes: self.changes.clone() }
    }
}

impl<K> Watched<K>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Debug + Send + Sync + 'static,
{
    /// Starts to watch a kind.
    pub(crate) fn start(client: Client) -> Self {
        let watched = Self { all: Arc::default(), changes: Arc::new(watch::Sender::new(0)) };
        tokio::spawn(watched.clone().run(client));
        watched
    }

    /// Waits for the first list, for as long as a container may wait for it.
    pub(crate) async fn synced(&self) {
        let mut changes = self.changes.subscribe();
        let _ = tokio::time::timeout(SYNC_TIMEOUT, changes.wait_for(|changes| *changes > 0)).await;
    }

    /// Returns true once the first list is complete.
    pub(crate) fn is_synced(&self) -> bool {
        *self.changes.borrow() > 0
    }

    /// Returns all objects.
    pub(crate) fn all(&self) -> Vec<Arc<K>> {
        self.lock().values().cloned().collect()
    }

    /// Returns an object.
    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.lock().get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    /// Returns the objects of a namespace.
    pub(crate) fn of_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        let all = self.lock();
        let own = all.range((namespace.to_owned(), String::new())..);
        own.take_while(|((found, _), _)| found == namespace).map(|(_, object)| object.clone()).collect()
    }

    /// Returns a receiver that sees every change.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    async fn run(self, client: Client) {
        let api: Api<K> = Api::all(client);
        let mut events = watch_kind(&api, watcher::Config::default());
        let mut listed = Map::new();
        while let Some(event) = events.next().await {
            let key = |object: &K| (object.namespace().unwrap_or_default(), object.name_any());
            match event {
                Ok(Event::Init) => listed.clear(),
                Ok(Event::InitApply(object)) => drop(listed.insert(key(&object), Arc::new(object))),
                Ok(Event::InitDone) => {
                    *self.lock() = std::mem::take(&mut listed);
                    self.changed();
                }
                Ok(Event::Apply(object)) => {
                    self.lock().insert(key(&object), Arc::new(object));
                    self.changed();
                }
                Ok(Event::Delete(object)) => {
                    self.lock().remove(&key(&object));
                    self.changed();
                }
                Err(error) => tracing::debug!(%error, kind = %K::kind(&()), "cannot watch"),
            }
        }
    }

    fn changed(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }

    fn lock(&self) -> MutexGuard<'_, Map<K>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
