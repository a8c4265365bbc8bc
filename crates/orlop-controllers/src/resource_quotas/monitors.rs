//! Watches of the objects that quotas track: deletes and smaller charges give usage back.
//!
//! A resource is watched once a quota names it. Pods are cached, because a change matters only beside the old object;
//! of all others only metadata is read, and nothing is kept.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use futures_util::StreamExt;
use k8s_openapi::{
    api::core::v1::{Pod, ResourceQuota},
    jiff::Timestamp,
};
use orlop_api::time::Time;
use orlop_client::{
    Client, ResourceExt, watch_kind,
    watcher::{self, Event},
};
use serde_json::Value;
use tokio::task::AbortHandle;

use crate::{
    discovery::Resource,
    runtime::{Informer, Informers, Key, WorkQueue},
};

/// Queues the quotas of a namespace.
#[derive(Clone)]
struct Replenish {
    quotas: Arc<Informer<ResourceQuota>>,
    queue: Arc<WorkQueue<Key>>,
}

impl Replenish {
    fn namespace(&self, namespace: Option<String>) {
        let quotas = self.quotas.in_namespace(&namespace.unwrap_or_default());
        quotas.iter().for_each(|quota| self.queue.add(Key::of(&**quota)));
    }
}

/// The watches that run.
pub(super) struct Monitors {
    client: Client,
    informers: Informers,
    replenish: Replenish,
    running: Mutex<HashMap<(String, String), AbortHandle>>,
}

impl Monitors {
    pub(super) fn new(
        client: Client,
        informers: &Informers,
        quotas: Arc<Informer<ResourceQuota>>,
        queue: Arc<WorkQueue<Key>>,
    ) -> Self {
        let replenish = Replenish { quotas, queue };
        Self { client, informers: informers.clone(), replenish, running: Mutex::default() }
    }

    /// Watches a resource from now on, unless it is watched.
    pub(super) fn start(&self, resource: &Resource) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (resource.api.group.clone(), resource.api.plural.clone());
        if running.get(&key).is_some_and(|task| !task.is_finished()) || !resource.can("watch") {
            return;
        }
        let replenish = self.replenish.clone();
        let task = match (resource.api.group.as_str(), resource.api.plural.as_str()) {
            ("", "pods") => tokio::spawn(follow_pods(self.informers.of(), replenish)),
            ("", "services" | "persistentvolumeclaims") => {
                tokio::spawn(follow_changes(self.client.clone(), resource.clone(), replenish))
            }
            _ => tokio::spawn(follow_deletes(self.client.clone(), resource.clone(), replenish)),
        };
        running.insert(key, task.abort_handle());
    }
}

impl Drop for Monitors {
    fn drop(&mut self) {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).values().for_each(AbortHandle::abort);
    }
}

async fn follow_pods(pods: Arc<Informer<Pod>>, replenish: Replenish) {
    pods.synced().await;
    let subscription = pods.subscribe(move |change| {
        let value = |pod: &Option<Arc<Pod>>| pod.as_ref().and_then(|pod| serde_json::to_value(&**pod).ok());
        let is_replenished = match (value(&change.old), value(&change.new)) {
            (Some(old), Some(new)) => is_replenished(&old, &new),
            (Some(_), None) => true,
            _ => false,
        };
        if is_replenished {
            replenish.namespace(change.latest().and_then(|pod| pod.namespace()));
        }
    });
    std::future::pending::<()>().await;
    drop(subscription);
}

fn is_replenished(old: &Value, new: &Value) -> bool {
    let now = Time::from_unix(Timestamp::now().as_second());
    orlop_quota::evaluator::replenishes("", "pods", new, old, now)
}

/// Follows resources whose charge may shrink by a change: such objects are few, and every change is taken for one.
async fn follow_changes(client: Client, resource: Resource, replenish: Replenish) {
    let mut events = watch_kind(&resource.whole_objects(&client, None), watcher::Config::default());
    while let Some(event) = events.next().await {
        if let Ok(Event::Apply(object) | Event::Delete(object)) = event {
            replenish.namespace(object.namespace());
        }
    }
}

async fn follow_deletes(client: Client, resource: Resource, replenish: Replenish) {
    let mut events = watch_kind(&resource.objects(&client, None), watcher::Config::default());
    while let Some(event) = events.next().await {
        if let Ok(Event::Delete(object)) = event {
            replenish.namespace(object.namespace());
        }
    }
}
