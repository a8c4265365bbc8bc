//! The controllers: watches feed one queue, whose items are objects of every kind.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::future::{BoxFuture, join_all};
use orlop_controllers::runtime::{Action, Context, EventForm, WorkQueue};
use prometheus_client::registry::Registry;

use crate::{
    accounts::{Accounts, Namespaces, config_map_resource, namespace_resource, selector_resource},
    bridge::{self, Bridge, BridgeMetrics},
    client::{CallMetrics, Client, ClientSettings, Environment},
    cluster::{Change, Cluster, Resource, text},
    concurrency::Concurrency,
    crds,
    field_export::{self, FieldExports},
    kinds::{self, KINDS},
    objects::{ObjectKey, Objects, ReconcileState},
    reconcile::Reconciler,
    references::resource_of,
    settings::Settings,
};

/// Name of the controller: of its lease, its metrics and its events.
pub const NAME: &str = "aws-controller";
/// First and longest wait between attempts to install the CRDs.
const INSTALL_RETRY_FIRST: Duration = Duration::from_millis(50);
const INSTALL_RETRY_MAX: Duration = Duration::from_secs(10);

/// Something to reconcile.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    Object(ObjectKey),
    Export {
        namespace: String,
        name: String,
    },
    /// Checks that AWS answers, which readiness means.
    Identity,
}

/// Calls of AWS so far, metrics, and whether AWS has answered: shared with the outside.
#[derive(Clone, Debug, Default)]
pub struct Observer {
    calls: CallMetrics,
    bridge: BridgeMetrics,
    client: Arc<Mutex<Option<Arc<Client>>>>,
    ready: Arc<std::sync::atomic::AtomicBool>,
}

impl Observer {
    /// Returns the number of calls by service, operation and outcome: `OK`, or an error code.
    pub fn calls(&self) -> BTreeMap<(String, String, String), u64> {
        let client = self.client.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let calls = client.map(|client| client.calls()).unwrap_or_default();
        calls
            .into_iter()
            .map(|((service, operation, outcome), count)| {
                ((service.to_owned(), operation.to_owned(), outcome), count)
            })
            .collect()
    }

    /// Registers the metrics of calls and passes.
    pub fn register(&self, registry: &mut Registry) {
        self.calls.register(registry);
        self.bridge.register(registry);
    }

    /// True once the controllers run and GetCallerIdentity has succeeded.
    pub fn is_ready(&self) -> bool {
        self.ready.load(std::sync::atomic::Ordering::Relaxed)
    }
}

struct Controller {
    cluster: Cluster,
    accounts: Arc<Accounts>,
    reconciler: Reconciler,
    bridge: Bridge,
    state: Arc<ReconcileState>,
    exports: FieldExports,
    queue: Arc<WorkQueue<Key>>,
    concurrency: Concurrency<Key>,
    /// Fingerprint of each object as last seen.
    seen: Mutex<HashMap<(Resource, String, String), u64>>,
    /// Objects of each namespace, requeued when its annotations change.
    members: Mutex<HashMap<String, HashSet<ObjectKey>>>,
    observer: Observer,
}

