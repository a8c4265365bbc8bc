//! The Available condition of an APIService, as Kubernetes' availability controllers set it.

use serde_json::{Value, json};

use crate::{
    api_service::{AVAILABLE, ApiService, Availability, BackendKey},
    routing::{ServiceState, ServiceType},
};

fn condition(status: &str, reason: &str, message: String) -> Availability {
    Availability { status: status.to_owned(), reason: reason.to_owned(), message }
}

fn unavailable(reason: &str, message: String) -> Availability {
    condition("False", reason, message)
}

/// Returns the condition of an APIService that this server serves itself.
pub fn local() -> Availability {
    condition("True", "Local", "Local APIServices are always available".to_owned())
}

/// Returns the condition of an APIService whose server passed all checks.
pub fn passed() -> Availability {
    condition("True", "Passed", "all checks passed".to_owned())
}

/// Returns the condition of an APIService whose server fails the discovery check.
pub fn failed_discovery(message: String) -> Availability {
    unavailable("FailedDiscoveryCheck", message)
}

/// Returns the condition of an APIService whose Service cannot be read.
pub fn unreadable(key: &BackendKey, error: &str) -> Availability {
    let message = format!("service/{} in {:?} cannot be checked due to: {error}", key.name, key.namespace);
    condition("Unknown", "ServiceAccessError", message)
}

/// Checks the Service and its endpoints. Returns a condition if they make the server unavailable. Only those of a
/// ClusterIP Service can be checked.
pub fn check_service(key: &BackendKey, state: &ServiceState) -> Option<Availability> {
    let BackendKey { namespace, name, port, .. } = key;
    let Some(service) = &state.service else {
        let message = format!("service/{name} in {namespace:?} is not present");
        return Some(unavailable("ServiceNotFound", message));
    };
    if *service.kind() != ServiceType::ClusterIp {
        return None;
    }
    let Some(port_name) = service.port_name(*port) else {
        let message = format!("service/{name} in {namespace:?} is not listening on port {port}");
        return Some(unavailable("ServicePortError", message));
    };
    let slices = state.slices();
    if slices.is_empty() {
        let message = format!("cannot find endpointslices for service/{name} in {namespace:?}");
        return Some(unavailable("EndpointsNotFound", message));
    }
    if !slices.iter().any(|slice| slice.has_available(port_name)) {
        let message = format!(
            "endpointslices for service/{name} in {namespace:?} have no addresses with port name {port_name:?}"
        );
        return Some(unavailable("MissingEndpoints", message));
    }
    None
}

/// Returns the status to write; `None` if the object says the same already. `now` is the time of a transition.
pub fn status(service: &ApiService, availability: &Availability, now: &str) -> Option<Value> {
    if service.availability == *availability {
        return None;
    }
    let has_moved = service.availability.status != availability.status || service.transitioned.is_empty();
    let transitioned = if has_moved { now } else { service.transitioned.as_str() };
    let Availability { status, reason, message } = availability;
    Some(json!({"conditions": [{
        "type": AVAILABLE, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": transitioned,
    }]}))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routing::{Service, Slice};

    #[test]
    fn conditions_have_kubernetes_reasons_and_messages() {
        let key = BackendKey {
            namespace: "n".to_owned(),
            name: "s".to_owned(),
            port: 443,
            ca_bundle: Vec::new(),
            insecure_skip_tls_verify: true,
        };
        let mut state = ServiceState::default();
        let told = |state: &ServiceState| {
            let found = check_service(&key, state)?;
            assert_eq!(found.status, "False");
            Some(format!("{}: {}", found.reason, found.message))
        };
        assert_eq!(told(&state).unwrap(), "ServiceNotFound: service/s in \"n\" is not present");
        let with =
            |ports: Value| Some(Service::parse(&json!({"spec": {"type": "ClusterIP", "ports": ports}})));
        state.service = with(json!([{"port": 80}]));
        assert_eq!(
            told(&state).unwrap(),
            "ServicePortError: service/s in \"n\" is not listening on port 443"
        );
        state.service = with(json!([{"port": 443, "name": "https"}]));
        let wanted = "EndpointsNotFound: cannot find endpointslices for service/s in \"n\"";
        assert_eq!(told(&state).unwrap(), wanted);
        let slice = |port: &str| {
            Slice::parse(
                &json!({"endpoints": [{"addresses": ["10.0.0.1"]}], "ports": [{"name": port, "port": 1}]}),
            )
        };
        state.slices.insert("a".to_owned(), slice("http"));
        let wanted = "MissingEndpoints: endpointslices for service/s in \"n\" have no addresses with port name \"https\"";
        assert_eq!(told(&state).unwrap(), wanted);
        state.slices.insert("b".to_owned(), slice("https"));
        assert_eq!(told(&state), None);
        let external = Service::parse(&json!({"spec": {"type": "ExternalName", "externalName": "x"}}));
        let state = ServiceState { service: Some(external), ..ServiceState::default() };
        assert_eq!(told(&state), None);
    }

    #[test]
    fn transition_time_changes_with_the_status_only() {
        let mut service = ApiService::parse("v1.a", &json!({"spec": {"group": "a", "version": "v1"}}));
        let first = status(&service, &passed(), "now").unwrap();
        assert_eq!(first["conditions"][0]["lastTransitionTime"], "now");
        service = ApiService::parse("v1.a", &json!({"status": first}));
        assert_eq!(status(&service, &passed(), "later"), None);
        let again = Availability { reason: "Other".to_owned(), ..passed() };
        let kept = status(&service, &again, "later").unwrap();
        assert_eq!(kept["conditions"][0]["lastTransitionTime"], "now");
        let failed = status(&service, &failed_discovery("x".to_owned()), "later").unwrap();
        assert_eq!(failed["conditions"][0]["lastTransitionTime"], "later");
    }
}
