//! A copy of all objects of a kind that follows the server: list once, then watch, for ever.
//!
//! Where the copy stands is one resource version. A watch that ends is resumed from it, so nothing is
//! fetched twice; when the server says that the version is too old (or is from an earlier life of a server
//! that keeps nothing), everything is listed again and what changed in between is told as changes.

use std::{
    collections::BTreeMap,
    future::Future,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use tokio::{sync::watch, task::JoinHandle};
use tonic::{Code, Status};

/// Waits between attempts that fail: the first, and the longest.
const BACK_OFF_FIRST: Duration = Duration::from_millis(100);
const BACK_OFF_LONGEST: Duration = Duration::from_secs(5);

/// Namespace and name.
pub type Key = (String, String);

/// Something that can be listed and watched.
pub trait Source: Send + Sync + 'static {
    /// What it holds.
    type Object: Send + Sync + 'static;
    /// An open watch.
    type Watch: Send;

    /// Everything there is, and the version to watch from.
    fn list(&self) -> impl Future<Output = Result<(Vec<Self::Object>, String), Status>> + Send;
    /// Changes after a version.
    fn watch(&self, after: &str) -> impl Future<Output = Result<Self::Watch, Status>> + Send;
    /// The next change; `None` when the server ended the watch.
    fn next(
        watch: &mut Self::Watch,
    ) -> impl Future<Output = Result<Option<WatchEvent<Self::Object>>, Status>> + Send;
    /// The object's key.
    fn key(object: &Self::Object) -> Key;
    /// The object's resource version.
    fn version(object: &Self::Object) -> &str;
}

/// One message of a watch.
#[derive(Debug)]
pub enum WatchEvent<T> {
    /// Created or changed.
    Applied(T),
    /// Deleted; the last state.
    Deleted(T),
    /// Nothing happened up to this version.
    Bookmark(String),
}

/// What became different in the cache.
#[derive(Clone, Debug)]
pub enum Change<T> {
    /// An object is there that was not.
    Added(Arc<T>),
    /// An object has changed.
    Modified(Arc<T>),
    /// An object is gone; the last state known.
    Deleted(Arc<T>),
}

/// A cache that keeps itself up to date until it is dropped.
#[derive(Debug)]
pub struct Cache<S: Source> {
    objects: Arc<RwLock<BTreeMap<Key, Arc<S::Object>>>>,
    /// The version the cache shows; `None` until the first list is in.
    version: watch::Receiver<Option<String>>,
    task: JoinHandle<()>,
}

impl<S: Source> Cache<S> {
    /// Starts following.
    pub fn start(source: S) -> Self {
        Self::start_with(source, |_| {})
    }

    /// Starts following, and tells each change, in order, once the cache shows it. The function runs between
    /// two messages of the server: one that takes long keeps the cache back.
    pub fn start_with(source: S, changed: impl FnMut(Change<S::Object>) + Send + 'static) -> Self {
        let objects = Arc::new(RwLock::new(BTreeMap::new()));
        let (sender, version) = watch::channel(None);
        let follower = Follower { source, objects: objects.clone(), version: sender, changed };
        Self { objects, version, task: tokio::spawn(follower.follow()) }
    }

    /// Waits until everything has been listed once.
    pub async fn synced(&self) {
        // The follower runs as long as the cache, so the channel is open.
        let _ = self.version.clone().wait_for(Option::is_some).await;
    }

    /// Follows the version that the cache shows: wakes after every change.
    pub fn versions(&self) -> watch::Receiver<Option<String>> {
        self.version.clone()
    }

    /// One object.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<S::Object>> {
        self.read(|objects| objects.get(&(namespace.to_owned(), name.to_owned())).cloned())
    }

    /// All objects, sorted by namespace and name.
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

struct Follower<S: Source, F> {
    source: S,
    objects: Arc<RwLock<BTreeMap<Key, Arc<S::Object>>>>,
    version: watch::Sender<Option<String>>,
    changed: F,
}

/// Where following stands.
enum State {
    /// Nothing is known, or what is known is too old to go on from.
    List,
    /// The cache shows this version.
    Watch(String),
}

impl<S: Source, F: FnMut(Change<S::Object>) + Send> Follower<S, F> {
    async fn follow(mut self) {
        let mut state = State::List;
        let mut failures = 0;
        loop {
            let result = match &mut state {
                State::List => self.list().await.map(|version| state = State::Watch(version)),
                State::Watch(version) => {
                    let before = version.clone();
                    let ended = self.watch(version).await;
                    // A watch that told something was a good one, however it ended.
                    if *version != before {
                        failures = 0;
                    }
                    ended
                }
            };
            match result {
                // Not zero: a server that ends every watch at once must not be asked without a pause.
                Ok(()) => failures = failures.min(1),
                Err(status) if status.code() == Code::OutOfRange => {
                    tracing::info!(reason = status.message(), "listing devices again");
                    state = State::List;
                    failures = 0;
                }
                Err(status) => {
                    tracing::debug!(code = ?status.code(), reason = status.message(), "trying again");
                }
            }
            if failures > 0 {
                let pause = BACK_OFF_FIRST * (1 << failures.min(16));
                tokio::time::sleep(pause.min(BACK_OFF_LONGEST)).await;
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

    /// Follows one watch to its end, moving `version` along.
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
