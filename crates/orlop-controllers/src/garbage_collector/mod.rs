//! Garbage collection: an object whose owners are gone goes too.
//!
//! Nothing is kept in memory but work that is due. When an object is deleted, its dependents are looked up
//! by its uid; when an object with owners appears or changes, its owners are looked up. An Orlop server
//! answers the first from its index and tells of the others in one stream, over all kinds at once; against
//! another server every kind is listed and watched.

mod dependents;
mod everything;
mod item;
mod kinds;
mod watching;

use std::{
    collections::{HashSet, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use kube::{Client, ResourceExt};
use tokio::{
    sync::{Notify, RwLock, RwLockReadGuard},
    task::JoinSet,
    time::{Duration, sleep},
};

use self::{
    everything::Coverage,
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
    coverage: Mutex<Coverage>,
    resources: RwLock<Resources>,
    /// Kinds may have come or gone since they were discovered.
    doubtful: AtomicBool,
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
    let collector = Arc::new(Collector {
        client,
        coverage: Mutex::new(Coverage::Nothing),
        resources: RwLock::default(),
        doubtful: AtomicBool::new(true),
        kinds: Mutex::default(),
        queue: Mutex::default(),
        arrived: Notify::new(),
        defined: Notify::new(),
    });
    let coverage = until_done("coverage", || collector.ask_coverage()).await;
    collector.set_coverage(coverage);
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
    fn seen(&self, type_of: (&str, &str), object: &Metadata) {
        self.look_for_kinds(type_of);
        let item = Item::of(type_of, object);
        if item.is_deleting_for_us(object) {
            self.add(Work::Deleting(item.clone()));
        }
        if !object.owner_references().is_empty() {
            self.add(Work::Owners(item));
        }
    }

    fn look_for_kinds(&self, (_, changed): (&str, &str)) {
        if matches!(changed, "CustomResourceDefinition" | "APIService") {
            self.doubt_kinds();
        }
    }

    /// What is known of kinds may not be so any more.
    fn doubt_kinds(&self) {
        self.doubtful.store(true, Ordering::Release);
        self.defined.notify_one();
    }

    /// What an object that went makes due.
    fn gone(&self, type_of: (&str, &str), object: &Metadata) {
        self.look_for_kinds(type_of);
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

    fn coverage(&self) -> Coverage {
        self.coverage.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_coverage(&self, coverage: Coverage) {
        *self.coverage.lock().unwrap_or_else(PoisonError::into_inner) = coverage;
    }

    /// What is known of kinds, asked again if that is in doubt.
    async fn resources(&self) -> kube::Result<RwLockReadGuard<'_, Resources>> {
        if self.doubtful.load(Ordering::Acquire) {
            let mut resources = self.resources.write().await;
            if self.doubtful.swap(false, Ordering::AcqRel) {
                let discovered = Resources::discover(&self.client).await;
                *resources = discovered.inspect_err(|_| self.doubtful.store(true, Ordering::Release))?;
            }
            return Ok(resources.downgrade());
        }
        Ok(self.resources.read().await)
    }

    /// The resource of a kind, if there is one.
    async fn resource(&self, api_version: &str, kind: &str) -> kube::Result<Option<Resource>> {
        Ok(self.resources().await?.get(api_version, kind).cloned())
    }

    /// What has to be watched and listed kind by kind.
    async fn one_by_one(&self) -> kube::Result<Vec<Resource>> {
        let coverage = self.coverage();
        if coverage.is_complete() {
            return Ok(Vec::new());
        }
        let resources = self.resources().await?;
        let here = resources.iter().filter(|resource| {
            // Events own nothing, are owned by nothing that matters, and are many.
            resource.is_collectable() && resource.api.kind != "Event" && !coverage.has(&resource.kind())
        });
        Ok(here.cloned().collect())
    }

    /// Watches every kind there is, and those that come.
    async fn watch_all(self: &Arc<Self>) {
        let mut watched = HashSet::new();
        let mut watches = JoinSet::new();
        let mut everything = JoinSet::new();
        loop {
            if everything.is_empty() && self.coverage() != Coverage::Nothing {
                let collector = self.clone();
                everything.spawn(async move { collector.watch_everything().await });
            }
            for resource in self.one_by_one().await.unwrap_or_default() {
                let key = (resource.api.api_version.clone(), resource.api.plural.clone());
                if watched.insert(key.clone()) {
                    let collector = self.clone();
                    watches.spawn(async move {
                        collector.watch(&resource).await;
                        collector.kinds().end(&resource.kind());
                        key
                    });
                }
            }
            if let Err(error) = self.settle().await {
                tracing::debug!(%error, "kinds are not known now");
            }
            tokio::select! {
                // A watch ends when its kind is gone; should it come again, it is watched again.
                Some(Ok(key)) = watches.join_next() => drop(watched.remove(&key)),
                () = self.defined.notified() => {}
                () = sleep(LOOK) => {}
            }
            match self.ask_coverage().await {
                Ok(coverage) => self.set_coverage(coverage),
                Err(error) => tracing::debug!(%error, "coverage is not known now"),
            }
            // Where definitions are not seen to change, kinds come and go unannounced.
            if !self.coverage().is_complete() {
                self.doubtful.store(true, Ordering::Release);
            }
        }
    }

    /// Looks again at what waited for kinds that are there now, and whose objects' ends are seen in the stream.
    async fn settle(&self) -> kube::Result<()> {
        let unsettled = self.kinds().unsettled();
        let coverage = self.coverage();
        for kind in unsettled.into_iter().filter(|kind| coverage.has(kind)) {
            if self.resources().await?.has(&kind.group, &kind.kind) {
                self.kinds().settle(&kind).into_iter().for_each(|item| self.add(Work::Owners(item)));
            }
        }
        Ok(())
    }
}
