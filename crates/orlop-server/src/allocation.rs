//! What the cluster hands out once: the addresses and node ports of services, the names of custom kinds.
//!
//! A claim is part of the transaction that writes the service: the address and the service are there
//! together or not at all, so nothing has to be repaired after a crash. An address is claimed by its
//! IPAddress object, as Kubernetes does; a node port by a key of its own.

use std::net::{IpAddr, Ipv4Addr};

use orlop_api::{
    field_error::{FieldError, FieldPath},
    object_meta,
    status::Status,
};
use orlop_store::{Compare, Comparison, Delete, KeyRange, Op, Put, Read, Select, Target};
use rand::Rng;
use serde_json::{Value, json};

use crate::{
    cluster::{Cluster, new_uid, now, trouble},
    custom,
    verbs::Request,
};

/// Addresses of services: 10.0.0.0/16. The first belongs to the API server itself.
const NETWORK: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 0);
const PREFIX_BITS: u32 = 16;
/// Ports of nodes that services may have.
const NODE_PORTS: std::ops::RangeInclusive<u16> = 30000..=32767;
/// The port that tells whether a node has endpoints of a service.
const HEALTH_PORT: &str = "healthCheckNodePort";
/// Random tries before the first free one is looked for in order.
const RANDOM_TRIES: usize = 16;

/// What a write claims or gives back, to go into its transaction.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    pub(crate) compares: Vec<Compare>,
    pub(crate) ops: Vec<Op>,
}

/// Whether there is anything that an object of the request may claim.
pub(crate) fn has_claims(request: &Request) -> bool {
    custom::is_definition(&request.kind) || (is_service(request) && request.about.subresource.is_empty())
}

/// Claims what an object is to have. `old` is absent on create. The object is completed with it.
pub(crate) async fn claim(
    request: &Request,
    object: &mut Value,
    old: Option<&Value>,
) -> Result<Claims, Status> {
    if custom::is_definition(&request.kind) {
        return custom::claim(&request.cluster, object, old).await;
    }
    let mut claims = Claims::default();
    if !has_claims(request) {
        return Ok(claims);
    }
    keep(object, old);
    check_families(request, object)?;
    let (had, kept) = (old.map(addresses).unwrap_or_default(), addresses(object));
    if wants_address(object) && kept.is_empty() {
        let address = free_address(&request.cluster).await?;
        set_addresses(object, &address.to_string());
    }
    let wanted = addresses(object);
    for address in wanted.iter().filter(|address| !had.contains(address)) {
        claims.address(request, object, address).await?;
    }
    for address in had.iter().filter(|address| !wanted.contains(address)) {
        claims.give_back(address_key(&request.cluster, address));
    }
    let had = old.map(node_ports).unwrap_or_default();
    fill_node_ports(request, object).await?;
    let wanted = node_ports(object);
    for port in wanted.iter().filter(|port| !had.contains(port)) {
        claims.node_port(request, object, *port).await?;
    }
    for port in had.iter().filter(|port| !wanted.contains(port)) {
        claims.give_back(port_key(&request.cluster, *port));
    }
    Ok(claims)
}

