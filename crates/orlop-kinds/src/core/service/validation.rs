//! Validation of a Service.

use std::net::IpAddr;

use orlop_api::{
    field_error::{FieldError, FieldPath},
    labels, names,
};
use serde_json::{Value, json};

use super::{is_external, is_headless, needs_health_check_node_port};
use crate::{
    accessors::{integer, list, map, mark_repeated, present, text, texts},
    validation,
};

const AFFINITY_SECONDS_MAX: i64 = 86_400;
const TYPES: &[&str] = &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];

pub(crate) fn validate_service(object: &Value) -> Vec<FieldError> {
    let spec = object.get("spec").unwrap_or(&Value::Null);
    let path = FieldPath::root("spec");
    let mut errors = Vec::new();
    let kind = text(spec, "/type");
    if list(spec, "/ports").is_empty() && !is_headless(object) && kind != "ExternalName" {
        errors.push(FieldError::required(&path.child("ports"), ""));
    }
    match kind {
        "LoadBalancer" | "NodePort" if is_headless(object) => {
            let detail = format!("may not be set to 'None' for {kind} services");
            errors.push(FieldError::invalid(&path.child("clusterIPs").index(0), "None", detail));
        }
        "ExternalName" => errors.extend(validate_external_name(spec, &path)),
        _ => {}
    }
    errors.extend(validate_ports(spec, &path.child("ports")));
    errors.extend(labels::validate(map(spec, "/selector"), &path.child("selector")));
    errors.extend(validate_session_affinity(spec, &path));
    if kind != "ExternalName" {
        errors.extend(validate_addresses(object, spec, &path));
    }
    for (index, address) in texts(spec, "/externalIPs").into_iter().enumerate() {
        let path = path.child("externalIPs").index(index);
        let invalid = validation::validate_ip(address, &path);
        errors.extend(if invalid.is_empty() {
            validation::validate_endpoint_ip(address, &path)
        } else {
            invalid
        });
    }
    errors.extend(validation::require_supported(spec, "type", &path, TYPES));
    errors.extend(validate_unique_ports(spec, kind, &path.child("ports")));
    errors.extend(validate_load_balancer(spec, kind, &path));
    errors.extend(validate_traffic_policies(object, spec, kind, &path));
    errors
}

fn validate_external_name(spec: &Value, path: &FieldPath) -> Vec<FieldError> {
    const DETAIL: &str = "may not be set for ExternalName services";
    let mut errors = Vec::new();
    for field in ["clusterIPs", "ipFamilies"] {
        if !list(spec, &format!("/{field}")).is_empty() {
            errors.push(FieldError::forbidden(&path.child(field), DETAIL));
        }
    }
    if present(spec, "/ipFamilyPolicy").is_some() {
        errors.push(FieldError::forbidden(&path.child("ipFamilyPolicy"), DETAIL));
    }
    let name = text(spec, "/externalName");
    match name.strip_suffix('.').unwrap_or(name) {
        "" => errors.push(FieldError::required(&path.child("externalName"), "")),
        name => errors.extend(validation::validate_dns_subdomain(name, &path.child("externalName"))),
    }
    errors
}

fn validate_ports(spec: &Value, path: &FieldPath) -> Vec<FieldError> {
    let ports = list(spec, "/ports");
    let mut errors = Vec::new();
    let mut seen: Vec<&str> = Vec::new();
    for (index, port) in ports.iter().enumerate() {
        let path = path.index(index);
        match text(port, "/name") {
            "" if ports.len() > 1 => errors.push(FieldError::required(&path.child("name"), "")),
            "" => {}
            name => {
                errors.extend(validation::validate_dns_label(name, &path.child("name")));
                if seen.contains(&name) {
                    errors.push(FieldError::duplicate(&path.child("name"), name));
                }
                seen.push(name);
            }
        }
        let number = integer(port, "/port");
        errors.extend(validation::invalid_for_each(
            &path.child("port"),
            number,
            validation::port_number_problems(number),
        ));
        errors.extend(validation::require_supported(port, "protocol", &path, validation::PROTOCOLS));
        errors.extend(validation::validate_port_number_or_name(
            port.get("targetPort"),
            &path.child("targetPort"),
        ));
        if let Some(protocol) = present(port, "/appProtocol").and_then(Value::as_str) {
            errors.extend(validation::invalid_for_each(
                &path.child("appProtocol"),
                protocol,
                names::qualified_name(protocol),
            ));
        }
    }
    errors
}

