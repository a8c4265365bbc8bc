//! Updates of a Service: allocated fields are immutable, and carried over if the client omits them.

use orlop_api::field_error::{FieldError, FieldPath};
use serde_json::{Value, json};

use super::{is_headless, needs_health_check_node_port};
use crate::{
    accessors::{integer, list, text, texts},
    defaulting,
};

const SET_ONCE: &str = "may not change once set";

/// Restores allocated fields that the client omitted.
pub(crate) fn restore_allocations(object: &mut Value, old: &Value) {
    let kinds = (text(object, "/spec/type").to_owned(), text(old, "/spec/type"));
    if kinds.0 == "ExternalName" || kinds.1 == "ExternalName" {
        return;
    }
    let ports = previous_node_ports(object, old);
    let health = needs_health_check_node_port(object) && needs_health_check_node_port(old);
    let old_spec = old.get("spec").unwrap_or(&Value::Null).clone();
    let Some(spec) = defaulting::object_mut(object, "spec") else { return };
    if text(spec, "/clusterIP").is_empty() && list(spec, "/clusterIPs").is_empty() {
        for field in ["clusterIP", "clusterIPs"] {
            if let Some(value) = old_spec.get(field) {
                spec[field] = value.clone();
            }
        }
    }
    if health && integer(spec, "/healthCheckNodePort") == 0 {
        spec["healthCheckNodePort"] = integer(&old_spec, "/healthCheckNodePort").into();
    }
    for (port, node_port) in defaulting::items_mut(spec, "ports").zip(ports) {
        if let Some(node_port) = node_port {
            defaulting::set_if_zero(port, "nodePort", node_port);
        }
    }
}

/// Returns the previous node port of each port, matched by name.
fn previous_node_ports(object: &Value, old: &Value) -> Vec<Option<i64>> {
    let needs = |service: &Value| matches!(text(service, "/spec/type"), "NodePort" | "LoadBalancer");
    let both = needs(object) && needs(old);
    let taken: Vec<i64> = list(object, "/spec/ports").iter().map(|port| integer(port, "/nodePort")).collect();
    let before = |port: &Value| {
        // The last port of a name counts, as in Kubernetes: names are unique where there are several ports.
        let same = |other: &&Value| text(other, "/name") == text(port, "/name");
        let found = list(old, "/spec/ports").iter().rfind(same);
        found
            .map(|other| integer(other, "/nodePort"))
            .filter(|node_port| both && *node_port != 0 && !taken.contains(node_port))
    };
    list(object, "/spec/ports").iter().map(before).collect()
}

/// Validates an update.
pub(crate) fn validate_update(object: &Value, old: &Value) -> Vec<FieldError> {
    let path = FieldPath::root("spec");
    let mut errors = Vec::new();
    if ![object, old].iter().any(|service| text(service, "/spec/type") == "ExternalName") {
        let headless = (is_headless(object), is_headless(old));
        if headless != (true, true) {
            errors.extend(validate_immutable_first(
                object,
                old,
                "clusterIPs",
                "secondary clusterIP",
                "primary clusterIP can not be unset",
            ));
        }
        if headless == (false, false) {
            errors.extend(validate_immutable_first(
                object,
                old,
                "ipFamilies",
                "secondary ipFamily",
                "primary ipFamily can not be unset",
            ));
        }
    }
    let balanced = |service: &Value| text(service, "/spec/type") == "LoadBalancer";
    let class = |service: &Value| service.pointer("/spec/loadBalancerClass").cloned().unwrap_or_default();
    if balanced(object) && balanced(old) && class(object) != class(old) {
        errors.push(FieldError::invalid(&path.child("loadBalancerClass"), class(object), SET_ONCE));
    }
    let health = |service: &Value| integer(service, "/spec/healthCheckNodePort");
    if needs_health_check_node_port(object)
        && needs_health_check_node_port(old)
        && health(object) != health(old)
    {
        errors.push(FieldError::forbidden(&path.child("healthCheckNodePort"), "field is immutable"));
    }
    errors
}

/// Validates a list whose first entry is immutable. The second may be added and, if the policy allows, removed.
fn validate_immutable_first(
    object: &Value,
    old: &Value,
    field: &str,
    second: &str,
    unset: &str,
) -> Vec<FieldError> {
    let pointer = format!("/spec/{field}");
    let (new, old) = (texts(object, &pointer), texts(old, &pointer));
    let path = FieldPath::root("spec").child(field);
    let mut errors = Vec::new();
    if new.len() == old.len() {
        for index in (0..new.len()).filter(|index| new[*index] != old[*index]) {
            let index = if field == "ipFamilies" { 0 } else { index };
            errors.push(FieldError::invalid(&path.index(index), json!(new), SET_ONCE));
        }
        return errors;
    }
    if new.is_empty() {
        errors.push(FieldError::invalid(&path.index(0), json!(new), unset));
    }
    if !new.is_empty() && !old.is_empty() && new[0] != old[0] {
        errors.push(FieldError::invalid(&path.index(0), json!(new), SET_ONCE));
    }
    if new.len() == 1 && old.len() > 1 && text(object, "/spec/ipFamilyPolicy") != "SingleStack" {
        let policy = object.pointer("/spec/ipFamilyPolicy").cloned().unwrap_or_default();
        let detail = format!("must be set to 'SingleStack' when releasing the {second}");
        errors.push(FieldError::invalid(&FieldPath::root("spec").child("ipFamilyPolicy"), policy, detail));
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validation::tests::messages;

    fn service(address: &str) -> Value {
        json!({"spec": {"type": "ClusterIP", "clusterIP": address, "clusterIPs": [address]}})
    }

    #[test]
    fn cluster_ip_is_immutable() {
        assert!(validate_update(&service("10.0.0.1"), &service("10.0.0.1")).is_empty());
        assert_eq!(
            messages(validate_update(&service("10.0.0.2"), &service("10.0.0.1"))),
            [r#"spec.clusterIPs[0]: Invalid value: ["10.0.0.2"]: may not change once set"#]
        );
        let unset = json!({"spec": {"type": "ClusterIP"}});
        assert_eq!(
            messages(validate_update(&unset, &service("10.0.0.1"))),
            ["spec.clusterIPs[0]: Invalid value: []: primary clusterIP can not be unset"]
        );
        let external = json!({"spec": {"type": "ExternalName"}});
        assert!(validate_update(&external, &service("10.0.0.1")).is_empty());
        let two = json!({"spec": {"clusterIPs": ["10.0.0.1", "fd00::1"]}});
        assert_eq!(
            messages(validate_update(&service("10.0.0.1"), &two)),
            [
                "spec.ipFamilyPolicy: Invalid value: null: must be set to 'SingleStack' when releasing the secondary clusterIP"
            ]
        );
    }

    #[test]
    fn omitted_allocations_are_carried_over() {
        let old = json!({"spec": {"type": "NodePort", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"],
            "ports": [{"name": "a", "port": 80, "protocol": "TCP", "nodePort": 30001}]}});
        let mut new = json!({"spec": {"type": "NodePort", "ports": [
            {"name": "a", "port": 8080, "protocol": "TCP"}, {"name": "b", "port": 80, "protocol": "TCP"}]}});
        restore_allocations(&mut new, &old);
        assert_eq!(
            new["spec"],
            json!({"type": "NodePort", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ports": [
                {"name": "a", "port": 8080, "protocol": "TCP", "nodePort": 30001},
                {"name": "b", "port": 80, "protocol": "TCP"}]})
        );
    }
}
