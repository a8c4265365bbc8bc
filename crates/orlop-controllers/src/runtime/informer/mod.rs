//! Shared informers: one list and watch of a kind, one cache, and the controllers that subscribe to it.
//!
//! The cache is written through. A controller hands what the API answered to its own writes to
//! [`Informer::wrote`] and [`Informer::deleted`], and the next reconciliation reads it from the cache before the
//! watch has delivered it. This stands for the expectations of kube-controller-manager: no pod is created twice
//! because a watch lags.
//!
//! An informer runs while somebody holds it. A controller that is off, or does not hold its lease, costs no watch.

mod cache;
mod key;

use std::{
    any::{Any, TypeId},
    collections::HashMap,
    fmt::Debug,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak},
};

use cache::Cache;
pub use cache::Change;
use futures_util::StreamExt;
pub use key::Key;
use orlop_client::{Api, Client, watch_kind, watcher};
use serde::de::DeserializeOwned;
use tokio::{
    sync::watch,
    task::AbortHandle,
    time::{Duration, Instant},
};

/// Time after which a write that the watch has not confirmed is dropped from the cache, as expectations expire.
const UNCONFIRMED_MAX: Duration = Duration::from_secs(300);

/// A kind that can be cached.
pub trait Cached:
    orlop_client::Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static
{
}

impl<K> Cached for K where
    K: orlop_client::Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static
{
}

/// The informers of a process, at most one of a kind.
#[derive(Clone)]
pub struct Informers {
    client: Client,
    running: Arc<Mutex<HashMap<TypeId, Box<dyn Any + Send + Sync>>>>,
}

impl Debug for Informers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Informers").finish_non_exhaustive()
    }
}

impl Informers {
    pub(super) fn new(client: Client) -> Self {
        Self { client, running: Arc::default() }
    }

    /// Returns the informer of a kind. The first caller starts it.
    pub fn of<K: Cached>(&self) -> Arc<Informer<K>> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let known = running.get(&TypeId::of::<K>());
        if let Some(informer) = known.and_then(|known| known.downcast_ref::<Weak<Informer<K>>>()?.upgrade()) {
            return informer;
        }
        let informer = Arc::new(Informer::start(self.client.clone()));
        running.insert(TypeId::of::<K>(), Box::new(Arc::downgrade(&informer)));
        informer
    }
}

/// The cache of one kind and its watch. The watch ends when the informer is dropped.
pub struct Informer<K: Cached> {
    shared: Arc<Shared<K>>,
    synced: watch::Receiver<bool>,
    task: AbortHandle,
}

type Handler<K> = Box<dyn Fn(&Change<K>) + Send + Sync>;

/// Handlers by their number, and the number of the last one.
type Handlers<K> = (u64, Vec<(u64, Handler<K>)>);

struct Shared<K: Cached> {
    cache: RwLock<Cache<K>>,
    handlers: Mutex<Handlers<K>>,
}

impl<K: Cached> Debug for Informer<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Informer").field("kind", &K::kind(&())).finish_non_exhaustive()
    }
}

impl<K: Cached> Informer<K> {
    fn start(client: Client) -> Self {
        let shared = Arc::new(Shared { cache: RwLock::new(Cache::default()), handlers: Mutex::default() });
        let (sync, synced) = watch::channel(false);
        let task = tokio::spawn(follow(Api::all(client), shared.clone(), sync)).abort_handle();
        Self { shared, synced, task }
    }

    /// Waits until the cache holds every object.
    pub async fn synced(&self) {
        let mut synced = self.synced.clone();
        // An error means that the watch has ended with its informer.
        let _ = synced.wait_for(|synced| *synced).await;
    }

    /// Calls `handler` for every change, beginning with every object in the cache, while the subscription lives.
    /// The handler must be short: it runs between two events of the watch.
    #[must_use = "the subscription ends when it is dropped"]
    pub fn subscribe(
        self: &Arc<Self>,
        handler: impl Fn(&Change<K>) + Send + Sync + 'static,
    ) -> Subscription<K> {
        let mut handlers = self.shared.handlers();
        for object in self.all() {
            handler(&Change { old: None, new: Some(object) });
        }
        handlers.0 += 1;
        let id = handlers.0;
        handlers.1.push((id, Box::new(handler)));
        Subscription { informer: self.clone(), id }
    }

    /// Returns an object.
    pub fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.shared.read(|cache| cache.get(key))
    }

    /// Returns every object.
    pub fn all(&self) -> Vec<Arc<K>> {
        self.shared.read(Cache::all)
    }

    /// Returns the objects of a namespace.
    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        self.shared.read(|cache| cache.in_namespace(namespace))
    }

    /// Returns the objects whose controller has this uid.
    pub fn controlled_by(&self, uid: &str) -> Vec<Arc<K>> {
        self.shared.read(|cache| cache.controlled_by(uid))
    }

    /// Returns the objects of a namespace that have no controller.
    pub fn without_controller(&self, namespace: &str) -> Vec<Arc<K>> {
        self.shared.read(|cache| cache.without_controller(namespace))
    }

    /// Puts the answer to an own create or update into the cache.
    pub fn wrote(&self, object: K) {
        self.shared.change(|cache| cache.wrote(object, Instant::now()));
    }

    /// Takes an object into account that an own delete has removed at once.
    pub fn deleted(&self, object: &K) {
        self.shared.change(|cache| cache.deleted(object, Instant::now()));
    }
}

impl<K: Cached> Drop for Informer<K> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A registered handler. Dropping it removes the handler; it also keeps the informer running.
pub struct Subscription<K: Cached> {
    informer: Arc<Informer<K>>,
    id: u64,
}

impl<K: Cached> Debug for Subscription<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subscription").field("id", &self.id).finish_non_exhaustive()
    }
}

impl<K: Cached> Drop for Subscription<K> {
    fn drop(&mut self) {
        self.informer.shared.handlers().1.retain(|(id, _)| *id != self.id);
    }
}

impl<K: Cached> Shared<K> {
    fn handlers(&self) -> MutexGuard<'_, Handlers<K>> {
        self.handlers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read<T>(&self, read: impl FnOnce(&Cache<K>) -> T) -> T {
        read(&self.cache.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes the cache, then calls the handlers.
    fn change(&self, change: impl FnOnce(&mut Cache<K>) -> Vec<Change<K>>) {
        let changes = change(&mut self.cache.write().unwrap_or_else(PoisonError::into_inner));
        if changes.is_empty() {
            return;
        }
        let handlers = self.handlers();
        for change in &changes {
            handlers.1.iter().for_each(|(_, handler)| handler(change));
        }
    }
}

/// Follows a kind for ever.
async fn follow<K: Cached>(api: Api<K>, shared: Arc<Shared<K>>, sync: watch::Sender<bool>) {
    let mut events = watch_kind(&api, watcher::Config::default());
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => {
                let initialized = matches!(event, watcher::Event::InitDone);
                shared.change(|cache| {
                    let mut changes = cache.observe(event);
                    changes.extend(cache.expire(Instant::now(), UNCONFIRMED_MAX));
                    changes
                });
                if initialized {
                    sync.send_replace(true);
                }
            }
            Err(error) => {
                tracing::debug!(%error, kind = %K::kind(&()), "watch failed; retrying with back-off");
            }
        }
    }
}
