//! The table of a service proxy: where to listen, and what is behind it.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::{
    core::v1::{Service, ServicePort},
    discovery::v1::EndpointSlice,
};

use crate::services::is_of;

/// Duration of a client's affinity by default.
const AFFINITY: Duration = Duration::from_secs(10800);

/// Transport of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Protocol {
    Tcp,
    Udp,
}

impl Protocol {
    /// Returns the protocol of a port in the API. `None` for one that is not forwarded.
    pub(crate) fn of(text: Option<&str>) -> Option<Self> {
        match text.unwrap_or("TCP") {
            "TCP" => Some(Self::Tcp),
            "UDP" => Some(Self::Udp),
            _ => None,
        }
    }
}

/// Backends of a listening address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Backends {
    pub(super) endpoints: Vec<SocketAddr>,
    /// Clients keep their endpoint for so long.
    pub(super) affinity: Option<Duration>,
}

/// Backends by the address to listen on.
pub(super) type Table = BTreeMap<(Protocol, SocketAddr), Backends>;

/// Returns the table of all services. Node ports are those of the machine and of the node's own address.
pub(super) fn build(services: &[Arc<Service>], slices: &[Arc<EndpointSlice>], node: IpAddr) -> Table {
    let mut table = Table::new();
    for service in services {
        let Some(spec) = &service.spec else { continue };
        let own: Vec<&Arc<EndpointSlice>> = slices.iter().filter(|slice| is_of(slice, service)).collect();
        let affinity = (spec.session_affinity.as_deref() == Some("ClientIP")).then(|| {
            let config = spec.session_affinity_config.as_ref().and_then(|config| config.client_ip.as_ref());
            let seconds = config.and_then(|config| config.timeout_seconds);
            seconds.and_then(|seconds| u64::try_from(seconds).ok()).map_or(AFFINITY, Duration::from_secs)
        });
        for port in spec.ports.iter().flatten() {
            let Some(protocol) = Protocol::of(port.protocol.as_deref()) else { continue };
            let backends = Backends { endpoints: endpoints(&own, port), affinity };
            let cluster_ip = cluster_ip(service).filter(is_forwarded);
            if let (Some(ip), Ok(number)) = (cluster_ip, u16::try_from(port.port)) {
                table.insert((protocol, SocketAddr::new(ip, number)), backends.clone());
            }
            let node_port = port.node_port.and_then(|number| u16::try_from(number).ok());
            if let Some(number) = node_port.filter(|number| *number > 0) {
                for host in [IpAddr::from([127, 0, 0, 1]), node] {
                    table.insert((protocol, SocketAddr::new(host, number)), backends.clone());
                }
            }
        }
    }
    table
}

/// Returns the address of a service, unless it is headless or a name.
fn cluster_ip(service: &Service) -> Option<IpAddr> {
    service.spec.as_ref()?.cluster_ip.as_deref()?.parse().ok()
}

/// Returns true for addresses that any process may listen on, without giving them to an interface.
fn is_forwarded(address: &IpAddr) -> bool {
    address.is_ipv4() && address.is_loopback()
}

/// Returns the address of a service that cannot be forwarded.
pub(super) fn foreign_address(service: &Service) -> Option<IpAddr> {
    cluster_ip(service).filter(|address| !is_forwarded(address))
}

/// Returns the endpoints of a port: those that are ready, or if there are none those that still serve while they
/// terminate.
fn endpoints(slices: &[&Arc<EndpointSlice>], port: &ServicePort) -> Vec<SocketAddr> {
    let (mut ready, mut terminating) = (Vec::new(), Vec::new());
    for slice in slices {
        let wanted = port.name.as_deref().unwrap_or_default();
        let mut ports = slice.ports.iter().flatten();
        let protocol = Protocol::of(port.protocol.as_deref());
        let found = ports.find(|found| {
            found.name.as_deref().unwrap_or_default() == wanted
                && Protocol::of(found.protocol.as_deref()) == protocol
        });
        let Some(number) = found.and_then(|found| u16::try_from(found.port?).ok()) else { continue };
        for endpoint in slice.endpoints.iter().flatten() {
            let conditions = endpoint.conditions.as_ref();
            let is = |condition: Option<Option<bool>>, default: bool| condition.flatten().unwrap_or(default);
            let addresses = endpoint.addresses.iter().filter_map(|address| address.parse::<IpAddr>().ok());
            let addresses = addresses.map(|address| SocketAddr::new(address, number));
            if is(conditions.map(|conditions| conditions.ready), true) {
                ready.extend(addresses);
            } else if is(conditions.map(|conditions| conditions.serving), false)
                && is(conditions.map(|conditions| conditions.terminating), false)
            {
                terminating.extend(addresses);
            }
        }
    }
    let mut chosen = if ready.is_empty() { terminating } else { ready };
    chosen.sort_unstable();
    chosen.dedup();
    chosen
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ready_endpoints_stand_behind_cluster_ip_and_node_port() {
        let service: Service = serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "a"},
            "spec": {"clusterIP": "127.128.0.9", "sessionAffinity": "ClientIP",
                "ports": [{"name": "http", "port": 80, "nodePort": 30080}, {"name": "dns", "port": 53, "protocol": "UDP"}]},
        }))
        .unwrap();
        let slice: EndpointSlice = serde_json::from_value(json!({
            "metadata": {"name": "web-1", "namespace": "a", "labels": {"kubernetes.io/service-name": "web"}},
            "addressType": "IPv4", "ports": [{"name": "http", "port": 8080}, {"name": "dns", "port": 5353, "protocol": "UDP"}],
            "endpoints": [
                {"addresses": ["127.64.0.2"], "conditions": {"ready": true}},
                {"addresses": ["127.64.0.3"], "conditions": {"ready": false, "serving": true, "terminating": true}},
            ],
        }))
        .unwrap();
        let other: EndpointSlice = serde_json::from_value(json!({
            "metadata": {"name": "web-2", "namespace": "b", "labels": {"kubernetes.io/service-name": "web"}},
            "addressType": "IPv4", "ports": [{"name": "http", "port": 8080}],
            "endpoints": [{"addresses": ["127.64.0.4"]}],
        }))
        .unwrap();
        let table = build(&[Arc::new(service)], &[Arc::new(slice), Arc::new(other)], [127, 64, 0, 1].into());
        let backends = |endpoint: &str| Backends {
            endpoints: vec![endpoint.parse().unwrap()],
            affinity: Some(AFFINITY),
        };
        let expected = [
            (Protocol::Tcp, "127.0.0.1:30080", "127.64.0.2:8080"),
            (Protocol::Tcp, "127.64.0.1:30080", "127.64.0.2:8080"),
            (Protocol::Tcp, "127.128.0.9:80", "127.64.0.2:8080"),
            (Protocol::Udp, "127.128.0.9:53", "127.64.0.2:5353"),
        ];
        let expected = expected
            .map(|(protocol, address, endpoint)| ((protocol, address.parse().unwrap()), backends(endpoint)));
        assert_eq!(table, expected.into());
    }
}
