//! Resolves services to endpoints. There may be no service network here, so an endpoint is called directly if one is
//! known.

use orlop_api::status::Status;
use orlop_store::{Filter, KeyRange, Read, Requirement};
use serde_json::Value;

use crate::{
    registry::{Found, Kind},
    storage::{ObjectStore, status_from_store_error},
};

/// Returns the host and port behind a port of a service.
pub(super) async fn resolve(
    objects: &ObjectStore,
    namespace: &str,
    name: &str,
    port: u16,
) -> Result<(String, u16), String> {
    let message = |status: Status| status.message;
    let Some(service) = find(objects, "", "services", namespace, name).await.map_err(message)? else {
        return Err(format!("service {name:?} not found"));
    };
    let spec = &service["spec"];
    if spec["type"] == "ExternalName" {
        return Ok((spec["externalName"].as_str().unwrap_or_default().to_owned(), port));
    }
    let ports = spec["ports"].as_array().into_iter().flatten();
    let Some(wanted) = ports.into_iter().find(|found| found["port"] == port) else {
        return Err(format!("no service port {port} found for service {name:?}"));
    };
    let port_name = wanted["name"].as_str().unwrap_or_default();
    if let Some(endpoint) = endpoint(objects, namespace, name, port_name).await.map_err(message)? {
        return Ok(endpoint);
    }
    match spec["clusterIP"].as_str() {
        Some(address) if !matches!(address, "" | "None") => Ok((address.to_owned(), port)),
        _ => Err(format!("no endpoints available for service {name:?}")),
    }
}

/// Returns an endpoint of a service, from its EndpointSlices or Endpoints.
pub(crate) async fn endpoint(
    objects: &ObjectStore,
    namespace: &str,
    name: &str,
    port: &str,
) -> Result<Option<(String, u16)>, Status> {
    let kinds = objects.registry.kinds();
    if let Some(kind) = kinds.get("discovery.k8s.io", "v1", "endpointslices") {
        let of_service = Requirement::equals("l:kubernetes.io/service-name", name);
        let range = KeyRange::prefix(objects.collection(kind, namespace));
        let read = Read { filter: Filter(vec![of_service]), ..Read::new(range) };
        let slices = objects.store.read(read).await.map_err(|error| status_from_store_error(&error))?;
        for kv in slices.kvs {
            if let Some(found) = in_slice(&kind.read(&Found::from(kv)).await?, port) {
                return Ok(Some(found));
            }
        }
    }
    let endpoints = find(objects, "", "endpoints", namespace, name).await?;
    Ok(endpoints.and_then(|endpoints| in_endpoints(&endpoints, port)))
}

/// Returns the first endpoint of a slice that is not unready.
fn in_slice(slice: &Value, port: &str) -> Option<(String, u16)> {
    let mut endpoints = slice["endpoints"].as_array()?.iter();
    let ready = endpoints.find(|endpoint| endpoint["conditions"]["ready"] != false)?;
    Some((ready["addresses"][0].as_str()?.to_owned(), number(&slice["ports"], port)?))
}

/// Returns the first ready address of Endpoints.
fn in_endpoints(endpoints: &Value, port: &str) -> Option<(String, u16)> {
    endpoints["subsets"].as_array()?.iter().find_map(|subset| {
        let address = subset["addresses"][0]["ip"].as_str()?;
        Some((address.to_owned(), number(&subset["ports"], port)?))
    })
}

/// Returns the number of a named port.
fn number(ports: &Value, name: &str) -> Option<u16> {
    let mut ports = ports.as_array()?.iter();
    let port = ports.find(|port| port["name"].as_str().unwrap_or_default() == name)?;
    u16::try_from(port["port"].as_u64()?).ok()
}

async fn find(
    objects: &ObjectStore,
    group: &str,
    resource: &str,
    namespace: &str,
    name: &str,
) -> Result<Option<Value>, Status> {
    let kinds = objects.registry.kinds();
    let kind: Option<&Kind> = kinds.get(group, "v1", resource).map(AsRef::as_ref);
    let Some(kind) = kind else { return Ok(None) };
    match objects.find(kind, namespace, name).await? {
        Some(found) => kind.read(&found).await.map(Some),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn endpoint_is_resolved_by_port_name() {
        let slice = json!({
            "endpoints": [
                {"addresses": ["10.1.0.1"], "conditions": {"ready": false}},
                {"addresses": ["10.1.0.2"], "conditions": {}},
            ],
            "ports": [{"name": "metrics", "port": 9090}, {"name": "https", "port": 8443}],
        });
        assert_eq!(in_slice(&slice, "https"), Some(("10.1.0.2".to_owned(), 8443)));
        assert_eq!(in_slice(&slice, ""), None);
        let endpoints = json!({"subsets": [
            {"notReadyAddresses": [{"ip": "10.1.0.1"}], "ports": [{"port": 1}]},
            {"addresses": [{"ip": "10.1.0.3"}], "ports": [{"port": 8443}]},
        ]});
        assert_eq!(in_endpoints(&endpoints, ""), Some(("10.1.0.3".to_owned(), 8443)));
        assert_eq!(in_endpoints(&json!({}), ""), None);
    }
}
