//! Proxies to pods, services and nodes. Nothing is reachable from this server: the object is looked up, and the error
//! is that of an unreachable backend.

use orlop_api::status::Status;
use serde_json::Value;

use crate::endpoints::Request;

/// Returns the error of a proxy request.
pub(super) async fn refusal(request: &Request) -> Status {
    let attributes = &request.attributes;
    let name = target(&attributes.name);
    let object = match request.cluster.objects.object(&request.kind, &attributes.namespace, name).await {
        Ok(object) => object,
        Err(status) => return status,
    };
    match request.kind.resource.as_str() {
        "pods" if object.pointer("/status/podIP").and_then(Value::as_str).unwrap_or_default().is_empty() => {
            Status::bad_request("address not allowed")
        }
        "services" => Status::service_unavailable(format!("no endpoints available for service {name:?}")),
        _ => Status::service_unavailable("no node can be reached from this server"),
    }
}

/// Returns the name in `name`, `name:port` or `scheme:name:port`.
fn target(name: &str) -> &str {
    match name.split(':').collect::<Vec<_>>().as_slice() {
        [name] | [name, _] | [_, name, _] => name,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::target;

    #[test]
    fn proxy_target_excludes_scheme_and_port() {
        assert_eq!(["x", "x:80", "https:x:http", "a:b:c:d"].map(target), ["x", "x", "x", "a:b:c:d"]);
    }
}
