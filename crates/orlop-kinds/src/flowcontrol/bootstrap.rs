//! The default configuration of API Priority and Fairness, and the rules by which a server keeps it.
//!
//! Mandatory objects always have their spec. Suggested ones are updated unless somebody has taken them over, which the
//! annotation [`AUTO_UPDATE`] says.

use serde_json::{Value, json};

use super::GROUP;
use crate::{
    accessors::{annotation, integer, text},
    equality::semantically_equal,
};

/// Annotation that says whether a server keeps the spec of an object at its default.
pub const AUTO_UPDATE: &str = "apf.kubernetes.io/autoupdate-spec";

const AUTHENTICATED: &str = "system:authenticated";
const UNAUTHENTICATED: &str = "system:unauthenticated";
const NODES: &str = "system:nodes";

/// Returns the objects without which requests could not be classified: levels, then schemas.
pub fn mandatory() -> Vec<Value> {
    let everyone = || groups(&[UNAUTHENTICATED, AUTHENTICATED]);
    vec![
        level("catch-all", limited(5, 0, json!({"type": "Reject"}))),
        level(
            "exempt",
            json!({"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}}),
        ),
        schema("exempt", "exempt", 1, "", vec![everything(groups(&["system:masters"]))]),
        schema("catch-all", "catch-all", 10_000, "ByUser", vec![everything(everyone())]),
    ]
}

/// Returns the objects of a good start: levels, then schemas by precedence.
pub fn suggested() -> Vec<Value> {
    let everyone = || groups(&[UNAUTHENTICATED, AUTHENTICATED]);
    let system_accounts = || {
        vec![json!({"kind": "ServiceAccount", "serviceAccount": {"namespace": "kube-system", "name": "*"}})]
    };
    let queued = |name: &str, shares: u32, lendable: u32, queues: u32, hand: u32| {
        let queuing = json!({"queues": queues, "handSize": hand, "queueLengthLimit": 50});
        level(name, limited(shares, lendable, json!({"type": "Queue", "queuing": queuing})))
    };
    let leases = |verbs: &[&str]| resource_rule(verbs, "coordination.k8s.io", &["leases"], false);
    let mut leaders = users(&["system:kube-controller-manager", "system:kube-scheduler"]);
    leaders.extend(system_accounts());
    vec![
        queued("system", 30, 33, 64, 6),
        queued("node-high", 40, 25, 64, 6),
        queued("leader-election", 10, 0, 16, 4),
        queued("workload-high", 40, 50, 128, 6),
        queued("workload-low", 100, 90, 128, 6),
        queued("global-default", 20, 50, 128, 6),
        schema(
            "probes",
            "exempt",
            2,
            "",
            vec![json!({"subjects": everyone(),
                "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/healthz", "/readyz", "/livez"]}]})],
        ),
        schema(
            "system-leader-election",
            "leader-election",
            100,
            "ByUser",
            vec![json!({"subjects": leaders, "resourceRules": [leases(&["get", "create", "update"])]})],
        ),
        schema(
            "system-node-high",
            "node-high",
            400,
            "ByUser",
            vec![json!({"subjects": groups(&[NODES]), "resourceRules": [
                resource_rule(&["*"], "", &["nodes", "nodes/status"], true), leases(&["*"])]})],
        ),
        schema("system-nodes", "system", 500, "ByUser", vec![everything(groups(&[NODES]))]),
        schema(
            "kube-controller-manager",
            "workload-high",
            800,
            "ByNamespace",
            vec![everything(users(&["system:kube-controller-manager"]))],
        ),
        schema(
            "kube-scheduler",
            "workload-high",
            800,
            "ByNamespace",
            vec![everything(users(&["system:kube-scheduler"]))],
        ),
        schema(
            "kube-system-service-accounts",
            "workload-high",
            900,
            "ByNamespace",
            vec![everything(system_accounts())],
        ),
        schema(
            "service-accounts",
            "workload-low",
            9000,
            "ByUser",
            vec![everything(groups(&["system:serviceaccounts"]))],
        ),
        schema("global-default", "global-default", 9900, "ByUser", vec![everything(everyone())]),
    ]
}

fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": format!("{GROUP}/v1"), "kind": kind,
        "metadata": {"name": name, "annotations": {AUTO_UPDATE: "true"}}, "spec": spec})
}

fn level(name: &str, spec: Value) -> Value {
    object("PriorityLevelConfiguration", name, spec)
}

fn limited(shares: u32, lendable: u32, response: Value) -> Value {
    json!({"type": "Limited", "limited":
        {"nominalConcurrencyShares": shares, "lendablePercent": lendable, "limitResponse": response}})
}

fn schema(name: &str, level: &str, precedence: u32, distinguisher: &str, rules: Vec<Value>) -> Value {
    let mut spec = json!({"priorityLevelConfiguration": {"name": level}, "matchingPrecedence": precedence,
        "rules": rules});
    if !distinguisher.is_empty() {
        spec["distinguisherMethod"] = json!({"type": distinguisher});
    }
    object("FlowSchema", name, spec)
}

fn everything(subjects: Vec<Value>) -> Value {
    json!({"subjects": subjects, "resourceRules": [resource_rule(&["*"], "*", &["*"], true)],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}]})
}

