//! Rules of FlowSchemas.

use orlop_api::user::UserInfo;
use orlop_auth::request::Attributes;
use serde::Deserialize;

const ALL: &str = "*";

/// Subjects, and what they do.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Rule {
    #[serde(default)]
    subjects: Vec<Subject>,
    #[serde(default)]
    resource_rules: Vec<ResourceRule>,
    #[serde(default)]
    non_resource_rules: Vec<NonResourceRule>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Subject {
    kind: String,
    user: Option<Named>,
    group: Option<Named>,
    service_account: Option<ServiceAccount>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Named {
    name: String,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
struct ServiceAccount {
    namespace: String,
    name: String,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResourceRule {
    #[serde(default)]
    verbs: Vec<String>,
    #[serde(default)]
    api_groups: Vec<String>,
    #[serde(default)]
    resources: Vec<String>,
    #[serde(default)]
    cluster_scope: bool,
    #[serde(default)]
    namespaces: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
struct NonResourceRule {
    #[serde(default)]
    verbs: Vec<String>,
    #[serde(rename = "nonResourceURLs", default)]
    urls: Vec<String>,
}

impl Rule {
    /// Returns true if a request is one of the subjects', and one of the rules is for it.
    pub(crate) fn matches(&self, attributes: &Attributes) -> bool {
        self.subjects.iter().any(|subject| subject.matches(&attributes.user))
            && if attributes.is_resource_request {
                self.resource_rules.iter().any(|rule| rule.matches(attributes))
            } else {
                self.non_resource_rules.iter().any(|rule| rule.matches(attributes))
            }
    }
}

impl Subject {
    fn matches(&self, user: &UserInfo) -> bool {
        match self.kind.as_str() {
            "User" => self.user.as_ref().is_some_and(|named| named.name == ALL || named.name == user.name),
            "Group" => {
                self.group.as_ref().is_some_and(|named| named.name == ALL || user.is_in_group(&named.name))
            }
            "ServiceAccount" => {
                self.service_account.as_ref().is_some_and(|account| account.matches(&user.name))
            }
            _ => false,
        }
    }
}

impl ServiceAccount {
    fn matches(&self, user: &str) -> bool {
        let Some(account) = user.strip_prefix("system:serviceaccount:") else { return false };
        let Some((namespace, name)) = account.split_once(':') else { return false };
        namespace == self.namespace && (self.name == ALL || name == self.name)
    }
}

impl ResourceRule {
    fn matches(&self, attributes: &Attributes) -> bool {
        contains(&self.verbs, attributes.verb.as_str())
            && self.has_resource(attributes)
            && contains(&self.api_groups, &attributes.group)
            && match attributes.namespace.as_str() {
                "" => self.cluster_scope,
                namespace => contains(&self.namespaces, namespace),
            }
    }

    fn has_resource(&self, attributes: &Attributes) -> bool {
        let (resource, subresource) = (attributes.resource.as_str(), attributes.subresource_name());
        is_all(&self.resources)
            || self.resources.iter().any(|listed| match subresource {
                "" => listed == resource,
                subresource => listed.split_once('/') == Some((resource, subresource)),
            })
    }
}

impl NonResourceRule {
    fn matches(&self, attributes: &Attributes) -> bool {
        contains(&self.verbs, attributes.verb.as_str())
            && self.urls.iter().any(|url| {
                url == ALL || *url == attributes.path || {
                    // `/healthz` is also all that is below it, as is `/healthz/*`.
                    let prefix = url.strip_suffix('*').unwrap_or(url);
                    let rest = attributes.path.strip_prefix(prefix.strip_suffix('/').unwrap_or(prefix));
                    rest.is_some_and(|rest| rest.starts_with('/'))
                }
            })
    }
}

fn is_all(list: &[String]) -> bool {
    matches!(list, [only] if only == ALL)
}

fn contains(list: &[String], item: &str) -> bool {
    is_all(list) || list.iter().any(|listed| listed == item)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::Method;
    use orlop_api::query::Query;
    use serde_json::{Value, json};

    use super::*;

    fn matches(rule: &Value, user: &UserInfo, method: Method, url: &str) -> bool {
        let (path, query) = url.split_once('?').unwrap_or((url, ""));
        let mut attributes = Attributes::of(&method, path, &Query::parse(query));
        attributes.user = Arc::new(user.clone());
        Rule::deserialize(rule).unwrap().matches(&attributes)
    }

    fn everything(subject: Value) -> Value {
        json!({"subjects": [subject],
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"],
                "clusterScope": true}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}]})
    }

    #[test]
    fn subjects_are_users_groups_and_service_accounts() {
        let account = UserInfo::service_account("kube-system", "builder");
        let user = UserInfo::authenticated("jane", ["team".to_owned()]);
        let cases = [
            (json!({"kind": "User", "user": {"name": "jane"}}), false, true),
            (json!({"kind": "User", "user": {"name": "*"}}), true, true),
            (json!({"kind": "Group", "group": {"name": "team"}}), false, true),
            (json!({"kind": "Group", "group": {"name": "*"}}), true, true),
            (
                json!({"kind": "ServiceAccount", "serviceAccount": {"namespace": "kube-system", "name": "builder"}}),
                true,
                false,
            ),
            (
                json!({"kind": "ServiceAccount", "serviceAccount": {"namespace": "kube", "name": "*"}}),
                false,
                false,
            ),
            (
                json!({"kind": "ServiceAccount", "serviceAccount": {"namespace": "kube-system", "name": "*"}}),
                true,
                false,
            ),
            (json!({"kind": "Group"}), false, false),
        ];
        for (subject, of_account, of_user) in cases {
            let rule = everything(subject);
            assert_eq!(matches(&rule, &account, Method::GET, "/api/v1/pods"), of_account, "{rule}");
            assert_eq!(matches(&rule, &user, Method::GET, "/version"), of_user, "{rule}");
        }
    }

    #[test]
    fn resource_rules_name_verbs_groups_resources_and_scope() {
        let user = UserInfo::authenticated("jane", []);
        let rule = json!({"subjects": [{"kind": "User", "user": {"name": "jane"}}],
            "resourceRules": [
                {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods", "pods/log"], "namespaces": ["a"]},
                {"verbs": ["*"], "apiGroups": ["apps"], "resources": ["*"], "clusterScope": true}]});
        let cases = [
            ("/api/v1/namespaces/a/pods", true),
            ("/api/v1/namespaces/a/pods/x/log", true),
            ("/api/v1/namespaces/a/pods/x/status", false),
            ("/api/v1/namespaces/a/pods?watch=1", false),
            ("/api/v1/namespaces/b/pods", false),
            ("/api/v1/pods", false),
            ("/apis/apps/v1/deployments", true),
            ("/apis/apps/v1/namespaces/a/deployments", false),
            ("/version", false),
        ];
        for (path, expected) in cases {
            assert_eq!(matches(&rule, &user, Method::GET, path), expected, "{path}");
        }
        assert!(!matches(&rule, &user, Method::DELETE, "/api/v1/namespaces/a/pods/x"));
    }

    #[test]
    fn non_resource_rules_name_paths_and_what_is_below() {
        let user = UserInfo::anonymous();
        let rule = json!({"subjects": [{"kind": "Group", "group": {"name": "system:unauthenticated"}}],
            "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/healthz", "/openapi/*"]}]});
        for (path, expected) in [
            ("/healthz", true),
            ("/healthz/ping", true),
            ("/healthzz", false),
            ("/openapi/v3/api", true),
            ("/openapi", false),
            ("/livez", false),
        ] {
            assert_eq!(matches(&rule, &user, Method::GET, path), expected, "{path}");
        }
        assert!(!matches(&rule, &user, Method::POST, "/healthz"));
    }
}
