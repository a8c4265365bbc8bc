//! The bootstrap policy: roles and bindings that every cluster has, as in Kubernetes 1.37, and the few that
//! Orlop's own controllers need besides.

use serde_json::{Map, Value, json};

use super::GROUP;

/// Roles of Kubernetes, a rule per line.
const ROLES: &str = include_str!("../../data/bootstrap-roles.tsv");
/// Bindings of Kubernetes.
const BINDINGS: &str = include_str!("../../data/bootstrap-bindings.tsv");
/// Roles and bindings of Orlop's own, in the same form.
const OWN_ROLES: &str = include_str!("../../data/orlop-roles.tsv");
const OWN_BINDINGS: &str = include_str!("../../data/orlop-bindings.tsv");

/// Annotation of objects that a start may update. With the value `false` they are protected.
pub const AUTO_UPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";
/// Label of the objects of this policy.
const BOOTSTRAPPING: (&str, &str) = ("kubernetes.io/bootstrapping", "rbac-defaults");

/// Returns all roles: ClusterRoles, and Roles with their namespaces.
pub fn roles() -> Vec<Value> {
    let mut roles: Vec<Value> = Vec::new();
    for line in rows(ROLES).chain(rows(OWN_ROLES)) {
        let [_, kind, namespace, name, labels, groups, resources, names, urls, verbs] = line.as_slice()
        else {
            continue;
        };
        let same = |role: &Value| {
            role["kind"] == *kind
                && role["metadata"]["name"] == *name
                && role["metadata"]["namespace"].as_str().unwrap_or_default() == *namespace
        };
        if !roles.last().is_some_and(same) {
            roles.push(role(kind, namespace, name, labels));
        }
        let mut rule = Map::new();
        let lists = [
            ("apiGroups", groups),
            ("resources", resources),
            ("resourceNames", names),
            ("nonResourceURLs", urls),
        ];
        for (field, list) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
            // The core group is written as two quotes.
            let values = list.split(',').map(|value| if value == "''" { "" } else { value });
            rule.insert(field.to_owned(), values.collect());
        }
        if verbs.is_empty() {
            continue;
        }
        rule.insert("verbs".to_owned(), verbs.split(',').collect());
        if let Some(rules) = roles.last_mut().and_then(|role| role["rules"].as_array_mut()) {
            rules.push(rule.into());
        }
    }
    roles
}

fn role(kind: &str, namespace: &str, name: &str, labels: &str) -> Value {
    let mut role = object(kind, namespace, name);
    role["rules"] = json!([]);
    let mut selectors = Vec::new();
    for item in labels.split_ascii_whitespace() {
        let (item, aggregates) = match item.strip_prefix("aggregates:") {
            Some(item) => (item, true),
            None => (item, false),
        };
        let Some((key, value)) = item.split_once('=') else { continue };
        if aggregates {
            selectors.push(json!({"matchLabels": {key: value}}));
        } else {
            role["metadata"]["labels"][key] = value.into();
        }
    }
    if !selectors.is_empty() {
        role["aggregationRule"] = json!({"clusterRoleSelectors": selectors});
    }
    role
}

/// Returns all bindings: ClusterRoleBindings, and RoleBindings with their namespaces.
pub fn bindings() -> Vec<Value> {
    let lines = rows(BINDINGS).chain(rows(OWN_BINDINGS));
    let bindings = lines.filter_map(|line| {
        let [_, kind, namespace, name, role, subjects] = line.as_slice() else { return None };
        let (role_kind, role) = role.split_once('/')?;
        let mut binding = object(kind, namespace, name);
        binding["roleRef"] = json!({"apiGroup": GROUP, "kind": role_kind, "name": role});
        let subjects: Vec<Value> = subjects.split("; ").filter_map(subject).collect();
        if !subjects.is_empty() {
            binding["subjects"] = subjects.into();
        }
        Some(binding)
    });
    bindings.collect()
}

/// Parses `User:NAME`, `Group:NAME` or `ServiceAccount:NAMESPACE/NAME`.
fn subject(text: &str) -> Option<Value> {
    let (kind, name) = text.split_once(':')?;
    match kind {
        "ServiceAccount" => {
            let (namespace, name) = name.split_once('/')?;
            Some(json!({"kind": kind, "name": name, "namespace": namespace}))
        }
        _ => Some(json!({"apiGroup": GROUP, "kind": kind, "name": name})),
    }
}

fn object(kind: &str, namespace: &str, name: &str) -> Value {
    let mut metadata = json!({
        "name": name,
        "annotations": {AUTO_UPDATE: "true"},
        "labels": {BOOTSTRAPPING.0: BOOTSTRAPPING.1},
    });
    if !namespace.is_empty() {
        metadata["namespace"] = namespace.into();
    }
    json!({"apiVersion": format!("{GROUP}/v1"), "kind": kind, "metadata": metadata})
}

/// Returns the cells of a table's rows after its header.
fn rows(table: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    table.lines().skip(1).filter(|line| !line.is_empty()).map(|line| line.split('\t').collect())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_line_of_the_tables_is_in_the_policy() {
        let rules: usize = roles().iter().map(|role| role["rules"].as_array().map_or(0, Vec::len)).sum();
        let with_rules = |table| rows(table).filter(|line| !line[9].is_empty()).count();
        assert_eq!(rules, with_rules(ROLES) + with_rules(OWN_ROLES));
        assert_eq!(bindings().len(), rows(BINDINGS).count() + rows(OWN_BINDINGS).count());
        let names: BTreeSet<String> = roles().iter().map(|role| role["metadata"].to_string()).collect();
        assert_eq!(names.len(), roles().len());
    }

    #[test]
    fn every_binding_names_a_role_of_the_policy() {
        let roles = roles();
        for binding in bindings() {
            let namespace = match binding["roleRef"]["kind"].as_str() {
                Some("Role") => &binding["metadata"]["namespace"],
                _ => &Value::Null,
            };
            let named = roles.iter().any(|role| {
                role["kind"] == binding["roleRef"]["kind"]
                    && role["metadata"]["name"] == binding["roleRef"]["name"]
                    && role["metadata"].get("namespace").unwrap_or(&Value::Null) == namespace
            });
            assert!(named, "{binding}");
        }
    }

    #[test]
    fn roles_have_labels_aggregation_and_rules() {
        let roles = roles();
        let find = |name: &str| roles.iter().find(|role| role["metadata"]["name"] == name).cloned();
        assert_eq!(
            find("edit"),
            Some(json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                "metadata": {"name": "edit", "annotations": {AUTO_UPDATE: "true"}, "labels": {
                    "kubernetes.io/bootstrapping": "rbac-defaults",
                    "rbac.authorization.k8s.io/aggregate-to-admin": "true"}},
                "aggregationRule": {"clusterRoleSelectors": [
                    {"matchLabels": {"rbac.authorization.k8s.io/aggregate-to-edit": "true"}}]},
                "rules": [],
            }))
        );
        let basic = find("system:basic-user").unwrap_or_default();
        assert_eq!(
            basic["rules"],
            json!([
                {"apiGroups": ["authorization.k8s.io"], "verbs": ["create"],
                    "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"]},
                {"apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"], "verbs": ["create"]},
            ])
        );
        let events = find("system:kube-scheduler").unwrap_or_default();
        assert_eq!(events["rules"][0]["apiGroups"], json!(["", "events.k8s.io"]));
    }
}
