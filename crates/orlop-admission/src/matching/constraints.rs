//! Constraints: rules, match policy, and the selectors of namespaces and objects.

use orlop_api::{
    group_version::{GroupVersionKind, GroupVersionResource},
    labels::Selector,
    status::Status,
};
use serde_json::Value;

use super::{MatchAttributes, NamespaceLabels, ObjectInterfaces, Rule};
use crate::Operation;

/// The constraints of a webhook, of a policy or of a policy's binding.
#[derive(Clone, Debug)]
pub struct Constraints {
    /// Rules; `None` matches every request.
    rules: Option<Vec<Rule>>,
    excluded: Vec<Rule>,
    is_equivalent: bool,
    namespaces: Result<Selector, String>,
    objects: Result<Selector, String>,
}

/// The version in which a webhook or policy sees a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    /// The resource that a rule matched.
    pub resource: GroupVersionResource,
    /// Its kind.
    pub kind: GroupVersionKind,
}

impl Constraints {
    /// Reads a webhook. One without rules matches nothing.
    pub fn of_webhook(webhook: &Value) -> Self {
        Self { rules: Some(Rule::read_all(&webhook["rules"])), ..Self::read(webhook) }
    }

    /// Reads the matchConstraints of a policy or the matchResources of a binding. No rules match everything.
    pub fn of_policy(constraints: &Value) -> Self {
        let rules = Rule::read_all(&constraints["resourceRules"]);
        Self {
            rules: (!rules.is_empty()).then_some(rules),
            excluded: Rule::read_all(&constraints["excludeResourceRules"]),
            ..Self::read(constraints)
        }
    }

    fn read(source: &Value) -> Self {
        let selector = |field: &str| match &source[field] {
            // The API server defaults it to one that selects everything.
            Value::Null => Ok(Selector::everything()),
            given => Selector::from_label_selector(given),
        };
        Self {
            rules: None,
            excluded: Vec::new(),
            is_equivalent: source["matchPolicy"] == "Equivalent",
            namespaces: selector("namespaceSelector"),
            objects: selector("objectSelector"),
        }
    }

    /// Matches a request. An error of a selector counts only if the rules match.
    pub async fn matches(
        &self,
        request: &MatchAttributes<'_>,
        interfaces: &dyn ObjectInterfaces,
        namespaces: &dyn NamespaceLabels,
    ) -> Result<Option<Match>, Status> {
        if !self.excluded.is_empty() && self.find(&self.excluded, request, interfaces).is_some() {
            return Ok(None);
        }
        let found = match &self.rules {
            None => Some(Match { resource: request.resource.clone(), kind: request.kind.clone() }),
            Some(rules) => self.find(rules, request, interfaces),
        };
        let Some(found) = found else { return Ok(None) };
        // An object that is not selected decides before a namespace that cannot be read.
        let object_matches = self.matches_object(request);
        if object_matches == Ok(false) || !self.matches_namespace(request, namespaces).await? {
            return Ok(None);
        }
        object_matches.map(|_| Some(found)).map_err(|why| Status::internal(&why))
    }

    /// Finds the first rule that matches a request, or else an equivalent of it.
    fn find(
        &self,
        rules: &[Rule],
        request: &MatchAttributes<'_>,
        interfaces: &dyn ObjectInterfaces,
    ) -> Option<Match> {
        if rules.iter().any(|rule| rule.matches(request, request.resource)) {
            return Some(Match { resource: request.resource.clone(), kind: request.kind.clone() });
        }
        // Equivalents share the plural name, so that most requests need no look at them.
        let may_match = |rule: &Rule| rule.may_match(request, request.resource);
        if !self.is_equivalent || !rules.iter().any(may_match) {
            return None;
        }
        let equivalents = interfaces.equivalents(request.resource, request.subresource);
        let others = || equivalents.iter().filter(|equivalent| equivalent.resource != *request.resource);
        rules.iter().find_map(|rule| {
            let equivalent = others().find(|equivalent| rule.matches(request, &equivalent.resource))?;
            Some(Match { resource: equivalent.resource.clone(), kind: equivalent.kind.clone() })
        })
    }

