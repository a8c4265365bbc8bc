//! Allocation of cluster IPs and node ports of services.
//!
//! An allocation is part of the transaction that writes the service, so a crash leaves nothing to repair. A
//! cluster IP is allocated by its IPAddress object, as in Kubernetes; a node port by a key of its own.

use std::net::{IpAddr, Ipv4Addr};

use orlop_api::{
    field_error::{FieldError, FieldPath},
    group_version::GroupKind,
    object_meta,
    status::Status,
};
use orlop_store::{Compare, Comparison, Delete, KeyRange, Op, Put, Read, Select, Target};
use rand::Rng;
use serde_json::{Value, json};

use super::{Contribution, ObjectStore, status_from_store_error};
use crate::{
    object::{new_uid, now},
    registry::Kind,
};

/// Field of the health check node port.
const HEALTH_PORT: &str = "healthCheckNodePort";
/// Random attempts before the range is scanned in order.
const RANDOM_TRIES: usize = 16;

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
    carry_over(service, old);
    check_families(service)?;
    let (before, given) = (old.map(addresses).unwrap_or_default(), addresses(service));
    if needs_address(service) && given.is_empty() {
        let address = free_address(objects).await?;
        set_addresses(service, &address.to_string());
    }
    let after = addresses(service);
    for address in after.iter().filter(|address| !before.contains(address)) {
        contribution.allocate_address(objects, service, address).await?;
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

/// Refuses IPv6: the cluster is single-stack. Only a headless service without a selector may have both.
fn check_families(service: &Value) -> Result<(), Status> {
    let (text, path) =
        (|field: &str| service["spec"][field].as_str().unwrap_or_default(), FieldPath::root("spec"));
    if text("type") == "ExternalName" || is_headless_without_selector(service) {
        return Ok(());
    }
    let mut errors = Vec::new();
    if text("ipFamilyPolicy") == "RequireDualStack" {
        let detail = "this cluster is not configured for dual-stack services";
        errors.push(FieldError::invalid(&path.child("ipFamilyPolicy"), "RequireDualStack", detail));
    }
    let families = service["spec"]["ipFamilies"].as_array().into_iter().flatten().filter_map(Value::as_str);
    for (index, family) in families.enumerate().filter(|(_, family)| *family == "IPv6") {
        let at = path.child("ipFamilies").index(index);
        errors.push(FieldError::invalid(&at, family, "not configured on this cluster"));
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(&service_kind(), name_of(service), &errors))
}

/// Returns true for a headless service without a selector.
fn is_headless_without_selector(service: &Value) -> bool {
    let selector = service["spec"]["selector"].as_object();
    service["spec"]["clusterIP"] == "None" && selector.is_none_or(serde_json::Map::is_empty)
}

impl Contribution {
    async fn allocate_address(
        &mut self,
        objects: &ObjectStore,
        service: &Value,
        address: &str,
    ) -> Result<(), Status> {
        let path = FieldPath::root("spec").child("clusterIPs");
        let refuse = |why: String| {
            let error = FieldError::invalid(&path, json!([address]), why);
            Status::invalid(&service_kind(), name_of(service), &[error])
        };
        match address.parse::<IpAddr>() {
            Ok(IpAddr::V4(parsed)) if objects.service_ranges().contains(parsed) => {}
            Ok(_) => {
                return Err(refuse(format!(
                    "failed to allocate IP {address}: the provided IP ({address}) is not in the valid range. \
                     The range of valid IPs is {}",
                    objects.service_ranges().cidr()
                )));
            }
            Err(_) => return Err(refuse("must be a valid IP address".into())),
        }
        let key = address_key(objects, address);
        if is_taken(objects, &key).await? {
            return Err(refuse(format!("failed to allocate IP {address}: provided IP is already allocated")));
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

fn needs_address(service: &Value) -> bool {
    service_type(service) != "ExternalName"
        && service.pointer("/spec/clusterIP").and_then(Value::as_str).is_none_or(str::is_empty)
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

/// Carries over addresses that an update leaves out, unless the new type has none.
fn carry_over(service: &mut Value, old: Option<&Value>) {
    if service_type(service) == "ExternalName" {
        if let Some(spec) = service.get_mut("spec").and_then(Value::as_object_mut) {
            spec.remove("clusterIP");
            spec.remove("clusterIPs");
        }
        return;
    }
    if let Some(address) = old.and_then(|old| old.pointer("/spec/clusterIP"))
        && needs_address(service)
    {
        let (address, all) = (address.clone(), old.and_then(|old| old.pointer("/spec/clusterIPs")).cloned());
        service["spec"]["clusterIP"] = address;
        if let Some(all) = all {
            service["spec"]["clusterIPs"] = all;
        }
    }
    let first = service.pointer("/spec/clusterIP").and_then(Value::as_str).map(str::to_owned);
    if let Some(first) = first.filter(|first| !first.is_empty()) {
        set_addresses(service, &first);
    }
}

fn set_addresses(service: &mut Value, address: &str) {
    service["spec"]["clusterIP"] = address.into();
    let many = service.pointer("/spec/clusterIPs").and_then(Value::as_array).map_or(0, Vec::len);
    if many == 0 {
        service["spec"]["clusterIPs"] = json!([address]);
    }
    // Without a selector, whoever manages the endpoints decides their families.
    let (families, policy) = match is_headless_without_selector(service) {
        true => (json!(["IPv4", "IPv6"]), "RequireDualStack"),
        false => (json!(["IPv4"]), "SingleStack"),
    };
    if address != "None" || service.pointer("/spec/ipFamilies").is_none() {
        service["spec"]["ipFamilies"] = families;
    }
    if service.pointer("/spec/ipFamilyPolicy").is_none() {
        service["spec"]["ipFamilyPolicy"] = policy.into();
    }
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

async fn free_address(objects: &ObjectStore) -> Result<Ipv4Addr, Status> {
    let ranges = objects.service_ranges();
    let address = |host: u32| ranges.address(host);
    // Without the network, broadcast and API server addresses.
    let usable = 2..ranges.size() - 1;
    for _ in 0..RANDOM_TRIES {
        let candidate = address(rand::rng().random_range(usable.clone()));
        if !is_taken(objects, &address_key(objects, &candidate.to_string())).await? {
            return Ok(candidate);
        }
    }
    for host in usable {
        if !is_taken(objects, &address_key(objects, &address(host).to_string())).await? {
            return Ok(address(host));
        }
    }
    Err(Status::internal("failed to allocate a serviceIP: range is full"))
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
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "IPAddress",
        "metadata": {
            "name": address, "uid": new_uid(), "creationTimestamp": now().to_string(),
            "labels": {
                "ipaddress.kubernetes.io/ip-family": "IPv4",
                "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
            },
        },
        "spec": {"parentRef": {
            "group": "", "resource": "services",
            "namespace": object_meta::text(meta, "namespace"), "name": object_meta::text(meta, "name"),
        }},
    })
}
