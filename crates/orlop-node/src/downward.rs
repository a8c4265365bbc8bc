//! Fields of a pod for its own containers: the downward API.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{Container, Pod, ResourceFieldSelector},
    apimachinery::pkg::api::resource::Quantity,
};

use crate::quantity::{Resources, milli};

/// Facts about a pod that are not in its object yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Place {
    pub(crate) node: String,
    pub(crate) host_ip: String,
    pub(crate) pod_ip: String,
    /// Resources of the node, in place of limits that are not set.
    pub(crate) allocatable: Resources,
}

/// Returns a field of a pod; `None` for one that is not supported.
pub(crate) fn field(pod: &Pod, place: &Place, path: &str) -> Option<String> {
    let metadata = &pod.metadata;
    let spec = pod.spec.as_ref()?;
    if let Some((map, key)) = path.strip_suffix("']").and_then(|path| path.split_once("['")) {
        let values = match map {
            "metadata.labels" => &metadata.labels,
            "metadata.annotations" => &metadata.annotations,
            _ => return None,
        };
        return Some(values.as_ref().and_then(|values| values.get(key)).cloned().unwrap_or_default());
    }
    Some(match path {
        "metadata.name" => metadata.name.clone().unwrap_or_default(),
        "metadata.namespace" => metadata.namespace.clone().unwrap_or_default(),
        "metadata.uid" => metadata.uid.clone().unwrap_or_default(),
        "metadata.labels" => lines(metadata.labels.as_ref()),
        "metadata.annotations" => lines(metadata.annotations.as_ref()),
        "spec.nodeName" => place.node.clone(),
        "spec.serviceAccountName" => spec.service_account_name.clone().unwrap_or_default(),
        "status.hostIP" | "status.hostIPs" => place.host_ip.clone(),
        "status.podIP" | "status.podIPs" => place.pod_ip.clone(),
        _ => return None,
    })
}

/// Returns a map as sorted lines of `key="value"`, without a last newline.
fn lines(values: Option<&BTreeMap<String, String>>) -> String {
    let lines: Vec<String> =
        values.into_iter().flatten().map(|(key, value)| format!("{key}={}", quoted(value))).collect();
    lines.join("\n")
}

/// Quotes a text as Go does.
fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            control if control.is_control() => quoted.push_str(&format!("\\x{:02x}", u32::from(control))),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

/// Returns a resource of a container, divided and rounded up.
pub(crate) fn resource(
    pod: &Pod,
    own: Option<&Container>,
    selector: &ResourceFieldSelector,
    place: &Place,
) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let mut all = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let container = match selector.container_name.as_deref().filter(|name| !name.is_empty()) {
        Some(name) => all.find(|container| container.name == name)?,
        None => own?,
    };
    let (list, name) = selector.resource.split_once('.')?;
    let resources = container.resources.as_ref();
    let limits = resources.and_then(|resources| resources.limits.as_ref());
    let requests = resources.and_then(|resources| resources.requests.as_ref());
    let amount = match list {
        "limits" => limits
            .and_then(|limits| limits.get(name))
            .or_else(|| place.allocatable.get(name))
            .map_or(0, milli),
        "requests" => requests.and_then(|requests| requests.get(name)).map_or(0, milli),
        _ => return None,
    };
    let divisor = selector.divisor.as_ref().map(milli).filter(|divisor| *divisor > 0);
    let divisor = divisor.unwrap_or_else(|| milli(&Quantity("1".into())));
    Some((amount.div_euclid(divisor) + i64::from(amount.rem_euclid(divisor) > 0)).to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_and_resources_of_a_pod() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "labels": {"b": "2\n", "a": "x\"y"}, "annotations": {"k": "v"}},
            "spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "1500m", "memory": "1Mi"}}}]},
        }))
        .unwrap();
        let place = Place {
            pod_ip: "127.64.0.9".into(),
            allocatable: Resources::from([("ephemeral-storage".into(), Quantity("7".into()))]),
            ..Place::default()
        };
        let get = |path: &str| field(&pod, &place, path);
        assert_eq!(get("metadata.labels").unwrap(), "a=\"x\\\"y\"\nb=\"2\\n\"");
        assert_eq!(get("metadata.annotations['k']").unwrap(), "v");
        assert_eq!(get("metadata.labels['none']").unwrap(), "");
        assert_eq!(get("status.podIP").unwrap(), "127.64.0.9");
        assert_eq!(get("spec.priority"), None);
        let amount = |name: &str, divisor: &str| {
            let selector = ResourceFieldSelector {
                container_name: Some("c".into()),
                resource: name.into(),
                divisor: Some(Quantity(divisor.into())),
            };
            resource(&pod, None, &selector, &place).unwrap()
        };
        assert_eq!(amount("limits.cpu", "1"), "2");
        assert_eq!(amount("limits.cpu", "1m"), "1500");
        assert_eq!(amount("limits.memory", "0"), "1048576");
        assert_eq!(amount("limits.ephemeral-storage", "1"), "7");
        assert_eq!(amount("requests.cpu", "1"), "0");
    }
}
