//! Defaults of a Pod.

use serde_json::{Value, json};

use crate::{
    accessors::{flag, integer, map, text},
    core::persistent_volume_claim,
    defaulting,
};

const CONTAINERS: [&str; 3] = ["containers", "initContainers", "ephemeralContainers"];

/// Sets the defaults of a pod spec, in a Pod or in a pod template.
pub(crate) fn set_spec_defaults(spec: &mut Value) {
    // serviceAccount is the deprecated name of serviceAccountName.
    let account = match text(spec, "/serviceAccountName") {
        "" => text(spec, "/serviceAccount").to_owned(),
        account => account.to_owned(),
    };
    if !account.is_empty() {
        spec["serviceAccountName"] = account.clone().into();
        spec["serviceAccount"] = account.into();
    }
    defaulting::set_if_zero(spec, "dnsPolicy", "ClusterFirst");
    defaulting::set_if_zero(spec, "restartPolicy", "Always");
    defaulting::set_if_absent(spec, "securityContext", json!({}));
    defaulting::set_if_absent(spec, "terminationGracePeriodSeconds", 30);
    defaulting::set_if_zero(spec, "schedulerName", "default-scheduler");
    for field in CONTAINERS {
        defaulting::items_mut(spec, field).for_each(set_container_defaults);
    }
    defaulting::items_mut(spec, "volumes").for_each(set_volume_defaults);
}

/// Sets the defaults that apply to Pods but not to pod templates.
pub(crate) fn set_pod_only_defaults(spec: &mut Value) {
    if spec.get("terminationGracePeriodSeconds").and_then(Value::as_i64).is_some_and(|seconds| seconds < 0) {
        spec["terminationGracePeriodSeconds"] = 1.into();
    }
    let on_host = flag(spec, "/hostNetwork");
    for field in ["containers", "initContainers"] {
        for container in defaulting::items_mut(spec, field) {
            let limits = map(container, "/resources/limits").clone();
            if let Some(resources) = defaulting::object_mut(container, "resources") {
                defaulting::set_absent_entries(resources, "requests", &limits);
            }
            for port in defaulting::items_mut(container, "ports").filter(|_| on_host) {
                let number = integer(port, "/containerPort");
                defaulting::set_if_zero(port, "hostPort", number);
            }
        }
    }
    defaulting::set_if_absent(spec, "enableServiceLinks", true);
}

/// Makes podIP and the first of podIPs equal.
pub(crate) fn sync_pod_ips(status: &mut Value) {
    let (one, first) = (text(status, "/podIP").to_owned(), text(status, "/podIPs/0/ip").to_owned());
    if !one.is_empty() && one != first {
        status["podIPs"] = json!([{"ip": one}]);
    } else if one.is_empty() && !first.is_empty() {
        status["podIP"] = first.into();
    }
}

fn set_container_defaults(container: &mut Value) {
    if !container.is_object() {
        return;
    }
    let policy = default_pull_policy(text(container, "/image"));
    defaulting::set_if_zero(container, "imagePullPolicy", policy);
    defaulting::set_if_zero(container, "terminationMessagePath", "/dev/termination-log");
    defaulting::set_if_zero(container, "terminationMessagePolicy", "File");
    defaulting::items_mut(container, "ports")
        .for_each(|port| defaulting::set_if_zero(port, "protocol", "TCP"));
    for variable in defaulting::items_mut(container, "env") {
        if let Some(reference) = defaulting::object_at_mut(variable, "/valueFrom/fieldRef") {
            defaulting::set_if_zero(reference, "apiVersion", "v1");
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = defaulting::object_mut(container, probe) {
            defaulting::set_if_zero(probe, "timeoutSeconds", 1);
            defaulting::set_if_zero(probe, "periodSeconds", 10);
            defaulting::set_if_zero(probe, "successThreshold", 1);
            defaulting::set_if_zero(probe, "failureThreshold", 3);
            set_http_get_defaults(probe);
        }
    }
    for hook in ["/lifecycle/postStart", "/lifecycle/preStop"] {
        if let Some(hook) = defaulting::object_at_mut(container, hook) {
            set_http_get_defaults(hook);
        }
    }
}

fn set_http_get_defaults(handler: &mut Value) {
    if let Some(request) = defaulting::object_mut(handler, "httpGet") {
        defaulting::set_if_zero(request, "path", "/");
        defaulting::set_if_zero(request, "scheme", "HTTP");
    }
    if let Some(request) = defaulting::object_mut(handler, "grpc") {
        defaulting::set_if_absent(request, "service", "");
    }
}

/// Returns `Always` for an image without a tag or with `latest`, else `IfNotPresent`.
fn default_pull_policy(image: &str) -> &'static str {
    let is_domain = |part: &str| {
        part.contains(['.', ':']) || part == "localhost" || part.bytes().any(|byte| byte.is_ascii_uppercase())
    };
    let repository = match image.split_once('/') {
        Some((domain, rest)) if is_domain(domain) => rest,
        _ => image,
    };
    let (path, tag) = match repository.rsplit_once(':') {
        Some((path, tag)) if !tag.contains('/') => (path, tag),
        _ => (repository, "latest"),
    };
    // A name that does not parse has no tag, and a digest is one.
    match tag == "latest" && path.split('/').all(is_path_component) {
        true => "Always",
        false => "IfNotPresent",
    }
}

