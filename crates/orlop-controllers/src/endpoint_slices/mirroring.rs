//! EndpointSlices of Endpoints that somebody wrote for a Service without a selector.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::api::{
    core::v1::{EndpointAddress, EndpointSubset, Endpoints, Service},
    discovery::v1::{Endpoint, EndpointConditions, EndpointSlice},
};
use orlop_client::{Client, ResourceExt, api::ObjectMeta};

use super::{
    addresses::Family,
    apply, is_managed_by, service_of,
    slices::{Group, MANAGED_BY, SERVICE_NAME, Wanted, reconcile_groups, sorted},
    slices_of,
};
use crate::{
    runtime::{Action, Context, Informer, Key, Manager},
    status::is_namespace_terminating,
    workload::{ownership::controller_reference, pod_control::name_prefix},
};

/// Name of the controller.
pub(crate) const NAME: &str = "endpointslice-mirroring-controller";
/// Value of the label that marks its slices.
const MANAGER: &str = "endpointslicemirroring-controller.k8s.io";
/// Label by which an Endpoints object is left alone.
const SKIP_MIRROR: &str = "endpointslice.kubernetes.io/skip-mirror";
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";
/// Most addresses of a subset that are mirrored.
const ADDRESSES_MAX: usize = 1000;
const CONCURRENCY: usize = 5;

/// Registers the controller.
pub(crate) fn register(manager: &mut Manager) {
    manager.register(NAME, run);
}

struct Controller {
    client: Client,
    services: Arc<Informer<Service>>,
    endpoints: Arc<Informer<Endpoints>>,
    slices: Arc<Informer<EndpointSlice>>,
}

async fn run(context: Context) {
    let informers = &context.informers;
    let controller = Arc::new(Controller {
        client: context.client.clone(),
        services: informers.of(),
        endpoints: informers.of(),
        slices: informers.of(),
    });
    let Controller { services, endpoints, slices, .. } = &*controller;
    tokio::join!(services.synced(), endpoints.synced(), slices.synced());
    let queue = context.work_queue::<Key>();
    let (one, two, three) = (queue.clone(), queue.clone(), queue.clone());
    let subscriptions = (
        services.subscribe(move |change| change.both().for_each(|service| one.add(Key::of(&**service)))),
        endpoints.subscribe(move |change| change.both().for_each(|object| two.add(Key::of(&**object)))),
        slices.subscribe(move |change| {
            for slice in change.both().filter(|slice| is_managed_by(slice, MANAGER)) {
                three.add(service_of(slice));
            }
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

impl Controller {
    async fn reconcile(&self, key: &Key) -> orlop_client::Result<Action> {
        let existing = slices_of(&self.slices, key, MANAGER);
        let endpoints = self.endpoints.get(key).filter(|endpoints| should_mirror(endpoints));
        let service = self.services.get(key);
        let is_manual = service.as_ref().is_some_and(|service| {
            let spec = service.spec.as_ref();
            spec.is_some_and(|spec| spec.selector.as_ref().is_none_or(BTreeMap::is_empty))
        });
        let changes = match endpoints.filter(|_| is_manual) {
            None => {
                reconcile_groups(Wanted::new(), &existing, &BTreeMap::new(), |_| EndpointSlice::default())
            }
            Some(endpoints) => {
                let labels = labels(&endpoints);
                reconcile_groups(wanted(&endpoints), &existing, &labels, |group| EndpointSlice {
                    metadata: ObjectMeta {
                        generate_name: Some(name_prefix(&endpoints.name_any())),
                        owner_references: Some(vec![controller_reference(&*endpoints)]),
                        ..ObjectMeta::default()
                    },
                    address_type: group.family.name().to_owned(),
                    ..EndpointSlice::default()
                })
            }
        };
        match apply(&self.client, &self.slices, &key.namespace, changes).await {
            Err(error) if is_namespace_terminating(&error) => Ok(Action::Done),
            applied => applied.map(|()| Action::Done),
        }
    }
}

fn should_mirror(endpoints: &Endpoints) -> bool {
    endpoints.labels().get(SKIP_MIRROR).is_none_or(|value| value != "true")
        && !endpoints.annotations().contains_key(LEADER)
        && endpoints.metadata.deletion_timestamp.is_none()
}

fn labels(endpoints: &Endpoints) -> BTreeMap<String, String> {
    let mut labels = endpoints.labels().clone();
    labels.insert(SERVICE_NAME.to_owned(), endpoints.name_any());
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    labels
}

/// Returns the endpoints of all subsets.
fn wanted(endpoints: &Endpoints) -> Wanted {
    let mut wanted = Wanted::new();
    for subset in endpoints.subsets.iter().flatten() {
        let ports = ports(subset);
        let mut seen = BTreeSet::new();
        let ready = subset.addresses.iter().flatten().map(|address| (address, true));
        let unready = subset.not_ready_addresses.iter().flatten().map(|address| (address, false));
        for (address, is_ready) in ready.chain(unready).take(ADDRESSES_MAX) {
            if seen.insert(&address.ip) {
                let group = Group { family: Family::of(&address.ip), ports: ports.clone() };
                wanted.entry(group).or_default().push(endpoint(address, is_ready));
            }
        }
    }
    wanted
}

fn ports(subset: &EndpointSubset) -> Vec<(String, String, i32, Option<String>)> {
    let ports = subset.ports.iter().flatten().map(|port| {
        let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
        (port.name.clone().unwrap_or_default(), protocol, port.port, port.app_protocol.clone())
    });
    sorted(ports.collect())
}

fn endpoint(address: &EndpointAddress, ready: bool) -> Endpoint {
    Endpoint {
        addresses: vec![address.ip.clone()],
        conditions: Some(EndpointConditions { ready: Some(ready), ..EndpointConditions::default() }),
        hostname: address.hostname.clone().filter(|name| !name.is_empty()),
        node_name: address.node_name.clone(),
        target_ref: address.target_ref.clone(),
        ..Endpoint::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn subsets_become_groups_by_family_and_ports() {
        let endpoints: Endpoints = serde_json::from_value(json!({"metadata": {"name": "db"}, "subsets": [
            {"addresses": [{"ip": "192.0.2.1"}, {"ip": "2001:db8::1"}], "notReadyAddresses": [{"ip": "192.0.2.2"}],
                "ports": [{"port": 5432}]}]}))
        .unwrap();
        assert!(should_mirror(&endpoints));
        let wanted = wanted(&endpoints);
        let counts: Vec<(Family, usize)> =
            wanted.iter().map(|(group, endpoints)| (group.family, endpoints.len())).collect();
        assert_eq!(counts, [(Family::IPv4, 2), (Family::IPv6, 1)]);
    }
}
