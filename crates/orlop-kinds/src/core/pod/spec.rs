//! Validation of a pod spec, in Kubernetes' order.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    labels, names,
};
use serde_json::{Value, json};

use super::{
    PodSpecKind,
    containers::{self, PodContext},
    pod_resources, resources, scheduling, security, volumes, windows,
};
use crate::{
    accessors::{flag, integer, list, map, mark_repeated, present, text, texts},
    validation,
};

const NAMESERVERS_MAX: usize = 3;
const SEARCHES_MAX: usize = 32;

pub(crate) fn validate(spec: &Value, path: &FieldPath, spec_kind: PodSpecKind) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if present(spec, "/terminationGracePeriodSeconds").is_none() {
        errors.push(FieldError::required(&path.child("terminationGracePeriodSeconds"), ""));
    }
    errors.extend(validate_resource_claims(spec, &path.child("resourceClaims")));
    let (mountable, found) = volumes::validate_volumes(spec, &path.child("volumes"));
    errors.extend(found);
    let pod = PodContext {
        volumes: &mountable,
        claims: list(spec, "/resourceClaims"),
        host_users: spec.get("hostUsers") != Some(&Value::Bool(false)),
        grace_seconds: integer(spec, "/terminationGracePeriodSeconds"),
        spec_kind,
    };
    errors.extend(containers::validate_containers(spec, &pod, path));
    errors.extend(pod_resources::validate_pod_resources(spec, path));
    errors.extend(containers::validate_host_network_ports(spec, spec_kind, path));
    errors.extend(validation::require_supported(
        spec,
        "restartPolicy",
        path,
        &["Always", "OnFailure", "Never"],
    ));
    let policies = &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    errors.extend(validation::require_supported(spec, "dnsPolicy", path, policies));
    errors.extend(labels::validate(map(spec, "/nodeSelector"), &path.child("nodeSelector")));
    if let Some(context) = present(spec, "/securityContext") {
        errors.extend(security::validate_pod_security_context(context, spec, &path.child("securityContext")));
    }
    if flag(spec, "/shareProcessNamespace") && flag(spec, "/hostPID") {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.push(FieldError::invalid(&path.child("shareProcessNamespace"), true, detail));
    }
    if !pod.host_users {
        for field in ["hostNetwork", "hostPID", "hostIPC"] {
            if spec.get(field) == Some(&Value::Bool(true)) {
                errors.push(FieldError::forbidden(&path.child(field), "when `hostUsers` is false"));
            }
        }
    }
    errors.extend(scheduling::validate_affinity(spec, path));
    errors.extend(validate_dns(spec, &path.child("dnsConfig")));
    errors.extend(validation::validate_items(spec, "readinessGates", path, |gate, path| {
        let kind = text(gate, "/conditionType");
        validation::invalid_for_each(&path.child("conditionType"), kind, names::qualified_name(kind))
    }));
    errors.extend(validate_gates(spec, &path.child("schedulingGates")));
    errors.extend(scheduling::validate_topology_spread_constraints(spec, path));
    errors.extend(windows::validate_host_processes(spec, path));
    errors.extend(validate_names(spec, path));
    errors.extend(scheduling::validate_tolerations(list(spec, "/tolerations"), &path.child("tolerations")));
    errors.extend(validation::validate_items(spec, "hostAliases", path, |alias, path| {
        let mut errors = validation::validate_ip(text(alias, "/ip"), &path.child("ip"));
        for (index, host) in texts(alias, "/hostnames").into_iter().enumerate() {
            errors.extend(validation::validate_dns_subdomain(host, &path.child("hostnames").index(index)));
        }
        errors
    }));
    errors.extend(validate_references(spec, path));
    if spec_kind == PodSpecKind::Pod {
        errors.extend(validation::validate_non_negative(spec, "terminationGracePeriodSeconds", path));
        errors.extend(validate_service_account_tokens(spec, path));
    }
    errors
}

