//! The APIService of the resource metrics API, and the Service behind it.

use std::net::SocketAddr;

use base64::{Engine, engine::general_purpose::STANDARD};
use futures_util::future::BoxFuture;
use orlop_client::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::{Value, json};

const NAMESPACE: &str = "kube-system";
const SERVICE: &str = "metrics-server";
const API_SERVICE: &str = "v1beta1.metrics.k8s.io";
const MANAGER: &str = "orlop-metrics";
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// DNS name of the Service, which the serving certificate is for.
pub const SERVER_NAME: &str = "metrics-server.kube-system.svc";

fn api(
    client: &Client,
    group: &str,
    version: &str,
    kind: &str,
    namespace: Option<&str>,
) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

fn api_services(client: &Client) -> Api<DynamicObject> {
    api(client, "apiregistration.k8s.io", "v1", "APIService", None)
}

/// Registers the API at an address. Does nothing if it is somebody else's.
pub(crate) fn register(
    client: Client,
    address: SocketAddr,
    ca: String,
) -> BoxFuture<'static, orlop_client::Result<bool>> {
    Box::pin(async move {
        let existing = api_services(&client).get_opt(API_SERVICE).await?;
        if existing.is_some_and(|existing| !is_own(&existing)) {
            return Ok(false);
        }
        let labels = json!({MANAGED_BY: MANAGER, "kubernetes.io/service-name": SERVICE});
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": SERVICE, "labels": {MANAGED_BY: MANAGER}},
            "spec": {"ports": [{"name": "https", "port": 443, "targetPort": address.port(), "protocol": "TCP"}]}});
        let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": SERVICE, "labels": labels}, "addressType": "IPv4",
            "ports": [{"name": "https", "port": address.port(), "protocol": "TCP"}],
            "endpoints": [{"addresses": [address.ip().to_string()], "conditions": {"ready": true}}]});
        let api_service = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": API_SERVICE, "labels": {MANAGED_BY: MANAGER}},
            "spec": {"group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100,
                "service": {"name": SERVICE, "namespace": NAMESPACE, "port": 443},
                "caBundle": STANDARD.encode(ca)}});
        apply(api(&client, "", "v1", "Service", Some(NAMESPACE)), SERVICE, service).await?;
        apply(api(&client, "discovery.k8s.io", "v1", "EndpointSlice", Some(NAMESPACE)), SERVICE, slice)
            .await?;
        apply(api_services(&client), API_SERVICE, api_service).await?;
        Ok(true)
    })
}

/// Boxed, as the compiler cannot see otherwise that the future of its callers may be sent.
fn apply(
    api: Api<DynamicObject>,
    name: &'static str,
    object: Value,
) -> BoxFuture<'static, orlop_client::Result<()>> {
    Box::pin(async move {
        let parameters = PatchParams::apply(MANAGER).force();
        api.patch(name, &parameters, &Patch::Apply(object)).await.map(drop)
    })
}

/// Returns the address that an own registration names.
pub(crate) fn address(client: Client) -> BoxFuture<'static, orlop_client::Result<Option<SocketAddr>>> {
    Box::pin(async move {
        if !api_services(&client).get_opt(API_SERVICE).await?.is_some_and(|found| is_own(&found)) {
            return Ok(None);
        }
        let slices = api(&client, "discovery.k8s.io", "v1", "EndpointSlice", Some(NAMESPACE));
        let Some(slice) = slices.get_opt(SERVICE).await? else { return Ok(None) };
        let text = |path: &str| slice.data.pointer(path).cloned().unwrap_or_default();
        let address = text("/endpoints/0/addresses/0").as_str().and_then(|address| address.parse().ok());
        let port = text("/ports/0/port").as_u64().and_then(|port| u16::try_from(port).ok());
        Ok(address.zip(port).map(|(address, port)| SocketAddr::new(address, port)))
    })
}

/// Takes the registration back, so that nobody asks a server that is gone.
pub(crate) fn unregister(client: Client) -> BoxFuture<'static, orlop_client::Result<()>> {
    Box::pin(async move {
        match api_services(&client).get_opt(API_SERVICE).await? {
            Some(existing) if is_own(&existing) => {
                api_services(&client).delete(API_SERVICE, &DeleteParams::default()).await.map(drop)
            }
            _ => Ok(()),
        }
    })
}

fn is_own(object: &DynamicObject) -> bool {
    object.labels().get(MANAGED_BY).is_some_and(|manager| manager == MANAGER)
}
