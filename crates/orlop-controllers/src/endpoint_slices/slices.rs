//! The slices of a Service: what they should hold, and the fewest writes to get there. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::api::{
    core::v1::{Node, Pod, Service},
    discovery::v1::{
        Endpoint, EndpointConditions, EndpointHints, EndpointPort, EndpointSlice, ForNode, ForZone,
    },
};
use orlop_client::{ResourceExt, api::ObjectMeta};

use super::addresses::{self, Family};
use crate::workload::{ownership::controller_reference, pod_control::name_prefix, pods};

/// Label of the service of a slice.
pub(super) const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Label of the controller of a slice.
pub(super) const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const HEADLESS: &str = "service.kubernetes.io/headless";
const TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";
const ZONE: &str = "topology.kubernetes.io/zone";
/// Most endpoints of a slice.
const ENDPOINTS_MAX: usize = 100;

/// Slices that differ in family or ports.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Group {
    pub(super) family: Family,
    /// Name, protocol, number and application protocol of every port.
    pub(super) ports: Vec<(String, String, i32, Option<String>)>,
}

impl Group {
    fn of(slice: &EndpointSlice) -> Self {
        let ports = slice.ports.iter().flatten().map(|port| {
            let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
            (
                port.name.clone().unwrap_or_default(),
                protocol,
                port.port.unwrap_or(0),
                port.app_protocol.clone(),
            )
        });
        let family = if slice.address_type == "IPv6" { Family::IPv6 } else { Family::IPv4 };
        Self { family, ports: sorted(ports.collect()) }
    }

    fn to_ports(&self) -> Vec<EndpointPort> {
        let ports = self.ports.iter().cloned();
        ports
            .map(|(name, protocol, number, app_protocol)| EndpointPort {
                name: Some(name),
                protocol: Some(protocol),
                port: Some(number),
                app_protocol,
            })
            .collect()
    }
}

pub(super) fn sorted<T: Ord>(mut items: Vec<T>) -> Vec<T> {
    items.sort();
    items
}

/// Endpoints that should exist.
pub(super) type Wanted = BTreeMap<Group, Vec<Endpoint>>;

/// Writes that lead there.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) create: Vec<EndpointSlice>,
    pub(super) update: Vec<EndpointSlice>,
    pub(super) delete: Vec<EndpointSlice>,
}

/// Returns the endpoints of a service, and whether every pod could be placed: one whose node is not known cannot.
pub(super) fn wanted(
    service: &Service,
    pods: &[Arc<Pod>],
    nodes: &BTreeMap<String, Arc<Node>>,
) -> (Wanted, bool) {
    let mut wanted = Wanted::new();
    let mut is_complete = true;
    let ports = service.spec.as_ref().and_then(|spec| spec.ports.as_deref()).unwrap_or_default();
    for family in addresses::families(service) {
        for pod in pods.iter().filter(|pod| addresses::is_member(pod, true)) {
            let Some(address) = addresses::address(pod, family) else { continue };
            let node = pods::node_name(pod).and_then(|name| nodes.get(name));
            if pods::node_name(pod).is_some() && node.is_none() && !addresses::publishes_not_ready(service) {
                is_complete = false;
                continue;
            }
            let ports = ports.iter().filter_map(|port| {
                let number = addresses::target_port(port, pod)?;
                let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
                Some((port.name.clone().unwrap_or_default(), protocol, number, port.app_protocol.clone()))
            });
            let group = Group { family, ports: sorted(ports.collect()) };
            wanted.entry(group).or_default().push(endpoint(service, pod, address, node));
        }
    }
    (wanted, is_complete)
}

fn endpoint(service: &Service, pod: &Pod, address: &str, node: Option<&Arc<Node>>) -> Endpoint {
    let (serving, terminating) = (pods::is_ready(pod), pods::is_deleting(pod));
    let ready = addresses::publishes_not_ready(service) || serving && !terminating;
    let zone = node.and_then(|node| node.labels().get(ZONE).cloned());
    let node_name = pods::node_name(pod).map(str::to_owned);
    Endpoint {
        addresses: vec![address.to_owned()],
        conditions: Some(EndpointConditions {
            ready: Some(ready),
            serving: Some(serving),
            terminating: Some(terminating),
        }),
        hints: hints(service, ready, zone.as_ref(), node_name.as_ref()),
        hostname: addresses::host_name(pod, service),
        node_name,
        target_ref: Some(addresses::reference(pod)),
        zone,
        ..Endpoint::default()
    }
}

