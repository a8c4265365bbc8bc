//! Use of local storage by a pod, against its limits.

use k8s_openapi::api::core::v1::{Container, Pod};

use crate::quantity::milli;

const RESOURCE: &str = "ephemeral-storage";

/// Bytes that a pod uses.
pub(crate) trait StorageUsage {
    /// Bytes of an emptyDir.
    fn of_volume(&self, name: &str) -> u64;
    /// Bytes of a container's logs and writable layer.
    fn of_container(&self, name: &str) -> u64;
}

/// Returns true if a pod has a limit of local storage.
pub(crate) fn is_limited(pod: &Pod) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let mut volumes = spec.volumes.iter().flatten();
    let mut containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    volumes.any(|volume| volume.empty_dir.as_ref().is_some_and(|source| source.size_limit.is_some()))
        || containers.any(|container| limit(container).is_some())
}

/// Returns the reason why a pod is to be evicted, if it uses more than it may.
pub(crate) fn exceeded(pod: &Pod, usage: &impl StorageUsage) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let empty_dirs =
        spec.volumes.iter().flatten().filter_map(|volume| Some((volume, volume.empty_dir.as_ref()?)));
    for (volume, source) in empty_dirs.clone() {
        let Some(size) = source.size_limit.as_ref() else { continue };
        let allowed = bytes(milli(size));
        if allowed > 0 && usage.of_volume(&volume.name) > allowed {
            return Some(format!(
                "Usage of EmptyDir volume {:?} exceeds the limit {:?}. ",
                volume.name, size.0
            ));
        }
    }
    let is_sidecar = |container: &&Container| container.restart_policy.as_deref() == Some("Always");
    let long_running: Vec<&Container> =
        spec.containers.iter().chain(spec.init_containers.iter().flatten().filter(is_sidecar)).collect();
    let limits: Vec<u64> =
        long_running.iter().filter_map(|container| limit(container)).map(|(_, size)| size).collect();
    if !limits.is_empty() {
        let total: u64 = limits.iter().sum();
        let is_on_disk = |medium: Option<&str>| medium.unwrap_or_default().is_empty();
        let volumes: u64 = empty_dirs
            .filter(|(_, source)| is_on_disk(source.medium.as_deref()))
            .map(|(volume, _)| usage.of_volume(&volume.name))
            .sum();
        let containers: u64 = long_running.iter().map(|container| usage.of_container(&container.name)).sum();
        if volumes + containers > total {
            return Some(format!(
                "Pod ephemeral local storage usage exceeds the total limit of containers {}. ",
                binary(total)
            ));
        }
    }
    long_running.iter().find_map(|container| {
        let (text, allowed) = limit(container)?;
        (allowed > 0 && usage.of_container(&container.name) > allowed).then(|| {
            format!("Container {} exceeded its local ephemeral storage limit {text:?}. ", container.name)
        })
    })
}

fn limit(container: &Container) -> Option<(String, u64)> {
    let size = container.resources.as_ref()?.limits.as_ref()?.get(RESOURCE)?;
    Some((size.0.clone(), bytes(milli(size))))
}

fn bytes(milli: i64) -> u64 {
    u64::try_from(milli / 1000).unwrap_or_default()
}

/// Formats bytes as Kubernetes does with binary suffixes: the largest that leaves no rest.
fn binary(bytes: u64) -> String {
    let mut value = bytes;
    for suffix in ["", "Ki", "Mi", "Gi", "Ti"] {
        if value == 0 || !value.is_multiple_of(1024) {
            return format!("{value}{suffix}");
        }
        value /= 1024;
    }
    format!("{value}Pi")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    struct Used(u64, u64);

    impl StorageUsage for Used {
        fn of_volume(&self, _: &str) -> u64 {
            self.0
        }

        fn of_container(&self, _: &str) -> u64 {
            self.1
        }
    }

    #[test]
    fn messages_are_those_of_kubelets() {
        let pod: Pod = serde_json::from_value(json!({"spec": {
            "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Mi"}}],
            "containers": [
                {"name": "a", "resources": {"limits": {"ephemeral-storage": "2Mi"}}},
                {"name": "b", "resources": {"limits": {"ephemeral-storage": "8Mi"}}}],
        }}))
        .unwrap();
        assert!(is_limited(&pod));
        assert_eq!(exceeded(&pod, &Used(1 << 20, 1 << 20)), None);
        assert_eq!(
            exceeded(&pod, &Used((1 << 20) + 1, 0)).unwrap(),
            "Usage of EmptyDir volume \"v\" exceeds the limit \"1Mi\". "
        );
        assert_eq!(
            exceeded(&pod, &Used(0, 6 << 20)).unwrap(),
            "Pod ephemeral local storage usage exceeds the total limit of containers 10Mi. "
        );
        assert_eq!(
            exceeded(&pod, &Used(0, 3 << 20)).unwrap(),
            "Container a exceeded its local ephemeral storage limit \"2Mi\". "
        );
    }
}
