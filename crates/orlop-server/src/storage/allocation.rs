//! Allocation of cluster IPs and node ports of services.
//!
//! An allocation is part of the transaction that writes the service, so a crash leaves nothing to repair. A
//! cluster IP is allocated by its IPAddress object, as in Kubernetes; a node port by a key of its own. Cluster IPs are
//! of the server's ranges and of those of ServiceCIDR objects.

use std::{net::IpAddr, ops::RangeInclusive};

use orlop_api::{
    field_error::{FieldError, FieldPath},
    group_version::GroupKind,
    object_meta,
    status::Status,
};
use orlop_kinds::{IpFamily, IpRange, complete_ip_families};
use orlop_store::{Compare, Comparison, Delete, KeyRange, Op, Put, Read, Select, Target};
use rand::Rng;
use serde_json::{Value, json};

use super::{Contribution, ObjectStore, status_from_store_error};
use crate::{
    object::{is_terminating, new_uid, now},
    registry::{Found, Kind},
};

/// Field of the health check node port.
const HEALTH_PORT: &str = "healthCheckNodePort";
/// Random attempts before the range is scanned in order.
const RANDOM_TRIES: usize = 16;
/// Addresses of a range that are scanned.
const SCAN_MAX: usize = 1 << 20;
/// ServiceCIDR objects that count.
const SERVICE_CIDRS_MAX: usize = 1000;

/// Returns true if writes of a kind through an endpoint allocate.
pub(crate) fn allocates(kind: &Kind, subresource: &str) -> bool {
    is_service(kind) && subresource.is_empty()
}

/// Allocates what a service asks for, and completes the service with it. `old` is absent on create.
pub(crate) async fn allocate(
    objects: &ObjectStore,
    service: &mut Value,
    old: Option<&Value>,
) -> Result<Contribution, Status> {
    let mut contribution = Contribution::default();
    drop_addresses(service);
    let configured = objects.service_ranges().families();
    let errors = complete_ip_families(service, old, &configured);
    if !errors.is_empty() {
        return Err(Status::invalid(&service_kind(), name_of(service), &errors));
    }
    let before = old.map(addresses).unwrap_or_default();
    let ranges = match needs_allocation(service, &before) {
        true => ranges(objects).await?,
        false => Vec::new(),
    };
    set_addresses(objects, service, &ranges).await?;
    let after = addresses(service);
    for address in after.iter().filter(|address| !before.contains(address)) {
        contribution.allocate_address(objects, service, address, &ranges).await?;
    }
    for address in before.iter().filter(|address| !after.contains(address)) {
        contribution.release_key(address_key(objects, address));
    }
    let before = old.map(node_ports).unwrap_or_default();
    set_node_ports(objects, service).await?;
    let after = node_ports(service);
    for port in after.iter().filter(|port| !before.contains(port)) {
        contribution.allocate_node_port(objects, service, *port).await?;
    }
    for port in before.iter().filter(|port| !after.contains(port)) {
        contribution.release_key(port_key(objects, *port));
    }
    Ok(contribution)
}

/// Returns the operations that release what a deleted service has.
pub(crate) fn release(objects: &ObjectStore, service: &Value) -> Vec<Op> {
    let mut contribution = Contribution::default();
    addresses(service).iter().for_each(|address| contribution.release_key(address_key(objects, address)));
    node_ports(service).iter().for_each(|port| contribution.release_key(port_key(objects, *port)));
    contribution.ops
}

