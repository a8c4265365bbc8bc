//! Proxies to pods, services and nodes.

use std::{borrow::Cow, net::IpAddr};

use http::{HeaderValue, Method, Response, StatusCode, header};
use orlop_api::status::Status;
use orlop_auth::request::leading_segments;
use serde_json::Value;

use super::nodes;
use crate::{
    endpoints::Request,
    http::body::Body,
    proxy::{Backend, Forwarded, Links, forward},
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
        _ => node(request, &object, &target).await?,
    };
    let query = request.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let own_path = request.uri.path();
    let prefix = prefix(own_path, !attributes.namespace.is_empty());
    let path = path_at_backend(&own_path[prefix.len()..]);
    let is_read = matches!(request.method, Method::GET | Method::HEAD);
    if path.is_empty() && is_read && !request.headers.contains_key(header::UPGRADE) {
        // Relative links of the page would otherwise lead out of the proxy.
        return redirect(&format!("/{}/{query}", own_path.trim_start_matches('/')));
    }
    let mut headers = request.headers.clone();
    if let Ok(own_path) = HeaderValue::from_str(own_path) {
        headers.insert("x-forwarded-uri", own_path);
    }
    let forwarded = Forwarded {
        method: request.method.clone(),
        path: format!("{}{query}", if path.is_empty() { "/" } else { &*path }),
        headers,
        body: request.body.clone(),
        upgrade: request.upgrade.clone(),
    };
    let links =
        Links { prefix: prefix.to_owned(), backend: backend.authority(), client: client_host(request) };
    forward(&backend, forwarded, Some(links)).await.map_err(|status| {
        let reason =
            status.message.trim_start_matches("Internal error occurred: error dialing backend: ").to_owned();
        Status::service_unavailable(format!("error trying to reach service: {reason}"))
    })
}

fn redirect(location: &str) -> Result<Response<Body>, Status> {
    let location = HeaderValue::from_str(location).map_err(|_| Status::bad_request("invalid path"))?;
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    response.headers_mut().insert(header::LOCATION, location);
    Ok(response)
}

/// Returns the path of a proxy itself, up to the path at the backend: that which authorizers and admission are told.
fn prefix(path: &str, is_namespaced: bool) -> &str {
    // /api/v1/namespaces/NAMESPACE/pods/NAME/proxy, or /api/v1/nodes/NAME/proxy.
    leading_segments(path, if is_namespaced { 7 } else { 5 })
}

/// Returns the path at the backend from what follows the path of the proxy, which may begin with an escaped slash.
fn path_at_backend(rest: &str) -> Cow<'_, str> {
    let unescaped = rest.strip_prefix("%2F").or_else(|| rest.strip_prefix("%2f"));
    unescaped.map_or(Cow::Borrowed(rest), |rest| Cow::Owned(format!("/{rest}")))
}

/// Returns the host as which the client knows this server.
fn client_host(request: &Request) -> String {
    let of_header = || request.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    request
        .uri
        .authority()
        .map(http::uri::Authority::as_str)
        .or_else(of_header)
        .unwrap_or_default()
        .to_owned()
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

async fn node(request: &Request, node: &Value, target: &Target<'_>) -> Result<Backend, Status> {
    let kubelet = nodes::of_object(request, node)?;
    let port = match target.port {
        "" => kubelet.port,
        text => text.parse().map_err(|_| Status::bad_request(format!("invalid port {text:?}")))?,
    };
    if port == kubelet.port {
        return Ok(kubelet);
    }
    // Another program, which may be anybody's: it must not be on this machine, nor see the certificate that is meant for
    // kubelets.
    let address = addresses(&kubelet.host, port).await?;
    let address = address.first().filter(|_| address.iter().all(|address| is_proxyable(*address)));
    let address = address.ok_or_else(|| Status::bad_request("address not allowed"))?;
    backend(request, &address.to_string(), u64::from(port), target.is_https)
}

/// Returns the addresses of a host.
async fn addresses(host: &str, port: u16) -> Result<Vec<IpAddr>, Status> {
    let found = tokio::net::lookup_host((host, port)).await;
    let found = found.map_err(|error| Status::bad_request(format!("lookup {host}: {error}")))?;
    Ok(found.map(|address| address.ip()).collect())
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
    address.parse().is_ok_and(is_proxyable)
}

/// Returns true for an address that is not this machine's own.
fn is_proxyable(address: IpAddr) -> bool {
    // An IPv4 address may be written as one of IPv6.
    match address.to_canonical() {
        IpAddr::V4(v4) if v4.is_loopback() => orlop_kinds::is_pod_loopback(v4),
        IpAddr::V4(v4) => !v4.is_link_local() && !v4.is_multicast() && !v4.is_unspecified(),
        IpAddr::V6(v6) => {
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
    fn path_of_the_proxy_comes_before_that_of_the_backend() {
        let pod = "/api/v1/namespaces/n/pods/p/proxy";
        for rest in ["", "/", "/a/b/", "/proxy/x"] {
            assert_eq!(prefix(&format!("{pod}{rest}"), true), pod);
            assert_eq!(prefix(&format!("/api/v1/nodes/n/proxy{rest}"), false), "/api/v1/nodes/n/proxy");
        }
        for (path, rest) in [
            ("//api/v1//namespaces/n/pods/p/proxy/a", "/a"),
            ("/api/v1/namespaces%2Fn/pods/p/proxy/a/b", "/a/b"),
            ("/api/v1/namespaces/n/pods/p%2Fproxy%2fa/b", "/a/b"),
        ] {
            assert_eq!(path_at_backend(&path[prefix(path, true).len()..]), rest, "{path}");
        }
    }

    #[test]
    fn machine_is_not_reachable_through_a_pod() {
        let own = [
            "127.0.0.1",
            "169.254.169.254",
            "",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "fe80::1",
        ];
        assert_eq!(own.map(is_allowed), [false; 7]);
        assert_eq!(["127.64.0.2", "10.1.2.3"].map(is_allowed), [true; 2]);
    }
}
