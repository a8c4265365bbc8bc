//! Warnings about fields of a Service that have no effect or a better replacement.

use serde_json::Value;

use super::is_headless;
use crate::{
    accessors::{list, map, text, texts},
    validation::ip,
};

const HINTS: &str = "service.kubernetes.io/topology-aware-hints";

pub(crate) fn service_warnings(service: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    if map(service, "/metadata/annotations").contains_key(HINTS) {
        let instead = "service.kubernetes.io/topology-mode";
        warnings.push(format!("annotation {HINTS} is deprecated, please use {instead} instead"));
    }
    let external_ips = texts(service, "/spec/externalIPs");
    if is_headless(service) {
        for (holds, field) in [
            (!text(service, "/spec/loadBalancerIP").is_empty(), "loadBalancerIP"),
            (!external_ips.is_empty(), "externalIPs"),
            (text(service, "/spec/sessionAffinity") != "None", "SessionAffinity"),
        ] {
            if holds {
                warnings.push(format!("spec.{field} is ignored for headless services"));
            }
        }
    } else {
        for (index, address) in texts(service, "/spec/clusterIPs").into_iter().enumerate() {
            warnings.extend(ip::ip_warning(address, &format!("spec.clusterIPs[{index}]")));
        }
    }
    for (index, address) in external_ips.iter().enumerate() {
        warnings.extend(ip::ip_warning(address, &format!("spec.externalIPs[{index}]")));
    }
    warnings.extend(ip::ip_warning(text(service, "/spec/loadBalancerIP"), "spec.loadBalancerIP"));
    for (index, range) in list(service, "/spec/loadBalancerSourceRanges").iter().enumerate() {
        let path = format!("spec.loadBalancerSourceRanges[{index}]");
        warnings.extend(ip::cidr_warning(range.as_str().unwrap_or_default(), &path));
    }
    let is_name = text(service, "/spec/type") == "ExternalName";
    if is_name && !external_ips.is_empty() {
        warnings.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"".to_owned());
    }
    if !is_name && !text(service, "/spec/externalName").is_empty() {
        warnings.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".to_owned());
    }
    warnings
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ineffective_fields_warn() {
        for (spec, expected) in [
            (json!({"clusterIPs": ["10.0.0.1"], "sessionAffinity": "ClientIP"}), vec![]),
            (json!({"clusterIPs": ["None"], "sessionAffinity": "None"}), vec![]),
            (
                json!({"clusterIPs": ["None"], "sessionAffinity": "ClientIP", "externalIPs": ["1.2.3.4"]}),
                vec![
                    "spec.externalIPs is ignored for headless services",
                    "spec.SessionAffinity is ignored for headless services",
                ],
            ),
            (
                json!({"type": "ExternalName", "externalName": "a.b", "externalIPs": ["1.2.3.4"]}),
                vec!["spec.externalIPs is ignored when spec.type is \"ExternalName\""],
            ),
            (
                json!({"type": "ClusterIP", "externalName": "a.b"}),
                vec!["spec.externalName is ignored when spec.type is not \"ExternalName\""],
            ),
        ] {
            assert_eq!(service_warnings(&json!({"spec": spec})), expected, "{spec}");
        }
    }
}
