//! Garbage collection: deletes objects whose owners are deleted.
//!
//! Nothing is kept in memory but queued work. When an object is deleted, its dependents are looked up by its
//! uid; when an object with owners appears or changes, its owners are looked up. An Orlop server has an index
//! for the first and one stream over all kinds for the second; on another server every resource is listed and
//! watched.

mod dependents;
mod group_kind;
mod object;
mod owners;
mod stream;
mod unresolved;
mod watch;

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use orlop_client::{Client, ResourceExt};
use tokio::{
    sync::{Notify, RwLock, RwLockReadGuard},
    task::JoinSet,
    time::{Duration, sleep},
};

use self::{
    group_kind::GroupKind,
    object::{ObjectReference, waits_for_collector},
    owners::KnownOwners,
    stream::Coverage,
    unresolved::WatchedKinds,
};
use crate::{
    backoff::retry,
    discovery::{Metadata, Resource, Resources},
    runtime::{Action, Context, WorkQueue},
};

/// Name of the controller.
pub(crate) const NAME: &str = "garbage-collector-controller";

/// Items that are processed at a time, as by kube-controller-manager.
const CONCURRENCY: usize = 20;
/// Time between discoveries on a server that does not announce new kinds.
const DISCOVERY_PERIOD: Duration = Duration::from_secs(5);

/// An item of the work queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Work {
    /// Delete an object if its owners are absent.
    AttemptToDelete(ObjectReference),
    /// Queue the dependents of an object that was deleted.
    QueueDependents { uid: String },
    /// Carry out the foreground deletion or orphaning of a deleted object.
    ProcessDeleting(ObjectReference),
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
    /// Kinds may have been added or removed since `resources` was discovered.
    discovery_is_stale: AtomicBool,
    kinds: Mutex<WatchedKinds>,
    owners: KnownOwners,
    queue: Arc<WorkQueue<Work>>,
    definitions_changed: Notify,
}

/// Collects garbage, for ever.
pub(crate) async fn run(context: Context) {
    let collector = Arc::new(Collector {
        client: context.client.clone(),
        coverage: Mutex::new(Coverage::None),
        resources: RwLock::default(),
        discovery_is_stale: AtomicBool::new(true),
        kinds: Mutex::default(),
        owners: KnownOwners::default(),
        queue: context.work_queue(),
        definitions_changed: Notify::new(),
    });
    let coverage = retry("coverage of the stream", || collector.fetch_coverage()).await;
    collector.set_coverage(coverage);
    tokio::select! {
        () = collector.watch_all() => {}
        () = collector.queue.run(CONCURRENCY, |work| {
            let collector = collector.clone();
            async move { collector.reconcile(&work).await.map(|()| Action::Done) }
        }) => {}
    }
}

impl Collector {
    async fn reconcile(&self, work: &Work) -> orlop_client::Result<()> {
        match work {
            Work::AttemptToDelete(object) => self.attempt_to_delete(object).await,
            Work::ProcessDeleting(object) => self.process_deleting(object).await,
            Work::QueueDependents { uid } => {
                for dependent in self.dependents(uid).await? {
                    self.queue.add(Work::AttemptToDelete(dependent));
                }
                Ok(())
            }
        }
    }

    fn kinds(&self) -> MutexGuard<'_, WatchedKinds> {
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks a resource as watched: from now on every deletion of its objects is seen.
    fn watch_started(&self, resource: &Resource) {
        let unresolved = self.kinds().start(resource.kind());
        unresolved.into_iter().for_each(|object| self.queue.add(Work::AttemptToDelete(object)));
    }

    /// Queues the work that a new or changed object makes due.
    fn object_changed(&self, type_of: (&str, &str), object: &Metadata) {
        self.note_definition(type_of);
        let reference = ObjectReference::of(type_of, object);
        let waits_for_collector = waits_for_collector(object);
        if waits_for_collector {
            self.owners.forget(&reference.uid);
            self.queue.add(Work::ProcessDeleting(reference.clone()));
            // In a cycle each waits for the other, until one does not block any more.
            self.process_owners(object, |owner| owner.block_owner_deletion != Some(true));
        }
        let is_being_deleted = object.metadata.deletion_timestamp.is_some() && !waits_for_collector;
        let is_owned = |owner: &OwnerReference| self.owners.is_present(&reference.to_owner(owner));
        if !is_being_deleted && !object.owner_references().iter().all(is_owned) {
            self.queue.add(Work::AttemptToDelete(reference));
        }
    }

    /// Queues the work that a deleted object makes due.
    fn object_deleted(&self, type_of: (&str, &str), object: &Metadata) {
        self.note_definition(type_of);
        if let Some(uid) = object.uid() {
            self.owners.forget(&uid);
            self.queue.add(Work::QueueDependents { uid });
        }
        self.process_owners(object, |_| true);
    }

