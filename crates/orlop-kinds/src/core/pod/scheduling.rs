//! Validation of affinity, tolerations and topology spread constraints.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    labels, names,
};
use serde_json::Value;

use crate::{
    accessors::{integer, list, present, text, texts},
    validation,
};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Validates `affinity`.
pub(crate) fn validate_affinity(spec: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let path = path.child("affinity");
    if let Some(node) = present(spec, "/affinity/nodeAffinity") {
        let path = path.child("nodeAffinity");
        if let Some(selector) = present(node, &format!("/{REQUIRED}")) {
            errors.extend(validate_node_selector(selector, &path.child(REQUIRED)));
        }
        errors.extend(validation::validate_items(node, PREFERRED, &path, |term, path| {
            let mut errors: Vec<FieldError> = validate_weight(term, path).into_iter().collect();
            errors.extend(validate_node_selector_term(
                term.get("preference").unwrap_or(&Value::Null),
                false,
                &path.child("preference"),
            ));
            errors
        }));
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let Some(pod) = present(spec, &format!("/affinity/{kind}")) else { continue };
        let path = path.child(kind);
        errors.extend(validation::validate_items(pod, REQUIRED, &path, validate_pod_affinity_term));
        errors.extend(validation::validate_items(pod, PREFERRED, &path, |term, path| {
            let mut errors: Vec<FieldError> = validate_weight(term, path).into_iter().collect();
            let inner = term.get("podAffinityTerm").unwrap_or(&Value::Null);
            errors.extend(validate_pod_affinity_term(inner, &path.child("podAffinityTerm")));
            errors
        }));
    }
    errors
}

fn validate_weight(term: &Value, path: &FieldPath) -> Option<FieldError> {
    let weight = integer(term, "/weight");
    (!(1..=100).contains(&weight))
        .then(|| FieldError::invalid(&path.child("weight"), weight, "must be in the range 1-100"))
}

fn validate_pod_affinity_term(term: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for field in ["labelSelector", "namespaceSelector"] {
        if let Some(selector) = present(term, &format!("/{field}")) {
            errors.extend(labels::validate_label_selector(selector, &path.child(field)));
        }
    }
    if present(term, "/labelSelector").is_none() {
        for field in ["matchLabelKeys", "mismatchLabelKeys"] {
            if !list(term, &format!("/{field}")).is_empty() {
                let detail = "must not be specified when labelSelector is not set";
                errors.push(FieldError::forbidden(&path.child(field), detail));
            }
        }
    }
    for namespace in texts(term, "/namespaces") {
        errors.extend(validation::validate_dns_label(namespace, &path.child("namespace")));
    }
    let key = text(term, "/topologyKey");
    if key.is_empty() {
        errors.push(FieldError::required(&path.child("topologyKey"), "can not be empty"));
    }
    errors.extend(validation::invalid_for_each(&path.child("topologyKey"), key, names::qualified_name(key)));
    errors
}

/// Validates a node selector: at least one term.
pub(crate) fn validate_node_selector(selector: &Value, path: &FieldPath) -> Vec<FieldError> {
    let terms = path.child("nodeSelectorTerms");
    if list(selector, "/nodeSelectorTerms").is_empty() {
        return vec![FieldError::required(&terms, "must have at least one node selector term")];
    }
    validation::validate_items(selector, "nodeSelectorTerms", path, |term, path| {
        validate_node_selector_term(term, true, path)
    })
}

fn validate_node_selector_term(term: &Value, strict: bool, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = validation::validate_items(term, "matchExpressions", path, |item, path| {
        validate_node_requirement(item, strict, path)
    });
    errors.extend(validation::validate_items(term, "matchFields", path, validate_field_requirement));
    errors
}

