//! An informer: a cache of all objects of a kind, by list and watch.
//!
//! The cache has one resource version. A watch that ends is resumed from it. If the server reports the version as expired
//! (compacted, or of a previous process of an in-memory server), the cache lists again and reports the differences.

use std::{
    collections::BTreeMap,
    future::Future,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use tokio::{sync::watch, task::JoinHandle};
use tonic::{Code, Status};

/// Exponential back-off: first and longest delay.
const BACKOFF_FIRST: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// Namespace and name.
pub type Key = (String, String);

/// A resource that can be listed and watched.
pub trait Source: Send + Sync + 'static {
    /// The object type.
    type Object: Send + Sync + 'static;
    /// An open watch.
    type Watch: Send;

    /// Lists all objects. Returns them with the version to watch from.
    fn list(&self) -> impl Future<Output = Result<(Vec<Self::Object>, String), Status>> + Send;
    /// Watches changes after a version.
    fn watch(&self, after: &str) -> impl Future<Output = Result<Self::Watch, Status>> + Send;
    /// Returns the next event. `None` if the server ended the watch.
    fn next(
        watch: &mut Self::Watch,
    ) -> impl Future<Output = Result<Option<WatchEvent<Self::Object>>, Status>> + Send;
    /// Returns the key of an object.
    fn key(object: &Self::Object) -> Key;
    /// Returns the resource version of an object.
    fn version(object: &Self::Object) -> &str;
}

/// A watch event.
#[derive(Debug)]
pub enum WatchEvent<T> {
    /// Created or updated.
    Applied(T),
    /// Deleted, with the last state.
    Deleted(T),
    /// No further change up to this version.
    Bookmark(String),
}

/// A change of the cache.
#[derive(Clone, Debug)]
pub enum Change<T> {
    /// A new object.
    Added(Arc<T>),
    /// An updated object.
    Modified(Arc<T>),
    /// A deleted object, with the last known state.
    Deleted(Arc<T>),
}

/// A cache that follows the server until it is dropped.
#[derive(Debug)]
pub struct Cache<S: Source> {
    objects: Arc<RwLock<BTreeMap<Key, Arc<S::Object>>>>,
    /// Resource version of the cache. `None` until the first list.
    version: watch::Receiver<Option<String>>,
    task: JoinHandle<()>,
}

impl<S: Source> Cache<S> {
    /// Starts the cache.
    pub fn start(source: S) -> Self {
        Self::start_with(source, |_| {})
    }

    /// Starts the cache with a handler, which is called for each change, in order, after the cache has it. A slow handler
    /// delays the cache.
    pub fn start_with(source: S, changed: impl FnMut(Change<S::Object>) + Send + 'static) -> Self {
        let objects = Arc::new(RwLock::new(BTreeMap::new()));
        let (sender, version) = watch::channel(None);
        let reflector = Reflector { source, objects: objects.clone(), version: sender, changed };
        Self { objects, version, task: tokio::spawn(reflector.run()) }
    }

    /// Waits for the first list.
    pub async fn synced(&self) {
        // The reflector runs as long as the cache, so the channel is open.
        let _ = self.version.clone().wait_for(Option::is_some).await;
    }

    /// Returns a receiver of the cache's version, which is notified after every change.
    pub fn versions(&self) -> watch::Receiver<Option<String>> {
        self.version.clone()
    }

    /// Returns an object.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<S::Object>> {
        self.read(|objects| objects.get(&(namespace.to_owned(), name.to_owned())).cloned())
    }

    /// Returns all objects, sorted by namespace and name.
    pub fn list(&self) -> Vec<Arc<S::Object>> {
        self.read(|objects| objects.values().cloned().collect())
    }

    fn read<T>(&self, look: impl FnOnce(&BTreeMap<Key, Arc<S::Object>>) -> T) -> T {
        look(&self.objects.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<S: Source> Drop for Cache<S> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Reflector<S: Source, F> {
    source: S,
    objects: Arc<RwLock<BTreeMap<Key, Arc<S::Object>>>>,
    version: watch::Sender<Option<String>>,
    changed: F,
}

/// State of the reflector.
enum State {
    /// Not listed yet, or the version has expired.
    List,
    /// Listed or watched up to this version.
    Watch(String),
}

impl<S: Source, F: FnMut(Change<S::Object>) + Send> Reflector<S, F> {
    async fn run(mut self) {
        let mut state = State::List;
        let mut failures = 0;
        loop {
            let result = match &mut state {
                State::List => self.list().await.map(|version| state = State::Watch(version)),
                State::Watch(version) => {
                    let before = version.clone();
                    let ended = self.watch(version).await;
                    // A watch that delivered events resets the back-off, however it ended.
                    if *version != before {
                        failures = 0;
                    }
                    ended
                }
            };
            match result {
                // At least one: a server that ends every watch immediately must not be polled in a loop.
                Ok(()) => failures = failures.min(1),
                Err(status) if status.code() == Code::OutOfRange => {
                    tracing::info!(reason = status.message(), "resource version expired; listing again");
                    state = State::List;
                    failures = 0;
                }
                Err(status) => {
                    tracing::debug!(code = ?status.code(), reason = status.message(), "list or watch failed; retrying");
                }
            }
            if failures > 0 {
                let delay = BACKOFF_FIRST * (1 << failures.min(16));
                tokio::time::sleep(delay.min(BACKOFF_MAX)).await;
            }
            failures += 1;
        }
    }

    async fn list(&mut self) -> Result<String, Status> {
        let (listed, version) = self.source.list().await?;
        let listed: BTreeMap<_, _> = listed.into_iter().map(|o| (S::key(&o), Arc::new(o))).collect();
        let before = {
            let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *objects, listed.clone())
        };
        self.version.send_replace(Some(version.clone()));
        for (key, object) in &before {
            if !listed.contains_key(key) {
                (self.changed)(Change::Deleted(object.clone()));
            }
        }
        for (key, object) in listed {
            match before.get(&key) {
                None => (self.changed)(Change::Added(object)),
                Some(old) if S::version(old) != S::version(&object) => {
                    (self.changed)(Change::Modified(object));
                }
                Some(_) => {}
            }
        }
        Ok(version)
    }

    /// Applies the events of one watch and advances `version`.
    async fn watch(&mut self, version: &mut String) -> Result<(), Status> {
        let mut watch = self.source.watch(version).await?;
        while let Some(event) = S::next(&mut watch).await? {
            *version = self.apply(event);
            self.version.send_replace(Some(version.clone()));
        }
        Ok(())
    }

    fn apply(&mut self, event: WatchEvent<S::Object>) -> String {
        let write = || self.objects.write().unwrap_or_else(PoisonError::into_inner);
        let (version, change) = match event {
            WatchEvent::Bookmark(version) => return version,
            WatchEvent::Applied(object) => {
                let object = Arc::new(object);
                let version = S::version(&object).to_owned();
                let replaced = write().insert(S::key(&object), object.clone());
                (version, if replaced.is_some() { Change::Modified(object) } else { Change::Added(object) })
            }
            WatchEvent::Deleted(object) => {
                write().remove(&S::key(&object));
                (S::version(&object).to_owned(), Change::Deleted(Arc::new(object)))
            }
        };
        (self.changed)(change);
        version
    }
}
