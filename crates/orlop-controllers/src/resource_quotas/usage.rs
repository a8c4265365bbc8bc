//! Usage of a namespace. Pure.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::{
    api::core::v1::{
        PersistentVolumeClaim, Pod, PodSpec, ResourceQuotaSpec, ScopedResourceSelectorRequirement, Service,
    },
    apimachinery::pkg::api::resource::Quantity,
};
use orlop_api::quantity::{Format, Quantity as Amount};

use crate::{
    volumes::matching::{claim_class, requested},
    workload::{
        pods,
        resources::{self, Resources, Side},
    },
};

/// Returns the resource and group that a key counts the objects of.
pub(super) fn counted(key: &str) -> Option<(String, String)> {
    let named = match key {
        "configmaps" | "secrets" | "resourcequotas" | "replicationcontrollers" => key,
        _ => key.strip_prefix("count/")?,
    };
    let (resource, group) = named.split_once('.').unwrap_or((named, ""));
    Some((resource.to_owned(), group.to_owned()))
}

/// Returns whether a quota is for all objects: only pods have scopes.
pub(super) fn is_unscoped(spec: &ResourceQuotaSpec) -> bool {
    spec.scopes.as_ref().is_none_or(Vec::is_empty) && spec.scope_selector.is_none()
}

/// Returns the keys that a pod is charged for, with their amounts. Nothing for one that has finished.
pub(super) fn of_pod(pod: &Pod) -> BTreeMap<String, i64> {
    let mut used = BTreeMap::from([("count/pods".to_owned(), 1)]);
    let is_overdue = pods::is_deleting(pod) && pod.metadata.deletion_grace_period_seconds == Some(0);
    if pods::is_terminal(pod) || is_overdue {
        return used;
    }
    used.insert("pods".to_owned(), 1);
    let empty = PodSpec::default();
    let spec = pod.spec.as_ref().unwrap_or(&empty);
    for (name, amount) in resources::of_pod(spec, Side::Requests).0 {
        if matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-") {
            used.insert(name.clone(), amount);
        }
        used.insert(format!("requests.{name}"), amount);
    }
    for (name, amount) in resources::of_pod(spec, Side::Limits).0 {
        used.insert(format!("limits.{name}"), amount);
    }
    used
}

/// Returns what the objects of a namespace use, by key.
pub(super) fn of_namespace(
    spec: &ResourceQuotaSpec,
    pods: &[Arc<Pod>],
    services: &[Arc<Service>],
    claims: &[Arc<PersistentVolumeClaim>],
) -> BTreeMap<String, Quantity> {
    let mut sums = Resources::default();
    for pod in pods.iter().filter(|pod| is_in_scope(spec, pod)) {
        sums.add(&Resources(of_pod(pod)));
    }
    if is_unscoped(spec) {
        services.iter().for_each(|service| sums.add(&of_service(service)));
        claims.iter().for_each(|claim| sums.add(&of_claim(claim)));
    }
    // A key without any use is there with zero.
    for key in spec.hard.iter().flat_map(|hard| hard.keys()) {
        if counted(key).is_none() {
            sums.0.entry(key.clone()).or_insert(0);
        }
    }
    sums.0.iter().map(|(name, amount)| (name.clone(), quantity(name, *amount))).collect()
}

fn of_service(service: &Service) -> Resources {
    let spec = service.spec.clone().unwrap_or_default();
    let ports = i64::try_from(spec.ports.as_ref().map_or(0, Vec::len)).unwrap_or(0);
    let (balancers, node_ports) = match spec.type_.as_deref() {
        Some("LoadBalancer") if spec.allocate_load_balancer_node_ports == Some(false) => {
            let used =
                spec.ports.iter().flatten().filter(|port| port.node_port.is_some_and(|port| port != 0));
            (1, i64::try_from(used.count()).unwrap_or(0))
        }
        Some("LoadBalancer") => (1, ports),
        Some("NodePort") => (0, ports),
        _ => (0, 0),
    };
    let used = [
        ("services", 1),
        ("count/services", 1),
        ("services.nodeports", node_ports),
        ("services.loadbalancers", balancers),
    ];
    Resources(used.map(|(name, amount)| (name.to_owned(), amount)).into())
}

fn of_claim(claim: &PersistentVolumeClaim) -> Resources {
    let bytes = requested(claim);
    let mut used = BTreeMap::from([
        ("persistentvolumeclaims".to_owned(), 1),
        ("count/persistentvolumeclaims".to_owned(), 1),
        ("requests.storage".to_owned(), bytes),
    ]);
    let class = claim_class(claim);
    if !class.is_empty() {
        let prefix = format!("{class}.storageclass.storage.k8s.io");
        used.insert(format!("{prefix}/requests.storage"), bytes);
        used.insert(format!("{prefix}/persistentvolumeclaims"), 1);
    }
    Resources(used)
}

/// Returns whether a quota charges a pod.
fn is_in_scope(spec: &ResourceQuotaSpec, pod: &Pod) -> bool {
    let named = spec.scopes.iter().flatten().map(|scope| ScopedResourceSelectorRequirement {
        scope_name: scope.clone(),
        operator: "Exists".to_owned(),
        values: None,
    });
    let selected = spec
        .scope_selector
        .iter()
        .flat_map(|selector| selector.match_expressions.clone().unwrap_or_default());
    named.chain(selected).all(|requirement| matches_scope(&requirement, pod))
}