/// Runs the controllers until they are dropped. Installs their CRDs first.
pub fn run(context: Context, settings: Settings, observer: Observer) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let cluster = Cluster::new(context.client.clone());
        let client_settings = ClientSettings {
            endpoint: settings.endpoint.clone(),
            identity_endpoint: settings.identity_endpoint.clone(),
            timeout: settings.http_timeout,
            rate_scale: settings.rate_scale,
        };
        let environment = settings.environment.clone().map_or_else(Environment::of_process, Environment::of);
        let client = match Client::new(client_settings, environment, observer.calls.clone()) {
            Ok(client) => client,
            Err(error) => {
                tracing::error!(%error, "the HTTP client cannot be built");
                return;
            }
        };
        *observer.client.lock().unwrap_or_else(PoisonError::into_inner) = Some(client.clone());
        let mut wait = INSTALL_RETRY_FIRST;
        while let Err(error) = install(&cluster, &settings).await {
            tracing::warn!(%error, "the CRDs could not be installed; will be tried again");
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(INSTALL_RETRY_MAX);
        }
        let workers = settings.workers;
        let concurrency = Concurrency::new(settings.workers_of.clone());
        let accounts = Arc::new(Accounts {
            cluster: cluster.clone(),
            client,
            namespaces: Namespaces::default(),
            settings,
        });
        let recorder = context.recorder("orlop-aws", EventForm::Counted);
        let objects = Objects { cluster: cluster.clone(), recorder };
        let state = Arc::new(ReconcileState::default());
        let bridge = Bridge {
            accounts: accounts.clone(),
            objects: objects.clone(),
            state: state.clone(),
            metrics: observer.bridge.clone(),
        };
        let controller = Arc::new(Controller {
            cluster,
            reconciler: Reconciler {
                accounts: accounts.clone(),
                objects: objects.clone(),
                state: state.clone(),
            },
            bridge,
            state,
            exports: FieldExports::new(objects),
            accounts,
            queue: context.work_queue(),
            concurrency,
            seen: Mutex::default(),
            members: Mutex::default(),
            observer,
        });
        controller.queue.add(Key::Identity);
        let working = controller.clone();
        tokio::join!(
            controller.watch(),
            controller.queue.run(workers, move |key| {
                let controller = working.clone();
                async move { controller.reconcile(key).await }
            })
        );
    })
}

/// Creates or updates the CRDs of the kinds that are reconciled.
async fn install(cluster: &Cluster, settings: &Settings) -> orlop_client::Result<()> {
    let resource = Resource::new(
        "apiextensions.k8s.io",
        "v1",
        ("CustomResourceDefinition", "customresourcedefinitions"),
        false,
    );
    for definition in crds::definitions(settings) {
        let name = text(&definition, "/metadata/name").unwrap_or_default();
        cluster.apply(&resource, ("", name), &definition).await?;
    }
    Ok(())
}

impl Controller {
    async fn reconcile(&self, key: Key) -> orlop_client::Result<Action> {
        let Key::Object(object) = &key else { return self.pass(&key).await };
        if !self.concurrency.start(object.kind, &key) {
            return Ok(Action::Done);
        }
        let ended = self.pass(&key).await;
        if let Some(next) = self.concurrency.finish(object.kind) {
            self.queue.add(next);
        }
        ended
    }

    async fn pass(&self, key: &Key) -> orlop_client::Result<Action> {
        match key {
            Key::Object(object) if object.service == bridge::SERVICE => match bridge::find(object.kind) {
                Some(kind) => self.bridge.reconcile(kind, object).await,
                None => Ok(Action::Done),
            },
            Key::Object(object) => match kinds::find(object.service, object.kind) {
                Some(kind) => self.reconciler.reconcile(kind, object).await,
                None => Ok(Action::Done),
            },
            Key::Export { namespace, name } => self.exports.reconcile(namespace, name).await,
            Key::Identity => Ok(self.identify().await),
        }
    }

    /// Calls GetCallerIdentity. While AWS is unreachable the process stays up, unready, and retries.
    async fn identify(&self) -> Action {
        let region = self.accounts.settings.region.clone();
        let agent = format!("aws-controllers-k8s/orlop-aws-{}", env!("CARGO_PKG_VERSION"));
        match self.accounts.client.session(&region, None, None, agent).await {
            Ok(session) => {
                tracing::info!(account = session.account, region, "AWS answers");
                self.observer.ready.store(true, std::sync::atomic::Ordering::Relaxed);
                Action::Done
            }
            Err(failure) => {
                tracing::warn!(%failure, "AWS does not answer yet; will be tried again");
                Action::Requeue
            }
        }
    }

    // ---- watches ----

