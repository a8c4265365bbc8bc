//! Resource requirements of containers, resource names, and the QoS class of a pod.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    names,
    quantity::Quantity,
};
use serde_json::{Map, Value};

use crate::{
    accessors::{list, map, present, text},
    quantities, validation,
};

const CONTAINER: &[&str] = &["cpu", "memory", "ephemeral-storage"];
const STANDARD: &[&str] = &[
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    STORAGE,
    "requests.storage",
    "services.nodeports",
    "services.loadbalancers",
];
/// Storage of claims; a quota names it `requests.storage`.
const STORAGE: &str = "storage";

pub(super) fn is_huge_page(name: &str) -> bool {
    name.starts_with("hugepages-") || name.starts_with("requests.hugepages-")
}

/// Returns true for names without a domain or under kubernetes.io.
fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Returns true if requests may differ from limits.
fn is_overcommit_allowed(name: &str) -> bool {
    is_native(name) && !is_huge_page(name)
}

fn validate_resource_name(name: &str, path: &FieldPath) -> Vec<FieldError> {
    let problems = names::qualified_name(name);
    if !problems.is_empty() {
        return validation::invalid_for_each(path, name, problems);
    }
    if !name.contains('/') && !STANDARD.contains(&name) && !is_huge_page(name) {
        return vec![FieldError::invalid(path, name, "must be a standard resource type or fully qualified")];
    }
    Vec::new()
}

pub(crate) fn validate_container_resource_name(given: &str, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = validate_resource_name(given, path);
    if !given.contains('/') {
        if !CONTAINER.contains(&given) && !is_huge_page(given) {
            errors.push(FieldError::invalid(path, given, "must be a standard resource for containers"));
        }
    } else if !is_native(given) && given.starts_with("requests.") {
        errors.push(FieldError::invalid(path, given, "doesn't follow extended resource name standard"));
    }
    errors
}

/// Validates the name of a resource in a ResourceQuota.
pub(crate) fn validate_quota_resource_name(given: &str, path: &FieldPath) -> Vec<FieldError> {
    // `count/pods` counts objects.
    let mut errors = validate_resource_name(given, path);
    if !given.contains('/') && (!STANDARD.contains(&given) || given == STORAGE) && !is_huge_page(given) {
        errors.push(FieldError::invalid(path, given, "must be a standard resource for quota"));
    }
    errors
}

/// Validates the name of a resource in a LimitRange.
pub(crate) fn validate_limit_resource_name(kind: &str, given: &str, path: &FieldPath) -> Vec<FieldError> {
    if matches!(kind, "Pod" | "Container") {
        validate_container_resource_name(given, path)
    } else {
        validate_resource_name(given, path)
    }
}

/// Validates the quantity of a resource: not negative, and an integer where fractions make no sense.
pub(crate) fn validate_resource_value(given: &str, value: &Value, path: &FieldPath) -> Vec<FieldError> {
    const WHOLE: &[&str] = &[
        "pods",
        "resourcequotas",
        "services",
        "replicationcontrollers",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "services.nodeports",
        "services.loadbalancers",
    ];
    let mut errors: Vec<FieldError> = quantities::validate_non_negative(value, path).into_iter().collect();
    let whole = WHOLE.contains(&given) || given.starts_with("count/") || !is_native(given);
    if whole && quantities::parse(value).is_some_and(|amount| amount.milli_units() % 1000 != 0) {
        errors.push(FieldError::invalid(path, quantities::canonical_text(Some(value)), "must be an integer"));
    }
    errors
}

/// Validates requests and limits of a container.
pub(crate) fn validate_requirements(
    resources: &Value,
    claims: &[Value],
    path: &FieldPath,
) -> Vec<FieldError> {
    let (limits, requests) = (map(resources, "/limits"), map(resources, "/requests"));
    let (limits_path, requests_path) = (path.child("limits"), path.child("requests"));
    let mut errors = Vec::new();
    for (entries, path) in [(limits, &limits_path), (requests, &requests_path)] {
        for (key, value) in entries {
            errors.extend(validate_container_resource_name(key, &path.key(key)));
            errors.extend(validate_resource_value(key, value, &path.key(key)));
            errors.extend(validate_huge_page_size(key, value, &path.key(key)));
            if std::ptr::eq(entries, requests) {
                errors.extend(validate_request_within_limit(
                    key,
                    value,
                    limits,
                    &limits_path,
                    &requests_path,
                ));
            }
        }
    }
    let has = |test: &dyn Fn(&str) -> bool| limits.keys().chain(requests.keys()).any(|key| test(key));
    if has(&is_huge_page) && !has(&|key| matches!(key, "cpu" | "memory")) {
        errors.push(FieldError::forbidden(path, "HugePages require cpu or memory"));
    }
    for (index, claim) in list(resources, "/claims").iter().enumerate() {
        let name = text(claim, "/name");
        let path = path.child("claims").index(index);
        if name.is_empty() {
            errors.push(FieldError::required(&path, ""));
        } else if !claims.iter().any(|known| text(known, "/name") == name) {
            errors.push(FieldError::not_found(&path, name));
        }
    }
    errors
}

