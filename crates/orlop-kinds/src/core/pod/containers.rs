//! Validation of containers, init containers and ephemeral containers.

use orlop_api::field_error::{FieldError, FieldPath};
use serde_json::Value;

use super::{
    PodSpecKind, environment, probes, resources, security,
    volumes::{self, Mountable},
};
use crate::{
    accessors::{flag, integer, list, mark_repeated, present, text},
    equality, validation,
};

/// The parts of a pod that containers refer to.
pub(crate) struct PodContext<'a> {
    pub(crate) volumes: &'a [Mountable<'a>],
    pub(crate) claims: &'a [Value],
    pub(crate) host_users: bool,
    pub(crate) grace_seconds: i64,
    pub(crate) spec_kind: PodSpecKind,
}

/// Validates all containers of a pod.
pub(crate) fn validate_containers(spec: &Value, pod: &PodContext<'_>, path: &FieldPath) -> Vec<FieldError> {
    let own = list(spec, "/containers");
    let own_path = path.child("containers");
    let mut errors = Vec::new();
    if own.is_empty() {
        errors.push(FieldError::required(&own_path, ""));
    }
    let mut names: Vec<&str> = Vec::new();
    for (index, container) in own.iter().enumerate() {
        let path = own_path.index(index);
        errors.extend(validate_container(container, pod, &path));
        errors.extend(validate_unique_name(container, &mut names, &path));
        errors.extend(probes::validate_lifecycle(container, pod.grace_seconds, &path));
        errors.extend(probes::validate_probes(container, &path));
    }
    errors.extend(validate_host_ports(own, &own_path));
    for (index, container) in list(spec, "/initContainers").iter().enumerate() {
        let path = path.child("initContainers").index(index);
        errors.extend(validate_container(container, pod, &path));
        errors.extend(validate_init_container(container, pod, &mut names, &path));
    }
    for (index, container) in list(spec, "/ephemeralContainers").iter().enumerate() {
        let path = path.child("ephemeralContainers").index(index);
        errors.extend(validate_container(container, pod, &path));
        errors.extend(validate_unique_name(container, &mut names, &path));
        errors.extend(validate_ephemeral_container(container, spec, &path));
    }
    errors
}

fn validate_unique_name<'a>(
    container: &'a Value,
    names: &mut Vec<&'a str>,
    path: &FieldPath,
) -> Option<FieldError> {
    let name = text(container, "/name");
    let repeated = !name.is_empty() && names.contains(&name);
    names.push(name);
    repeated.then(|| FieldError::duplicate(&path.child("name"), name))
}

fn validate_container(container: &Value, pod: &PodContext<'_>, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = match text(container, "/name") {
        "" => vec![FieldError::required(&path.child("name"), "")],
        name => validation::validate_dns_label(name, &path.child("name")),
    };
    let image = text(container, "/image");
    errors.extend(validation::require_text(container, "image", path));
    if pod.spec_kind == PodSpecKind::Pod && image.trim() != image {
        let detail = "must not have leading or trailing whitespace";
        errors.push(FieldError::invalid(&path.child("image"), image, detail));
    }
    let policies = &["File", "FallbackToLogsOnError"];
    errors.extend(validation::require_supported(container, "terminationMessagePolicy", path, policies));
    errors.extend(validate_ports(list(container, "/ports"), &path.child("ports")));
    errors.extend(environment::validate_environment(container, path));
    errors.extend(volumes::validate_volume_mounts(container, pod.volumes, path));
    errors.extend(validation::require_supported(
        container,
        "imagePullPolicy",
        path,
        &["Always", "IfNotPresent", "Never"],
    ));
    errors.extend(validate_resize_policy(list(container, "/resizePolicy"), &path.child("resizePolicy")));
    if let Some(given) = present(container, "/resources") {
        errors.extend(resources::validate_requirements(given, pod.claims, &path.child("resources")));
    }
    if let Some(context) = present(container, "/securityContext") {
        errors.extend(security::validate_security_context(
            context,
            pod.host_users,
            &path.child("securityContext"),
        ));
    }
    errors
}

/// Validates resizePolicy.
fn validate_resize_policy(policies: &[Value], path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let repeated = mark_repeated(policies, |policy| text(policy, "/resourceName"));
    for ((index, policy), repeated) in policies.iter().enumerate().zip(repeated) {
        let (resource, restart) = (text(policy, "/resourceName"), text(policy, "/restartPolicy"));
        if repeated {
            errors.push(FieldError::duplicate(&path.index(index), resource));
        }
        for (given, allowed) in
            [(resource, ["cpu", "memory"]), (restart, ["NotRequired", "RestartContainer"])]
        {
            if given.is_empty() {
                errors.push(FieldError::required(path, ""));
            } else if !allowed.contains(&given) {
                errors.push(FieldError::not_supported(path, given, &allowed));
            }
        }
    }
    errors
}

