//! Node selectors, node affinity and taints. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodSpec, Taint, Toleration,
};
use orlop_client::ResourceExt;

/// Returns whether a requirement holds for a value that may be absent.
fn holds(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let contains = |value: &str| values.iter().any(|wanted| wanted == value);
    let compares = |wanted: fn(i64, i64) -> bool| {
        let given = value.and_then(|value| value.parse::<i64>().ok());
        let limit = values.first().and_then(|limit| limit.parse::<i64>().ok());
        given.zip(limit).is_some_and(|(given, limit)| wanted(given, limit))
    };
    match requirement.operator.as_str() {
        "In" => value.is_some_and(contains),
        "NotIn" => value.is_none_or(|value| !contains(value)),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compares(|given, limit| given > limit),
        "Lt" => compares(|given, limit| given < limit),
        _ => false,
    }
}

/// Returns whether a node matches a term. An empty term matches nothing.
pub(crate) fn matches_term(term: &NodeSelectorTerm, name: &str, labels: &BTreeMap<String, String>) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    if expressions.is_empty() && fields.is_empty() {
        return false;
    }
    let label = |requirement: &NodeSelectorRequirement| {
        holds(requirement, labels.get(&requirement.key).map(String::as_str))
    };
    let field = |requirement: &NodeSelectorRequirement| {
        requirement.key == "metadata.name" && holds(requirement, Some(name))
    };
    expressions.iter().all(label) && fields.iter().all(field)
}

/// Returns whether a node matches one of the terms.
pub(crate) fn matches_selector(selector: &NodeSelector, node: &Node) -> bool {
    let name = node.name_any();
    selector.node_selector_terms.iter().any(|term| matches_term(term, &name, node.labels()))
}

/// Returns whether a node matches a pod's nodeSelector and required node affinity.
pub(crate) fn matches_pod(spec: &PodSpec, node: &Node) -> bool {
    let labels = node.labels();
    let mut selected = spec.node_selector.iter().flatten();
    if !selected.all(|(key, value)| labels.get(key) == Some(value)) {
        return false;
    }
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required =
        affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    required.is_none_or(|required| matches_selector(required, node))
}

/// Returns whether a toleration tolerates a taint.
pub(crate) fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let is_effect =
        toleration.effect.as_deref().is_none_or(|effect| effect.is_empty() || effect == taint.effect);
    let key = toleration.key.as_deref().unwrap_or_default();
    if !is_effect || !key.is_empty() && key != taint.key {
        return false;
    }
    let (given, wanted) = (taint.value.as_deref().unwrap_or_default(), toleration.value.as_deref());
    let wanted = wanted.unwrap_or_default();
    let compares = |holds: fn(i64, i64) -> bool| match (given.parse::<i64>(), wanted.parse::<i64>()) {
        (Ok(given), Ok(wanted)) => holds(given, wanted),
        _ => false,
    };
    match toleration.operator.as_deref().unwrap_or_default() {
        "" | "Equal" => given == wanted,
        "Exists" => true,
        "Lt" => compares(|given, wanted| given < wanted),
        "Gt" => compares(|given, wanted| given > wanted),
        _ => false,
    }
}

/// Returns a node's taints.
pub(crate) fn taints(node: &Node) -> &[Taint] {
    node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default()
}

/// Returns the first taint with one of the effects that no toleration tolerates.
pub(crate) fn untolerated<'a>(
    taints: &'a [Taint],
    tolerations: &[Toleration],
    effects: &[&str],
) -> Option<&'a Taint> {
    taints
        .iter()
        .filter(|taint| effects.contains(&taint.effect.as_str()))
        .find(|taint| !tolerations.iter().any(|toleration| tolerates(toleration, taint)))
}

/// Returns whether a node's condition Ready is true.
pub(crate) fn is_ready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(labels: Value) -> Node {
        serde_json::from_value(json!({"metadata": {"name": "a", "labels": labels}})).unwrap()
    }

    fn matches(spec: Value) -> bool {
        let spec: PodSpec = serde_json::from_value(spec).unwrap();
        matches_pod(&spec, &node(json!({"zone": "x", "cores": "8"})))
    }

    fn required(terms: Value) -> Value {
        json!({"containers": [], "affinity": {"nodeAffinity":
            {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}})
    }

    #[test]
    fn node_affinity_matches_as_kubernetes() {
        assert!(matches(json!({"containers": []})));
        assert!(matches(json!({"containers": [], "nodeSelector": {"zone": "x"}})));
        assert!(!matches(json!({"containers": [], "nodeSelector": {"zone": "y"}})));
        let term = |key: &str, operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        assert!(matches(required(json!([term("zone", "In", &["y"]), term("cores", "Gt", &["4"])]))));
        assert!(!matches(required(json!([term("cores", "Lt", &["8"])]))));
        assert!(matches(required(json!([term("other", "NotIn", &["z"])]))));
        assert!(!matches(required(json!([term("zone", "DoesNotExist", &[])]))));
        assert!(!matches(required(json!([{}]))), "an empty term matches nothing");
        let field = json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}]);
        assert!(matches(required(field)));
    }

    #[test]
    fn tolerations_match_as_kubernetes() {
        let taint: Taint =
            serde_json::from_value(json!({"key": "k", "value": "v", "effect": "NoSchedule"})).unwrap();
        let tolerated = |toleration: Value| tolerates(&serde_json::from_value(toleration).unwrap(), &taint);
        assert!(tolerated(json!({"operator": "Exists"})));
        assert!(tolerated(json!({"key": "k", "operator": "Exists", "effect": "NoSchedule"})));
        assert!(tolerated(json!({"key": "k", "value": "v"})));
        assert!(!tolerated(json!({"key": "k", "value": "w"})));
        assert!(!tolerated(json!({"key": "k", "operator": "Exists", "effect": "NoExecute"})));
    }
}