/// Validates that a quantity is a multiple of the huge page size.
fn validate_huge_page_size(name: &str, value: &Value, path: &FieldPath) -> Option<FieldError> {
    let size = Quantity::parse(name.strip_prefix("hugepages-")?).ok()?;
    let amount = quantities::parse(value)?;
    let fits = size.units() > 0 && amount.units() > 0 && amount.units() % size.units() == 0;
    let detail = format!("{amount} is not positive integer multiple of {name}");
    (!fits).then(|| FieldError::invalid(path, amount.to_string(), detail))
}

/// Validates that a request is at most the limit.
fn validate_request_within_limit(
    key: &str,
    value: &Value,
    limits: &Map<String, Value>,
    limits_path: &FieldPath,
    requests_path: &FieldPath,
) -> Option<FieldError> {
    let Some(limit) = limits.get(key) else {
        let detail = "Limit must be set for non overcommitable resources";
        return (!is_overcommit_allowed(key)).then(|| FieldError::required(limits_path, detail));
    };
    let (asked, allowed) = (quantities::parse(value)?, quantities::parse(limit)?);
    let (asked_text, allowed_text) = (asked.to_string(), allowed.to_string());
    if asked != allowed && !is_overcommit_allowed(key) {
        let detail = format!("must be equal to {key} limit of {allowed_text}");
        return Some(FieldError::invalid(requests_path, asked_text, detail));
    }
    let detail = format!("must be less than or equal to {key} limit of {allowed_text}");
    (asked > allowed).then(|| FieldError::invalid(requests_path, asked_text, detail))
}

/// Returns the QoS class of a pod.
pub(crate) fn qos_class(pod: &Value) -> &'static str {
    let whole = present(pod, "/spec/resources")
        .into_iter()
        .filter(|resources| !map(resources, "/limits").is_empty() || !map(resources, "/requests").is_empty());
    let mut of: Vec<&Value> = whole.collect();
    if of.is_empty() {
        let containers = list(pod, "/spec/containers").iter().chain(list(pod, "/spec/initContainers"));
        of = containers.map(|container| container.get("resources").unwrap_or(&Value::Null)).collect();
    }
    let given = |resources: &Value, field: &str, key: &str| -> Option<Quantity> {
        map(resources, field).get(key).and_then(quantities::parse).filter(quantities::is_positive)
    };
    let kinds = ["cpu", "memory"];
    let any = of.iter().any(|resources| {
        kinds
            .iter()
            .any(|key| ["/limits", "/requests"].iter().any(|field| given(resources, field, key).is_some()))
    });
    if !any {
        return "BestEffort";
    }
    let guaranteed = of.iter().all(|resources| {
        kinds.iter().all(|key| {
            let (limit, request) = (given(resources, "/limits", key), given(resources, "/requests", key));
            limit.is_some() && (request.is_none() || request == limit)
        })
    });
    if guaranteed { "Guaranteed" } else { "Burstable" }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validation::tests::messages;

    #[test]
    fn requests_may_not_exceed_limits() {
        let validation_errors =
            |resources: Value| messages(validate_requirements(&resources, &[], &FieldPath::root("r")));
        assert!(validation_errors(json!({"limits": {"cpu": "1", "example.com/gpu": 1}, "requests": {"cpu": "500m", "example.com/gpu": 1}})).is_empty());
        assert_eq!(
            validation_errors(json!({"limits": {"cpu": "1"}, "requests": {"cpu": "2"}})),
            [r#"r.requests: Invalid value: "2": must be less than or equal to cpu limit of 1"#]
        );
        assert_eq!(
            validation_errors(json!({"limits": {"a.b/c": 1}, "requests": {"a.b/c": 2}})),
            [r#"r.requests: Invalid value: "2": must be equal to a.b/c limit of 1"#]
        );
        assert_eq!(
            validation_errors(json!({"requests": {"a.b/c": 2}})),
            ["r.limits: Required value: Limit must be set for non overcommitable resources"]
        );
        assert_eq!(
            validation_errors(json!({"limits": {"cpus": "1", "memory": "-1"}})),
            [
                r#"r.limits[cpus]: Invalid value: "cpus": must be a standard resource type or fully qualified"#,
                r#"r.limits[cpus]: Invalid value: "cpus": must be a standard resource for containers"#,
                r#"r.limits[memory]: Invalid value: "-1": must be greater than or equal to 0"#,
            ]
        );
        assert_eq!(
            validation_errors(json!({"limits": {"a.b/c": "500m"}})),
            [r#"r.limits[a.b/c]: Invalid value: "500m": must be an integer"#]
        );
        assert_eq!(
            validation_errors(json!({"limits": {"hugepages-2Mi": "2Mi"}})),
            ["r: Forbidden: HugePages require cpu or memory"]
        );
    }

    #[test]
    fn qos_class_follows_requests_and_limits() {
        let pod = |resources: Value| json!({"spec": {"containers": [{"resources": resources}]}});
        assert_eq!(qos_class(&pod(json!({}))), "BestEffort");
        assert_eq!(qos_class(&pod(json!({"requests": {"cpu": "1"}}))), "Burstable");
        assert_eq!(qos_class(&pod(json!({"limits": {"cpu": "1", "memory": "1Gi"}}))), "Guaranteed");
        assert_eq!(
            qos_class(&pod(json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}))),
            "Burstable"
        );
        assert_eq!(
            qos_class(
                &json!({"spec": {"containers": [{"resources": {"limits": {"cpu": "1", "memory": "1"}}}, {}]}})
            ),
            "Burstable"
        );
    }
}