fn validate_node_requirement(requirement: &Value, strict: bool, path: &FieldPath) -> Vec<FieldError> {
    let values = texts(requirement, "/values");
    let values_path = path.child("values");
    let mut errors = Vec::new();
    match text(requirement, "/operator") {
        "In" | "NotIn" if values.is_empty() => {
            errors.push(FieldError::required(
                &values_path,
                "must be specified when `operator` is 'In' or 'NotIn'",
            ));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.push(FieldError::forbidden(&values_path, detail));
        }
        "Gt" | "Lt" if values.len() != 1 => {
            let detail = "must be specified single value when `operator` is 'Lt' or 'Gt'";
            errors.push(FieldError::required(&values_path, detail));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        other => {
            errors.push(FieldError::invalid(&path.child("operator"), other, "not a valid selector operator"));
        }
    }
    let key = text(requirement, "/key");
    errors.extend(validation::invalid_for_each(&path.child("key"), key, names::qualified_name(key)));
    for (index, value) in values.into_iter().enumerate().filter(|_| strict) {
        errors.extend(validation::invalid_for_each(
            &values_path.index(index),
            value,
            names::label_value(value),
        ));
    }
    errors
}

fn validate_field_requirement(requirement: &Value, path: &FieldPath) -> Vec<FieldError> {
    let values = texts(requirement, "/values");
    let mut errors = Vec::new();
    match text(requirement, "/operator") {
        "In" | "NotIn" if values.len() != 1 => {
            let detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
            errors.push(FieldError::required(&path.child("values"), detail));
        }
        "In" | "NotIn" => {}
        other => {
            errors.push(FieldError::invalid(&path.child("operator"), other, "not a valid selector operator"));
        }
    }
    match text(requirement, "/key") {
        "metadata.name" => {
            for (index, value) in values.into_iter().enumerate() {
                errors.extend(validation::validate_dns_subdomain(value, &path.child("values").index(index)));
            }
        }
        key => errors.push(FieldError::invalid(&path.child("key"), key, "not a valid field selector key")),
    }
    errors
}

/// Validates tolerations.
pub(crate) fn validate_tolerations(tolerations: &[Value], path: &FieldPath) -> Vec<FieldError> {
    let all = tolerations.iter().enumerate();
    all.flat_map(|(index, item)| validate_toleration(item, &path.index(index))).collect()
}

fn validate_toleration(toleration: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let field = |name: &str| text(toleration, name);
    let (key, operator, value, effect) =
        (field("/key"), field("/operator"), field("/value"), field("/effect"));
    let operator_path = path.child("operator");
    if !key.is_empty() {
        errors.extend(validation::invalid_for_each(&path.child("key"), key, names::qualified_name(key)));
    } else if operator != "Exists" {
        let detail =
            "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
        errors.push(FieldError::invalid(&operator_path, operator, detail));
    }
    if present(toleration, "/tolerationSeconds").is_some() && effect != "NoExecute" {
        let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
        errors.push(FieldError::invalid(&path.child("effect"), effect, detail));
    }
    match operator {
        "Equal" | "" => {
            let problems = names::label_value(value);
            if !problems.is_empty() {
                errors.push(FieldError::invalid(&operator_path, value, problems.join(";")));
            }
        }
        "Exists" if !value.is_empty() => {
            let detail = "value must be empty when `operator` is 'Exists'";
            errors.push(FieldError::invalid(&operator_path, value, detail));
        }
        "Exists" => {}
        other => errors.push(FieldError::not_supported(&operator_path, other, &["Equal", "Exists"])),
    }
    let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
    if !effect.is_empty() && !effects.contains(&effect) {
        errors.push(FieldError::not_supported(&path.child("effect"), effect, &effects));
    }
    errors
}

/// Validates `topologySpreadConstraints`.
pub(crate) fn validate_topology_spread_constraints(spec: &Value, path: &FieldPath) -> Vec<FieldError> {
    let constraints = list(spec, "/topologySpreadConstraints");
    let path = path.child("topologySpreadConstraints");
    let mut errors = Vec::new();
    for (index, constraint) in constraints.iter().enumerate() {
        let path = path.index(index);
        let skew = integer(constraint, "/maxSkew");
        if skew <= 0 {
            errors.push(FieldError::invalid(&path.child("maxSkew"), skew, "must be greater than zero"));
        }
        let (key, action) = (text(constraint, "/topologyKey"), text(constraint, "/whenUnsatisfiable"));
        if key.is_empty() {
            errors.push(FieldError::required(&path.child("topologyKey"), "can not be empty"));
        }
        let actions = ["DoNotSchedule", "ScheduleAnyway"];
        if !actions.contains(&action) {
            errors.push(FieldError::not_supported(&path.child("whenUnsatisfiable"), action, &actions));
        }
        let same =
            |other: &Value| text(other, "/topologyKey") == key && text(other, "/whenUnsatisfiable") == action;
        if constraints[index + 1..].iter().any(same) {
            let pair = format!("{{{key}, {action}}}");
            errors.push(FieldError::duplicate(&path.child("{topologyKey, whenUnsatisfiable}"), pair));
        }
        for field in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            errors.extend(validation::validate_supported(constraint, field, &path, &["Honor", "Ignore"]));
        }
        if let Some(selector) = present(constraint, "/labelSelector") {
            errors.extend(labels::validate_label_selector(selector, &path.child("labelSelector")));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validation::tests::messages;

    #[test]
    fn toleration_operators_and_effects_are_validated() {
        let validation_errors = |item: Value| messages(validate_tolerations(&[item], &FieldPath::root("t")));
        assert!(validation_errors(json!({"operator": "Exists"})).is_empty());
        assert!(
            validation_errors(
                json!({"key": "a", "value": "b", "effect": "NoExecute", "tolerationSeconds": 5})
            )
            .is_empty()
        );
        assert_eq!(
            validation_errors(json!({})),
            [
                r#"t[0].operator: Invalid value: "": operator must be Exists when `key` is empty, which means "match all values and all keys""#
            ]
        );
        assert_eq!(
            validation_errors(json!({"key": "a", "operator": "Like", "effect": "X", "tolerationSeconds": 1})),
            [
                r#"t[0].effect: Invalid value: "X": effect must be 'NoExecute' when `tolerationSeconds` is set"#,
                r#"t[0].operator: Unsupported value: "Like": supported values: "Equal", "Exists""#,
                r#"t[0].effect: Unsupported value: "X": supported values: "NoSchedule", "PreferNoSchedule", "NoExecute""#,
            ]
        );
        assert_eq!(
            validation_errors(json!({"key": "a", "operator": "Exists", "value": "b"})),
            [r#"t[0].operator: Invalid value: "b": value must be empty when `operator` is 'Exists'"#]
        );
    }

    #[test]
    fn affinity_requires_terms_and_weights() {
        let validation_errors =
            |given: Value| messages(validate_affinity(&json!({"affinity": given}), &FieldPath::root("s")));
        assert_eq!(
            validation_errors(json!({"nodeAffinity": {REQUIRED: {}}})),
            [
                "s.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: Required value: must have at least one node selector term"
            ]
        );
        assert_eq!(
            validation_errors(
                json!({"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In"}, {"key": "a", "operator": "?"}]}]}}})
            ),
            [
                "s.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
                r#"s.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[1].operator: Invalid value: "?": not a valid selector operator"#,
            ]
        );
        assert_eq!(
            validation_errors(
                json!({"podAntiAffinity": {PREFERRED: [{"weight": 0, "podAffinityTerm": {"topologyKey": "a"}}]}})
            ),
            [
                "s.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid value: 0: must be in the range 1-100"
            ]
        );
    }

    #[test]
    fn spread_constraints_are_unique_by_topology_key() {
        let one = json!({"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"});
        let validation_errors = |items: Value| {
            messages(validate_topology_spread_constraints(
                &json!({"topologySpreadConstraints": items}),
                &FieldPath::root("s"),
            ))
        };
        assert!(validation_errors(json!([one])).is_empty());
        assert_eq!(
            validation_errors(json!([one, one])),
            [
                r#"s.topologySpreadConstraints[0].{topologyKey, whenUnsatisfiable}: Duplicate value: "{z, DoNotSchedule}""#
            ]
        );
        assert_eq!(
            validation_errors(json!([{"whenUnsatisfiable": "x"}])),
            [
                "s.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero",
                "s.topologySpreadConstraints[0].topologyKey: Required value: can not be empty",
                r#"s.topologySpreadConstraints[0].whenUnsatisfiable: Unsupported value: "x": supported values: "DoNotSchedule", "ScheduleAnyway""#,
            ]
        );
    }
}