impl Contribution {
    async fn allocate_address(
        &mut self,
        objects: &ObjectStore,
        service: &Value,
        address: &str,
        ranges: &[IpRange],
    ) -> Result<(), Status> {
        let path = FieldPath::root("spec").child("clusterIPs");
        let refuse = |why: &str| {
            let detail = format!("failed to allocate IP {address}: {why}");
            let error = FieldError::invalid(&path, json!(addresses(service)), detail);
            Status::invalid(&service_kind(), name_of(service), &[error])
        };
        let parsed = address.parse::<IpAddr>().ok();
        let range =
            parsed.and_then(|parsed| Some((parsed, *ranges.iter().find(|range| range.contains(parsed))?)));
        let Some((parsed, range)) = range else {
            return Err(refuse("the provided network does not match the current range"));
        };
        if !usable(range).contains(&offset_in(range, parsed)) {
            return Err(refuse(&format!(
                "the provided IP ({address}) is not in the valid range. The range of valid IPs is {range}"
            )));
        }
        let key = address_key(objects, address);
        if is_taken(objects, &key).await? {
            return Err(refuse("provided IP is already allocated"));
        }
        let kinds = objects.registry.kinds();
        let put = Put::new(key.clone(), bytes::Bytes::new());
        let put = match kinds.get("networking.k8s.io", "v1", "ipaddresses") {
            Some(kind) => {
                let encoded = kind.write(&address_object(service, address)).await?;
                Put { value: encoded.bytes, terms: encoded.terms, ..put }
            }
            None => put,
        };
        self.create_key(put);
        Ok(())
    }

    async fn allocate_node_port(
        &mut self,
        objects: &ObjectStore,
        service: &Value,
        port: u16,
    ) -> Result<(), Status> {
        let key = port_key(objects, port);
        let spec = FieldPath::root("spec");
        let ports = service["spec"]["ports"].as_array().into_iter().flatten();
        let path = match ports.into_iter().position(|listed| listed["nodePort"] == port) {
            Some(index) => spec.child("ports").index(index).child("nodePort"),
            None => spec.child(HEALTH_PORT),
        };
        let refuse = |why: &str| {
            let error = FieldError::invalid(&path, port, why);
            Status::invalid(&service_kind(), name_of(service), &[error])
        };
        let range = objects.service_ranges().node_ports();
        if !range.contains(&port) {
            return Err(refuse(&format!(
                "provided port is not in the valid range. The range of valid ports is {}-{}",
                range.start(),
                range.end()
            )));
        }
        if is_taken(objects, &key).await? {
            return Err(refuse("provided port is already allocated"));
        }
        self.create_key(Put::new(key, bytes::Bytes::new()));
        Ok(())
    }

    fn create_key(&mut self, put: Put) {
        let free = Compare::new(KeyRange::key(put.key.clone()), Comparison::Equal, Target::Revision(0));
        self.compares.push(free);
        self.ops.push(Op::Put(put));
    }

    fn release_key(&mut self, key: String) {
        self.ops.push(Op::Delete(Delete { range: KeyRange::key(key), previous: false }));
    }
}

// --- fields of a service ---

fn service_kind() -> GroupKind {
    GroupKind::new("", "Service")
}

fn is_service(kind: &Kind) -> bool {
    kind.gvk.group.is_empty() && kind.resource == "services"
}

fn service_type(service: &Value) -> &str {
    service.pointer("/spec/type").and_then(Value::as_str).unwrap_or("ClusterIP")
}

fn name_of(service: &Value) -> &str {
    object_meta::text(object_meta::of(service), "name")
}

/// Returns the allocated addresses of a service; none for a headless one.
fn addresses(service: &Value) -> Vec<String> {
    let one = service.pointer("/spec/clusterIP").and_then(Value::as_str);
    let many = service.pointer("/spec/clusterIPs").and_then(Value::as_array);
    let mut all: Vec<String> =
        many.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
    if all.is_empty() {
        all.extend(one.map(str::to_owned));
    }
    all.retain(|address| !matches!(address.as_str(), "" | "None"));
    all
}

/// Drops the addresses of a service of a type that has none.
fn drop_addresses(service: &mut Value) {
    if service_type(service) == "ExternalName"
        && let Some(spec) = service.get_mut("spec").and_then(Value::as_object_mut)
    {
        spec.remove("clusterIP");
        spec.remove("clusterIPs");
    }
}

fn is_headless(service: &Value) -> bool {
    service.pointer("/spec/clusterIPs/0").and_then(Value::as_str) == Some("None")
}

fn ip_families(service: &Value) -> Vec<IpFamily> {
    let names = service["spec"]["ipFamilies"].as_array().into_iter().flatten();
    names.filter_map(Value::as_str).filter_map(IpFamily::parse).collect()
}

