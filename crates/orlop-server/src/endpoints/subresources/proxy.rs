//! Proxies to pods, services and nodes.

use http::{Method, Response};
use orlop_api::status::Status;
use serde_json::Value;

use super::nodes;
use crate::{
    endpoints::Request,
    http::body::Body,
    proxy::{Backend, Forwarded, forward},
    request::Verb,
    webhook,
};

/// Sends a request on to what an object stands for.
pub(super) async fn connect(request: &Request) -> Result<Response<Body>, Status> {
    let attributes = &request.attributes;
    let target = Target::parse(&attributes.name);
    let object = request.cluster.objects.object(&request.kind, &attributes.namespace, target.name).await?;
    let backend = match request.kind.resource.as_str() {
        "pods" => pod(request, &object, &target)?,
        "services" => service(request, &object, &target).await?,
        _ => node(request, &object, &target)?,
    };
    let query = request.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let path = format!("/{}{}{query}", attributes.rest, trailing_slash(request));
    let method = match attributes.verb {
        Verb::Create => Method::POST,
        Verb::Update => Method::PUT,
        Verb::Patch => Method::PATCH,
        Verb::Delete | Verb::DeleteCollection => Method::DELETE,
        _ => Method::GET,
    };
    let forwarded = Forwarded {
        method,
        path,
        headers: request.headers.clone(),
        body: request.body.clone(),
        upgrade: request.upgrade.clone(),
    };
    forward(&backend, forwarded).await.map_err(|status| {
        let reason =
            status.message.trim_start_matches("Internal error occurred: error dialing backend: ").to_owned();
        Status::service_unavailable(format!("error trying to reach service: {reason}"))
    })
}

/// Returns the slash at the end of a path, which its segments do not keep.
fn trailing_slash(request: &Request) -> &'static str {
    if !request.attributes.rest.is_empty() && request.uri.path().ends_with('/') { "/" } else { "" }
}

/// The target of a proxy request: `name`, `name:port` or `scheme:name:port`.
#[derive(Debug, PartialEq, Eq)]
struct Target<'a> {
    is_https: bool,
    name: &'a str,
    port: &'a str,
}

impl<'a> Target<'a> {
    fn parse(text: &'a str) -> Self {
        match text.split(':').collect::<Vec<_>>().as_slice() {
            [name] => Self { is_https: false, name, port: "" },
            [name, port] => Self { is_https: false, name, port },
            [scheme, name, port] => Self { is_https: *scheme == "https", name, port },
            _ => Self { is_https: false, name: text, port: "" },
        }
    }
}

/// Returns the address of a pod. Loopback addresses are those that nodes of this program give; others, and link-local
/// ones, would make this server a way into its own machine.
fn pod(request: &Request, pod: &Value, target: &Target<'_>) -> Result<Backend, Status> {
    let address = pod.pointer("/status/podIP").and_then(Value::as_str).unwrap_or_default();
    if !is_allowed(address) {
        return Err(Status::bad_request("address not allowed"));
    }
    let mut containers = pod.pointer("/spec/containers").and_then(Value::as_array).into_iter().flatten();
    let port = match target.port {
        "" => containers.find_map(|container| container["ports"][0]["containerPort"].as_u64()).unwrap_or(80),
        text => text.parse().map_err(|_| Status::bad_request(format!("invalid port {text:?}")))?,
    };
    backend(request, address, port, target.is_https)
}

async fn service(request: &Request, service: &Value, target: &Target<'_>) -> Result<Backend, Status> {
    let none =
        || Status::service_unavailable(format!("no endpoints available for service {:?}", target.name));
    let name = match target.port.parse::<u64>() {
        Err(_) => target.port,
        Ok(number) => {
            let mut ports = service.pointer("/spec/ports").and_then(Value::as_array).into_iter().flatten();
            let found = ports.find(|port| port["port"].as_u64() == Some(number));
            let unknown = || format!("no service port {number} found for service {:?}", target.name);
            let port = found.ok_or_else(|| Status::service_unavailable(unknown()))?;
            port["name"].as_str().unwrap_or_default()
        }
    };
    let namespace = &request.attributes.namespace;
    let endpoint = webhook::endpoint(&request.cluster.objects, namespace, target.name, name).await?;
    let (address, port) = endpoint.ok_or_else(none)?;
    if !is_allowed(&address) {
        return Err(none());
    }
    backend(request, &address, u64::from(port), target.is_https)
}

fn node(request: &Request, node: &Value, target: &Target<'_>) -> Result<Backend, Status> {
    let backend = nodes::of_object(request, node)?;
    match target.port {
        "" => Ok(backend),
        text => {
            let port = text.parse().map_err(|_| Status::bad_request(format!("invalid port {text:?}")))?;
            let tls = backend.tls.filter(|_| target.is_https || port == backend.port);
            Ok(Backend { port, tls, ..backend })
        }
    }
}

fn backend(request: &Request, address: &str, port: u64, is_https: bool) -> Result<Backend, Status> {
    let Some(tls) = request.cluster.node_tls() else {
        return Err(Status::service_unavailable("no node can be reached from this server"));
    };
    let port = u16::try_from(port).ok().filter(|port| *port > 0);
    let port = port.ok_or_else(|| Status::bad_request("invalid port"))?;
    Ok(Backend { host: address.to_owned(), port, tls: is_https.then(|| tls.workloads.clone()) })
}

/// Returns true for an address that a pod may have.
fn is_allowed(address: &str) -> bool {
    let Ok(address) = address.parse::<std::net::IpAddr>() else { return false };
    match address {
        std::net::IpAddr::V4(v4) if v4.is_loopback() => orlop_kinds::is_pod_loopback(v4),
        std::net::IpAddr::V4(v4) => !v4.is_link_local() && !v4.is_multicast() && !v4.is_unspecified(),
        std::net::IpAddr::V6(v6) => {
            !v6.is_loopback() && !v6.is_unicast_link_local() && !v6.is_multicast() && !v6.is_unspecified()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxy_target_has_scheme_name_and_port() {
        let target = |is_https, name, port| Target { is_https, name, port };
        assert_eq!(Target::parse("x"), target(false, "x", ""));
        assert_eq!(Target::parse("x:80"), target(false, "x", "80"));
        assert_eq!(Target::parse("https:x:http"), target(true, "x", "http"));
    }

    #[test]
    fn machine_is_not_reachable_through_a_pod() {
        assert_eq!(["127.0.0.1", "169.254.169.254", "", "::1"].map(is_allowed), [false; 4]);
        assert_eq!(["127.64.0.2", "10.1.2.3"].map(is_allowed), [true; 2]);
    }
}
