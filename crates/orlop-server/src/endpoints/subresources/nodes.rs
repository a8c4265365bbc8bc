//! Addresses of nodes, and errors of what they answer.

use http::Response;
use http_body_util::{BodyExt, Limited};
use orlop_api::{object_meta, status::Status};
use serde_json::Value;

use crate::{endpoints::Request, http::body::Body, proxy::Backend};

/// Types of addresses, the preferred one first.
const ADDRESS_TYPES: &[&str] = &["InternalIP", "Hostname", "InternalDNS", "ExternalIP", "ExternalDNS"];
/// Port of a node that names none.
const KUBELET_PORT: u16 = 10250;
/// Bytes of an error.
const ERROR_BYTES_MAX: usize = 64 << 10;

/// Returns the API of a node.
pub(super) async fn backend(request: &Request, node: &str) -> Result<Backend, Status> {
    let kinds = request.cluster.objects.registry.kinds();
    let nodes = kinds.get("", "v1", "nodes").ok_or_else(Status::resource_unknown)?;
    let object = request.cluster.objects.object(nodes, "", node).await?;
    of_object(request, &object)
}

/// Returns the API of a node by its object.
pub(super) fn of_object(request: &Request, node: &Value) -> Result<Backend, Status> {
    let name = object_meta::text(object_meta::of(node), "name");
    let Some(tls) = request.cluster.node_tls() else {
        return Err(Status::internal(&format!("error dialing backend: node {name} cannot be reached")));
    };
    let addresses = node.pointer("/status/addresses").and_then(Value::as_array);
    let address = ADDRESS_TYPES.iter().find_map(|kind| {
        let found = addresses.into_iter().flatten().find(|address| address["type"] == *kind);
        found.and_then(|address| address["address"].as_str()).filter(|address| !address.is_empty())
    });
    let Some(host) = address else {
        let kinds = ADDRESS_TYPES.join(" ");
        return Err(Status::internal(&format!(
            "no preferred addresses found; known addresses: [], preferred: [{kinds}]"
        )));
    };
    let port = node.pointer("/status/daemonEndpoints/kubeletEndpoint/Port").and_then(Value::as_u64);
    let port = port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0);
    Ok(Backend { host: host.to_owned(), port: port.unwrap_or(KUBELET_PORT), tls: Some(tls.nodes.clone()) })
}

/// Returns the error that a node has answered with.
pub(super) async fn failure(response: Response<Body>) -> Status {
    let code = response.status().as_u16();
    let body = Limited::new(response.into_body(), ERROR_BYTES_MAX).collect().await;
    let text =
        body.map(|body| String::from_utf8_lossy(&body.to_bytes()).trim().to_owned()).unwrap_or_default();
    match code {
        400 => Status::bad_request(text),
        404 => Status::new(404, orlop_api::status::Reason::NotFound, text),
        403 => Status::new(403, orlop_api::status::Reason::Forbidden, text),
        _ => Status::internal(&text),
    }
}
