//! EndpointSlices: the addresses of a Service's pods.

pub(crate) mod addresses;
mod mirroring;
mod slices;

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::{
    core::v1::{Node, Pod, Service},
    discovery::v1::EndpointSlice,
};
use orlop_client::{
    Api, Client, ResourceExt,
    api::{DeleteParams, PostParams, Preconditions},
};

pub(crate) use self::mirroring::{NAME as MIRRORING, register as register_mirroring};
use self::slices::{Changes, MANAGED_BY, SERVICE_NAME};
use crate::{
    runtime::{Action, Change, Context, EventForm, Informer, Key, Manager, Recorder, WorkQueue},
    status::{is_conflict, is_namespace_terminating, is_not_found, message},
    workload::selector::Labels,
};

/// Name of the controller.
pub(crate) const NAME: &str = "endpointslice-controller";
/// Source of its events.
const COMPONENT: &str = "endpoint-slice-controller";
/// Value of the label that marks its slices.
const MANAGER: &str = "endpointslice-controller.k8s.io";
/// Services that are reconciled at a time.
const CONCURRENCY: usize = 5;

/// Registers the controller.
pub(crate) fn register(manager: &mut Manager) {
    manager.register(NAME, run);
}

struct Controller {
    client: Client,
    services: Arc<Informer<Service>>,
    pods: Arc<Informer<Pod>>,
    nodes: Arc<Informer<Node>>,
    slices: Arc<Informer<EndpointSlice>>,
    recorder: Arc<Recorder>,
}

async fn run(context: Context) {
    let informers = &context.informers;
    let controller = Arc::new(Controller {
        client: context.client.clone(),
        services: informers.of(),
        pods: informers.of(),
        nodes: informers.of(),
        slices: informers.of(),
        recorder: context.recorder(COMPONENT, EventForm::Counted),
    });
    let Controller { services, pods, nodes, slices, .. } = &*controller;
    tokio::join!(services.synced(), pods.synced(), nodes.synced(), slices.synced());
    let queue = context.work_queue::<Key>();
    let subscriptions = (
        {
            let queue = queue.clone();
            services.subscribe(move |change| change.both().for_each(|service| queue.add(Key::of(&**service))))
        },
        {
            let (queue, services) = (queue.clone(), services.clone());
            pods.subscribe(move |change| queue_services_of(&queue, &services, change))
        },
        {
            let queue = queue.clone();
            slices.subscribe(move |change| {
                for slice in change.both().filter(|slice| is_managed_by(slice, MANAGER)) {
                    queue.add(service_of(slice));
                }
            })
        },
        {
            let (queue, services) = (queue.clone(), services.clone());
            nodes.subscribe(move |change| {
                // Zones are on the addresses.
                let labels = |node: &Option<Arc<Node>>| node.as_ref().map(|node| node.labels().clone());
                if labels(&change.old) != labels(&change.new) {
                    services.all().iter().for_each(|service| queue.add(Key::of(&**service)));
                }
            })
        },
    );
    queue
        .run(CONCURRENCY, |key| {
            let controller = controller.clone();
            async move { controller.reconcile(&key).await }
        })
        .await;
    drop(subscriptions);
}

/// Queues the services that select a pod as it was or as it is.
pub(crate) fn queue_services_of(queue: &WorkQueue<Key>, services: &Informer<Service>, change: &Change<Pod>) {
    let Some(pod) = change.latest() else { return };
    for service in services.in_namespace(&pod.namespace().unwrap_or_default()) {
        let selector = service.spec.as_ref().and_then(|spec| spec.selector.as_ref());
        let Some(selector) = selector.filter(|selector| !selector.is_empty()) else { continue };
        let labels = Labels::of_map(selector);
        if change.both().any(|pod| labels.selects(&**pod)) {
            queue.add(Key::of(&*service));
        }
    }
}

/// Returns whether a slice belongs to a controller.
fn is_managed_by(slice: &EndpointSlice, manager: &str) -> bool {
    slice.labels().get(MANAGED_BY).is_some_and(|value| value == manager)
}

/// Returns the service of a slice.
fn service_of(slice: &EndpointSlice) -> Key {
    let name = slice.labels().get(SERVICE_NAME).cloned().unwrap_or_default();
    Key::new(slice.namespace().unwrap_or_default(), name)
}

/// Returns the slices of a service that a controller manages.
fn slices_of(informer: &Informer<EndpointSlice>, key: &Key, manager: &str) -> Vec<Arc<EndpointSlice>> {
    let slices = informer.in_namespace(&key.namespace).into_iter();
    slices.filter(|slice| is_managed_by(slice, manager) && service_of(slice) == *key).collect()
}

impl Controller {
    async fn reconcile(&self, key: &Key) -> orlop_client::Result<Action> {
        let existing = slices_of(&self.slices, key, MANAGER);
        // Slices of a service that is gone are garbage collected by their owner.
        let Some(service) = self.services.get(key) else { return Ok(Action::Done) };
        let spec = service.spec.clone().unwrap_or_default();
        let selector = spec.selector.filter(|selector| !selector.is_empty());
        let (Some(selector), false) = (selector, spec.type_.as_deref() == Some("ExternalName")) else {
            // It selects no pods any more: its slices are not this controller's business.
            return Ok(Action::Done);
        };
        if service.metadata.deletion_timestamp.is_some() {
            return Ok(Action::Done);
        }
        let labels = Labels::of_map(&selector);
        let pods = self.pods.in_namespace(&key.namespace);
        let pods: Vec<Arc<Pod>> = pods.into_iter().filter(|pod| labels.selects(&**pod)).collect();
        let nodes: BTreeMap<String, Arc<Node>> =
            self.nodes.all().into_iter().map(|node| (node.name_any(), node)).collect();
        let (wanted, is_complete) = slices::wanted(&service, &pods, &nodes);
        let changes = slices::reconcile(&service, wanted, &existing, MANAGER, &pods);
        if let Err(error) = apply(&self.client, &self.slices, &key.namespace, changes).await {
            if is_namespace_terminating(&error) {
                return Ok(Action::Done);
            }
            if !is_conflict(&error) {
                let text = format!("Error updating Endpoint Slices for Service {key}: {}", message(&error));
                self.recorder.warning(&*service, "FailedToUpdateEndpointSlices", text);
            }
            return Err(error);
        }
        // A pod whose node is not known yet joins later.
        Ok(if is_complete { Action::Done } else { Action::Requeue })
    }
}

/// Writes changes of slices.
async fn apply(
    client: &Client,
    informer: &Informer<EndpointSlice>,
    namespace: &str,
    changes: Changes,
) -> orlop_client::Result<()> {
    let api: Api<EndpointSlice> = Api::namespaced(client.clone(), namespace);
    for slice in changes.create {
        informer.wrote(api.create(&PostParams::default(), &slice).await?);
    }
    for slice in changes.update {
        informer.wrote(api.replace(&slice.name_any(), &PostParams::default(), &slice).await?);
    }
    for slice in changes.delete {
        let preconditions = Preconditions { uid: slice.uid(), resource_version: None };
        let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        match api.delete(&slice.name_any(), &parameters).await {
            Err(error) if !is_not_found(&error) && !is_conflict(&error) => return Err(error),
            _ => informer.deleted(&slice),
        }
    }
    Ok(())
}
