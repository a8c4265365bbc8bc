//! Services and their endpoints, as the environment of containers, the proxy and DNS see them.

use std::{fs, sync::Arc};

use k8s_openapi::api::{core::v1::Service, discovery::v1::EndpointSlice};
use orlop_client::ResourceExt;

use crate::watched::Watched;

/// Namespace and name of the API server's service.
const NAMESPACE: &str = "default";
const API_SERVER: &str = "kubernetes";

/// Services of the cluster.
pub(crate) type Services = Watched<Service>;
/// Endpoints of services.
pub(crate) type Slices = Watched<EndpointSlice>;

/// Returns the services whose variables pods of a namespace have: its own, and the API server's. With `slices` that has the address
/// of an API server itself.
pub(crate) async fn linked(
    services: &Services,
    slices: Option<&Slices>,
    namespace: &str,
) -> Vec<Arc<Service>> {
    services.synced().await;
    let mut own = services.of_namespace(namespace);
    own.retain(|service| {
        service.namespace().as_deref() != Some(NAMESPACE) || service.name_any() != API_SERVER
    });
    let mut api_server = services.get(NAMESPACE, API_SERVER);
    if let (Some(service), Some(slices)) = (&mut api_server, slices) {
        slices.synced().await;
        let all = slices.all();
        if let Some(direct) = all.iter().find_map(|slice| direct(service, slice)) {
            *service = Arc::new(direct);
        }
    }
    api_server.into_iter().chain(own).collect()
}

/// Returns a service as if the first of its endpoints were its address.
fn direct(service: &Service, slice: &EndpointSlice) -> Option<Service> {
    let endpoint = slice.endpoints.iter().flatten().next().filter(|_| is_of(slice, service))?;
    let number = slice.ports.iter().flatten().find_map(|port| port.port)?;
    let mut direct = service.clone();
    let spec = direct.spec.as_mut()?;
    spec.cluster_ip = Some(endpoint.addresses.first()?.clone());
    spec.ports.as_mut()?.first_mut()?.port = number;
    Some(direct)
}

/// Returns true if this process may listen on the port of the API server's service.
pub(crate) fn may_listen_for_https() -> bool {
    const HTTPS: u16 = 443;
    let first = fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    let first = first.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(1024_u16);
    rustix::process::geteuid().is_root() || HTTPS >= first
}

/// Returns true for a slice of a service's endpoints.
pub(crate) fn is_of(slice: &EndpointSlice, service: &Service) -> bool {
    slice.namespace() == service.namespace()
        && slice.labels().get("kubernetes.io/service-name") == Some(&service.name_any())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn service_may_have_the_address_of_its_endpoint() {
        let service: Service = serde_json::from_value(json!({
            "metadata": {"name": "kubernetes", "namespace": "default"},
            "spec": {"clusterIP": "127.128.0.1", "ports": [{"name": "https", "port": 443}]},
        }))
        .unwrap();
        let slice = |name: &str| -> EndpointSlice {
            serde_json::from_value(json!({
                "metadata": {"namespace": "default", "labels": {"kubernetes.io/service-name": name}},
                "addressType": "IPv4",
                "endpoints": [{"addresses": ["127.0.0.1"]}],
                "ports": [{"name": "https", "port": 6443}],
            }))
            .unwrap()
        };
        let spec = direct(&service, &slice("kubernetes")).unwrap().spec.unwrap();
        assert_eq!((spec.cluster_ip.as_deref(), spec.ports.unwrap()[0].port), (Some("127.0.0.1"), 6443));
        assert!(direct(&service, &slice("other")).is_none());
    }
}