    async fn watch(&self) {
        let settings = &self.accounts.settings;
        let mut watches: Vec<BoxFuture<'_, ()>> = Vec::new();
        let mut watch = |service: &'static str, kind: &'static str, resource: Resource| {
            watches.push(Box::pin(async move {
                let handle = |change: Change| self.changed(service, kind, &resource, &change);
                self.cluster.watch(&resource, handle).await;
            }));
        };
        let bridge: Vec<_> = bridge::KINDS
            .iter()
            .map(|kind| kind.descriptor())
            .filter(|descriptor| settings.has_kind(descriptor.kind))
            .collect();
        // Children of the Bridge are watched even if another controller reconciles them.
        let related = |kind: &str| {
            let mut all =
                bridge.iter().flat_map(|descriptor| descriptor.children.iter().chain(descriptor.references));
            all.any(|(_, known)| *known == kind)
        };
        for descriptor in KINDS.iter().map(|kind| kind.descriptor()) {
            if settings.has_kind(descriptor.kind) || related(descriptor.kind) {
                watch(
                    descriptor.service.name,
                    descriptor.kind,
                    resource_of(descriptor.service.name, descriptor.kind),
                );
            }
        }
        for descriptor in &bridge {
            watch(bridge::SERVICE, descriptor.kind, descriptor.resource(&settings.bridge_group));
        }
        watches.push(Box::pin(async {
            let handle = |change: Change| self.namespace_changed(change);
            self.cluster.watch(&namespace_resource(), handle).await;
        }));
        if settings.field_exports {
            watches.push(Box::pin(async {
                let handle = |change: Change| {
                    let Change { namespace, name, gone, .. } = change;
                    if !gone {
                        self.queue.add(Key::Export { namespace, name });
                    }
                };
                self.cluster.watch(&field_export::resource(), handle).await;
            }));
        }
        if settings.role_selectors {
            watches.push(Box::pin(async {
                self.cluster.watch(&selector_resource(), |_| self.wake_all()).await;
            }));
        } else if settings.carm {
            watches.push(Box::pin(async {
                let handle = |change: Change| {
                    let maps = ["ack-role-account-map", "ack-role-team-map"];
                    if change.namespace == settings.system_namespace && maps.contains(&change.name.as_str()) {
                        self.wake_all();
                    }
                };
                self.cluster.watch(&config_map_resource(), handle).await;
            }));
        }
        join_all(watches).await;
    }

    /// True if the selector selects an object. Children of the Bridge go with their owners.
    fn is_selected(&self, change: &Change) -> bool {
        let label = |key: &str| change.labels.get(key).map(String::as_str);
        let requirements = self.accounts.settings.selector.requirements();
        requirements.iter().all(|requirement| requirement.matches(label(requirement.key())))
            || label(bridge::CREATED_BY.0) == Some(bridge::CREATED_BY.1)
    }

    /// True if something has changed that asks for a pass.
    fn is_news(&self, resource: &Resource, change: &Change) -> bool {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (resource.clone(), change.namespace.clone(), change.name.clone());
        if change.gone {
            seen.remove(&key);
            return true;
        }
        seen.insert(key, change.fingerprint) != Some(change.fingerprint)
    }

    fn changed(&self, service: &'static str, kind: &'static str, resource: &Resource, change: &Change) {
        let watched = &self.accounts.settings.namespaces;
        if !watched.is_empty() && !watched.contains(&change.namespace) {
            return;
        }
        let key = ObjectKey { service, kind, namespace: change.namespace.clone(), name: change.name.clone() };
        let target = (service.to_owned(), kind.to_owned(), change.namespace.clone(), change.name.clone());
        for dependent in self.state.dependents(&target) {
            self.queue.add(Key::Object(dependent));
        }
        if !self.accounts.settings.has_kind(kind) || !self.is_selected(change) {
            return;
        }
        for (namespace, name) in self.exports.of_source(resource, change) {
            self.queue.add(Key::Export { namespace, name });
        }
        let mut members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        let namespace = members.entry(change.namespace.clone()).or_default();
        match change.gone {
            true => namespace.remove(&key),
            false => namespace.insert(key.clone()),
        };
        drop(members);
        if self.is_news(resource, change) {
            self.queue.add(Key::Object(key));
        }
    }

    fn namespace_changed(&self, change: Change) {
        if change.gone {
            self.accounts.namespaces.remove(&change.name);
            return;
        }
        if self.accounts.namespaces.update(&change.name, change.annotations, change.labels) {
            let members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
            for key in members.get(&change.name).into_iter().flatten() {
                self.queue.add(Key::Object(key.clone()));
            }
        }
    }

    fn wake_all(&self) {
        let members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        for key in members.values().flatten() {
            self.queue.add(Key::Object(key.clone()));
        }
    }
}