fn matches_scope(requirement: &ScopedResourceSelectorRequirement, pod: &Pod) -> bool {
    let empty = PodSpec::default();
    let spec = pod.spec.as_ref().unwrap_or(&empty);
    let is_terminating = spec.active_deadline_seconds.is_some_and(|deadline| deadline >= 0);
    let is_best_effort = || {
        let named = |side| {
            let used = resources::of_pod(spec, side);
            used.get("cpu") == 0 && used.get("memory") == 0
        };
        named(Side::Requests) && named(Side::Limits)
    };
    match requirement.scope_name.as_str() {
        "Terminating" => is_terminating,
        "NotTerminating" => !is_terminating,
        "BestEffort" => is_best_effort(),
        "NotBestEffort" => !is_best_effort(),
        "PriorityClass" => {
            let class = spec.priority_class_name.as_deref().filter(|name| !name.is_empty());
            let values = requirement.values.as_deref().unwrap_or_default();
            let is_listed = class.is_some_and(|class| values.iter().any(|value| value == class));
            match requirement.operator.as_str() {
                "In" => is_listed,
                "NotIn" => !is_listed,
                "DoesNotExist" => class.is_none(),
                _ => class.is_some(),
            }
        }
        "CrossNamespacePodAffinity" => uses_other_namespaces(spec),
        _ => true,
    }
}

fn uses_other_namespaces(spec: &PodSpec) -> bool {
    let Some(affinity) = &spec.affinity else { return false };
    let near = affinity.pod_affinity.iter().flat_map(|near| {
        let preferred = near.preferred_during_scheduling_ignored_during_execution.iter().flatten();
        let required = near.required_during_scheduling_ignored_during_execution.iter().flatten();
        required.chain(preferred.map(|term| &term.pod_affinity_term))
    });
    let far = affinity.pod_anti_affinity.iter().flat_map(|far| {
        let preferred = far.preferred_during_scheduling_ignored_during_execution.iter().flatten();
        let required = far.required_during_scheduling_ignored_during_execution.iter().flatten();
        required.chain(preferred.map(|term| &term.pod_affinity_term))
    });
    near.chain(far).any(|term| {
        term.namespace_selector.is_some() || term.namespaces.as_ref().is_some_and(|names| !names.is_empty())
    })
}

/// Returns an amount in the notation of its resource.
fn quantity(name: &str, amount: i64) -> Quantity {
    let is_cpu = matches!(name, "cpu" | "requests.cpu" | "limits.cpu");
    let is_binary = name.ends_with("memory") || name.ends_with("storage") || name.contains("hugepages-");
    let quantity = match (is_cpu, is_binary) {
        (true, _) => Amount::from_milli(amount, Format::DecimalSi),
        (_, true) => Amount::from_units(amount, Format::BinarySi),
        _ => Amount::from_units(amount, Format::DecimalSi),
    };
    Quantity(quantity.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(spec: Value, phase: &str) -> Arc<Pod> {
        Arc::new(serde_json::from_value(json!({"spec": spec, "status": {"phase": phase}})).unwrap())
    }

    fn used(spec: Value, pods: &[Arc<Pod>]) -> BTreeMap<String, String> {
        let spec: ResourceQuotaSpec = serde_json::from_value(spec).unwrap();
        let used = of_namespace(&spec, pods, &[], &[]);
        used.into_iter().map(|(name, quantity)| (name, quantity.0)).collect()
    }

    #[test]
    fn pods_are_charged_until_they_end() {
        let container = json!({"containers": [{"name": "a", "resources": {"requests": {"cpu": "250m", "memory": "1Gi"},
            "limits": {"cpu": "1"}}}]});
        let pods = [pod(container.clone(), "Running"), pod(container, "Succeeded")];
        let used = used(json!({"hard": {"pods": "9", "services": "1"}}), &pods);
        assert_eq!((used["pods"].as_str(), used["count/pods"].as_str()), ("1", "2"));
        assert_eq!((used["requests.cpu"].as_str(), used["limits.cpu"].as_str()), ("250m", "1"));
        assert_eq!((used["memory"].as_str(), used["services"].as_str()), ("1Gi", "0"));
    }

    #[test]
    fn scopes_select_pods() {
        let best_effort = pod(json!({"containers": [{"name": "a"}]}), "Running");
        let short = pod(json!({"containers": [{"name": "a"}], "activeDeadlineSeconds": 5}), "Running");
        let count = |scope: &str| {
            let spec = json!({"hard": {"pods": "9"}, "scopes": [scope]});
            used(spec, &[best_effort.clone(), short.clone()])["pods"].clone()
        };
        assert_eq!(
            (count("BestEffort"), count("Terminating"), count("NotBestEffort")),
            ("2".into(), "1".into(), "0".into())
        );
    }

    #[test]
    fn counted_resources_are_named() {
        assert_eq!(counted("count/jobs.batch"), Some(("jobs".into(), "batch".into())));
        assert_eq!(counted("configmaps"), Some(("configmaps".into(), String::new())));
        assert_eq!(counted("requests.cpu"), None);
    }
}