/// There are addresses of one family here. Only a service that leaves its endpoints to somebody else may
/// have both.
fn check_families(request: &Request, service: &Value) -> Result<(), Status> {
    let (text, path) =
        (|field: &str| service["spec"][field].as_str().unwrap_or_default(), FieldPath::root("spec"));
    if text("type") == "ExternalName" || is_left_to_others(service) {
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
    Err(Status::invalid(&request.kind.group_kind(), name_of(service), &errors))
}

/// Whether a service has neither an address nor a selector.
fn is_left_to_others(service: &Value) -> bool {
    let selector = service["spec"]["selector"].as_object();
    service["spec"]["clusterIP"] == "None" && selector.is_none_or(serde_json::Map::is_empty)
}

/// Gives back what a removed object had.
pub(crate) fn release(request: &Request, object: &Value) -> Vec<Op> {
    let mut claims = Claims::default();
    if is_service(request) {
        addresses(object).iter().for_each(|address| claims.give_back(address_key(&request.cluster, address)));
        node_ports(object).iter().for_each(|port| claims.give_back(port_key(&request.cluster, *port)));
    }
    claims.ops.extend(custom::release(request, object));
    claims.ops
}

impl Claims {
    async fn address(&mut self, request: &Request, service: &Value, address: &str) -> Result<(), Status> {
        let path = FieldPath::root("spec").child("clusterIPs");
        let refuse = |why: String| {
            let error = FieldError::invalid(&path, json!([address]), why);
            Status::invalid(&request.kind.group_kind(), name_of(service), &[error])
        };
        match address.parse::<IpAddr>() {
            Ok(IpAddr::V4(parsed)) if in_network(parsed) => {}
            Ok(_) => {
                return Err(refuse(format!(
                    "failed to allocate IP {address}: the provided IP ({address}) is not in the valid range. \
                     The range of valid IPs is {NETWORK}/{PREFIX_BITS}"
                )));
            }
            Err(_) => return Err(refuse("must be a valid IP address".into())),
        }
        let key = address_key(&request.cluster, address);
        if is_taken(&request.cluster, &key).await? {
            return Err(refuse(format!("failed to allocate IP {address}: provided IP is already allocated")));
        }
        let kinds = request.cluster.registry.kinds();
        let put = Put::new(key.clone(), bytes::Bytes::new());
        let put = match kinds.get("networking.k8s.io", "v1", "ipaddresses") {
            Some(kind) => {
                let encoded = kind.write(&address_object(service, address)).await?;
                Put { value: encoded.bytes, terms: encoded.terms, ..put }
            }
            None => put,
        };
        self.take(put);
        Ok(())
    }

    async fn node_port(&mut self, request: &Request, service: &Value, port: u16) -> Result<(), Status> {
        let key = port_key(&request.cluster, port);
        let spec = FieldPath::root("spec");
        let ports = service["spec"]["ports"].as_array().into_iter().flatten();
        let path = match ports.into_iter().position(|listed| listed["nodePort"] == port) {
            Some(index) => spec.child("ports").index(index).child("nodePort"),
            None => spec.child(HEALTH_PORT),
        };
        let refuse = |why: &str| {
            let error = FieldError::invalid(&path, port, why);
            Status::invalid(&request.kind.group_kind(), name_of(service), &[error])
        };
        if !NODE_PORTS.contains(&port) {
            return Err(refuse(&format!(
                "provided port is not in the valid range. The range of valid ports is {}-{}",
                NODE_PORTS.start(),
                NODE_PORTS.end()
            )));
        }
        if is_taken(&request.cluster, &key).await? {
            return Err(refuse("provided port is already allocated"));
        }
        self.take(Put::new(key, bytes::Bytes::new()));
        Ok(())
    }

    fn take(&mut self, put: Put) {
        let free = Compare::new(KeyRange::key(put.key.clone()), Comparison::Equal, Target::Revision(0));
        self.compares.push(free);
        self.ops.push(Op::Put(put));
    }

    fn give_back(&mut self, key: String) {
        self.ops.push(Op::Delete(Delete { range: KeyRange::key(key), previous: false }));
    }
}

// --- what a service has ---

fn is_service(request: &Request) -> bool {
    request.kind.gvk.group.is_empty() && request.kind.resource == "services"
}

fn service_type(service: &Value) -> &str {
    service.pointer("/spec/type").and_then(Value::as_str).unwrap_or("ClusterIP")
}

fn wants_address(service: &Value) -> bool {
    service_type(service) != "ExternalName"
        && service.pointer("/spec/clusterIP").and_then(Value::as_str).is_none_or(str::is_empty)
}

fn name_of(service: &Value) -> &str {
    object_meta::text(object_meta::of(service), "name")
}

/// The addresses of a service that are claimed: not those of a headless one.
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

/// A service keeps its addresses and ports when an update leaves them out, unless its new type has none.
fn keep(service: &mut Value, old: Option<&Value>) {
    if service_type(service) == "ExternalName" {
        if let Some(spec) = service.get_mut("spec").and_then(Value::as_object_mut) {
            spec.remove("clusterIP");
            spec.remove("clusterIPs");
        }
        return;
    }
    if let Some(address) = old.and_then(|old| old.pointer("/spec/clusterIP"))
        && wants_address(service)
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
    // Whoever has the endpoints of a service decides of which families they are.
    let (families, policy) = match is_left_to_others(service) {
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

async fn fill_node_ports(request: &Request, service: &mut Value) -> Result<(), Status> {
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
            let free = free_node_port(&request.cluster, &taken).await?;
            taken.push(free);
            service["spec"]["ports"][index]["nodePort"] = free.into();
        }
    }
    // Where only nodes with endpoints take traffic, they are asked whether they have any.
    let asks = kind == "LoadBalancer" && service["spec"]["externalTrafficPolicy"] == "Local";
    if asks && service["spec"][HEALTH_PORT].as_u64().unwrap_or(0) == 0 {
        service["spec"][HEALTH_PORT] = free_node_port(&request.cluster, &taken).await?.into();
    }
    Ok(())
}

// --- what is free ---

fn in_network(address: Ipv4Addr) -> bool {
    u32::from(address) >> (32 - PREFIX_BITS) == u32::from(NETWORK) >> (32 - PREFIX_BITS)
}

async fn is_taken(cluster: &Cluster, key: &str) -> Result<bool, Status> {
    let read = Read { select: Select::Keys, ..Read::new(KeyRange::key(key.to_owned())) };
    Ok(!cluster.store.read(read).await.map_err(|error| trouble(&error))?.kvs.is_empty())
}

async fn free_address(cluster: &Cluster) -> Result<Ipv4Addr, Status> {
    let hosts = 1u32 << (32 - PREFIX_BITS);
    let address = |host: u32| Ipv4Addr::from(u32::from(NETWORK) + host);
    // The network itself, its broadcast address and the API server's are not for services.
    let usable = 2..hosts - 1;
    for _ in 0..RANDOM_TRIES {
        let candidate = address(rand::rng().random_range(usable.clone()));
        if !is_taken(cluster, &address_key(cluster, &candidate.to_string())).await? {
            return Ok(candidate);
        }
    }
    for host in usable {
        if !is_taken(cluster, &address_key(cluster, &address(host).to_string())).await? {
            return Ok(address(host));
        }
    }
    Err(Status::internal("failed to allocate a serviceIP: range is full"))
}

async fn free_node_port(cluster: &Cluster, taken: &[u16]) -> Result<u16, Status> {
    let random = (0..RANDOM_TRIES).map(|_| rand::rng().random_range(NODE_PORTS)).collect::<Vec<u16>>();
    for port in random.into_iter().chain(NODE_PORTS) {
        if !taken.contains(&port) && !is_taken(cluster, &port_key(cluster, port)).await? {
            return Ok(port);
        }
    }
    Err(Status::internal("failed to allocate a nodePort: range is full"))
}

fn address_key(cluster: &Cluster, address: &str) -> String {
    cluster.own_key(&format!("networking.k8s.io/ipaddresses/{address}"))
}

fn port_key(cluster: &Cluster, port: u16) -> String {
    cluster.own_key(&format!("allocations/node-ports/{port}"))
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