fn resource_rule(verbs: &[&str], group: &str, resources: &[&str], cluster_scope: bool) -> Value {
    let mut rule = json!({"verbs": verbs, "apiGroups": [group], "resources": resources, "namespaces": ["*"]});
    if cluster_scope {
        rule["clusterScope"] = true.into();
    }
    rule
}

fn groups(names: &[&str]) -> Vec<Value> {
    names.iter().map(|name| json!({"kind": "Group", "group": {"name": name}})).collect()
}

fn users(names: &[&str]) -> Vec<Value> {
    names.iter().map(|name| json!({"kind": "User", "user": {"name": name}})).collect()
}

/// Returns an existing object as a server wants it, if that differs. `default` is the object of this module.
pub fn revise(existing: &Value, default: &Value, is_mandatory: bool) -> Option<Value> {
    let annotated = annotation(existing, AUTO_UPDATE);
    let is_kept =
        is_mandatory || parse_bool(annotated).unwrap_or(integer(existing, "/metadata/generation") == 1);
    let is_annotated = parse_bool(annotated) == Some(is_kept);
    let is_changed = is_kept
        && !semantically_equal(existing.get("spec").unwrap_or(&Value::Null), &wanted_spec(existing, default));
    if is_annotated && !is_changed {
        return None;
    }
    let mut revised = existing.clone();
    if is_changed {
        revised["spec"] = wanted_spec(existing, default);
    }
    if !is_annotated {
        if !revised["metadata"]["annotations"].is_object() {
            revised["metadata"]["annotations"] = json!({});
        }
        revised["metadata"]["annotations"][AUTO_UPDATE] = is_kept.to_string().into();
    }
    Some(revised)
}

/// Returns the default spec. The limits of the exempt level are the administrator's.
fn wanted_spec(existing: &Value, default: &Value) -> Value {
    let mut spec = default["spec"].clone();
    if text(default, "/spec/type") == "Exempt"
        && let Some(exempt) = existing.pointer("/spec/exempt").filter(|exempt| exempt.is_object())
    {
        spec["exempt"] = exempt.clone();
    }
    spec
}

/// Returns true if an object was a default of another version: it is to be removed.
pub fn is_unwanted(existing: &Value) -> bool {
    let is_default = |default: &Value| {
        text(default, "/kind") == text(existing, "/kind")
            && text(default, "/metadata/name") == text(existing, "/metadata/name")
    };
    parse_bool(annotation(existing, AUTO_UPDATE)) == Some(true)
        && !mandatory().iter().chain(&suggested()).any(is_default)
}

/// Returns the mandatory object of a kind and name.
pub(super) fn mandatory_object(kind: &str, name: &str) -> Option<Value> {
    // Most names are not mandatory ones.
    if !matches!(name, "exempt" | "catch-all") {
        return None;
    }
    mandatory()
        .into_iter()
        .find(|object| text(object, "/kind") == kind && text(object, "/metadata/name") == name)
}

/// Parses a boolean as Go's `strconv.ParseBool`.
fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn default(name: &str) -> Value {
        let objects = mandatory().into_iter().chain(suggested());
        let mut levels = objects.filter(|object| object["kind"] == "PriorityLevelConfiguration");
        levels.find(|object| object["metadata"]["name"] == name).unwrap()
    }

    #[test]
    fn suggested_objects_are_kept_until_they_are_taken_over() {
        let bootstrap = default("workload-low");
        assert_eq!(revise(&bootstrap, &bootstrap, false), None);
        let mut changed = bootstrap.clone();
        changed["spec"]["limited"]["nominalConcurrencyShares"] = 7.into();
        assert_eq!(revise(&changed, &bootstrap, false), Some(bootstrap.clone()));
        changed["metadata"]["annotations"][AUTO_UPDATE] = "false".into();
        assert_eq!(revise(&changed, &bootstrap, false), None);
        // Without the annotation the generation decides, and the annotation says what was decided.
        for (generation, kept) in [(1, "true"), (2, "false")] {
            changed["metadata"] = json!({"name": "workload-low", "generation": generation});
            let revised = revise(&changed, &bootstrap, false).unwrap();
            assert_eq!(revised["metadata"]["annotations"][AUTO_UPDATE], kept);
            assert_eq!(revised["spec"] == bootstrap["spec"], generation == 1);
        }
    }

    #[test]
    fn mandatory_objects_are_always_kept() {
        let bootstrap = default("catch-all");
        let mut changed = bootstrap.clone();
        changed["spec"]["limited"]["nominalConcurrencyShares"] = 7.into();
        changed["metadata"]["annotations"][AUTO_UPDATE] = "false".into();
        assert_eq!(revise(&changed, &bootstrap, true), Some(bootstrap));
        let exempt = default("exempt");
        let mut changed = exempt.clone();
        changed["spec"]["exempt"]["nominalConcurrencyShares"] = 7.into();
        assert_eq!(revise(&changed, &exempt, true), None);
    }

    #[test]
    fn objects_of_other_versions_are_unwanted() {
        let mut level = default("workload-low");
        assert!(!is_unwanted(&level));
        level["metadata"]["name"] = "workload-middle".into();
        assert!(is_unwanted(&level));
        level["metadata"]["annotations"][AUTO_UPDATE] = "no".into();
        assert!(!is_unwanted(&level));
    }
}
