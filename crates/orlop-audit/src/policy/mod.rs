//! Audit policy: the level of a request is that of the first rule that matches it.

mod file;

use orlop_api::user::UserInfo;
use orlop_auth::request::Attributes;

pub use file::PolicyError;

use crate::stage::{Level, StageSet};

/// The policy that applies if there is a backend and no policy file.
pub const DEFAULT: &str = include_str!("default.yaml");

/// An audit policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    rules: Vec<Rule>,
    omit_stages: StageSet,
    omit_managed_fields: bool,
}

/// A rule. An empty list matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Rule {
    level: Level,
    users: Vec<String>,
    groups: Vec<String>,
    verbs: Vec<String>,
    resources: Vec<GroupResources>,
    namespaces: Vec<String>,
    paths: Vec<String>,
    omit_stages: StageSet,
    omit_managed_fields: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct GroupResources {
    group: String,
    resources: Vec<String>,
    names: Vec<String>,
}

/// The audit of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// The level.
    pub level: Level,
    /// Stages without an event.
    pub omit_stages: StageSet,
    /// True if objects are recorded without their managed fields.
    pub omit_managed_fields: bool,
}

impl Policy {
    /// Returns the audit of a request. `user` is `None` if the request is not authenticated.
    pub fn evaluate(&self, attributes: &Attributes, user: Option<&UserInfo>) -> Verdict {
        match self.rules.iter().find(|rule| rule.matches(attributes, user)) {
            Some(rule) => Verdict {
                level: rule.level,
                omit_stages: rule.omit_stages,
                omit_managed_fields: rule.omit_managed_fields,
            },
            None => Verdict {
                level: Level::None,
                omit_stages: self.omit_stages,
                omit_managed_fields: self.omit_managed_fields,
            },
        }
    }
}

/// Returns true if a list is empty or has a value.
fn selects(list: &[String], value: &str) -> bool {
    list.is_empty() || list.iter().any(|entry| entry == value)
}

impl Rule {
    fn matches(&self, attributes: &Attributes, user: Option<&UserInfo>) -> bool {
        let named = self.users.is_empty() || user.is_some_and(|user| self.users.contains(&user.name));
        let member = self.groups.is_empty()
            || user.is_some_and(|user| user.groups.iter().any(|group| self.groups.contains(group)));
        if !named || !member || !selects(&self.verbs, attributes.verb.as_str()) {
            return false;
        }
        if !self.namespaces.is_empty() || !self.resources.is_empty() {
            return attributes.is_resource_request
                && selects(&self.namespaces, namespace_of(attributes))
                && (self.resources.is_empty()
                    || self.resources.iter().any(|resources| resources.matches(attributes)));
        }
        self.paths.is_empty()
            || !attributes.is_resource_request
                && self.paths.iter().any(|pattern| path_matches(pattern, &attributes.path))
    }
}

impl GroupResources {
    fn matches(&self, attributes: &Attributes) -> bool {
        if self.group != attributes.group && self.group != "*" {
            return false;
        }
        if self.resources.is_empty() {
            return true;
        }
        if !selects(&self.names, attributes.object_name()) {
            return false;
        }
        let (resource, subresource) = (attributes.resource.as_str(), attributes.subresource_name());
        self.resources.iter().any(|pattern| match pattern.split_once('/') {
            _ if pattern == "*" => true,
            // A resource does not include its subresources.
            None => subresource.is_empty() && pattern == resource,
            Some(("*", wanted)) if wanted == subresource && !subresource.is_empty() => true,
            // `pods/*` includes pods themselves, as in Kubernetes.
            Some((wanted, "*")) if wanted == resource => true,
            Some((wanted, of)) => wanted == resource && of == subresource,
        })
    }
}

/// Returns the namespace of a request. Kubernetes regards a namespace as in itself.
pub(crate) fn namespace_of(attributes: &Attributes) -> &str {
    let is_namespace = attributes.resource == "namespaces" && attributes.group.is_empty();
    if is_namespace { &attributes.name } else { &attributes.namespace }
}