    async fn matches_namespace(
        &self,
        request: &MatchAttributes<'_>,
        namespaces: &dyn NamespaceLabels,
    ) -> Result<bool, Status> {
        let is_namespace = request.resource.resource == "namespaces";
        // Cluster-scoped objects are never exempt.
        if request.namespace.is_empty() && !is_namespace {
            return Ok(true);
        }
        let selector = self.namespaces.as_ref().map_err(|why| Status::internal(why))?;
        if selector.is_everything() {
            return Ok(true);
        }
        // A Namespace that is written is not there yet, or not with these labels.
        if is_namespace
            && request.subresource.is_empty()
            && matches!(request.operation, Operation::Create | Operation::Update)
        {
            return Ok(request.object.is_some_and(|namespace| selector.matches_object(namespace)));
        }
        let labels = namespaces.labels(request.namespace).await.map_err(|status| match status.code {
            404 => status,
            _ => Status::internal(&status.message),
        })?;
        Ok(selector.matches(Some(&labels)))
    }

    /// Returns true if the object is selected, or the one before.
    fn matches_object(&self, request: &MatchAttributes<'_>) -> Result<bool, String> {
        let selector = self.objects.as_ref().map_err(Clone::clone)?;
        let is_selected =
            |object: Option<&Value>| object.is_some_and(|object| selector.matches_object(object));
        Ok(selector.is_everything() || is_selected(request.object) || is_selected(request.old))
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use orlop_api::group_version::GroupResource;
    use serde_json::{Map, json};

    use super::*;
    use crate::matching::Equivalent;

    /// Deployments in two groups; a namespace `prod`.
    #[derive(Debug)]
    struct Cluster;

    #[async_trait]
    impl ObjectInterfaces for Cluster {
        fn equivalents(&self, _resource: &GroupVersionResource, subresource: &str) -> Vec<Equivalent> {
            let kind = |group: &str, version: &str| match subresource {
                "scale" => GroupVersionKind::new("autoscaling", "v1", "Scale"),
                _ => GroupVersionKind::new(group, version, "Deployment"),
            };
            let of = |group: &str, version: &str| Equivalent {
                resource: GroupVersionResource::new(group, version, "deployments"),
                kind: kind(group, version),
            };
            vec![of("apps", "v1"), of("apps", "v1beta1"), of("extensions", "v1beta1")]
        }

        async fn convert(&self, object: Value, _to: &GroupVersionKind) -> Result<Value, Status> {
            Ok(object)
        }

        fn decode(&self, object: Value, _kind: &GroupVersionKind) -> Result<Value, String> {
            Ok(object)
        }
    }

    #[async_trait]
    impl NamespaceLabels for Cluster {
        async fn labels(&self, namespace: &str) -> Result<Map<String, Value>, Status> {
            match namespace {
                "prod" => Ok(Map::from_iter([("env".to_owned(), "prod".into())])),
                _ => Err(Status::not_found(&GroupResource::new("", "namespaces"), namespace)),
            }
        }
    }

    async fn matches(
        constraints: &Constraints,
        request: &MatchAttributes<'_>,
    ) -> Result<Option<Match>, Status> {
        constraints.matches(request, &Cluster, &Cluster).await
    }

    fn rules(group: &str, version: &str, resources: &[&str]) -> Value {
        json!([{"operations": ["*"], "apiGroups": [group], "apiVersions": [version], "resources": resources}])
    }

    #[tokio::test]
    async fn equivalent_resources_match_unless_the_policy_is_exact() {
        let (resource, kind) = (
            GroupVersionResource::new("apps", "v1", "deployments"),
            GroupVersionKind::new("apps", "v1", "Deployment"),
        );
        let request = MatchAttributes {
            operation: Operation::Create,
            resource: &resource,
            subresource: "",
            kind: &kind,
            namespace: "prod",
            name: "d",
            object: None,
            old: None,
        };
        let webhook = |policy: &str, rules: Value| {
            Constraints::of_webhook(&json!({"rules": rules, "matchPolicy": policy}))
        };
        let extensions = rules("extensions", "*", &["deployments"]);
        assert_eq!(matches(&webhook("Exact", extensions.clone()), &request).await, Ok(None));
        let found = matches(&webhook("Equivalent", extensions), &request).await.unwrap().unwrap();
        assert_eq!(found.resource.to_string(), "extensions/v1beta1, Resource=deployments");
        assert_eq!(found.kind, GroupVersionKind::new("extensions", "v1beta1", "Deployment"));
        let exact =
            matches(&webhook("Equivalent", rules("*", "*", &["*"])), &request).await.unwrap().unwrap();
        assert_eq!(exact.resource, resource, "the request's own version comes first");
        let scale = MatchAttributes { subresource: "scale", ..request };
        let found = webhook("Equivalent", rules("extensions", "*", &["deployments/scale"]));
        let found = matches(&found, &scale).await.unwrap().unwrap();
        assert_eq!(found.kind, GroupVersionKind::new("autoscaling", "v1", "Scale"));
    }

    #[tokio::test]
    async fn selectors_count_only_where_rules_match() {
        let (resource, kind) =
            (GroupVersionResource::new("", "v1", "pods"), GroupVersionKind::new("", "v1", "Pod"));
        let pod = json!({"metadata": {"labels": {"app": "web"}}});
        let request = MatchAttributes {
            operation: Operation::Update,
            resource: &resource,
            subresource: "",
            kind: &kind,
            namespace: "prod",
            name: "p",
            object: None,
            old: Some(&pod),
        };
        let webhook = |rules: Value, namespaces: Value, objects: Value| {
            Constraints::of_webhook(
                &json!({"rules": rules, "namespaceSelector": namespaces, "objectSelector": objects}),
            )
        };
        let labels = |key: &str, value: &str| json!({"matchLabels": {key: value}});
        let pods = || rules("", "v1", &["pods"]);
        let all = || json!({});
        for (constraints, expected) in [
            (webhook(pods(), labels("env", "prod"), all()), true),
            (webhook(pods(), labels("env", "test"), all()), false),
            (webhook(pods(), all(), labels("app", "web")), true),
            (webhook(pods(), all(), labels("app", "api")), false),
        ] {
            assert_eq!(matches(&constraints, &request).await.unwrap().is_some(), expected);
        }
        let gone = MatchAttributes { namespace: "gone", ..request };
        let selecting = webhook(pods(), labels("env", "prod"), all());
        assert_eq!(matches(&selecting, &gone).await.unwrap_err().code, 404);
        let others = webhook(rules("", "v1", &["nodes"]), labels("env", "prod"), all());
        assert_eq!(matches(&others, &gone).await, Ok(None));
        let broken = webhook(pods(), all(), json!({"matchExpressions": [{"key": "a", "operator": "Like"}]}));
        assert_eq!(matches(&broken, &request).await.unwrap_err().code, 500);
    }

    #[tokio::test]
    async fn namespace_is_selected_by_its_own_labels() {
        let (resource, kind) =
            (GroupVersionResource::new("", "v1", "namespaces"), GroupVersionKind::new("", "v1", "Namespace"));
        let namespace = json!({"metadata": {"labels": {"env": "prod"}}});
        let request = MatchAttributes {
            operation: Operation::Create,
            resource: &resource,
            subresource: "",
            kind: &kind,
            namespace: "new",
            name: "new",
            object: Some(&namespace),
            old: None,
        };
        let constraints = Constraints::of_webhook(&json!({
            "rules": rules("", "v1", &["namespaces"]),
            "namespaceSelector": {"matchLabels": {"env": "prod"}},
        }));
        assert!(matches(&constraints, &request).await.unwrap().is_some());
        let deletion =
            MatchAttributes { operation: Operation::Delete, object: None, old: Some(&namespace), ..request };
        assert_eq!(matches(&constraints, &deletion).await.unwrap_err().code, 404, "it is looked up");
    }

    #[tokio::test]
    async fn policies_exclude_rules_and_match_all_without_any() {
        let (resource, kind) = (
            GroupVersionResource::new("apps", "v1", "deployments"),
            GroupVersionKind::new("apps", "v1", "Deployment"),
        );
        let request = MatchAttributes {
            operation: Operation::Create,
            resource: &resource,
            subresource: "",
            kind: &kind,
            namespace: "prod",
            name: "d",
            object: None,
            old: None,
        };
        let open = Constraints::of_policy(&json!({}));
        assert!(matches(&open, &request).await.unwrap().is_some());
        let excluding = Constraints::of_policy(&json!({
            "matchPolicy": "Equivalent", "excludeResourceRules": rules("extensions", "*", &["*"]),
        }));
        assert_eq!(matches(&excluding, &request).await, Ok(None));
    }
}
