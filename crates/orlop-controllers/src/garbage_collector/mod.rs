//! Garbage collection: an object whose owners are gone goes too.
//!
//! Nothing is kept in memory but work that is due. When an object is deleted, its dependents are looked up
//! by its uid; when an object with owners appears or changes, its owners are looked up. An Orlop server
//! answers the first from its index, over all kinds at once; against another server every kind is listed.

mod dependents;
mod item;
mod kinds;
mod watching;

use std::{
    collections::{HashSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use kube::{Client, ResourceExt};
use tokio::{
    sync::{Notify, RwLock},
    task::JoinSet,
    time::{Duration, sleep},
};

use self::{
    item::Item,
    kinds::{GroupKind, Kinds},
};
use crate::{
    discovered::{Metadata, Resource, Resources},
    retry::{Backoff, until_done},
};

/// The name of the controller.
pub(crate) const NAME: &str = "garbage-collector-controller";

/// Work done side by side.
const WORKERS: usize = 4;
/// How often to look for kinds that have come or gone.
const LOOK: Duration = Duration::from_secs(5);

/// Something to look into.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Work {
    /// Whether an object's owners are still there.
    Owners(Item),
    /// What depends on an object that is gone.
    Dependents { uid: String },
    /// An object that waits to be collected: for its dependents to go, or to be let go.
    Deleting(Item),
}

impl Resource {
    fn kind(&self) -> GroupKind {
        GroupKind::of(&self.api.api_version, &self.api.kind)
    }
}

struct Collector {
    client: Client,
    resources: RwLock<Resources>,
    kinds: Mutex<Kinds>,
    queue: Mutex<Queue>,
    arrived: Notify,
    /// Definitions of kinds have changed: there may be new ones.
    defined: Notify,
}

/// Work that is due, each once.
#[derive(Debug, Default)]
struct Queue {
    due: VecDeque<Work>,
    known: HashSet<Work>,
}

/// Collects garbage, for ever.
pub(crate) async fn run(client: Client) {
    let resources = until_done("discovery", || Resources::discover(&client)).await;
    let collector = Arc::new(Collector {
        client,
        resources: RwLock::new(resources),
        kinds: Mutex::default(),
        queue: Mutex::default(),
        arrived: Notify::new(),
        defined: Notify::new(),
    });
    let mut tasks = JoinSet::new();
    for _ in 0..WORKERS {
        let collector = collector.clone();
        tasks.spawn(async move { collector.work().await });
    }
    collector.watch_all().await;
}

impl Collector {
    fn add(&self, work: Work) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.known.insert(work.clone()) {
            queue.due.push_back(work);
            self.arrived.notify_one();
        }
    }

    fn take(&self) -> Option<Work> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let work = queue.due.pop_front()?;
        queue.known.remove(&work);
        if !queue.due.is_empty() {
            self.arrived.notify_one();
        }
        Some(work)
    }

    async fn work(&self) {
        let mut backoff = Backoff::default();
        loop {
            let Some(work) = self.take() else {
                self.arrived.notified().await;
                continue;
            };
            match self.do_one(&work).await {
                Ok(()) => backoff.reset(),
                Err(error) => {
                    tracing::debug!(%error, ?work, "will be tried again");
                    self.add(work);
                    backoff.wait().await;
                }
            }
        }
    }

    async fn do_one(&self, work: &Work) -> kube::Result<()> {
        match work {
            Work::Owners(item) => self.check_owners(item).await,
            Work::Deleting(item) => self.finish_deleting(item).await,
            Work::Dependents { uid } => {
                for dependent in self.dependents(uid).await? {
                    self.add(Work::Owners(dependent));
                }
                Ok(())
            }
        }
    }

    fn kinds(&self) -> MutexGuard<'_, Kinds> {
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on, whatever goes of a kind is seen.
    fn begin(&self, resource: &Resource) {
        let unsettled = self.kinds().begin(resource.kind());
        unsettled.into_iter().for_each(|item| self.add(Work::Owners(item)));
    }

    /// What an object that was seen makes due.
    fn seen(&self, resource: &Resource, object: &Metadata) {
        self.look_for_kinds(resource);
        let item = Item::of(resource, object);
        if item.is_deleting_for_us(object) {
            self.add(Work::Deleting(item.clone()));
        }
        if !object.owner_references().is_empty() {
            self.add(Work::Owners(item));
        }
    }

    fn look_for_kinds(&self, changed: &Resource) {
        if matches!(changed.api.kind.as_str(), "CustomResourceDefinition" | "APIService") {
            self.defined.notify_one();
        }
    }

    /// What an object that went makes due.
    fn gone(&self, resource: &Resource, object: &Metadata) {
        self.look_for_kinds(resource);
        if let Some(uid) = object.uid() {
            self.add(Work::Dependents { uid });
        }
        for owner in object.owner_references() {
            self.add(Work::Deleting(Item {
                api_version: owner.api_version.clone(),
                kind: owner.kind.clone(),
                namespace: object.namespace(),
                name: owner.name.clone(),
                uid: owner.uid.clone(),
            }));
        }
    }

    /// Watches every kind there is, and those that come.
    async fn watch_all(self: &Arc<Self>) {
        let mut watched = HashSet::new();
        let mut watches = JoinSet::new();
        loop {
            let collectable: Vec<Resource> = self
                .resources
                .read()
                .await
                .iter()
                .filter(|resource| resource.is_collectable())
                .cloned()
                .collect();
            for resource in collectable {
                let key = (resource.api.api_version.clone(), resource.api.plural.clone());
                // Events own nothing, are owned by nothing that matters, and are many.
                if resource.api.kind != "Event" && watched.insert(key.clone()) {
                    let collector = self.clone();
                    watches.spawn(async move {
                        collector.watch(&resource).await;
                        collector.kinds().end(&resource.kind());
                        key
                    });
                }
            }
            tokio::select! {
                // A watch ends when its kind is gone; should it come again, it is watched again.
                Some(Ok(key)) = watches.join_next() => drop(watched.remove(&key)),
                () = self.defined.notified() => {}
                () = sleep(LOOK) => {}
            }
            if let Ok(resources) = Resources::discover(&self.client).await {
                *self.resources.write().await = resources;
            }
        }
    }
}