/// Returns true if addresses of a service have to be allocated.
fn needs_allocation(service: &Value, before: &[String]) -> bool {
    let given = addresses(service);
    let has_addresses = service_type(service) != "ExternalName" && !is_headless(service);
    has_addresses
        && (given.len() < ip_families(service).len() || given.iter().any(|address| !before.contains(address)))
}

/// Gives a service an address of each of its families that it has none of.
async fn set_addresses(objects: &ObjectStore, service: &mut Value, ranges: &[IpRange]) -> Result<(), Status> {
    if service_type(service) == "ExternalName" || is_headless(service) {
        return Ok(());
    }
    let mut addresses = addresses(service);
    for family in ip_families(service).into_iter().skip(addresses.len()) {
        addresses.push(free_address(objects, family, ranges, name_of(service)).await?.to_string());
    }
    if let Some(first) = addresses.first() {
        service["spec"]["clusterIP"] = first.as_str().into();
        service["spec"]["clusterIPs"] = json!(addresses);
    }
    Ok(())
}

fn node_ports(service: &Value) -> Vec<u16> {
    let ports = service.pointer("/spec/ports").and_then(Value::as_array).into_iter().flatten();
    let health = service["spec"][HEALTH_PORT].as_u64();
    let ports = ports.filter_map(|port| port.get("nodePort")?.as_u64()).chain(health);
    let mut ports: Vec<u16> =
        ports.filter_map(|port| u16::try_from(port).ok()).filter(|port| *port > 0).collect();
    ports.sort_unstable();
    ports.dedup();
    ports
}

async fn set_node_ports(objects: &ObjectStore, service: &mut Value) -> Result<(), Status> {
    let kind = service_type(service).to_owned();
    let wanted = kind == "NodePort"
        || (kind == "LoadBalancer"
            && service.pointer("/spec/allocateLoadBalancerNodePorts").and_then(Value::as_bool)
                != Some(false));
    let mut taken = node_ports(service);
    let count = service.pointer("/spec/ports").and_then(Value::as_array).map_or(0, Vec::len);
    for index in 0..count {
        let port = &service["spec"]["ports"][index];
        let has_one = port.get("nodePort").and_then(Value::as_u64).unwrap_or(0) > 0;
        if !wanted && kind != "LoadBalancer" {
            if let Some(port) = service["spec"]["ports"][index].as_object_mut() {
                port.remove("nodePort");
            }
        } else if wanted && !has_one {
            let free = free_node_port(objects, &taken).await?;
            taken.push(free);
            service["spec"]["ports"][index]["nodePort"] = free.into();
        }
    }
    // With the Local policy, load balancers probe each node for local endpoints.
    let asks = kind == "LoadBalancer" && service["spec"]["externalTrafficPolicy"] == "Local";
    if asks && service["spec"][HEALTH_PORT].as_u64().unwrap_or(0) == 0 {
        service["spec"][HEALTH_PORT] = free_node_port(objects, &taken).await?.into();
    }
    Ok(())
}

// --- free addresses and ports ---

async fn is_taken(objects: &ObjectStore, key: &str) -> Result<bool, Status> {
    let read = Read { select: Select::Keys, ..Read::new(KeyRange::key(key.to_owned())) };
    Ok(!objects.store.read(read).await.map_err(|error| status_from_store_error(&error))?.kvs.is_empty())
}

/// Returns the ranges of the server and of ServiceCIDR objects that are not being deleted.
async fn ranges(objects: &ObjectStore) -> Result<Vec<IpRange>, Status> {
    let mut ranges: Vec<IpRange> = objects.service_ranges().cluster_ips().collect();
    let kinds = objects.registry.kinds();
    let Some(kind) = kinds.get("networking.k8s.io", "v1", "servicecidrs") else { return Ok(ranges) };
    let read =
        Read { limit: SERVICE_CIDRS_MAX, ..Read::new(KeyRange::prefix(objects.own_key(&kind.key_prefix()))) };
    let found = objects.store.read(read).await.map_err(|error| status_from_store_error(&error))?;
    for kv in found.kvs {
        let object = kind.read(&Found::from(kv)).await?;
        let cidrs = object["spec"]["cidrs"].as_array().filter(|_| !is_terminating(&object));
        let cidrs = cidrs.into_iter().flatten().filter_map(Value::as_str).filter_map(IpRange::parse);
        cidrs.for_each(|range| {
            if !ranges.contains(&range) {
                ranges.push(range);
            }
        });
    }
    Ok(ranges)
}