fn path_matches(pattern: &str, path: &str) -> bool {
    let prefix = || pattern.ends_with('*').then(|| pattern.trim_end_matches('*'));
    pattern == path || prefix().is_some_and(|prefix| path.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use http::Method;
    use orlop_api::query::Query;

    use super::*;
    use crate::stage::Stage;

    fn policy(rules: &str) -> Policy {
        let text = format!("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n{rules}");
        Policy::parse(text.as_bytes()).unwrap()
    }

    fn level_for(policy: &Policy, user: &UserInfo, method: Method, uri: &str) -> Level {
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        let attributes = Attributes::of(&method, path, &Query::parse(query));
        policy.evaluate(&attributes, Some(user)).level
    }

    fn matches(rule: &str, method: Method, uri: &str) -> bool {
        let user = UserInfo::authenticated("ann", ["dev".to_owned()]);
        level_for(&policy(&format!("- {{level: Metadata, {rule}}}")), &user, method, uri) == Level::Metadata
    }

    #[test]
    fn rules_match_as_in_kubernetes() {
        let pod = "/api/v1/namespaces/a/pods/x";
        let log = "/api/v1/namespaces/a/pods/x/log";
        let by_name = "/api/v1/namespaces/a/pods?watch=1&fieldSelector=metadata.name%3Dx";
        for (rule, uri, expected) in [
            ("users: [ann]", pod, true),
            ("users: [bob]", pod, false),
            ("userGroups: [ops, dev]", pod, true),
            ("userGroups: [ops]", pod, false),
            ("verbs: [get]", pod, true),
            ("verbs: [list]", pod, false),
            ("namespaces: [a]", pod, true),
            ("namespaces: [b]", pod, false),
            ("namespaces: ['']", "/api/v1/nodes/n", true),
            ("namespaces: ['']", "/healthz", false),
            ("namespaces: [a]", "/api/v1/namespaces/a", true),
            ("resources: [{group: ''}]", pod, true),
            ("resources: [{group: '*'}]", pod, true),
            ("resources: [{group: apps}]", pod, false),
            ("resources: [{resources: [pods]}]", pod, true),
            ("resources: [{resources: [pods]}]", log, false),
            ("resources: [{resources: [pods/log]}]", log, true),
            ("resources: [{resources: ['pods/*']}]", log, true),
            ("resources: [{resources: ['pods/*']}]", pod, true),
            ("resources: [{resources: ['*/log']}]", log, true),
            ("resources: [{resources: ['*/log']}]", pod, false),
            ("resources: [{resources: ['*']}]", log, true),
            ("resources: [{resources: [pods], resourceNames: [x]}]", pod, true),
            ("resources: [{resources: [pods], resourceNames: [z]}]", pod, false),
            ("resources: [{resources: [pods], resourceNames: [x]}]", by_name, true),
            ("resources: [{resources: [pods], resourceNames: [z]}]", by_name, false),
            ("resources: [{resources: ['*']}]", "/healthz", false),
            ("nonResourceURLs: ['*']", "/healthz", true),
            ("nonResourceURLs: ['*']", pod, false),
            ("nonResourceURLs: ['/healthz*']", "/healthz/etcd", true),
            ("nonResourceURLs: ['/healthz']", "/healthz/etcd", false),
            ("nonResourceURLs: ['/api*']", "/apis", true),
            ("users: [ann]", "/healthz", true),
        ] {
            assert_eq!(matches(rule, Method::GET, uri), expected, "{rule} for {uri}");
        }
        assert!(matches("verbs: [deletecollection]", Method::DELETE, "/api/v1/namespaces/a/pods"));
        assert!(matches("verbs: [post]", Method::POST, "/logs"));
    }

    #[test]
    fn first_matching_rule_decides_and_no_rule_means_none() {
        let policy = policy("- {level: None, verbs: [get]}\n- {level: Request, users: [ann]}");
        let (ann, bob) = (UserInfo::authenticated("ann", []), UserInfo::authenticated("bob", []));
        let pods = "/api/v1/namespaces/a/pods";
        assert_eq!(level_for(&policy, &ann, Method::GET, "/api/v1/namespaces/a/pods/x"), Level::None);
        assert_eq!(level_for(&policy, &ann, Method::POST, pods), Level::Request);
        assert_eq!(level_for(&policy, &bob, Method::POST, pods), Level::None);
        let unauthenticated = policy.evaluate(&Attributes::of(&Method::POST, pods, &Query::default()), None);
        assert_eq!(unauthenticated.level, Level::None);
    }

    #[test]
    fn stages_and_managed_fields_of_the_policy_apply_to_rules() {
        let text = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\n\
                    omitManagedFields: true\nrules:\n\
                    - {level: Request, verbs: [get], omitManagedFields: false, omitStages: [Panic]}\n\
                    - {level: Metadata}\n";
        let policy = Policy::parse(text.as_bytes()).unwrap();
        let get = policy.evaluate(&Attributes::of(&Method::GET, "/healthz", &Query::default()), None);
        assert!(get.omit_stages.contains(Stage::RequestReceived) && get.omit_stages.contains(Stage::Panic));
        assert!(!get.omit_stages.contains(Stage::ResponseComplete) && !get.omit_managed_fields);
        let post = policy.evaluate(&Attributes::of(&Method::POST, "/healthz", &Query::default()), None);
        assert!(!post.omit_stages.contains(Stage::Panic) && post.omit_managed_fields);
    }

    #[test]
    fn default_policy_never_records_bodies_of_secrets_and_tokens() {
        let policy = Policy::parse(DEFAULT.as_bytes()).unwrap();
        let ann = UserInfo::authenticated("ann", []);
        for uri in [
            "/api/v1/namespaces/a/secrets",
            "/api/v1/namespaces/a/configmaps",
            "/api/v1/namespaces/a/serviceaccounts/x/token",
            "/apis/authentication.k8s.io/v1/tokenreviews",
            "/apis/example.org/v1/namespaces/a/things",
        ] {
            assert_eq!(level_for(&policy, &ann, Method::POST, uri), Level::Metadata, "{uri}");
        }
        let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
        assert_eq!(level_for(&policy, &ann, Method::POST, roles), Level::Request);
        assert_eq!(level_for(&policy, &ann, Method::GET, "/readyz?verbose"), Level::None);
        assert_eq!(level_for(&policy, &ann, Method::GET, "/api/v1/secrets?watch=1"), Level::Metadata);
    }
}
