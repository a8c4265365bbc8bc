//! Resources of a pod as a whole, and their relation to those of its containers.

use std::collections::BTreeMap;

use orlop_api::{
    field_error::{FieldError, FieldPath},
    quantity::Quantity,
};
use serde_json::Value;

use super::resources::{self, is_huge_page};
use crate::{
    accessors::{list, map, present, text},
    quantities,
};

/// Resources that a pod may have as a whole, besides huge pages.
const SUPPORTED: [&str; 2] = ["cpu", "memory"];

type Amounts = BTreeMap<String, Quantity>;

/// Validates `resources` of a pod.
pub(super) fn validate_pod_resources(spec: &Value, path: &FieldPath) -> Vec<FieldError> {
    let Some(given) = present(spec, "/resources") else { return Vec::new() };
    let path = path.child("resources");
    if text(spec, "/os/name") == "windows" {
        return vec![FieldError::forbidden(&path, "may not be set for a windows pod")];
    }
    let mut errors = Vec::new();
    if present(given, "/claims").is_some() {
        let detail = "claims may not be set for Resources at pod-level";
        errors.push(FieldError::forbidden(&path.child("claims"), detail));
    }
    for field in ["limits", "requests"] {
        for name in map(given, &format!("/{field}")).keys() {
            if !SUPPORTED.contains(&name.as_str()) && !is_huge_page(name) {
                errors.push(FieldError::not_supported(
                    &path.child(field).key(name),
                    name.as_str(),
                    &SUPPORTED,
                ));
            }
        }
    }
    if errors.is_empty() {
        errors.extend(resources::validate_requirements(given, list(given, "/claims"), &path));
    }
    errors.extend(validate_sums(spec, given, &path));
    errors
}

/// Validates that a pod has at least what its containers have together, and each of them at most what the pod has.
fn validate_sums(spec: &Value, given: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (field, only_huge_pages) in [("requests", false), ("limits", true)] {
        let of_pod = map(given, &format!("/{field}"));
        for (name, sum) in aggregate(spec, field) {
            let Some(amount) = of_pod.get(&name).and_then(quantities::parse) else { continue };
            if sum > amount && (is_huge_page(&name) || !only_huge_pages) {
                let detail = format!("must be greater than or equal to aggregate container {field} of {sum}");
                errors.push(FieldError::invalid(&path.child(field).key(&name), amount.to_string(), detail));
            }
        }
    }
    let limits = map(given, "/limits");
    for (index, container) in list(spec, "/containers").iter().enumerate() {
        for (name, limit) in amounts(container, "limits") {
            let Some(of_pod) = limits.get(&name).and_then(quantities::parse) else { continue };
            if limit > of_pod {
                let path = path.child("containers").index(index).key(&name).child("limits");
                let detail = format!("must be less than or equal to pod limits of {of_pod}");
                errors.push(FieldError::invalid(&path, limit.to_string(), detail));
            }
        }
    }
    errors
}

fn amounts(container: &Value, field: &str) -> Amounts {
    let given = map(container, &format!("/resources/{field}"));
    given.iter().filter_map(|(name, value)| Some((name.clone(), quantities::parse(value)?))).collect()
}

/// Returns what the containers of a pod have together. Init containers run one after the other, beside the sidecars that
/// were started before them.
fn aggregate(spec: &Value, field: &str) -> Amounts {
    let mut together = Amounts::new();
    for container in list(spec, "/containers") {
        add(&mut together, amounts(container, field));
    }
    let (mut sidecars, mut most) = (Amounts::new(), Amounts::new());
    for container in list(spec, "/initContainers") {
        let own = amounts(container, field);
        if text(container, "/restartPolicy") == "Always" {
            add(&mut together, own.clone());
            add(&mut sidecars, own);
            raise(&mut most, &sidecars);
        } else {
            let mut beside = own;
            add(&mut beside, sidecars.clone());
            raise(&mut most, &beside);
        }
    }
    raise(&mut together, &most);
    together
}

fn add(to: &mut Amounts, amounts: Amounts) {
    for (name, amount) in amounts {
        let sum = match to.get(&name) {
            Some(before) => before.plus(amount),
            None => amount,
        };
        to.insert(name, sum);
    }
}

/// Raises amounts to others that are larger.
fn raise(to: &mut Amounts, others: &Amounts) {
    for (name, amount) in others {
        if to.get(name).is_none_or(|before| before < amount) {
            to.insert(name.clone(), *amount);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validation::tests::messages;

    fn errors_of(spec: Value) -> Vec<String> {
        messages(validate_pod_resources(&spec, &FieldPath::root("spec")))
    }

    fn container(cpu: &str) -> Value {
        json!({"resources": {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}})
    }

    #[test]
    fn pod_has_what_its_containers_have() {
        let pod = |cpu: &str| {
            json!({"resources": {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}},
            "containers": [container("500m"), container("1")], "initContainers": [container("1200m")]})
        };
        assert!(errors_of(pod("1500m")).is_empty());
        assert_eq!(
            errors_of(pod("1")),
            [
                "spec.resources.requests[cpu]: Invalid value: \"1\": must be greater than or equal to aggregate container \
              requests of 1500m"
            ]
        );
        let sidecar = json!({"restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}});
        let beside = json!({"resources": {"requests": {"cpu": "2"}}, "containers": [],
            "initContainers": [sidecar, container("1500m")]});
        assert_eq!(
            errors_of(beside),
            [
                "spec.resources.requests[cpu]: Invalid value: \"2\": must be greater than or equal to aggregate container \
              requests of 2500m"
            ]
        );
    }

    #[test]
    fn some_resources_are_of_containers_only() {
        assert_eq!(
            errors_of(
                json!({"resources": {"claims": [{"name": "c"}], "limits": {"ephemeral-storage": "1"}}})
            ),
            [
                "spec.resources.claims: Forbidden: claims may not be set for Resources at pod-level",
                "spec.resources.limits[ephemeral-storage]: Unsupported value: \"ephemeral-storage\": supported values: \
                 \"cpu\", \"memory\"",
            ]
        );
        assert_eq!(
            errors_of(json!({"resources": {"limits": {"cpu": "1"}}, "containers": [container("2")]})),
            [
                "spec.resources.containers[0][cpu].limits: Invalid value: \"2\": must be less than or equal to pod limits of 1"
            ]
        );
    }
}
