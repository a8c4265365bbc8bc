//! Services of the cluster, as a watch keeps them.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Service;
use orlop_client::{
    Api, Client, ResourceExt, watch_kind,
    watcher::{self, Event},
};
use tokio::sync::watch;

/// Longest wait for the first list.
const SYNC_TIMEOUT: Duration = Duration::from_secs(10);

type Map = BTreeMap<(String, String), Arc<Service>>;

/// Services by namespace and name.
#[derive(Clone, Debug)]
pub(crate) struct Services {
    all: Arc<Mutex<Map>>,
    /// Counts changes; 0 until the first list is complete.
    changes: Arc<watch::Sender<u64>>,
}

impl Services {
    /// Starts to watch services.
    pub(crate) fn start(client: Client) -> Self {
        let services = Self { all: Arc::default(), changes: Arc::new(watch::Sender::new(0)) };
        tokio::spawn(services.clone().run(client));
        services
    }

    /// Returns the services whose variables pods of a namespace have: its own, and the API server's.
    pub(crate) async fn linked(&self, namespace: &str) -> Vec<Arc<Service>> {
        let mut changes = self.changes.subscribe();
        let _ = tokio::time::timeout(SYNC_TIMEOUT, changes.wait_for(|changes| *changes > 0)).await;
        let all = self.lock();
        let api_server = all.get(&("default".to_owned(), "kubernetes".to_owned())).cloned();
        let own = all.range((namespace.to_owned(), String::new())..);
        let own = own.take_while(|((found, _), _)| found == namespace).map(|(_, service)| service.clone());
        api_server.into_iter().chain(own).collect()
    }

    /// Returns all services.
    pub(crate) fn all(&self) -> Vec<Arc<Service>> {
        self.lock().values().cloned().collect()
    }

    /// Returns a receiver that sees every change.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    async fn run(self, client: Client) {
        let api: Api<Service> = Api::all(client);
        let mut events = watch_kind(&api, watcher::Config::default());
        let mut listed = Map::new();
        while let Some(event) = events.next().await {
            let key = |service: &Service| (service.namespace().unwrap_or_default(), service.name_any());
            match event {
                Ok(Event::Init) => listed.clear(),
                Ok(Event::InitApply(service)) => drop(listed.insert(key(&service), Arc::new(service))),
                Ok(Event::InitDone) => {
                    *self.lock() = std::mem::take(&mut listed);
                    self.changed();
                }
                Ok(Event::Apply(service)) => {
                    self.lock().insert(key(&service), Arc::new(service));
                    self.changed();
                }
                Ok(Event::Delete(service)) => {
                    self.lock().remove(&key(&service));
                    self.changed();
                }
                Err(error) => tracing::debug!(%error, "cannot watch services"),
            }
        }
    }

    fn changed(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }

    fn lock(&self) -> MutexGuard<'_, Map> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