fn validate_session_affinity(spec: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors: Vec<FieldError> =
        validation::require_supported(spec, "sessionAffinity", path, &["ClientIP", "None"])
            .into_iter()
            .collect();
    let config = path.child("sessionAffinityConfig");
    match text(spec, "/sessionAffinity") {
        "ClientIP" => {
            match present(spec, "/sessionAffinityConfig/clientIP/timeoutSeconds").and_then(Value::as_i64) {
                None => {
                    let detail = "when session affinity type is ClientIP";
                    errors.push(FieldError::required(&config, detail));
                }
                Some(seconds) if !(1..=AFFINITY_SECONDS_MAX).contains(&seconds) => {
                    let detail = format!("must be greater than 0 and less than {AFFINITY_SECONDS_MAX}");
                    errors.push(FieldError::invalid(
                        &config.child("clientIP").child("timeoutSeconds"),
                        seconds,
                        detail,
                    ));
                }
                Some(_) => {}
            }
        }
        "None" if present(spec, "/sessionAffinityConfig").is_some() => {
            errors.push(FieldError::forbidden(&config, "must not be set when session affinity is None"));
        }
        _ => {}
    }
    errors
}

pub(super) fn validate_addresses(object: &Value, spec: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (one, many) = (text(spec, "/clusterIP"), texts(spec, "/clusterIPs"));
    let many_path = path.child("clusterIPs");
    match (one, many.first()) {
        ("", Some(_)) => {
            errors.push(FieldError::invalid(
                &many_path,
                json!(many),
                "must be empty when `clusterIP` is not specified",
            ));
        }
        ("", None) => {}
        (_, None) => errors.push(FieldError::required(&many_path, "")),
        (one, Some(first)) if one != *first => {
            errors.push(FieldError::invalid(&many_path, json!(many), "first value must match `clusterIP`"));
        }
        _ => {}
    }
    let families = texts(spec, "/ipFamilies");
    for (index, family) in families.iter().enumerate() {
        let path = path.child("ipFamilies").index(index);
        if !matches!(*family, "IPv4" | "IPv6") {
            errors.push(FieldError::not_supported(&path, *family, &["IPv4", "IPv6"]));
        }
        if families[..index].contains(family) {
            errors.push(FieldError::duplicate(&path, *family));
        }
    }
    let policies = &["PreferDualStack", "RequireDualStack", "SingleStack"];
    errors.extend(validation::validate_supported(spec, "ipFamilyPolicy", path, policies));
    let before = errors.len();
    for (index, address) in many.iter().enumerate() {
        if index == 0 && *address == "None" {
            if many.len() > 1 {
                errors.push(FieldError::invalid(
                    &many_path,
                    json!(many),
                    "'None' must be the first and only value",
                ));
            }
            continue;
        }
        errors.extend(validation::validate_ip(address, &many_path.index(index)));
    }
    let invalid = errors.len() > before;
    if many.len() > 2 {
        errors.push(FieldError::invalid(&many_path, json!(many), "may only hold up to 2 values"));
    }
    if invalid {
        return errors;
    }
    let is_v6 = |address: &&str| address.parse::<IpAddr>().is_ok_and(|address| address.is_ipv6());
    if many.len() > 1 && many.iter().filter(|address| is_v6(address)).count() != many.len() / 2 {
        let detail = "may specify no more than one IP for each IP family";
        errors.push(FieldError::invalid(&many_path, json!(many), detail));
    }
    if !is_headless(object) {
        for (index, (address, family)) in many.iter().zip(&families).enumerate() {
            if is_v6(address) != (*family == "IPv6") {
                let detail = format!("expected an {family} value as indicated by `ipFamilies[{index}]`");
                errors.push(FieldError::invalid(&many_path.index(index), *address, detail));
            }
        }
    }
    errors
}