/// Returns the zones and nodes that should prefer an endpoint.
fn hints(
    service: &Service,
    ready: bool,
    zone: Option<&String>,
    node: Option<&String>,
) -> Option<EndpointHints> {
    let distribution = service.spec.as_ref().and_then(|spec| spec.traffic_distribution.as_deref())?;
    let zone = zone.filter(|_| ready)?;
    let for_zones = Some(vec![ForZone { name: zone.clone() }]);
    match distribution {
        "PreferClose" | "PreferSameZone" => Some(EndpointHints { for_zones, for_nodes: None }),
        "PreferSameNode" => {
            let for_nodes = node.map(|node| vec![ForNode { name: node.clone() }]);
            Some(EndpointHints { for_zones, for_nodes })
        }
        _ => None,
    }
}

/// Returns the labels of a service's slices.
fn labels(service: &Service, manager: &str) -> BTreeMap<String, String> {
    let is_reserved = |key: &str| matches!(key, SERVICE_NAME | MANAGED_BY | HEADLESS);
    let own = service.labels().iter().filter(|(key, _)| !is_reserved(key));
    let mut labels: BTreeMap<String, String> = own.map(|(key, value)| (key.clone(), value.clone())).collect();
    labels.insert(SERVICE_NAME.to_owned(), service.name_any());
    labels.insert(MANAGED_BY.to_owned(), manager.to_owned());
    if addresses::is_headless(service) {
        labels.insert(HEADLESS.to_owned(), String::new());
    }
    labels
}

/// Returns the writes that make the slices hold what is wanted.
pub(super) fn reconcile(
    service: &Service,
    mut wanted: Wanted,
    existing: &[Arc<EndpointSlice>],
    manager: &str,
    pods: &[Arc<Pod>],
) -> Changes {
    let families = addresses::families(service);
    if wanted.is_empty() {
        // One slice without endpoints says that there are none.
        wanted
            .extend(families.iter().map(|family| (Group { family: *family, ports: Vec::new() }, Vec::new())));
    }
    let labels = labels(service, manager);
    let mut changes = reconcile_groups(wanted, existing, &labels, |group| EndpointSlice {
        metadata: ObjectMeta {
            generate_name: Some(name_prefix(&service.name_any())),
            owner_references: Some(vec![controller_reference(service)]),
            ..ObjectMeta::default()
        },
        address_type: group.family.name().to_owned(),
        ..EndpointSlice::default()
    });
    if let Some(time) = trigger_time(service, pods) {
        for slice in changes.create.iter_mut().chain(&mut changes.update) {
            let annotations = slice.metadata.annotations.get_or_insert_default();
            annotations.insert(TRIGGER_TIME.to_owned(), time.clone());
        }
    }
    changes
}

/// Returns the latest time at which a pod became ready or not, for measuring how long its address takes.
fn trigger_time(service: &Service, pods: &[Arc<Pod>]) -> Option<String> {
    let latest = pods.iter().filter_map(|pod| pods::ready_since(pod)).max();
    let created = service.metadata.creation_timestamp.as_ref().map(|time| time.0);
    latest.or(created).map(|time| time.to_string())
}

/// Returns the writes for slices that are made by `new` and carry `labels`.
pub(super) fn reconcile_groups(
    wanted: Wanted,
    existing: &[Arc<EndpointSlice>],
    labels: &BTreeMap<String, String>,
    new: impl Fn(&Group) -> EndpointSlice,
) -> Changes {
    let mut changes = Changes::default();
    let mut of_group: BTreeMap<Group, Vec<&Arc<EndpointSlice>>> = BTreeMap::new();
    for slice in existing {
        let group = Group::of(slice);
        if slice.metadata.deletion_timestamp.is_some() {
            continue;
        }
        match wanted.contains_key(&group) {
            true => of_group.entry(group).or_default().push(slice),
            false => changes.delete.push(EndpointSlice::clone(slice)),
        }
    }
    for (group, endpoints) in wanted {
        let slices = of_group.remove(&group).unwrap_or_default();
        reconcile_group(&group, endpoints, slices, labels, &new, &mut changes);
    }
    changes
}

/// Identity of an endpoint.
fn identity(endpoint: &Endpoint) -> (Vec<String>, Option<String>) {
    let uid = endpoint.target_ref.as_ref().and_then(|target| target.uid.clone());
    (endpoint.addresses.clone(), uid)
}