fn validate_ports(ports: &[Value], path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut names: Vec<&str> = Vec::new();
    for (index, port) in ports.iter().enumerate() {
        let path = path.index(index);
        let name = text(port, "/name");
        if !name.is_empty() {
            let problems = validation::port_name_problems(name);
            if problems.is_empty() && names.contains(&name) {
                errors.push(FieldError::duplicate(&path.child("name"), name));
            }
            errors.extend(validation::invalid_for_each(&path.child("name"), name, problems));
            names.push(name);
        }
        match integer(port, "/containerPort") {
            0 => errors.push(FieldError::required(&path.child("containerPort"), "")),
            number => {
                errors.extend(validation::invalid_for_each(
                    &path.child("containerPort"),
                    number,
                    validation::port_number_problems(number),
                ));
            }
        }
        match integer(port, "/hostPort") {
            0 => {}
            number => errors.extend(validation::invalid_for_each(
                &path.child("hostPort"),
                number,
                validation::port_number_problems(number),
            )),
        }
        errors.extend(validation::require_supported(port, "protocol", &path, validation::PROTOCOLS));
    }
    errors
}

/// Validates that each host port is used once.
fn validate_host_ports(containers: &[Value], path: &FieldPath) -> Vec<FieldError> {
    let mut taken: Vec<String> = Vec::new();
    let mut errors = Vec::new();
    for (index, container) in containers.iter().enumerate() {
        for (port_index, port) in list(container, "/ports").iter().enumerate() {
            let number = integer(port, "/hostPort");
            if number == 0 {
                continue;
            }
            let key = format!("{}/{}/{number}", text(port, "/protocol"), text(port, "/hostIP"));
            if taken.contains(&key) {
                let path = path.index(index).child("ports").index(port_index).child("hostPort");
                errors.push(FieldError::duplicate(&path, key.as_str()));
            }
            taken.push(key);
        }
    }
    errors
}

fn validate_init_container<'a>(
    container: &'a Value,
    pod: &PodContext<'_>,
    names: &mut Vec<&'a str>,
    path: &FieldPath,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let policy = text(container, "/restartPolicy");
    errors.extend(validation::validate_supported(
        container,
        "restartPolicy",
        path,
        &["Always", "Never", "OnFailure"],
    ));
    errors.extend(validate_unique_name(container, names, path));
    if policy == "Always" {
        errors.extend(probes::validate_lifecycle(container, pod.grace_seconds, path));
        errors.extend(probes::validate_probes(container, path));
        return errors;
    }
    for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
        if present(container, &format!("/{field}")).is_some() {
            let detail = "may not be set for init containers without restartPolicy=Always";
            errors.push(FieldError::forbidden(&path.child(field), detail));
        }
    }
    errors
}

/// Validates an ephemeral container, which may set few fields.
fn validate_ephemeral_container(container: &Value, spec: &Value, path: &FieldPath) -> Vec<FieldError> {
    const FORBIDDEN: &[&str] = &[
        "lifecycle",
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
        "ports",
        "resources",
        "resizePolicy",
    ];
    let mut errors = Vec::new();
    for field in FORBIDDEN {
        if container.get(field).is_some_and(|value| !equality::is_empty(value)) {
            let detail = "cannot be set for an Ephemeral Container";
            errors.push(FieldError::forbidden(&path.child(field), detail));
        }
    }
    let target = text(container, "/targetContainerName");
    let known = list(spec, "/containers").iter().chain(list(spec, "/initContainers"));
    if !target.is_empty() && !known.map(|container| text(container, "/name")).any(|name| name == target) {
        errors.push(FieldError::not_found(&path.child("targetContainerName"), target));
    }
    errors
}