fn validate_unique_ports(spec: &Value, kind: &str, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let ports = list(spec, "/ports");
    if kind == "ClusterIP" {
        for (index, _) in ports.iter().enumerate().filter(|(_, port)| integer(port, "/nodePort") != 0) {
            let detail = "may not be used when `type` is 'ClusterIP'";
            errors.push(FieldError::forbidden(&path.index(index).child("nodePort"), detail));
        }
    }
    let repeated =
        |field: &'static str| mark_repeated(ports, |port| (integer(port, field), text(port, "/protocol")));
    for ((index, port), repeated) in ports.iter().enumerate().zip(repeated("/nodePort")) {
        let number = integer(port, "/nodePort");
        if number != 0 && repeated {
            errors.push(FieldError::duplicate(&path.index(index).child("nodePort"), number));
        }
    }
    for ((index, port), repeated) in ports.iter().enumerate().zip(repeated("/port")) {
        if repeated {
            let key = json!({"name": "", "protocol": text(port, "/protocol"), "port": integer(port, "/port"), "targetPort": 0});
            errors.push(FieldError::duplicate(&path.index(index), key));
        }
    }
    errors
}

fn validate_load_balancer(spec: &Value, kind: &str, path: &FieldPath) -> Vec<FieldError> {
    const ONLY: &str = "may only be used when `type` is 'LoadBalancer'";
    let mut errors = Vec::new();
    let balanced = kind == "LoadBalancer";
    let ranges = texts(spec, "/loadBalancerSourceRanges");
    if !ranges.is_empty() {
        // Kubernetes capitalizes this field here.
        let path = path.child("LoadBalancerSourceRanges");
        if !balanced {
            errors.push(FieldError::forbidden(&path, ONLY));
        }
        for (index, range) in ranges.iter().enumerate() {
            errors.extend(validation::validate_cidr(range.trim(), &path.index(index)));
        }
    }
    if present(spec, "/allocateLoadBalancerNodePorts").is_some() && !balanced {
        errors.push(FieldError::forbidden(&path.child("allocateLoadBalancerNodePorts"), ONLY));
    }
    if let Some(class) = present(spec, "/loadBalancerClass").and_then(Value::as_str) {
        let path = path.child("loadBalancerClass");
        if balanced {
            errors.extend(validation::invalid_for_each(&path, class, names::qualified_name(class)));
        } else {
            errors.push(FieldError::forbidden(&path, ONLY));
        }
    }
    errors
}

