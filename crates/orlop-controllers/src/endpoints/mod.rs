//! Endpoints: the older form of a Service's addresses, one object each.

mod subsets;

use std::{
    collections::{BTreeMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use k8s_openapi::api::core::v1::{Endpoints, Pod, Service};
use orlop_client::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ObjectMeta, PostParams},
};

use crate::{
    endpoint_slices::{addresses::is_headless, queue_services_of},
    runtime::{Action, Context, EventForm, Informer, Key, Manager, Recorder},
    status::{is_conflict, is_namespace_terminating, is_not_found, message},
    workload::selector::Labels,
};

/// Name of the controller.
pub(crate) const NAME: &str = "endpoints-controller";
/// Source of its events.
const COMPONENT: &str = "endpoint-controller";
const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
const HEADLESS: &str = "service.kubernetes.io/headless";
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";
const TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";
const CONCURRENCY: usize = 5;

/// Registers the controller.
pub(crate) fn register(manager: &mut Manager) {
    manager.register(NAME, run);
}

struct Controller {
    client: Client,
    services: Arc<Informer<Service>>,
    pods: Arc<Informer<Pod>>,
    endpoints: Arc<Informer<Endpoints>>,
    recorder: Arc<Recorder>,
    /// Services that were deleted: their Endpoints go with them, whoever wrote them.
    deleted: Mutex<HashSet<Key>>,
}

async fn run(context: Context) {
    let informers = &context.informers;
    let controller = Arc::new(Controller {
        client: context.client.clone(),
        services: informers.of(),
        pods: informers.of(),
        endpoints: informers.of(),
        recorder: context.recorder(COMPONENT, EventForm::Counted),
        deleted: Mutex::default(),
    });
    let Controller { services, pods, endpoints, .. } = &*controller;
    tokio::join!(services.synced(), pods.synced(), endpoints.synced());
    let queue = context.work_queue::<Key>();
    let (of_services, of_endpoints) = (queue.clone(), queue.clone());
    let own = controller.clone();
    let subscriptions = (
        services.subscribe(move |change| {
            let Some(key) = change.latest().map(|service| Key::of(&**service)) else { return };
            match change.new {
                Some(_) => own.deleted().remove(&key),
                None => own.deleted().insert(key.clone()),
            };
            of_services.add(key);
        }),
        {
            let (queue, services) = (queue.clone(), services.clone());
            pods.subscribe(move |change| queue_services_of(&queue, &services, change))
        },
        endpoints
            .subscribe(move |change| change.both().for_each(|object| of_endpoints.add(Key::of(&**object)))),
    );
    queue
        .run(CONCURRENCY, |key| {
            let controller = controller.clone();
            async move { controller.reconcile(&key).await }
        })
        .await;
    drop(subscriptions);
}

impl Controller {
    fn deleted(&self) -> MutexGuard<'_, HashSet<Key>> {
        self.deleted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn reconcile(&self, key: &Key) -> orlop_client::Result<Action> {
        let api: Api<Endpoints> = Api::namespaced(self.client.clone(), &key.namespace);
        let existing = self.endpoints.get(key);
        let Some(service) = self.services.get(key) else {
            // The object goes with its service. What somebody wrote for a service that never was stays.
            let is_own =
                |object: &Endpoints| object.labels().get(MANAGED_BY).is_some_and(|value| value == COMPONENT);
            if self.deleted().contains(key) || existing.is_some_and(|existing| is_own(&existing)) {
                match api.delete(&key.name, &DeleteParams::default()).await {
                    Err(error) if !is_not_found(&error) => return Err(error),
                    _ => drop(self.deleted().remove(key)),
                }
            }
            return Ok(Action::Done);
        };
        let spec = service.spec.clone().unwrap_or_default();
        let Some(selector) = spec.selector.filter(|selector| !selector.is_empty()) else {
            return Ok(Action::Done);
        };
        if service.metadata.deletion_timestamp.is_some() || spec.type_.as_deref() == Some("ExternalName") {
            return Ok(Action::Done);
        }
        let labels = Labels::of_map(&selector);
        let pods = self.pods.in_namespace(&key.namespace);
        let pods: Vec<Arc<Pod>> = pods.into_iter().filter(|pod| labels.selects(&**pod)).collect();
        let (subsets, is_truncated) = subsets::of_pods(&service, &pods);
        let mut wanted = match &existing {
            Some(existing) => Endpoints::clone(existing),
            None => Endpoints {
                metadata: ObjectMeta { name: Some(key.name.clone()), ..ObjectMeta::default() },
                subsets: None,
            },
        };
        wanted.metadata.labels = Some(labels_of(&service));
        let annotations = wanted.metadata.annotations.get_or_insert_default();
        match is_truncated {
            true => drop(annotations.insert(OVER_CAPACITY.to_owned(), "truncated".to_owned())),
            false => drop(annotations.remove(OVER_CAPACITY)),
        }
        wanted.subsets = (!subsets.is_empty()).then_some(subsets);
        if existing.as_ref().is_some_and(|existing| is_same(existing, &wanted)) {
            return Ok(Action::Done);
        }
        let triggered = pods.iter().filter_map(|pod| crate::workload::pods::ready_since(pod)).max();
        if let Some(time) = triggered {
            let annotations = wanted.metadata.annotations.get_or_insert_default();
            annotations.insert(TRIGGER_TIME.to_owned(), time.to_string());
        }
        let written = match &existing {
            Some(_) => api.replace(&key.name, &PostParams::default(), &wanted).await,
            None => api.create(&PostParams::default(), &wanted).await,
        };
        match written {
            Ok(written) => {
                self.endpoints.wrote(written);
                Ok(Action::Done)
            }
            Err(error) if is_namespace_terminating(&error) => Ok(Action::Done),
            Err(error) => {
                if !is_conflict(&error) {
                    let (reason, failed) = match existing {
                        Some(_) => ("FailedToUpdateEndpoint", "Failed to update endpoint"),
                        None => ("FailedToCreateEndpoint", "Failed to create endpoint for service"),
                    };
                    wanted.metadata.namespace = Some(key.namespace.clone());
                    self.recorder.warning(&wanted, reason, format!("{failed} {key}: {}", message(&error)));
                }
                Err(error)
            }
        }
    }
}

fn labels_of(service: &Service) -> BTreeMap<String, String> {
    let mut labels = service.labels().clone();
    labels.insert(MANAGED_BY.to_owned(), COMPONENT.to_owned());
    match is_headless(service) {
        true => drop(labels.insert(HEADLESS.to_owned(), String::new())),
        false => drop(labels.remove(HEADLESS)),
    }
    labels
}

fn is_same(existing: &Endpoints, wanted: &Endpoints) -> bool {
    let capacity = |endpoints: &Endpoints| endpoints.annotations().get(OVER_CAPACITY).cloned();
    existing.subsets.as_deref().unwrap_or_default() == wanted.subsets.as_deref().unwrap_or_default()
        && existing.metadata.labels == wanted.metadata.labels
        && capacity(existing) == capacity(wanted)
}