    /// Queues owners of an object, which may be deleted and wait for it.
    fn process_owners(&self, object: &Metadata, is_due: impl Fn(&OwnerReference) -> bool) {
        for owner in object.owner_references().iter().filter(|owner| is_due(owner)) {
            self.queue.add(Work::ProcessDeleting(ObjectReference::owner(owner, object.namespace())));
        }
    }

    /// Invalidates discovery when a definition of kinds has changed.
    fn note_definition(&self, (_, kind): (&str, &str)) {
        if matches!(kind, "CustomResourceDefinition" | "APIService") {
            self.invalidate_discovery();
        }
    }

    fn invalidate_discovery(&self) {
        self.discovery_is_stale.store(true, Ordering::Release);
        self.definitions_changed.notify_one();
    }

    fn coverage(&self) -> Coverage {
        self.coverage.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_coverage(&self, coverage: Coverage) {
        let mut current = self.coverage.lock().unwrap_or_else(PoisonError::into_inner);
        if *current != coverage {
            *current = coverage;
            // Deletions of owners of a kind that is stored elsewhere now are not in the stream.
            self.owners.clear();
        }
    }

    /// Returns the discovered resources, discovering them again if they may be stale.
    async fn resources(&self) -> orlop_client::Result<RwLockReadGuard<'_, Resources>> {
        if self.discovery_is_stale.load(Ordering::Acquire) {
            let mut resources = self.resources.write().await;
            if self.discovery_is_stale.swap(false, Ordering::AcqRel) {
                let discovered = Resources::discover(&self.client).await;
                *resources =
                    discovered.inspect_err(|_| self.discovery_is_stale.store(true, Ordering::Release))?;
            }
            return Ok(resources.downgrade());
        }
        Ok(self.resources.read().await)
    }

    /// Returns the resource of a kind, if it is served.
    async fn resource(&self, api_version: &str, kind: &str) -> orlop_client::Result<Option<Resource>> {
        Ok(self.resources().await?.get(api_version, kind).cloned())
    }

    /// Returns the resources that need a list and a watch of their own.
    async fn uncovered_resources(&self) -> orlop_client::Result<Vec<Resource>> {
        let coverage = self.coverage();
        if coverage.is_complete() {
            return Ok(Vec::new());
        }
        let resources = self.resources().await?;
        let uncovered = resources.iter().filter(|resource| {
            // Events own nothing, have no owners that matter, and are many.
            resource.is_collectable() && resource.api.kind != "Event" && !coverage.includes(&resource.kind())
        });
        Ok(uncovered.cloned().collect())
    }

    /// Watches every resource, also those that are defined later, for ever.
    async fn watch_all(self: &Arc<Self>) {
        let mut watched = HashSet::new();
        let mut watches = JoinSet::new();
        let mut stream = JoinSet::new();
        loop {
            if stream.is_empty() && self.coverage() != Coverage::None {
                let collector = self.clone();
                stream.spawn(async move { collector.watch_stream().await });
            }
            for resource in self.uncovered_resources().await.unwrap_or_default() {
                let key = (resource.api.api_version.clone(), resource.api.plural.clone());
                if watched.insert(key.clone()) {
                    let collector = self.clone();
                    watches.spawn(async move {
                        collector.watch(&resource).await;
                        collector.kinds().stop(&resource.kind());
                        key
                    });
                }
            }
            if let Err(error) = self.queue_resolved().await {
                tracing::debug!(%error, "discovery failed");
            }
            tokio::select! {
                // A watch ends when its resource is removed. Should it be defined again, it is watched again.
                Some(Ok(key)) = watches.join_next() => drop(watched.remove(&key)),
                () = self.definitions_changed.notified() => {}
                () = sleep(DISCOVERY_PERIOD) => {}
            }
            match self.fetch_coverage().await {
                Ok(coverage) => self.set_coverage(coverage),
                Err(error) => tracing::debug!(%error, "cannot fetch the coverage of the stream"),
            }
            // Other servers do not announce kinds in a stream that is watched here.
            if !self.coverage().is_complete() {
                self.discovery_is_stale.store(true, Ordering::Release);
            }
        }
    }

    /// Queues dependents that waited for a kind which is served now and covered by the stream.
    async fn queue_resolved(&self) -> orlop_client::Result<()> {
        let unresolved = self.kinds().unresolved();
        let coverage = self.coverage();
        for kind in unresolved.into_iter().filter(|kind| coverage.includes(kind)) {
            if self.resources().await?.has(&kind.group, &kind.kind) {
                let dependents = self.kinds().take_unresolved(&kind);
                dependents.into_iter().for_each(|object| self.queue.add(Work::AttemptToDelete(object)));
            }
        }
        Ok(())
    }
}