/// Validates resourceClaims: unique names, each with a claim or a claim template.
fn validate_resource_claims(spec: &Value, path: &FieldPath) -> Vec<FieldError> {
    let claims = list(spec, "/resourceClaims");
    let mut errors = Vec::new();
    let repeated = mark_repeated(claims, |claim| text(claim, "/name"));
    for ((index, claim), repeated) in claims.iter().enumerate().zip(repeated) {
        let (name, path) = (text(claim, "/name"), path.index(index));
        match name {
            "" => errors.push(FieldError::required(&path.child("name"), "")),
            _ if repeated => errors.push(FieldError::duplicate(&path.child("name"), name)),
            _ => errors.extend(validation::validate_dns_label(name, &path.child("name"))),
        }
        let given = ["resourceClaimName", "resourceClaimTemplateName"]
            .map(|field| (field, present(claim, &format!("/{field}")).and_then(Value::as_str)));
        match given {
            [(_, None), (_, None)] => {
                let detail = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`";
                errors.push(FieldError::invalid(&path, claim.clone(), detail));
            }
            [(_, Some(_)), (_, Some(_))] => {
                let detail =
                    "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified";
                errors.push(FieldError::invalid(&path, claim.clone(), detail));
            }
            given => {
                for (field, name) in given.into_iter().filter_map(|(field, name)| Some((field, name?))) {
                    errors.extend(validation::validate_dns_subdomain(name, &path.child(field)));
                }
            }
        }
    }
    errors
}

fn validate_gates(spec: &Value, path: &FieldPath) -> Vec<FieldError> {
    let gates = list(spec, "/schedulingGates");
    let mut errors = Vec::new();
    let repeated = mark_repeated(gates, |gate| text(gate, "/name"));
    for ((index, gate), repeated) in gates.iter().enumerate().zip(repeated) {
        let (name, path) = (text(gate, "/name"), path.index(index));
        // Kubernetes reports the name's problems without the field.
        errors.extend(validation::invalid_for_each(&path, name, names::qualified_name(name)));
        if repeated {
            errors.push(FieldError::duplicate(&path, name));
        }
    }
    errors
}

fn validate_dns(spec: &Value, path: &FieldPath) -> Vec<FieldError> {
    let servers = texts(spec, "/dnsConfig/nameservers");
    if text(spec, "/dnsPolicy") == "None" {
        if present(spec, "/dnsConfig").is_none() {
            return vec![FieldError::required(path, "must provide `dnsConfig` when `dnsPolicy` is None")];
        }
        if servers.is_empty() {
            let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            return vec![FieldError::required(&path.child("nameservers"), detail)];
        }
    }
    let mut errors = Vec::new();
    if servers.len() > NAMESERVERS_MAX {
        let detail = format!("must not have more than {NAMESERVERS_MAX} nameservers");
        errors.push(FieldError::invalid(&path.child("nameservers"), json!(servers), detail));
    }
    for (index, server) in servers.into_iter().enumerate() {
        errors.extend(validation::validate_ip(server, &path.child("nameservers").index(index)));
    }
    let searches = texts(spec, "/dnsConfig/searches");
    if searches.len() > SEARCHES_MAX {
        let detail = format!("must not have more than {SEARCHES_MAX} search paths");
        errors.push(FieldError::invalid(&path.child("searches"), json!(searches), detail));
    }
    for (index, search) in searches.iter().enumerate() {
        let scalar_text = search.strip_suffix('.').unwrap_or(search);
        errors.extend(validation::invalid_for_each(
            &path.child("searches").index(index),
            scalar_text,
            names::dns1123_subdomain_with_underscores(scalar_text),
        ));
    }
    for (index, option) in list(spec, "/dnsConfig/options").iter().enumerate() {
        if text(option, "/name").is_empty() {
            errors.push(FieldError::required(&path.child("options").index(index), "must not be empty"));
        }
    }
    errors
}

/// Validates names of other objects, and of the pod in DNS.
fn validate_names(spec: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for field in ["serviceAccountName", "nodeName"] {
        let name = spec.get(field).and_then(Value::as_str).unwrap_or_default();
        if !name.is_empty() {
            errors.extend(validation::validate_dns_subdomain(name, &path.child(field)));
        }
    }
    if let Some(seconds) = present(spec, "/activeDeadlineSeconds").and_then(Value::as_i64)
        && !(1..=i64::from(i32::MAX)).contains(&seconds)
    {
        let detail = validation::inclusive_range_message(1, i64::from(i32::MAX));
        errors.push(FieldError::invalid(&path.child("activeDeadlineSeconds"), seconds, detail));
    }
    for field in ["hostname", "subdomain"] {
        let name = spec.get(field).and_then(Value::as_str).unwrap_or_default();
        if !name.is_empty() {
            errors.extend(validation::validate_dns_label(name, &path.child(field)));
        }
    }
    errors
}

fn validate_references(spec: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let class = text(spec, "/priorityClassName");
    if !class.is_empty() {
        errors.extend(validation::validate_dns_subdomain(class, &path.child("priorityClassName")));
    }
    if let Some(class) = present(spec, "/runtimeClassName").and_then(Value::as_str) {
        errors.extend(validation::validate_dns_subdomain(class, &path.child("runtimeClassName")));
    }
    errors.extend(validation::validate_supported(
        spec,
        "preemptionPolicy",
        path,
        &["PreemptLowerPriority", "Never"],
    ));
    if let Some(overhead) = present(spec, "/overhead") {
        errors.extend(resources::validate_requirements(
            &json!({"limits": overhead}),
            &[],
            &path.child("overhead"),
        ));
    }
    if let Some(system) = present(spec, "/os") {
        // Kubernetes reports the whole `os` if its name is unknown.
        let (path, known) = (path.child("os"), &["linux", "windows"]);
        errors.extend(match text(system, "/name") {
            "" => Some(FieldError::required(&path.child("name"), "")),
            name if known.contains(&name) => None,
            name => Some(FieldError::not_supported(&path, name, known)),
        });
    }
    errors.extend(windows::validate_options_of_system(spec, path));
    errors
}

/// Validates that a pod without a service account projects no token.
fn validate_service_account_tokens(spec: &Value, path: &FieldPath) -> Vec<FieldError> {
    if !text(spec, "/serviceAccountName").is_empty() {
        return Vec::new();
    }
    let mut errors = Vec::new();
    for (index, volume) in list(spec, "/volumes").iter().enumerate() {
        for (source_index, source) in list(volume, "/projected/sources").iter().enumerate() {
            if present(source, "/serviceAccountToken").is_some() {
                let path = path
                    .child("volumes")
                    .index(index)
                    .child("projected")
                    .child("sources")
                    .index(source_index);
                let detail = "must not be specified when serviceAccountName is not set";
                errors.push(FieldError::forbidden(&path.child("serviceAccountToken"), detail));
            }
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::{super::defaults, *};
    use crate::validation::tests::messages;

    fn validation_errors(fields: Value) -> Vec<String> {
        let mut spec = json!({"containers": [{"name": "a", "image": "x"}]});
        spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        defaults::set_spec_defaults(&mut spec);
        messages(validate(&spec, &FieldPath::root("spec"), PodSpecKind::Pod))
    }

    #[test]
    fn unknown_policies_are_rejected() {
        assert!(validation_errors(json!({})).is_empty());
        assert_eq!(
            validation_errors(json!({"restartPolicy": "x"})),
            [
                r#"spec.restartPolicy: Unsupported value: "x": supported values: "Always", "OnFailure", "Never""#
            ]
        );
        assert_eq!(
            validation_errors(json!({"dnsPolicy": "x"})),
            [
                r#"spec.dnsPolicy: Unsupported value: "x": supported values: "ClusterFirstWithHostNet", "ClusterFirst", "Default", "None""#
            ]
        );
        assert_eq!(
            validation_errors(json!({"dnsPolicy": "None"})),
            ["spec.dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None"]
        );
        assert_eq!(
            validation_errors(json!({"os": {"name": "beos"}})),
            [r#"spec.os: Unsupported value: "beos": supported values: "linux", "windows""#]
        );
        assert_eq!(
            validation_errors(json!({"preemptionPolicy": "x"})),
            [
                r#"spec.preemptionPolicy: Unsupported value: "x": supported values: "PreemptLowerPriority", "Never""#
            ]
        );
    }

    #[test]
    fn out_of_range_numbers_and_names_are_rejected() {
        assert_eq!(
            validation_errors(json!({"activeDeadlineSeconds": 0})),
            ["spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive"]
        );
        assert_eq!(
            validation_errors(json!({"hostname": "a.b"})),
            ["spec.hostname: Invalid value: \"a.b\": must not contain dots"]
        );
        assert_eq!(validation_errors(json!({"nodeSelector": {"a b": "c"}})).len(), 1);
        assert_eq!(
            validation_errors(json!({"schedulingGates": [{"name": "g"}, {"name": "g"}]})),
            [r#"spec.schedulingGates[1]: Duplicate value: "g""#]
        );
        assert_eq!(
            validation_errors(
                json!({"volumes": [{"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "x"}}]}}]})
            ),
            [
                "spec.volumes[0].projected.sources[0].serviceAccountToken: Forbidden: must not be specified when serviceAccountName is not set"
            ]
        );
    }
}
