//! Proxies to pods, services and nodes. There is nothing behind this server to be a proxy of: what is asked
//! for is looked up, and refused as a server refuses what it cannot reach.

use orlop_api::status::Status;
use serde_json::Value;

use crate::endpoints::Request;

/// Why nothing is passed on.
pub(super) async fn refusal(request: &Request) -> Status {
    let about = &request.about;
    let name = target(&about.name);
    let object = match request.cluster.objects.object(&request.kind, &about.namespace, name).await {
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

/// The name in `name`, `name:port` or `scheme:name:port`.
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
    fn a_scheme_and_a_port_are_not_the_name() {
        assert_eq!(["x", "x:80", "https:x:http", "a:b:c:d"].map(target), ["x", "x", "x", "a:b:c:d"]);
    }
}
