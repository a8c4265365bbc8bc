//! Resizing of running containers: which resources differ from those that were given, and what that takes.

use k8s_openapi::api::core::v1::{Container, ResourceRequirements};
use serde_json::json;

use super::containers::{Class, Member};
use crate::quantity::milli;

/// Resources that can change while a container runs.
const RESIZABLE: [&str; 2] = ["cpu", "memory"];

/// A change of a running container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    None,
    /// Its limits are written.
    InPlace,
    /// It is started again.
    Restart,
}

/// Returns the change that brings a container to the resources of its spec.
pub(crate) fn change(member: &Member) -> Change {
    let is_resizable = matches!(member.class, Class::Main | Class::Sidecar) && member.state.is_running();
    let Some(given) = member.state.resources.as_ref().filter(|_| is_resizable) else { return Change::None };
    let changed: Vec<&str> =
        RESIZABLE.into_iter().filter(|name| differs(&member.spec, given, name)).collect();
    if changed.is_empty() {
        return Change::None;
    }
    let policies = member.spec.resize_policy.iter().flatten();
    let mut restarting = policies.filter(|policy| policy.restart_policy == "RestartContainer");
    match restarting.any(|policy| changed.contains(&policy.resource_name.as_str())) {
        true => Change::Restart,
        false => Change::InPlace,
    }
}

fn differs(spec: &Container, given: &ResourceRequirements, name: &str) -> bool {
    let empty = ResourceRequirements::default();
    let wanted = spec.resources.as_ref().unwrap_or(&empty);
    let amount =
        |list: &Option<crate::quantity::Resources>| list.as_ref().and_then(|list| list.get(name)).map(milli);
    amount(&wanted.requests) != amount(&given.requests) || amount(&wanted.limits) != amount(&given.limits)
}

/// Returns the text of an event about a resize: the resources of the pod, as kubelets show them.
pub(crate) fn summary(members: &[Member], generation: Option<i64>, error: Option<&str>) -> String {
    let of = |wanted: fn(Class) -> bool| -> Vec<serde_json::Value> {
        let found = members.iter().filter(|member| wanted(member.class));
        found
            .map(|member| json!({"name": member.spec.name, "resources": member.spec.resources.clone().unwrap_or_default()}))
            .collect()
    };
    let init = of(|class| matches!(class, Class::Init | Class::Sidecar));
    let mut summary = serde_json::Map::new();
    if !init.is_empty() {
        summary.insert("initContainers".to_owned(), init.into());
    }
    summary.insert("containers".to_owned(), of(|class| class == Class::Main).into());
    summary.insert("generation".to_owned(), generation.unwrap_or_default().into());
    if let Some(error) = error {
        summary.insert("error".to_owned(), error.into());
    }
    serde_json::Value::Object(summary).to_string()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::pods::containers::{Run, members};

    fn member(spec: serde_json::Value, given: serde_json::Value) -> Member {
        let pod = serde_json::from_value(json!({"spec": {"containers": [spec]}})).unwrap();
        let mut member = members(&pod).remove(0);
        member.state.run = Run::Running { id: "x".into(), since: Timestamp::UNIX_EPOCH };
        member.state.resources = Some(serde_json::from_value(given).unwrap());
        member
    }

    #[test]
    fn changed_resources_follow_their_policy() {
        let given = json!({"requests": {"cpu": "100m", "memory": "1Gi"}});
        let spec = |cpu: &str, memory: &str| {
            json!({"name": "a", "resources": {"requests": {"cpu": cpu, "memory": memory}},
                "resizePolicy": [{"resourceName": "memory", "restartPolicy": "RestartContainer"},
                    {"resourceName": "cpu", "restartPolicy": "NotRequired"}]})
        };
        let change_to = |cpu: &str, memory: &str| change(&member(spec(cpu, memory), given.clone()));
        assert_eq!(change_to("0.1", "1024Mi"), Change::None);
        assert_eq!(change_to("200m", "1Gi"), Change::InPlace);
        assert_eq!(change_to("100m", "2Gi"), Change::Restart);
    }

    #[test]
    fn summary_shows_resources_and_the_generation() {
        let member = member(json!({"name": "a", "resources": {"requests": {"cpu": "1"}}}), json!({}));
        assert_eq!(
            summary(&[member], Some(2), Some("no")),
            r#"{"containers":[{"name":"a","resources":{"requests":{"cpu":"1"}}}],"error":"no","generation":2}"#
        );
    }
}
