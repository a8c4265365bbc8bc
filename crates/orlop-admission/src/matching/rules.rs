//! Rules: operations, groups, versions, resources and scope of the requests that a webhook or policy is for.

use orlop_api::group_version::GroupVersionResource;
use serde_json::Value;

use super::MatchAttributes;

/// A rule with operations (`RuleWithOperations`, and `NamedRuleWithOperations` of policies).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    /// Resource and subresource: `pods`, `*`; empty, `status`, `*`.
    resources: Vec<(String, String)>,
    scope: Scope,
    /// Names of objects; empty for all. Only policies have them.
    names: Vec<String>,
}

/// Scope of a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Scope {
    #[default]
    All,
    Namespaced,
    Cluster,
}

impl Rule {
    /// Reads a list of rules.
    pub fn read_all(rules: &Value) -> Vec<Self> {
        rules.as_array().into_iter().flatten().map(Self::read).collect()
    }

    fn read(rule: &Value) -> Self {
        let texts = |field: &str| -> Vec<String> {
            let items = rule.get(field).and_then(Value::as_array).into_iter().flatten();
            items.filter_map(|item| item.as_str().map(str::to_owned)).collect()
        };
        let split = |resource: String| match resource.split_once('/') {
            Some((resource, subresource)) => (resource.to_owned(), subresource.to_owned()),
            None => (resource, String::new()),
        };
        Self {
            operations: texts("operations"),
            groups: texts("apiGroups"),
            versions: texts("apiVersions"),
            resources: texts("resources").into_iter().map(split).collect(),
            scope: match rule.get("scope").and_then(Value::as_str) {
                Some("Namespaced") => Scope::Namespaced,
                Some("Cluster") => Scope::Cluster,
                _ => Scope::All,
            },
            names: texts("resourceNames"),
        }
    }

    /// Returns true if a request matches, taken as one for `resource`.
    pub(super) fn matches(&self, request: &MatchAttributes<'_>, resource: &GroupVersionResource) -> bool {
        self.may_match(request, resource)
            && is_listed(&self.groups, &resource.group)
            && is_listed(&self.versions, &resource.version)
    }

    /// Returns true if a request matches in some group and version.
    pub(super) fn may_match(&self, request: &MatchAttributes<'_>, resource: &GroupVersionResource) -> bool {
        let is_resource = |(name, subresource): &(String, String)| {
            (name == "*" || *name == resource.resource)
                && (subresource == "*" || subresource == request.subresource)
        };
        is_listed(&self.operations, request.operation.name())
            && self.resources.iter().any(is_resource)
            && self.has_scope(request, resource)
            && (self.names.is_empty() || self.names.iter().any(|name| name == request.name))
    }

    /// Returns true if a request has the rule's scope. A Namespace, which is in itself, is cluster-scoped.
    fn has_scope(&self, request: &MatchAttributes<'_>, resource: &GroupVersionResource) -> bool {
        let is_namespace = (resource.group.as_str(), resource.version.as_str(), resource.resource.as_str())
            == ("", "v1", "namespaces");
        let is_cluster_scoped = is_namespace || request.namespace.is_empty();
        match self.scope {
            Scope::All => true,
            Scope::Namespaced => !is_cluster_scoped,
            Scope::Cluster => is_cluster_scoped,
        }
    }
}

fn is_listed(items: &[String], wanted: &str) -> bool {
    items.iter().any(|item| item == "*" || item == wanted)
}

#[cfg(test)]
mod tests {
    use orlop_api::group_version::GroupVersionKind;
    use serde_json::json;

    use super::*;
    use crate::Operation;

    /// Returns true if a rule matches a request: operation, apiVersion/resource/subresource and namespace.
    fn matches(rule: Value, operation: Operation, resource: (&str, &str, &str), namespace: &str) -> bool {
        let (name, subresource) = resource.2.split_once('/').unwrap_or((resource.2, ""));
        let resource = GroupVersionResource::new(resource.0, resource.1, name);
        let kind = GroupVersionKind::new("", "v1", "Any");
        let request = MatchAttributes {
            operation,
            resource: &resource,
            subresource,
            kind: &kind,
            namespace,
            name: "n",
            object: None,
            old: None,
        };
        let rules = Rule::read_all(&json!([rule]));
        rules.iter().all(|rule| rule.matches(&request, &resource))
    }

    fn rule(operations: &[&str], groups: &[&str], versions: &[&str], resources: &[&str]) -> Value {
        json!({"operations": operations, "apiGroups": groups, "apiVersions": versions, "resources": resources})
    }

    #[test]
    fn operations_groups_and_versions_match_exactly_or_by_wildcard() {
        let pods = ("", "v1", "pods");
        let deployments = ("apps", "v1", "deployments");
        let pod_creates = rule(&["CREATE"], &[""], &["v1"], &["pods"]);
        assert!(matches(pod_creates.clone(), Operation::Create, pods, "a"));
        assert!(!matches(pod_creates.clone(), Operation::Update, pods, "a"));
        assert!(!matches(pod_creates.clone(), Operation::Create, deployments, "a"));
        assert!(!matches(pod_creates, Operation::Create, ("", "v2", "pods"), "a"));
        let all = rule(&["*"], &["*"], &["*"], &["*"]);
        for operation in [Operation::Create, Operation::Update, Operation::Delete, Operation::Connect] {
            assert!(matches(all.clone(), operation, deployments, "a"));
        }
    }

    #[test]
    fn subresources_match_only_where_they_are_named() {
        let of = |resources: &[&str]| rule(&["*"], &["*"], &["*"], resources);
        let (pods, status, scale) =
            (("", "v1", "pods"), ("", "v1", "pods/status"), ("apps", "v1", "deployments/scale"));
        for (resources, expected) in [
            (&["*"][..], [true, false, false]),
            (&["*/*"], [true, true, true]),
            (&["pods/*"], [true, true, false]),
            (&["pods/status"], [false, true, false]),
            (&["*/scale"], [false, false, true]),
            (&["pods", "deployments/scale"], [true, false, true]),
        ] {
            let found = [pods, status, scale].map(|it| matches(of(resources), Operation::Update, it, "a"));
            assert_eq!(found, expected, "{resources:?}");
        }
    }

    #[test]
    fn namespaces_are_cluster_scoped() {
        let scoped = |scope: &str| {
            let mut rule = rule(&["*"], &["*"], &["*"], &["*"]);
            rule["scope"] = scope.into();
            rule
        };
        let (pods, nodes, namespaces) = (("", "v1", "pods"), ("", "v1", "nodes"), ("", "v1", "namespaces"));
        for (scope, expected) in [
            ("*", [true, true, true]),
            ("Namespaced", [true, false, false]),
            ("Cluster", [false, true, true]),
        ] {
            let found = [(pods, "a"), (nodes, ""), (namespaces, "a")]
                .map(|(resource, namespace)| matches(scoped(scope), Operation::Create, resource, namespace));
            assert_eq!(found, expected, "{scope}");
        }
    }

    #[test]
    fn resource_names_narrow_a_rule() {
        let mut named = rule(&["*"], &["*"], &["*"], &["*"]);
        named["resourceNames"] = json!(["n"]);
        assert!(matches(named.clone(), Operation::Create, ("", "v1", "pods"), "a"));
        named["resourceNames"] = json!(["m"]);
        assert!(!matches(named, Operation::Create, ("", "v1", "pods"), "a"));
    }
}
