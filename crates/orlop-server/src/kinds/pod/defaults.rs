//! What a pod is unless it says otherwise.

use serde_json::{Value, json};

use super::super::{
    fill, persistent_volume_claim,
    read::{flag, integer, map, text},
};

const CONTAINERS: [&str; 3] = ["containers", "initContainers", "ephemeralContainers"];

/// The defaults of a pod's spec, in a pod or in a template of one.
pub(super) fn spec(spec: &mut Value) {
    // Two names for the same account; the newer wins.
    let account = match text(spec, "/serviceAccountName") {
        "" => text(spec, "/serviceAccount").to_owned(),
        account => account.to_owned(),
    };
    if !account.is_empty() {
        spec["serviceAccountName"] = account.clone().into();
        spec["serviceAccount"] = account.into();
    }
    fill::empty(spec, "dnsPolicy", "ClusterFirst");
    fill::empty(spec, "restartPolicy", "Always");
    fill::absent(spec, "securityContext", json!({}));
    fill::absent(spec, "terminationGracePeriodSeconds", 30);
    fill::empty(spec, "schedulerName", "default-scheduler");
    for field in CONTAINERS {
        fill::items(spec, field).for_each(container);
    }
    fill::items(spec, "volumes").for_each(volume);
}

/// The defaults that only pods have, so that a template's pods may still be told otherwise.
pub(super) fn pod_only(spec: &mut Value) {
    if spec.get("terminationGracePeriodSeconds").and_then(Value::as_i64).is_some_and(|seconds| seconds < 0) {
        spec["terminationGracePeriodSeconds"] = 1.into();
    }
    let on_host = flag(spec, "/hostNetwork");
    for field in ["containers", "initContainers"] {
        for container in fill::items(spec, field) {
            let limits = map(container, "/resources/limits").clone();
            if let Some(resources) = fill::child(container, "resources") {
                fill::entries(resources, "requests", &limits);
            }
            for port in fill::items(container, "ports").filter(|_| on_host) {
                let number = integer(port, "/containerPort");
                fill::empty(port, "hostPort", number);
            }
        }
    }
    fill::absent(spec, "enableServiceLinks", true);
}

/// One address and the list of addresses begin alike.
pub(super) fn status(status: &mut Value) {
    let (one, first) = (text(status, "/podIP").to_owned(), text(status, "/podIPs/0/ip").to_owned());
    if !one.is_empty() && one != first {
        status["podIPs"] = json!([{"ip": one}]);
    } else if one.is_empty() && !first.is_empty() {
        status["podIP"] = first.into();
    }
}

fn container(container: &mut Value) {
    if !container.is_object() {
        return;
    }
    let policy = pull_policy(text(container, "/image"));
    fill::empty(container, "imagePullPolicy", policy);
    fill::empty(container, "terminationMessagePath", "/dev/termination-log");
    fill::empty(container, "terminationMessagePolicy", "File");
    fill::items(container, "ports").for_each(|port| fill::empty(port, "protocol", "TCP"));
    for variable in fill::items(container, "env") {
        if let Some(reference) = fill::at(variable, "/valueFrom/fieldRef") {
            fill::empty(reference, "apiVersion", "v1");
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = fill::child(container, probe) {
            fill::empty(probe, "timeoutSeconds", 1);
            fill::empty(probe, "periodSeconds", 10);
            fill::empty(probe, "successThreshold", 1);
            fill::empty(probe, "failureThreshold", 3);
            http_get(probe);
        }
    }
    for hook in ["/lifecycle/postStart", "/lifecycle/preStop"] {
        if let Some(hook) = fill::at(container, hook) {
            http_get(hook);
        }
    }
}

fn http_get(handler: &mut Value) {
    if let Some(request) = fill::child(handler, "httpGet") {
        fill::empty(request, "path", "/");
        fill::empty(request, "scheme", "HTTP");
    }
    if let Some(request) = fill::child(handler, "grpc") {
        fill::absent(request, "service", "");
    }
}

/// An image that names no version, or the latest, is looked for each time.
fn pull_policy(image: &str) -> &'static str {
    let name = image.rsplit('/').next().unwrap_or_default();
    if image.contains('@') {
        return "IfNotPresent";
    }
    match name.split_once(':') {
        None | Some((_, "latest")) => "Always",
        Some(_) => "IfNotPresent",
    }
}

fn volume(volume: &mut Value) {
    const FILE_MODE: i64 = 0o644;
    let Some(fields) = volume.as_object() else { return };
    if fields.iter().all(|(field, source)| field == "name" || source.is_null()) {
        volume["emptyDir"] = json!({});
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = fill::child(volume, source) {
            fill::absent(source, "defaultMode", FILE_MODE);
            fill::items(source, "items").for_each(downward_file);
        }
    }
    for part in fill::child(volume, "projected").into_iter().flat_map(|source| fill::items(source, "sources"))
    {
        if let Some(token) = fill::child(part, "serviceAccountToken") {
            fill::absent(token, "expirationSeconds", 3600);
        }
        if let Some(downward) = fill::child(part, "downwardAPI") {
            fill::items(downward, "items").for_each(downward_file);
        }
    }
    if let Some(path) = fill::child(volume, "hostPath") {
        fill::absent(path, "type", "");
    }
    if let Some(image) = fill::child(volume, "image") {
        let policy = pull_policy(text(image, "/reference"));
        fill::empty(image, "pullPolicy", policy);
    }
    if let Some(claim) = fill::at(volume, "/ephemeral/volumeClaimTemplate/spec") {
        persistent_volume_claim::default_spec(claim);
    }
}

fn downward_file(item: &mut Value) {
    if let Some(reference) = fill::child(item, "fieldRef") {
        fill::empty(reference, "apiVersion", "v1");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_image_is_looked_for_each_time() {
        for (image, expected) in [
            ("nginx", "Always"),
            ("nginx:latest", "Always"),
            ("nginx:1.2", "IfNotPresent"),
            ("registry:5000/nginx", "Always"),
            ("registry:5000/nginx:1", "IfNotPresent"),
            ("nginx@sha256:0123", "IfNotPresent"),
        ] {
            assert_eq!(pull_policy(image), expected, "{image}");
        }
    }

    #[test]
    fn probes_volumes_and_environment_have_defaults() {
        let mut pod = json!({
            "serviceAccount": "old",
            "containers": [{"name": "a", "image": "x:1", "livenessProbe": {"httpGet": {"port": 80}},
                "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]}],
            "volumes": [{"name": "e"}, {"name": "s", "secret": {"secretName": "x"}}, {"name": "h", "hostPath": {"path": "/"}},
                {"name": "p", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}],
        });
        spec(&mut pod);
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
    fn a_pods_requests_follow_its_limits_and_host_ports_its_ports() {
        let mut pod = json!({"hostNetwork": true, "terminationGracePeriodSeconds": -5, "containers": [
            {"resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}, "ports": [{"containerPort": 80}]}]});
        pod_only(&mut pod);
        assert_eq!(pod["containers"][0]["resources"]["requests"], json!({"cpu": "500m", "memory": "1Gi"}));
        assert_eq!(pod["containers"][0]["ports"][0]["hostPort"], 80);
        assert_eq!(pod["terminationGracePeriodSeconds"], 1);
        let mut addresses = json!({"podIP": "10.0.0.1"});
        status(&mut addresses);
        assert_eq!(addresses["podIPs"], json!([{"ip": "10.0.0.1"}]));
    }
}
