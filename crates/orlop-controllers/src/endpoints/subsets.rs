//! Subsets of Endpoints: addresses with equal ports. Pure.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1::{EndpointAddress, EndpointPort, EndpointSubset, Pod, Service};

use crate::{
    endpoint_slices::addresses::{
        self, address, families, host_name, is_member, publishes_not_ready, reference,
    },
    workload::pods,
};

/// Most addresses of an object.
const ADDRESSES_MAX: usize = 1000;

/// Ports of a subset: name, protocol, number and application protocol.
type Ports = Vec<(String, String, i32, Option<String>)>;

/// Returns the subsets of a service's pods, and whether there were too many addresses.
pub(super) fn of_pods(service: &Service, pods: &[Arc<Pod>]) -> (Vec<EndpointSubset>, bool) {
    let with_unready = publishes_not_ready(service);
    let Some(family) = families(service).first().copied() else { return (Vec::new(), false) };
    let ports = service.spec.as_ref().and_then(|spec| spec.ports.as_deref()).unwrap_or_default();
    let is_headless = addresses::is_headless(service);
    let mut subsets: BTreeMap<Ports, (Vec<EndpointAddress>, Vec<EndpointAddress>)> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| is_member(pod, with_unready)) {
        let Some(address) = address(pod, family) else { continue };
        let entry = EndpointAddress {
            ip: address.to_owned(),
            hostname: host_name(pod, service),
            node_name: pods::node_name(pod).map(str::to_owned),
            target_ref: Some(reference(pod)),
        };
        let is_ready = with_unready || pods::is_ready(pod);
        let mut own: Ports = ports
            .iter()
            .filter_map(|port| {
                let number = addresses::target_port(port, pod)?;
                let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
                Some((port.name.clone().unwrap_or_default(), protocol, number, port.app_protocol.clone()))
            })
            .collect();
        own.sort();
        // A pod without any of the ports is an address only where the service has no ports itself.
        if own.is_empty() && !(ports.is_empty() && is_headless) {
            continue;
        }
        let (ready, unready) = subsets.entry(own).or_default();
        if is_ready { ready.push(entry) } else { unready.push(entry) }
    }
    truncate(subsets)
}

fn truncate(
    subsets: BTreeMap<Ports, (Vec<EndpointAddress>, Vec<EndpointAddress>)>,
) -> (Vec<EndpointSubset>, bool) {
    let total: usize = subsets.values().map(|(ready, unready)| ready.len() + unready.len()).sum();
    let mut left = ADDRESSES_MAX;
    let mut take = |mut addresses: Vec<EndpointAddress>| {
        addresses.sort_by(|one, other| one.ip.cmp(&other.ip));
        addresses.truncate(left);
        left -= addresses.len();
        (!addresses.is_empty()).then_some(addresses)
    };
    // Ready addresses are the last to be left out.
    let (ports, addresses): (Vec<Ports>, Vec<_>) = subsets.into_iter().unzip();
    let (ready, unready): (Vec<_>, Vec<_>) = addresses.into_iter().unzip();
    let ready: Vec<_> = ready.into_iter().map(&mut take).collect();
    let unready: Vec<_> = unready.into_iter().map(&mut take).collect();
    let subsets = ports.into_iter().zip(ready).zip(unready);
    let subsets = subsets.filter(|((_, ready), unready)| ready.is_some() || unready.is_some());
    let subsets = subsets.map(|((ports, addresses), not_ready_addresses)| EndpointSubset {
        addresses,
        not_ready_addresses,
        ports: (!ports.is_empty()).then(|| ports.into_iter().map(port).collect()),
    });
    (subsets.collect(), total > ADDRESSES_MAX)
}

fn port((name, protocol, port, app_protocol): (String, String, i32, Option<String>)) -> EndpointPort {
    EndpointPort {
        name: Some(name).filter(|name| !name.is_empty()),
        protocol: Some(protocol),
        port,
        app_protocol,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn service(publishes: bool) -> Service {
        serde_json::from_value(json!({"metadata": {"name": "web", "namespace": "n"},
            "spec": {"clusterIP": "10.0.0.1", "publishNotReadyAddresses": publishes, "ports": [{"port": 80}]}}))
        .unwrap()
    }

    fn pod(number: usize, ready: bool) -> Arc<Pod> {
        let status = if ready { "True" } else { "False" };
        let pod = json!({"metadata": {"name": number.to_string(), "namespace": "n"},
            "status": {"podIP": format!("10.1.{}.{}", number / 250, number % 250),
                "conditions": [{"type": "Ready", "status": status}]}});
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    fn counts(subsets: &[EndpointSubset]) -> Vec<(usize, usize)> {
        let count = |addresses: &Option<Vec<EndpointAddress>>| addresses.as_ref().map_or(0, Vec::len);
        subsets.iter().map(|subset| (count(&subset.addresses), count(&subset.not_ready_addresses))).collect()
    }

    #[test]
    fn ready_and_unready_addresses_are_apart() {
        let pods = [pod(1, true), pod(2, false)];
        assert_eq!(counts(&of_pods(&service(false), &pods).0), [(1, 1)]);
        assert_eq!(counts(&of_pods(&service(true), &pods).0), [(2, 0)]);
    }

    #[test]
    fn too_many_addresses_are_truncated_ready_ones_last() {
        let pods: Vec<_> = (0..1100).map(|number| pod(number, number % 2 == 0)).collect();
        let (subsets, truncated) = of_pods(&service(false), &pods);
        assert!(truncated);
        assert_eq!(counts(&subsets), [(550, 450)]);
    }
}
