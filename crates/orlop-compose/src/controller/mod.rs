//! The controller: watches definitions, instances and their children, and reconciles what changed.
//!
//! Everything is level-triggered from watches: a pass reads what it needs, applies all levels of the graph whose inputs
//! are ready, and ends. Nothing polls. Events that only echo a pass's own writes are recognised by resourceVersion.

mod apply;
mod definitions;
mod deletion;
mod existing;
mod instances;
mod memory;
mod pass;
mod reconciliation;
mod report;
mod revisions;
mod watches;

use futures_util::future::BoxFuture;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use orlop_api::time::Time;
use orlop_client::watcher::Event;
use orlop_controllers::runtime::{Action, Context, EventForm, Recorder, WorkQueue};

pub(crate) use self::apply::{child_labels, complete, refusal, selector_text};
use self::existing::Existing;
pub(crate) use self::memory::InstanceKey;
use self::memory::{ChildKey, Memories, Seen};
use self::watches::{Metadata, Selection, Watches};
use crate::cluster::{Cluster, Resource};
use crate::crd;
use crate::graph::{Graph, Limits};
use crate::kinds::Gvk;
use crate::metrics::{self, Count, Metrics};
use crate::names;

/// Settings of the controller.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Definitions and instances reconciled at once.
    pub workers: usize,
    /// Deletes a generated CRD, and with it its instances, when its definition is deleted.
    pub allow_crd_deletion: bool,
    /// GraphRevisions kept per definition.
    pub revisions_max: usize,
    /// Limits of graphs.
    pub limits: Limits,
    /// Service account of the instance's namespace that children are applied as where a definition names none. Without
    /// it they are applied with the controller's own rights.
    pub default_service_account: Option<String>,
    /// Records an event for every change of an instance's condition: kro's gate `InstanceConditionEvents`.
    pub condition_events: bool,
    /// Measures how long conditions have had their status: kro's gate `InstanceConditionMetrics`.
    pub condition_metrics: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            workers: 16,
            allow_crd_deletion: false,
            revisions_max: 5,
            limits: Limits::default(),
            default_service_account: None,
            condition_events: false,
            condition_metrics: false,
        }
    }
}

/// First and longest wait between attempts to install the CRDs.
const INSTALL_RETRY_FIRST: Duration = Duration::from_millis(50);
const INSTALL_RETRY_MAX: Duration = Duration::from_secs(10);

/// A pass over an instance that is being measured. Dropped before it ended, it has panicked.
struct Counted<'c> {
    metrics: &'c Metrics,
    gvr: String,
    began: Instant,
}

impl Counted<'_> {
    fn ended(self, result: &crate::cluster::Result<Action>) {
        let gvr = [("gvr", self.gvr.as_str())];
        self.metrics.count(Count::Reconcile, &gvr);
        self.metrics.took(metrics::Time::Reconcile, &gvr, self.began.elapsed());
        let next = match result {
            Ok(Action::Done) => "no_requeue",
            Ok(Action::Requeue) => "requeue",
            Ok(Action::After(_)) => "requeue_after",
            Err(_) => "rate_limited",
        };
        self.metrics.count(Count::Requeue, &[("gvr", &self.gvr), ("type", next)]);
        if result.is_err() {
            self.metrics.count(Count::HandlerErrors, &gvr);
        }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.metrics.count(Count::Panics, &[("gvr", &self.gvr)]);
        }
    }
}

/// Something to reconcile.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    Definition(String),
    Instance(InstanceKey),
}

/// A kind that is served.
#[derive(Debug)]
struct Served {
    graph: Arc<Graph>,
    revision: i64,
    hash: String,
    uid: String,
}

/// Namespaces and names that a list named.
type Listed = HashSet<(Option<String>, String)>;

/// A group and kind.
type GroupKind = (String, String);

struct Controller {
    context: Context,
    cluster: Cluster,
    settings: Settings,
    metrics: Metrics,
    /// Recorders of events, by kind.
    recorders: Mutex<HashMap<String, Arc<Recorder>>>,
    queue: Arc<WorkQueue<Key>>,
    memories: Memories,
    existing: Existing,
    watches: Watches,
    served: RwLock<HashMap<GroupKind, Arc<Served>>>,
    /// Definitions that wait for a kind to be served.
    waiting: Mutex<HashSet<String>>,
    /// Definitions whose deletion waits for their instances.
    deleting: Mutex<HashSet<String>>,
    /// Metadata of each definition as the last pass saw it.
    definitions_seen: Mutex<HashMap<String, Seen>>,
    /// Resource version of each generated CRD after the last pass.
    crd_versions: Mutex<HashMap<String, String>>,
}