fn reconcile_group(
    group: &Group,
    endpoints: Vec<Endpoint>,
    slices: Vec<&Arc<EndpointSlice>>,
    labels: &BTreeMap<String, String>,
    new: &impl Fn(&Group) -> EndpointSlice,
    changes: &mut Changes,
) {
    let is_empty_wanted = endpoints.is_empty();
    let mut left: BTreeMap<_, Endpoint> =
        endpoints.into_iter().map(|endpoint| (identity(&endpoint), endpoint)).collect();
    // Endpoints stay in the slice that they are in.
    let mut kept: Vec<(EndpointSlice, bool)> = Vec::new();
    for slice in slices {
        let mut changed = EndpointSlice::clone(slice);
        let mut stay = Vec::new();
        let mut seen = BTreeSet::new();
        for old in slice.endpoints.iter().flatten() {
            let identity = identity(old);
            if seen.insert(identity.clone())
                && let Some(endpoint) = left.remove(&identity)
            {
                stay.push(endpoint);
            }
        }
        let is_same = slice.endpoints.as_deref().unwrap_or_default() == stay.as_slice()
            && slice.metadata.labels.as_ref() == Some(labels);
        changed.endpoints = Some(stay);
        changed.metadata.labels = Some(labels.clone());
        kept.push((changed, !is_same));
    }
    // The others fill slices that are written anyway, the fullest first, then any that has room for all of them.
    let room = |slice: &EndpointSlice| ENDPOINTS_MAX.saturating_sub(slice.endpoints.iter().flatten().count());
    kept.sort_by_key(|(slice, is_changed)| (!is_changed, room(slice)));
    let mut left: Vec<Endpoint> = left.into_values().collect();
    for (slice, is_changed) in &mut kept {
        let room = room(slice);
        if left.is_empty() || room == 0 || !*is_changed && room < left.len() {
            continue;
        }
        let taken = left.split_off(left.len().saturating_sub(room));
        slice.endpoints.get_or_insert_default().extend(taken);
        *is_changed = true;
    }
    while !left.is_empty() || is_empty_wanted && kept.is_empty() {
        let taken = left.split_off(left.len().saturating_sub(ENDPOINTS_MAX));
        let mut slice = new(group);
        slice.metadata.labels = Some(labels.clone());
        slice.ports = Some(group.to_ports());
        slice.endpoints = Some(taken);
        changes.create.push(slice);
        if is_empty_wanted {
            break;
        }
    }
    // Slices that are empty now go, except one that says that there is nothing.
    let mut has_placeholder = !is_empty_wanted;
    for (slice, is_changed) in kept {
        let is_empty = slice.endpoints.as_ref().is_none_or(Vec::is_empty);
        if is_empty && has_placeholder {
            changes.delete.push(slice);
            continue;
        }
        has_placeholder = true;
        if is_changed {
            changes.update.push(slice);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn service(change: Value) -> Service {
        let mut service = json!({"metadata": {"name": "web", "namespace": "default", "uid": "s",
            "labels": {"app": "web"}}, "spec": {"clusterIP": "10.0.0.9", "ipFamilies": ["IPv4"],
            "ports": [{"name": "http", "port": 80, "targetPort": "http"}]}});
        for (key, value) in change.as_object().into_iter().flatten() {
            service["spec"][key] = value.clone();
        }
        serde_json::from_value(service).unwrap()
    }

    fn pod(number: usize, ready: bool, port: i32) -> Arc<Pod> {
        let name = format!("web-{number}");
        let status = if ready { "True" } else { "False" };
        let pod = json!({"metadata": {"name": name, "namespace": "default", "uid": name},
            "spec": {"nodeName": "n", "containers": [{"name": "a", "ports": [{"name": "http", "containerPort": port}]}]},
            "status": {"phase": "Running", "podIP": format!("10.1.{}.{}", number / 250, number % 250 + 1),
                "conditions": [{"type": "Ready", "status": status}]}});
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    fn nodes() -> BTreeMap<String, Arc<Node>> {
        let node = json!({"metadata": {"name": "n", "labels": {ZONE: "z"}}});
        BTreeMap::from([("n".to_owned(), Arc::new(serde_json::from_value(node).unwrap()))])
    }

    fn changes(service: &Service, pods: &[Arc<Pod>], existing: &[Arc<EndpointSlice>]) -> Changes {
        let (wanted, _) = wanted(service, pods, &nodes());
        reconcile(service, wanted, existing, "m", pods)
    }

    /// Applies changes to slices, as a server would.
    fn applied(
        existing: &[Arc<EndpointSlice>],
        changes: Changes,
        next: &mut usize,
    ) -> Vec<Arc<EndpointSlice>> {
        let gone: Vec<String> =
            changes.delete.iter().chain(&changes.update).map(ResourceExt::name_any).collect();
        let mut slices: Vec<Arc<EndpointSlice>> =
            existing.iter().filter(|slice| !gone.contains(&slice.name_any())).cloned().collect();
        slices.extend(changes.update.into_iter().map(Arc::new));
        for mut slice in changes.create {
            *next += 1;
            slice.metadata.name = Some(format!("web-{next}"));
            slices.push(Arc::new(slice));
        }
        slices
    }

    fn count(slices: &[Arc<EndpointSlice>]) -> usize {
        slices.iter().map(|slice| slice.endpoints.iter().flatten().count()).sum()
    }

    #[test]
    fn service_without_pods_has_one_empty_slice() {
        let (service, mut next) = (service(json!({})), 0);
        let slices = applied(&[], changes(&service, &[], &[]), &mut next);
        assert_eq!((slices.len(), count(&slices)), (1, 0));
        let again = changes(&service, &[], &slices);
        assert!(again.create.is_empty() && again.update.is_empty() && again.delete.is_empty());
        let slices = applied(&slices, changes(&service, &[pod(0, true, 80)], &slices), &mut next);
        assert_eq!((slices.len(), count(&slices)), (1, 1));
        let slices = applied(&slices, changes(&service, &[], &slices), &mut next);
        assert_eq!((slices.len(), count(&slices)), (1, 0));
    }

    #[test]
    fn endpoint_tells_conditions_and_place() {
        let slices =
            changes(&service(json!({"trafficDistribution": "PreferClose"})), &[pod(0, true, 8080)], &[]);
        let slice = &slices.create[0];
        assert_eq!(slice.labels().get("app").map(String::as_str), Some("web"));
        assert_eq!(slice.labels()[SERVICE_NAME], "web");
        assert_eq!(slice.ports.as_ref().unwrap()[0].port, Some(8080));
        let endpoint = &slice.endpoints.as_ref().unwrap()[0];
        assert_eq!((endpoint.zone.as_deref(), endpoint.node_name.as_deref()), (Some("z"), Some("n")));
        assert_eq!(endpoint.hints.as_ref().unwrap().for_zones.as_ref().unwrap()[0].name, "z");
        let unready = changes(&service(json!({})), &[pod(0, false, 80)], &[]);
        let conditions = unready.create[0].endpoints.as_ref().unwrap()[0].conditions.clone().unwrap();
        assert_eq!((conditions.ready, conditions.serving), (Some(false), Some(false)));
        let published = service(json!({"publishNotReadyAddresses": true}));
        let published = changes(&published, &[pod(0, false, 80)], &[]);
        let conditions = published.create[0].endpoints.as_ref().unwrap()[0].conditions.clone().unwrap();
        assert_eq!((conditions.ready, conditions.serving), (Some(true), Some(false)));
    }

    #[test]
    fn pods_with_other_port_numbers_get_other_slices() {
        let pods = [pod(0, true, 80), pod(1, true, 81)];
        assert_eq!(changes(&service(json!({})), &pods, &[]).create.len(), 2);
    }

    #[test]
    fn slices_stay_small_and_writes_few() {
        let (service, mut next) = (service(json!({})), 0);
        let pods: Vec<Arc<Pod>> = (0..250).map(|number| pod(number, true, 80)).collect();
        let slices = applied(&[], changes(&service, &pods, &[]), &mut next);
        assert_eq!((slices.len(), count(&slices)), (3, 250));
        let more: Vec<Arc<Pod>> = (0..251).map(|number| pod(number, true, 80)).collect();
        let one_more = changes(&service, &more, &slices);
        assert_eq!((one_more.create.len(), one_more.update.len(), one_more.delete.len()), (0, 1, 0));
        let mut unready = pods.clone();
        unready[7] = pod(7, false, 80);
        let one_changed = changes(&service, &unready, &slices);
        assert_eq!((one_changed.create.len(), one_changed.update.len()), (0, 1));
        let slices = applied(&slices, changes(&service, &pods[..10], &slices), &mut next);
        assert_eq!(count(&slices), 10);
    }

    #[test]
    fn random_histories_end_with_exactly_the_wanted_endpoints() {
        let (service, mut next) = (service(json!({})), 0);
        let mut slices = Vec::new();
        let mut seed = 1_u32;
        for _ in 0..60 {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let pods: Vec<Arc<Pod>> = (0..400)
                .filter(|number| (seed >> (number % 29)) & 1 == 1)
                .map(|number| pod(number, number % 3 != 0, if number % 5 == 0 { 81 } else { 80 }))
                .collect();
            slices = applied(&slices, changes(&service, &pods, &slices), &mut next);
            let mut addresses: Vec<String> = slices
                .iter()
                .flat_map(|slice| slice.endpoints.iter().flatten())
                .flat_map(|endpoint| endpoint.addresses.clone())
                .collect();
            addresses.sort();
            let mut wanted: Vec<String> =
                pods.iter().map(|pod| addresses::address(pod, Family::IPv4).unwrap().to_owned()).collect();
            wanted.sort();
            assert_eq!(addresses, wanted);
            assert!(slices.iter().all(|slice| slice.endpoints.iter().flatten().count() <= ENDPOINTS_MAX));
            let again = changes(&service, &pods, &slices);
            assert!(again.create.is_empty() && again.update.is_empty() && again.delete.is_empty());
        }
    }
}
