//! Status of ResourceQuotas: what a namespace uses.

mod usage;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::{
    api::core::v1::{PersistentVolumeClaim, Pod, ResourceQuota, ResourceQuotaStatus, Service},
    apimachinery::pkg::api::resource::Quantity,
};
use kube::{
    Client, ResourceExt,
    api::{ListParams, PostParams},
};
use orlop_client::Api;

use crate::{
    discovery::Resources,
    runtime::{Action, Context, Informer, Key, Manager, WorkQueue},
    status::is_not_found,
};

/// Name of the controller.
pub(crate) const NAME: &str = "resourcequota-controller";
const CONCURRENCY: usize = 5;
/// Time after which a quota is computed again whatever happens.
const RESYNC: Duration = Duration::from_secs(300);
/// Objects that are counted at a time.
const PAGE: u32 = 500;

/// Registers the controller.
pub(crate) fn register(manager: &mut Manager) {
    manager.register(NAME, run);
}

struct Controller {
    client: Client,
    quotas: Arc<Informer<ResourceQuota>>,
    pods: Arc<Informer<Pod>>,
    services: Arc<Informer<Service>>,
    claims: Arc<Informer<PersistentVolumeClaim>>,
}

async fn run(context: Context) {
    let informers = &context.informers;
    let controller = Arc::new(Controller {
        client: context.client.clone(),
        quotas: informers.of(),
        pods: informers.of(),
        services: informers.of(),
        claims: informers.of(),
    });
    let Controller { quotas, pods, services, claims, .. } = &*controller;
    tokio::join!(quotas.synced(), pods.synced(), services.synced(), claims.synced());
    let queue = context.work_queue::<Key>();
    let of_quotas = queue.clone();
    let replenish = |queue: &Arc<WorkQueue<Key>>| (queue.clone(), quotas.clone());
    let (of_pods, of_services, of_claims) = (replenish(&queue), replenish(&queue), replenish(&queue));
    let subscriptions = (
        quotas.subscribe(move |change| change.new.iter().for_each(|quota| of_quotas.add(Key::of(&**quota)))),
        pods.subscribe(move |change| {
            let charge = |pod: &Option<Arc<Pod>>| pod.as_ref().map(|pod| usage::of_pod(pod));
            if charge(&change.old) != charge(&change.new) {
                queue_namespace(&of_pods, change.latest().and_then(|pod| pod.namespace()));
            }
        }),
        services.subscribe(move |change| {
            queue_namespace(&of_services, change.latest().and_then(|service| service.namespace()));
        }),
        claims.subscribe(move |change| {
            queue_namespace(&of_claims, change.latest().and_then(|claim| claim.namespace()));
        }),
    );
    queue
        .run(CONCURRENCY, |key| {
            let controller = controller.clone();
            async move { controller.reconcile(&key).await }
        })
        .await;
    drop(subscriptions);
}

/// Queues the quotas of a namespace.
fn queue_namespace(
    (queue, quotas): &(Arc<WorkQueue<Key>>, Arc<Informer<ResourceQuota>>),
    namespace: Option<String>,
) {
    let quotas = quotas.in_namespace(&namespace.unwrap_or_default());
    quotas.iter().for_each(|quota| queue.add(Key::of(&**quota)));
}

impl Controller {
    async fn reconcile(&self, key: &Key) -> kube::Result<Action> {
        let Some(quota) = self.quotas.get(key) else { return Ok(Action::Done) };
        let spec = quota.spec.clone().unwrap_or_default();
        let hard = spec.hard.clone().unwrap_or_default();
        let namespace = &key.namespace;
        let (pods, services, claims) = (
            self.pods.in_namespace(namespace),
            self.services.in_namespace(namespace),
            self.claims.in_namespace(namespace),
        );
        let mut used = usage::of_namespace(&spec, &pods, &services, &claims);
        for name in hard.keys().filter(|name| !used.contains_key(*name)).cloned().collect::<Vec<_>>() {
            let count = match usage::counted(&name) {
                Some((resource, group)) if usage::is_unscoped(&spec) => {
                    self.count(namespace, &resource, &group).await?
                }
                _ => 0,
            };
            used.insert(name, Quantity(count.to_string()));
        }
        used.retain(|name, _| hard.contains_key(name));
        let status = ResourceQuotaStatus { hard: Some(hard), used: Some(used) };
        let is_same = quota.status.as_ref().is_some_and(|old| is_equal(old, &status));
        if !is_same {
            let mut changed = ResourceQuota::clone(&quota);
            changed.status = Some(status);
            let api: Api<ResourceQuota> = Api::namespaced(self.client.clone(), namespace);
            match api.replace_status(&key.name, &PostParams::default(), &changed).await {
                Ok(written) => self.quotas.wrote(written),
                Err(error) if is_not_found(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Action::After(RESYNC))
    }

    /// Counts the objects of a resource in a namespace, page by page.
    async fn count(&self, namespace: &str, resource: &str, group: &str) -> kube::Result<usize> {
        let served = Resources::discover(&self.client).await?;
        let found = served.iter().find(|known| known.api.plural == resource && known.api.group == group);
        let Some(found) = found.filter(|found| found.namespaced) else { return Ok(0) };
        let objects = found.objects(&self.client, Some(namespace));
        let mut page = ListParams::default().limit(PAGE);
        let mut count = 0;
        loop {
            let list = objects.list_metadata(&page).await?;
            count += list.items.len();
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return Ok(count),
            }
        }
    }
}

/// Returns whether two states are equal, whatever the notation of quantities.
fn is_equal(one: &ResourceQuotaStatus, other: &ResourceQuotaStatus) -> bool {
    let amounts = |quantities: &Option<BTreeMap<String, Quantity>>| -> BTreeMap<String, Option<i64>> {
        let quantities = quantities.iter().flatten();
        let milli = |quantity: &Quantity| {
            orlop_api::quantity::Quantity::parse(&quantity.0).ok().map(|quantity| quantity.milli_units())
        };
        quantities.map(|(name, quantity)| (name.clone(), milli(quantity))).collect()
    };
    amounts(&one.hard) == amounts(&other.hard) && amounts(&one.used) == amounts(&other.used)
}