fn validate_traffic_policies(object: &Value, spec: &Value, kind: &str, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let policy = text(spec, "/externalTrafficPolicy");
    if is_external(object) {
        errors.extend(validation::require_supported(
            spec,
            "externalTrafficPolicy",
            path,
            &["Cluster", "Local"],
        ));
    } else if !policy.is_empty() {
        let detail = "may only be set for externally-accessible services";
        errors.push(FieldError::invalid(&path.child("externalTrafficPolicy"), policy, detail));
    }
    let health = integer(spec, "/healthCheckNodePort");
    if health != 0 && !needs_health_check_node_port(object) {
        let detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        errors.push(FieldError::invalid(&path.child("healthCheckNodePort"), health, detail));
    }
    if matches!(kind, "ClusterIP" | "NodePort" | "LoadBalancer") {
        errors.extend(validation::require_text(spec, "internalTrafficPolicy", path));
    }
    if !text(spec, "/internalTrafficPolicy").is_empty() {
        errors.extend(validation::validate_supported(
            spec,
            "internalTrafficPolicy",
            path,
            &["Cluster", "Local"],
        ));
    }
    let distributions = &["PreferClose", "PreferSameZone", "PreferSameNode"];
    errors.extend(validation::validate_supported(spec, "trafficDistribution", path, distributions));
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validation::tests::messages;

    /// Returns the errors of a defaulted service with these fields.
    fn validation_errors(fields: Value) -> Vec<String> {
        use crate::strategy::Strategy;
        let mut object = json!({"spec": fields});
        super::super::Service.set_defaults(&mut object);
        messages(validate_service(&object))
    }

    #[test]
    fn ports_require_unique_names_and_numbers() {
        let port = |fields: Value| {
            let mut port = json!({"port": 80, "protocol": "TCP"});
            port.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            port
        };
        assert!(validation_errors(json!({"ports": [port(json!({}))]})).is_empty());
        assert_eq!(validation_errors(json!({})), ["spec.ports: Required value"]);
        assert!(validation_errors(json!({"clusterIP": "None", "clusterIPs": ["None"]})).is_empty());
        assert_eq!(
            validation_errors(
                json!({"ports": [port(json!({"name": "a"})), port(json!({"name": "a", "port": 70000, "protocol": "X"}))]})
            ),
            [
                r#"spec.ports[1].name: Duplicate value: "a""#,
                "spec.ports[1].port: Invalid value: 70000: must be between 1 and 65535, inclusive",
                r#"spec.ports[1].protocol: Unsupported value: "X": supported values: "SCTP", "TCP", "UDP""#,
                "spec.ports[1].targetPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
            ]
        );
        assert_eq!(
            validation_errors(json!({"ports": [port(json!({})), port(json!({}))]})),
            [
                "spec.ports[0].name: Required value",
                "spec.ports[1].name: Required value",
                r#"spec.ports[1]: Duplicate value: {"name":"","port":80,"protocol":"TCP","targetPort":0}"#,
            ]
        );
        assert_eq!(
            validation_errors(json!({"ports": [port(json!({"nodePort": 30000}))]})),
            ["spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"]
        );
    }

    #[test]
    fn policies_must_fit_the_type() {
        let ports = json!([{"port": 80, "protocol": "TCP"}]);
        assert_eq!(
            validation_errors(json!({"type": "X", "ports": ports})),
            [
                r#"spec.type: Unsupported value: "X": supported values: "ClusterIP", "ExternalName", "LoadBalancer", "NodePort""#
            ]
        );
        assert_eq!(validation_errors(json!({"type": "ExternalName"})), ["spec.externalName: Required value"]);
        assert!(validation_errors(json!({"type": "ExternalName", "externalName": "a.b."})).is_empty());
        assert_eq!(
            validation_errors(
                json!({"type": "NodePort", "ports": ports, "clusterIP": "None", "clusterIPs": ["None"]})
            ),
            [r#"spec.clusterIPs[0]: Invalid value: "None": may not be set to 'None' for NodePort services"#]
        );
        assert_eq!(
            validation_errors(json!({"ports": ports, "externalTrafficPolicy": "Local"})),
            [
                r#"spec.externalTrafficPolicy: Invalid value: "Local": may only be set for externally-accessible services"#
            ]
        );
        assert_eq!(
            validation_errors(
                json!({"ports": ports, "sessionAffinity": "x", "internalTrafficPolicy": "x", "loadBalancerClass": "a/b"})
            ),
            [
                r#"spec.sessionAffinity: Unsupported value: "x": supported values: "ClientIP", "None""#,
                "spec.loadBalancerClass: Forbidden: may only be used when `type` is 'LoadBalancer'",
                r#"spec.internalTrafficPolicy: Unsupported value: "x": supported values: "Cluster", "Local""#,
            ]
        );
        assert_eq!(
            validation_errors(
                json!({"ports": ports, "sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 0}}})
            ),
            [
                "spec.sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value: 0: must be greater than 0 and less than 86400"
            ]
        );
    }

    #[test]
    fn invalid_addresses_are_rejected() {
        let with = |fields: Value| {
            let mut spec = json!({"ports": [{"port": 80, "protocol": "TCP"}]});
            spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            validation_errors(spec)
        };
        assert_eq!(
            with(json!({"clusterIP": "x", "clusterIPs": ["x"]})),
            [
                r#"spec.clusterIPs[0]: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"#
            ]
        );
        assert_eq!(
            with(json!({"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.2"]})),
            [r#"spec.clusterIPs: Invalid value: ["10.0.0.2"]: first value must match `clusterIP`"#]
        );
        assert_eq!(
            with(json!({"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ipFamilies": ["IPv6"]})),
            [
                r#"spec.clusterIPs[0]: Invalid value: "10.0.0.1": expected an IPv6 value as indicated by `ipFamilies[0]`"#
            ]
        );
        assert_eq!(with(json!({"externalIPs": ["127.0.0.1"], "externalTrafficPolicy": "Cluster"})).len(), 1);
        assert_eq!(
            with(json!({"ipFamilies": ["IPv5"], "ipFamilyPolicy": "Triple"})),
            [
                r#"spec.ipFamilies[0]: Unsupported value: "IPv5": supported values: "IPv4", "IPv6""#,
                r#"spec.ipFamilyPolicy: Unsupported value: "Triple": supported values: "PreferDualStack", "RequireDualStack", "SingleStack""#,
            ]
        );
    }
}
