//! Addresses and ports of the pods of a Service. Pure.

use k8s_openapi::{
    api::core::v1::{ObjectReference, Pod, Service, ServicePort},
    apimachinery::pkg::util::intstr::IntOrString,
};
use orlop_client::ResourceExt;

use crate::workload::pods;

/// A family of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Family {
    IPv4,
    IPv6,
}

impl Family {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::IPv4 => "IPv4",
            Self::IPv6 => "IPv6",
        }
    }

    pub(crate) fn of(address: &str) -> Self {
        if address.contains(':') { Self::IPv6 } else { Self::IPv4 }
    }
}

/// Returns the families of a service.
pub(crate) fn families(service: &Service) -> Vec<Family> {
    let spec = service.spec.as_ref();
    let named = spec.and_then(|spec| spec.ip_families.as_ref()).into_iter().flatten();
    let named: Vec<Family> =
        named.map(|name| if name == "IPv6" { Family::IPv6 } else { Family::IPv4 }).collect();
    match named.is_empty() {
        false => named,
        true => {
            let address = spec.and_then(|spec| spec.cluster_ip.as_deref()).unwrap_or_default();
            vec![Family::of(address)]
        }
    }
}

/// Returns a pod's address of a family.
pub(crate) fn address(pod: &Pod, family: Family) -> Option<&str> {
    let status = pod.status.as_ref()?;
    let all = status.pod_ips.iter().flatten().map(|address| address.ip.as_str());
    let mut all = all.chain(status.pod_ip.as_deref());
    all.find(|address| !address.is_empty() && Family::of(address) == family)
}

/// Returns whether a pod has a place among a service's addresses.
pub(crate) fn is_member(pod: &Pod, with_terminating: bool) -> bool {
    !pods::is_terminal(pod) && (with_terminating || !pods::is_deleting(pod))
}

/// Returns the number of a service port on a pod: a name is looked up in its containers, then its sidecars.
pub(crate) fn target_port(port: &ServicePort, pod: &Pod) -> Option<i32> {
    let name = match &port.target_port {
        None => return Some(port.port),
        Some(IntOrString::Int(0)) => return Some(port.port),
        Some(IntOrString::Int(number)) => return Some(*number),
        Some(IntOrString::String(name)) => name,
    };
    let protocol = port.protocol.as_deref().unwrap_or("TCP");
    let spec = pod.spec.as_ref()?;
    let sidecars = spec.init_containers.iter().flatten();
    let sidecars = sidecars.filter(|container| container.restart_policy.as_deref() == Some("Always"));
    let ports = spec.containers.iter().chain(sidecars).flat_map(|container| container.ports.iter().flatten());
    let mut named = ports.filter(|port| port.name.as_deref() == Some(name.as_str()));
    let found = named.find(|port| port.protocol.as_deref().unwrap_or("TCP") == protocol);
    found.map(|port| port.container_port)
}

/// Returns the host name of a pod in a service's domain.
pub(crate) fn host_name(pod: &Pod, service: &Service) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let is_own = spec.subdomain.as_deref() == service.metadata.name.as_deref()
        && pod.metadata.namespace == service.metadata.namespace;
    spec.hostname.clone().filter(|name| !name.is_empty() && is_own)
}

/// Returns a reference to a pod, as addresses have it.
pub(crate) fn reference(pod: &Pod) -> ObjectReference {
    ObjectReference {
        kind: Some("Pod".to_owned()),
        namespace: pod.namespace(),
        name: Some(pod.name_any()),
        uid: pod.uid(),
        ..ObjectReference::default()
    }
}

/// Returns whether a service publishes addresses of pods that are not ready.
pub(crate) fn publishes_not_ready(service: &Service) -> bool {
    service.spec.as_ref().and_then(|spec| spec.publish_not_ready_addresses) == Some(true)
}

/// Returns whether a service has no address of its own.
pub(crate) fn is_headless(service: &Service) -> bool {
    service.spec.as_ref().and_then(|spec| spec.cluster_ip.as_deref()) == Some("None")
}