/// Validates that containerPort and hostPort are equal on the host network.
pub(crate) fn validate_host_network_ports(
    spec: &Value,
    spec_kind: PodSpecKind,
    path: &FieldPath,
) -> Vec<FieldError> {
    if !flag(spec, "/hostNetwork") {
        return Vec::new();
    }
    let mut errors = Vec::new();
    for (index, container) in list(spec, "/containers").iter().enumerate() {
        for (port_index, port) in list(container, "/ports").iter().enumerate() {
            let (host, own) = (integer(port, "/hostPort"), integer(port, "/containerPort"));
            if (spec_kind == PodSpecKind::Pod || host != 0) && host != own {
                let path =
                    path.child("containers").index(index).child("ports").index(port_index).child("hostPort");
                let detail = "must match `containerPort` when `hostNetwork` is true";
                errors.push(FieldError::invalid(&path, host, detail));
            }
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::defaults, *};
    use crate::validation::tests::messages;

    fn validation_errors(mut spec: Value) -> Vec<String> {
        defaults::set_spec_defaults(&mut spec);
        let pod = PodContext {
            volumes: &[],
            claims: &[],
            host_users: true,
            grace_seconds: 30,
            spec_kind: PodSpecKind::Pod,
        };
        messages(validate_containers(&spec, &pod, &FieldPath::root("spec")))
    }

    #[test]
    fn containers_require_name_and_image_and_valid_ports() {
        assert_eq!(validation_errors(json!({})), ["spec.containers: Required value"]);
        assert_eq!(
            validation_errors(json!({"containers": [{}, {"name": "A", "image": " x"}]})),
            [
                "spec.containers[0].name: Required value",
                "spec.containers[0].image: Required value",
                "spec.containers[1].name: Invalid value: \"A\": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
                "spec.containers[1].image: Invalid value: \" x\": must not have leading or trailing whitespace",
            ]
        );
        assert_eq!(
            validation_errors(
                json!({"containers": [{"name": "a", "image": "x", "imagePullPolicy": "Maybe", "terminationMessagePolicy": "X",
                "ports": [{"protocol": "TCP"}, {"containerPort": 70000, "name": "Bad", "protocol": "x"}]}]})
            ),
            [
                r#"spec.containers[0].terminationMessagePolicy: Unsupported value: "X": supported values: "File", "FallbackToLogsOnError""#,
                "spec.containers[0].ports[0].containerPort: Required value",
                r#"spec.containers[0].ports[1].name: Invalid value: "Bad": must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"#,
                "spec.containers[0].ports[1].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
                r#"spec.containers[0].ports[1].protocol: Unsupported value: "x": supported values: "SCTP", "TCP", "UDP""#,
                r#"spec.containers[0].imagePullPolicy: Unsupported value: "Maybe": supported values: "Always", "IfNotPresent", "Never""#,
            ]
        );
    }

    #[test]
    fn container_names_and_host_ports_are_unique() {
        let container = |name: &str| json!({"name": name, "image": "x", "ports": [{"containerPort": 1, "hostPort": 1, "protocol": "TCP"}]});
        assert_eq!(
            validation_errors(
                json!({"containers": [container("a"), container("a")], "initContainers": [{"name": "a", "image": "x"}]})
            ),
            [
                r#"spec.containers[1].name: Duplicate value: "a""#,
                r#"spec.containers[1].ports[0].hostPort: Duplicate value: "TCP//1""#,
                r#"spec.initContainers[0].name: Duplicate value: "a""#,
            ]
        );
    }

    #[test]
    fn only_sidecar_init_containers_may_have_probes() {
        let pod = |policy: Option<&str>| {
            let mut init = json!({"name": "i", "image": "x", "livenessProbe": {"exec": {"command": ["x"]}}});
            if let Some(policy) = policy {
                init["restartPolicy"] = policy.into();
            }
            json!({"containers": [{"name": "a", "image": "x"}], "initContainers": [init]})
        };
        assert_eq!(
            validation_errors(pod(None)),
            [
                "spec.initContainers[0].livenessProbe: Forbidden: may not be set for init containers without restartPolicy=Always"
            ]
        );
        assert!(validation_errors(pod(Some("Always"))).is_empty());
        let debugging = json!({"containers": [{"name": "a", "image": "x"}], "ephemeralContainers": [{"name": "e", "image": "x", "targetContainerName": "z", "ports": [{"containerPort": 1}]}]});
        assert_eq!(
            validation_errors(debugging),
            [
                "spec.ephemeralContainers[0].ports: Forbidden: cannot be set for an Ephemeral Container",
                r#"spec.ephemeralContainers[0].targetContainerName: Not found: "z""#,
            ]
        );
    }

    #[test]
    fn host_network_ports_must_match() {
        let spec =
            json!({"hostNetwork": true, "containers": [{"ports": [{"containerPort": 80, "hostPort": 81}]}]});
        assert_eq!(
            messages(validate_host_network_ports(&spec, PodSpecKind::Pod, &FieldPath::root("spec"))),
            [
                "spec.containers[0].ports[0].hostPort: Invalid value: 81: must match `containerPort` when `hostNetwork` is true"
            ]
        );
    }
}