/// Runs the controller until it is dropped. Installs its own CRDs first.
pub fn run(context: Context, settings: Settings, metrics: Metrics) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let workers = settings.workers.max(1);
        let controller = Arc::new(Controller {
            cluster: Cluster::new(context.client.clone(), metrics.clone()),
            settings,
            queue: context.work_queue(),
            memories: Memories::new(metrics.clone()),
            existing: Existing::default(),
            watches: Watches::new(metrics.clone()),
            metrics,
            recorders: Mutex::default(),
            context,
            served: RwLock::default(),
            waiting: Mutex::default(),
            deleting: Mutex::default(),
            definitions_seen: Mutex::default(),
            crd_versions: Mutex::default(),
        });
        let mut wait = INSTALL_RETRY_FIRST;
        while let Err(error) = controller.install().await {
            tracing::warn!(%error, "the CRDs could not be installed; will be tried again");
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(INSTALL_RETRY_MAX);
        }
        controller.watch_definitions();
        let working = controller.clone();
        controller
            .queue
            .run(workers, move |key| {
                let controller = working.clone();
                async move { controller.reconcile(key).await }
            })
            .await;
    })
}

impl Controller {
    /// Creates or updates the CRDs of this controller.
    async fn install(&self) -> crate::cluster::Result<()> {
        for crd in [crd::definition_crd(), crd::revision_crd()] {
            let name = crd.pointer("/metadata/name").and_then(serde_json::Value::as_str).unwrap_or_default();
            self.cluster.apply(&crd_resource(), None, name, "orlop-compose", &crd).await?;
        }
        // Other servers than Orlop establish them a moment later.
        for _ in 0..200 {
            let definitions = self.cluster.resource(&definition_resource().gvk).await?;
            if definitions.is_some() && self.cluster.resource(&revision_resource().gvk).await?.is_some() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    async fn reconcile(self: Arc<Self>, key: Key) -> crate::cluster::Result<Action> {
        match &key {
            Key::Definition(name) => self.reconcile_definition(name).await,
            Key::Instance(instance) => {
                let gvr = self
                    .served(&instance.group, &instance.kind)
                    .map(|served| instance_resource(&served.graph).to_string());
                let pass =
                    Counted { metrics: &self.metrics, gvr: gvr.unwrap_or_default(), began: Instant::now() };
                let result = self.reconcile_instance(instance).await;
                pass.ended(&result);
                result
            }
        }
    }

    /// The recorder of events of a kind.
    fn recorder(&self, resource: &Resource) -> Arc<Recorder> {
        let kind = format!("{}.{}", resource.plural, resource.gvk.group);
        let mut recorders = self.recorders.lock().unwrap_or_else(PoisonError::into_inner);
        let component = format!("kro/{kind}-controller");
        recorders.entry(kind).or_insert_with(|| self.context.recorder(component, EventForm::Counted)).clone()
    }

    // ---- watches ----

    fn watch_definitions(self: &Arc<Self>) {
        let this = Arc::downgrade(self);
        let handle = move |event: Event<Metadata>| {
            let Some(this) = this.upgrade() else { return };
            let (object, gone) = match event {
                Event::Apply(object) | Event::InitApply(object) => (object, false),
                Event::Delete(object) => (object, true),
                Event::Init | Event::InitDone => return,
            };
            let name = object.metadata.name.clone().unwrap_or_default();
            let metadata = serde_json::to_value(&object.metadata).unwrap_or_default();
            let seen = this.definitions_seen.lock().unwrap_or_else(PoisonError::into_inner);
            let news = Seen::of(&metadata).is_news(seen.get(&name));
            drop(seen);
            if gone || news {
                this.queue.add(Key::Definition(name));
            }
        };
        self.watches.ensure(&self.cluster, &definition_resource(), Selection::All, handle);
        let this = Arc::downgrade(self);
        let handle = move |event: Event<Metadata>| {
            let Some(this) = this.upgrade() else { return };
            let object = match event {
                Event::Delete(object) => object,
                // One of kro's own, which has a finalizer that nobody else removes.
                Event::Apply(object) | Event::InitApply(object)
                    if object.metadata.deletion_timestamp.is_some() =>
                {
                    object
                }
                _ => return,
            };
            if let Some(name) =
                object.metadata.labels.and_then(|mut labels| labels.remove(names::DEFINITION_NAME))
            {
                this.queue.add(Key::Definition(name));
            }
        };
        self.watches.ensure(&self.cluster, &revision_resource(), Selection::All, handle);
        let this = Arc::downgrade(self);
        let handle = move |event: Event<Metadata>| {
            let Some(this) = this.upgrade() else { return };
            if let Event::Apply(object) | Event::InitApply(object) | Event::Delete(object) = event {
                this.crd_changed(&object);
            }
        };
        self.watches.ensure(&self.cluster, &crd_resource(), Selection::All, handle);
    }

    /// A CRD came, went or changed: its definition puts it back, and definitions that miss a kind look again.
    fn crd_changed(&self, object: &Metadata) {
        let version = object.metadata.resource_version.as_deref().unwrap_or_default();
        let name = object.metadata.name.as_deref().unwrap_or_default();
        let known = self.crd_versions.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
        if known.as_deref() != Some(version)
            && let Some(owner) =
                object.metadata.labels.as_ref().and_then(|labels| labels.get(names::DEFINITION_NAME))
        {
            self.queue.add(Key::Definition(owner.clone()));
        }
        // Definitions that use the kind are checked against its new schema.
        if known.as_deref() != Some(version) {
            let served = self.served.read().unwrap_or_else(PoisonError::into_inner);
            let uses = |graph: &Graph| {
                graph.nodes.iter().any(|node| {
                    let Gvk { group, .. } = &node.kind.gvk;
                    name.strip_prefix(&node.kind.plural).and_then(|rest| rest.strip_prefix('.'))
                        == Some(group)
                })
            };
            for served in served.values().filter(|served| uses(&served.graph)) {
                self.queue.add(Key::Definition(served.graph.name.clone()));
            }
        }
        let waiting = std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        for definition in waiting {
            self.queue.add(Key::Definition(definition));
        }
    }

    fn watch_instances(self: &Arc<Self>, graph: &Graph) {
        let this = Arc::downgrade(self);
        let (group, kind) = (graph.gvk.group.clone(), graph.gvk.kind.clone());
        let handle = move |event: Event<Metadata>| {
            let Some(this) = this.upgrade() else { return };
            let (object, gone) = match event {
                Event::Apply(object) | Event::InitApply(object) => (object, false),
                Event::Delete(object) => (object, true),
                Event::Init | Event::InitDone => return,
            };
            let key = InstanceKey {
                group: group.clone(),
                kind: kind.clone(),
                namespace: object.metadata.namespace.clone().unwrap_or_default(),
                name: object.metadata.name.clone().unwrap_or_default(),
            };
            let metadata = serde_json::to_value(&object.metadata).unwrap_or_default();
            if gone
                && let Some(served) = this.served(&group, &kind)
                && this.deleting.lock().unwrap_or_else(PoisonError::into_inner).contains(&served.graph.name)
            {
                this.queue.add(Key::Definition(served.graph.name.clone()));
            }
            if gone || this.memories.observe_instance(&key, Seen::of(&metadata)) {
                this.queue.add(Key::Instance(key));
            }
        };
        self.watches.ensure(&self.cluster, &instance_resource(graph), Selection::All, handle);
    }

    /// Watches children of a kind.
    fn watch_children(self: &Arc<Self>, resource: &Resource) {
        let this = Arc::downgrade(self);
        let (group_kind, gvr) = (resource.gvk.group_kind(), resource.to_string());
        let watched = resource.clone();
        // Names seen since a list began.
        let listed: Mutex<Option<Listed>> = Mutex::default();
        let handle = move |event: Event<Metadata>| {
            let Some(this) = this.upgrade() else { return };
            let mut listed = listed.lock().unwrap_or_else(PoisonError::into_inner);
            let (object, gone) = match event {
                Event::Init => {
                    this.existing.begin(&watched);
                    *listed = Some(HashSet::new());
                    return;
                }
                Event::InitDone => {
                    this.existing.complete(&watched);
                    // Children that are missing from a complete list went while nobody watched.
                    for key in listed
                        .take()
                        .map(|listed| this.memories.missing(&group_kind, &listed))
                        .unwrap_or_default()
                    {
                        this.queue.add(Key::Instance(key));
                    }
                    return;
                }
                Event::Apply(object) | Event::InitApply(object) => (object, false),
                Event::Delete(object) => (object, true),
            };
            let name = object.metadata.name.clone().unwrap_or_default();
            if let Some(listed) = listed.as_mut() {
                listed.insert((object.metadata.namespace.clone(), name.clone()));
            }
            let child = ChildKey {
                group_kind: group_kind.clone(),
                namespace: object.metadata.namespace.clone(),
                name,
            };
            let version = object.metadata.resource_version.as_deref().unwrap_or_default();
            match gone {
                true => this.existing.gone(&watched, &child, version),
                false => this.existing.observe(&watched, &child, version, listed.is_some()),
            }
            // Labels may have been changed by others, which is drift as well.
            let Some(instance) = this.memories.owner(&child).or_else(|| instance_of(&object)) else { return };
            this.metrics.count(Count::Route, &[("gvr", &gvr)]);
            if this.memories.observe_child(&instance, child, version) {
                this.metrics.count(Count::RouteMatch, &[("gvr", &gvr)]);
                this.queue.add(Key::Instance(instance));
            }
        };
        self.watches.ensure(&self.cluster, resource, Selection::Owned, handle);
    }

    /// Watches objects of others.
    fn watch_external(self: &Arc<Self>, resource: &Resource) {
        let this = Arc::downgrade(self);
        let (gvk, gvr) = (resource.gvk.clone(), resource.to_string());
        let handle = move |event: Event<Metadata>| {
            let Some(this) = this.upgrade() else { return };
            let readers = match event {
                Event::Apply(object) | Event::Delete(object) => this.memories.readers(&gvk, &object),
                Event::InitDone => this.memories.all_readers(&gvk),
                Event::Init | Event::InitApply(_) => return,
            };
            this.metrics.count(Count::Route, &[("gvr", &gvr)]);
            this.metrics.add(Count::RouteMatch, &[("gvr", &gvr)], readers.len() as u64);
            for key in readers {
                this.queue.add(Key::Instance(key));
            }
        };
        self.watches.ensure(&self.cluster, resource, Selection::External, handle);
    }

    // ---- kinds ----

    fn served(&self, group: &str, kind: &str) -> Option<Arc<Served>> {
        let served = self.served.read().unwrap_or_else(PoisonError::into_inner);
        served.get(&(group.to_owned(), kind.to_owned())).cloned()
    }

    fn served_by(&self, definition: &str) -> Option<Arc<Served>> {
        let served = self.served.read().unwrap_or_else(PoisonError::into_inner);
        served.values().find(|served| served.graph.name == definition).cloned()
    }
}

/// The instance that an object's labels name.
fn instance_of(object: &Metadata) -> Option<InstanceKey> {
    let labels = object.metadata.labels.as_ref()?;
    let label = |key: &str| labels.get(key).cloned();
    Some(InstanceKey {
        group: label(names::INSTANCE_GROUP)?,
        kind: label(names::INSTANCE_KIND)?,
        namespace: label(names::INSTANCE_NAMESPACE).unwrap_or_default(),
        name: label(names::INSTANCE_NAME)?,
    })
}

fn instance_resource(graph: &Graph) -> Resource {
    Resource { gvk: graph.gvk.clone(), plural: graph.plural.clone(), namespaced: graph.namespaced }
}

pub(crate) fn definition_resource() -> Resource {
    let gvk = Gvk::new(names::API_VERSION, "ResourceGraphDefinition");
    Resource { gvk, plural: "resourcegraphdefinitions".to_owned(), namespaced: false }
}

fn revision_resource() -> Resource {
    let gvk = Gvk::new(names::REVISION_API_VERSION, "GraphRevision");
    Resource { gvk, plural: "graphrevisions".to_owned(), namespaced: false }
}

pub(crate) fn crd_resource() -> Resource {
    let gvk = Gvk::new("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    Resource { gvk, plural: "customresourcedefinitions".to_owned(), namespaced: false }
}

/// The time as objects carry it.
fn now() -> String {
    after(Duration::ZERO)
}

/// A time from now, as objects carry it.
fn after(wait: Duration) -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default() + wait;
    Time::from_unix(i64::try_from(since.as_secs()).unwrap_or_default()).to_string()
}