/// Returns true for a component of an image's path: lower case letters and digits, with separators between them.
fn is_path_component(component: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let separators = component.split(|character: char| character.is_ascii() && is_word(character as u8));
    let mut separators = separators.filter(|separator| !separator.is_empty());
    component.bytes().next().is_some_and(is_word)
        && component.bytes().last().is_some_and(is_word)
        && separators
            .all(|separator| matches!(separator, "." | "_" | "__") || separator.bytes().all(|b| b == b'-'))
}

fn set_volume_defaults(volume: &mut Value) {
    const FILE_MODE: i64 = 0o644;
    let Some(fields) = volume.as_object() else { return };
    if fields.iter().all(|(field, source)| field == "name" || source.is_null()) {
        volume["emptyDir"] = json!({});
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = defaulting::object_mut(volume, source) {
            defaulting::set_if_absent(source, "defaultMode", FILE_MODE);
            defaulting::items_mut(source, "items").for_each(set_downward_file_defaults);
        }
    }
    for part in defaulting::object_mut(volume, "projected")
        .into_iter()
        .flat_map(|source| defaulting::items_mut(source, "sources"))
    {
        if let Some(token) = defaulting::object_mut(part, "serviceAccountToken") {
            defaulting::set_if_absent(token, "expirationSeconds", 3600);
        }
        if let Some(downward) = defaulting::object_mut(part, "downwardAPI") {
            defaulting::items_mut(downward, "items").for_each(set_downward_file_defaults);
        }
    }
    if let Some(path) = defaulting::object_mut(volume, "hostPath") {
        defaulting::set_if_absent(path, "type", "");
    }
    if let Some(image) = defaulting::object_mut(volume, "image") {
        let policy = default_pull_policy(text(image, "/reference"));
        defaulting::set_if_zero(image, "pullPolicy", policy);
    }
    if let Some(claim) = defaulting::object_at_mut(volume, "/ephemeral/volumeClaimTemplate/spec") {
        persistent_volume_claim::set_spec_defaults(claim);
    }
}

fn set_downward_file_defaults(item: &mut Value) {
    if let Some(reference) = defaulting::object_mut(item, "fieldRef") {
        defaulting::set_if_zero(reference, "apiVersion", "v1");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pull_policy_defaults_by_tag() {
        for (image, expected) in [
            ("nginx", "Always"),
            ("nginx:latest", "Always"),
            ("nginx:1.2", "IfNotPresent"),
            ("registry:5000/nginx", "Always"),
            ("registry:5000/nginx:1", "IfNotPresent"),
            ("nginx@sha256:0123", "IfNotPresent"),
            ("not an image", "IfNotPresent"),
            ("UPPER/../x", "IfNotPresent"),
            ("UPPER/x", "Always"),
            ("a__b/c-d.e", "Always"),
            ("a._b", "IfNotPresent"),
            ("registry:5000/nginx", "Always"),
        ] {
            assert_eq!(default_pull_policy(image), expected, "{image}");
        }
    }

    #[test]
    fn probe_volume_and_environment_defaults_are_set() {
        let mut pod = json!({
            "serviceAccount": "old",
            "containers": [{"name": "a", "image": "x:1", "livenessProbe": {"httpGet": {"port": 80}},
                "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]}],
            "volumes": [{"name": "e"}, {"name": "s", "secret": {"secretName": "x"}}, {"name": "h", "hostPath": {"path": "/"}},
                {"name": "p", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}],
        });
        set_spec_defaults(&mut pod);
        assert_eq!(pod["serviceAccountName"], "old");
        let container = &pod["containers"][0];
        assert_eq!(
            container["livenessProbe"],
            json!({"httpGet": {"port": 80, "path": "/", "scheme": "HTTP"}, "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3})
        );
        assert_eq!(container["env"][0]["valueFrom"]["fieldRef"]["apiVersion"], "v1");
        assert_eq!(
            pod["volumes"],
            json!([{"name": "e", "emptyDir": {}}, {"name": "s", "secret": {"secretName": "x", "defaultMode": 420}},
                {"name": "h", "hostPath": {"path": "/", "type": ""}},
                {"name": "p", "projected": {"defaultMode": 420, "sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}}]}}])
        );
    }

    #[test]
    fn requests_default_to_limits_and_host_ports_to_container_ports() {
        let mut pod = json!({"hostNetwork": true, "terminationGracePeriodSeconds": -5, "containers": [
            {"resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}, "ports": [{"containerPort": 80}]}]});
        set_pod_only_defaults(&mut pod);
        assert_eq!(pod["containers"][0]["resources"]["requests"], json!({"cpu": "500m", "memory": "1Gi"}));
        assert_eq!(pod["containers"][0]["ports"][0]["hostPort"], 80);
        assert_eq!(pod["terminationGracePeriodSeconds"], 1);
        let mut addresses = json!({"podIP": "10.0.0.1"});
        sync_pod_ips(&mut addresses);
        assert_eq!(addresses["podIPs"], json!([{"ip": "10.0.0.1"}]));
    }
}
