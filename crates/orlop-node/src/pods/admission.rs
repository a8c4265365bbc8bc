//! Admission of pods by the node: what it cannot run it refuses, and says so.

use k8s_openapi::api::core::v1::{Container, Pod};

use super::sysctls;
use crate::quantity::{Resources, milli};

/// Refusal of a pod: it becomes Failed with this reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) reason: String,
    pub(crate) message: String,
}

/// Refuses a pod that this node cannot run. `others` are the pods that run here.
pub(crate) fn admit(
    pod: &Pod,
    others: &[std::sync::Arc<Pod>],
    allocatable: &Resources,
) -> Result<(), Refusal> {
    if let Some(feature) = unsupported(pod) {
        return Err(Refusal {
            reason: "PodFeatureUnsupported".into(),
            message: format!("{feature} is not supported by this node"),
        });
    }
    let spec = pod.spec.clone().unwrap_or_default();
    if spec.os.is_some_and(|os| os.name != "linux") {
        let message = "Failed to admit pod as the OS field doesn't match node OS".to_owned();
        return Err(Refusal { reason: "PodOSNotSupported".into(), message });
    }
    if let Some(name) = sysctls::forbidden(pod) {
        let message = format!("forbidden sysctl: {name:?} not allowlisted");
        return Err(Refusal { reason: "SysctlForbidden".into(), message });
    }
    let taken: Vec<_> = others.iter().flat_map(|other| host_ports(other)).collect();
    if host_ports(pod).iter().any(|port| taken.iter().any(|other| conflicts(port, other))) {
        let message =
            "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports";
        return Err(Refusal { reason: "NodePorts".into(), message: message.into() });
    }
    check_resources(pod, others, allocatable)
}

/// Refuses a pod whose requests are more than the node has left.
pub(crate) fn check_resources(
    pod: &Pod,
    others: &[std::sync::Arc<Pod>],
    allocatable: &Resources,
) -> Result<(), Refusal> {
    for name in ["pods", "cpu", "memory", "ephemeral-storage"] {
        let Some(capacity) = allocatable.get(name).map(milli) else { continue };
        let request = |pod: &Pod| if name == "pods" { 1000 } else { requested(pod, name) };
        let wanted = request(pod);
        if wanted == 0 {
            continue;
        }
        let used: i64 = others.iter().map(|other| request(other)).sum();
        if used + wanted > capacity {
            // As a kubelet counts: thousandths of a core, and whole units of everything else.
            let shown = |amount: i64| if name == "cpu" { amount } else { amount / 1000 };
            return Err(Refusal {
                reason: format!("OutOf{name}"),
                message: format!(
                    "Node didn't have enough resource: {name}, requested: {}, used: {}, capacity: {}",
                    shown(wanted),
                    shown(used),
                    shown(capacity)
                ),
            });
        }
    }
    Ok(())
}

/// Returns a pod's request of a resource in thousandths: the sum of its containers, or its largest init container.
pub(crate) fn requested(pod: &Pod, name: &str) -> i64 {
    let Some(spec) = &pod.spec else { return 0 };
    let of = |container: &Container| {
        let requests = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
        requests.and_then(|requests| requests.get(name)).map_or(0, milli)
    };
    let init = spec.init_containers.as_deref().unwrap_or_default();
    let is_sidecar = |container: &&Container| container.restart_policy.as_deref() == Some("Always");
    let sidecars: i64 = init.iter().filter(is_sidecar).map(of).sum();
    let main: i64 = spec.containers.iter().map(of).sum();
    let steps = init.iter().filter(|container| !is_sidecar(container)).map(of).max().unwrap_or(0);
    let overhead = spec.overhead.as_ref().and_then(|overhead| overhead.get(name)).map_or(0, milli);
    (main + sidecars).max(steps + sidecars) + overhead
}

/// Returns the first field of a pod that a runtime of processes cannot honour.
fn unsupported(pod: &Pod) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    if spec.resource_claims.as_ref().is_some_and(|claims| !claims.is_empty()) {
        return Some("spec.resourceClaims".into());
    }
    for (index, volume) in spec.volumes.iter().flatten().enumerate() {
        let is_known = volume.config_map.is_some()
            || volume.downward_api.is_some()
            || volume.empty_dir.is_some()
            || volume.ephemeral.is_some()
            || volume.host_path.is_some()
            || volume.image.is_some()
            || volume.persistent_volume_claim.is_some()
            || volume.projected.is_some()
            || volume.secret.is_some();
        if !is_known {
            return Some(format!("spec.volumes[{index}] ({})", volume.name));
        }
    }
    let init =
        spec.init_containers.iter().flatten().enumerate().map(|(index, c)| ("initContainers", index, c));
    let main = spec.containers.iter().enumerate().map(|(index, c)| ("containers", index, c));
    for (list, index, container) in init.chain(main) {
        if container.volume_devices.as_ref().is_some_and(|devices| !devices.is_empty()) {
            return Some(format!("spec.{list}[{index}].volumeDevices"));
        }
    }
    None
}

type HostPort = (String, i32, String);

fn host_ports(pod: &Pod) -> Vec<HostPort> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let ports = containers.flat_map(|container| container.ports.iter().flatten());
    ports
        .filter_map(|port| {
            let number = port.host_port.filter(|number| *number > 0)?;
            let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".into());
            Some((port.host_ip.clone().unwrap_or_default(), number, protocol))
        })
        .collect()
}

fn conflicts(a: &HostPort, b: &HostPort) -> bool {
    let is_any = |ip: &str| matches!(ip, "" | "0.0.0.0");
    a.1 == b.1 && a.2 == b.2 && (a.0 == b.0 || is_any(&a.0) || is_any(&b.0))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
    use serde_json::json;

    use super::*;

    fn pod(spec: serde_json::Value) -> Pod {
        serde_json::from_value(json!({"spec": spec})).unwrap()
    }

    #[test]
    fn pod_beyond_the_capacity_is_out_of_cpu() {
        let wanted = pod(json!({"containers": [{"name": "a", "resources": {"requests": {"cpu": "600m"}}}]}));
        let allocatable = Resources::from([("cpu".to_owned(), Quantity("1".into()))]);
        assert_eq!(admit(&wanted, &[], &allocatable), Ok(()));
        let refusal = admit(&wanted, &[Arc::new(wanted.clone())], &allocatable).unwrap_err();
        assert_eq!(refusal.reason, "OutOfcpu");
        assert_eq!(
            refusal.message,
            "Node didn't have enough resource: cpu, requested: 600, used: 600, capacity: 1000"
        );
    }

    #[test]
    fn host_port_of_another_pod_is_a_conflict() {
        let on = |ip: &str| {
            pod(
                json!({"containers": [{"name": "a", "ports": [{"containerPort": 1, "hostPort": 1, "hostIP": ip}]}]}),
            )
        };
        let refused = |a: &str, b: &str| admit(&on(a), &[Arc::new(on(b))], &Resources::new()).is_err();
        assert!(refused("127.0.0.1", "0.0.0.0"));
        assert!(!refused("127.0.0.1", "127.0.0.2"));
    }

    #[test]
    fn unsafe_sysctl_is_refused() {
        let context = json!({"sysctls": [{"name": "kernel.msgmax", "value": "1"}]});
        let wanted = pod(json!({"containers": [{"name": "a"}], "securityContext": context}));
        let refusal = admit(&wanted, &[], &Resources::new()).unwrap_err();
        assert_eq!(
            (refusal.reason.as_str(), refusal.message.as_str()),
            ("SysctlForbidden", "forbidden sysctl: \"kernel.msgmax\" not allowlisted")
        );
    }
}