/// Returns the offsets of the addresses of a range that may be allocated: not that of the network, nor of IPv4's
/// broadcasts.
fn usable(range: IpRange) -> RangeInclusive<u128> {
    let last = range.last_offset();
    1..=if range.address.is_ipv4() { last.saturating_sub(1) } else { last }
}

/// Returns the number of addresses at the start of a range that are given out last, so that clients can choose them.
fn static_band(range: IpRange) -> u128 {
    let size = range.last_offset().saturating_add(1);
    if size <= 16 { 0 } else { (size / 16).clamp(16, 256) }
}

fn offset_in(range: IpRange, address: IpAddr) -> u128 {
    match (range.first(), address) {
        (IpAddr::V4(first), IpAddr::V4(address)) => u128::from(u32::from(address).wrapping_sub(first.into())),
        (IpAddr::V6(first), IpAddr::V6(address)) => u128::from(address).wrapping_sub(first.into()),
        _ => u128::MAX,
    }
}

/// Returns a free address of a family: a random one of a range, else the first that is free.
async fn free_address(
    objects: &ObjectStore,
    family: IpFamily,
    ranges: &[IpRange],
    service: &str,
) -> Result<IpAddr, Status> {
    let api_server = objects.service_ranges().api_server();
    let is_free = async |candidate: IpAddr| {
        let taken = candidate == api_server
            || is_taken(objects, &address_key(objects, &candidate.to_string())).await?;
        Ok::<bool, Status>(!taken)
    };
    for range in ranges.iter().filter(|range| IpFamily::of(range.address) == family) {
        let usable = usable(*range);
        let dynamic = (usable.start() + static_band(*range)).min(*usable.end())..=*usable.end();
        for _ in 0..RANDOM_TRIES {
            let candidate = range.at(rand::rng().random_range(dynamic.clone()));
            if is_free(candidate).await? {
                return Ok(candidate);
            }
        }
        for offset in dynamic.chain(usable).take(SCAN_MAX) {
            if is_free(range.at(offset)).await? {
                return Ok(range.at(offset));
            }
        }
    }
    Err(Status::internal(&format!("failed to allocate a serviceIP for Service {service:?}: range is full")))
}

async fn free_node_port(objects: &ObjectStore, taken: &[u16]) -> Result<u16, Status> {
    let range = objects.service_ranges().node_ports();
    let random = (0..RANDOM_TRIES).map(|_| rand::rng().random_range(range.clone())).collect::<Vec<u16>>();
    for port in random.into_iter().chain(range) {
        if !taken.contains(&port) && !is_taken(objects, &port_key(objects, port)).await? {
            return Ok(port);
        }
    }
    Err(Status::internal("failed to allocate a nodePort: range is full"))
}

fn address_key(objects: &ObjectStore, address: &str) -> String {
    objects.own_key(&format!("networking.k8s.io/ipaddresses/{address}"))
}

fn port_key(objects: &ObjectStore, port: u16) -> String {
    objects.own_key(&format!("allocations/node-ports/{port}"))
}

fn address_object(service: &Value, address: &str) -> Value {
    let meta = object_meta::of(service);
    let family = address.parse().map_or(IpFamily::V4, IpFamily::of);
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "IPAddress",
        "metadata": {
            "name": address, "uid": new_uid(), "creationTimestamp": now().to_string(),
            "labels": {
                "ipaddress.kubernetes.io/ip-family": family.name(),
                "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
            },
        },
        "spec": {"parentRef": {
            "group": "", "resource": "services",
            "namespace": object_meta::text(meta, "namespace"), "name": object_meta::text(meta, "name"),
        }},
    })
}
