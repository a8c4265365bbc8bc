//! Services and their endpoints, as the environment of containers, the proxy and DNS see them.

use std::sync::Arc;

use k8s_openapi::api::{core::v1::Service, discovery::v1::EndpointSlice};
use orlop_client::ResourceExt;

use crate::watched::Watched;

/// Services of the cluster.
pub(crate) type Services = Watched<Service>;
/// Endpoints of services.
pub(crate) type Slices = Watched<EndpointSlice>;

/// Returns the services whose variables pods of a namespace have: its own, and the API server's.
pub(crate) async fn linked(services: &Services, namespace: &str) -> Vec<Arc<Service>> {
    services.synced().await;
    let api_server = services.get("default", "kubernetes");
    api_server.into_iter().chain(services.of_namespace(namespace)).collect()
}

/// Returns true for a slice of a service's endpoints.
pub(crate) fn is_of(slice: &EndpointSlice, service: &Service) -> bool {
    slice.namespace() == service.namespace()
        && slice.labels().get("kubernetes.io/service-name") == Some(&service.name_any())
}
