//! Authorization: may a user do what a request asks. Authorizers compose as a union.

use std::{borrow::Cow, fmt, sync::Arc};

use async_trait::async_trait;
use orlop_api::{
    group_version::GroupResource,
    status::{Reason, Status},
    user::UserInfo,
};

use crate::request::{Attributes, Verb};

/// Paths that anybody may read.
const PUBLIC_PATHS: &[&str] = &["/healthz", "/livez", "/readyz", "/version"];

/// The decision of an authorizer, with its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The request is allowed; no other authorizer is asked.
    Allow(Cow<'static, str>),
    /// The request is forbidden; no other authorizer is asked.
    Deny(Cow<'static, str>),
    /// Another authorizer decides. If none allows the request, it is forbidden.
    NoOpinion(Cow<'static, str>),
}

/// Rules that apply to a user in a namespace, for SelfSubjectRulesReview.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Verbs, groups and resources.
    pub resources: Vec<ResourceRule>,
    /// Verbs and paths.
    pub paths: Vec<PathRule>,
    /// True if an authorizer cannot list its rules.
    pub incomplete: bool,
}

/// A rule for resources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceRule {
    /// Verbs; `*` for all.
    pub verbs: Vec<String>,
    /// API groups; `*` for all.
    pub groups: Vec<String>,
    /// Resources; `*` for all.
    pub resources: Vec<String>,
}

/// A rule for paths that are not resources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathRule {
    /// Verbs; `*` for all.
    pub verbs: Vec<String>,
    /// Paths; a trailing `*` is a wildcard.
    pub paths: Vec<String>,
}

/// Authorizes requests.
#[async_trait]
pub trait Authorizer: fmt::Debug + Send + Sync {
    /// Decides about a request.
    async fn authorize(&self, attributes: &Attributes) -> Decision;

    /// Returns the rules for a user in a namespace.
    async fn rules(&self, _user: &UserInfo, _namespace: &str) -> Rules {
        Rules { incomplete: true, ..Rules::default() }
    }
}

/// Allows `system:masters` everything and everybody the public paths, then asks each authorizer in order.
/// The first that allows or denies decides.
#[derive(Clone, Debug, Default)]
pub struct UnionAuthorizer(Vec<Arc<dyn Authorizer>>);

impl UnionAuthorizer {
    /// Returns a union of authorizers.
    pub fn new(authorizers: Vec<Arc<dyn Authorizer>>) -> Self {
        Self(authorizers)
    }

    /// Decides about a request.
    pub async fn authorize(&self, attributes: &Attributes) -> Decision {
        if attributes.user.is_master() || is_public(attributes) {
            return Decision::Allow(Cow::Borrowed(""));
        }
        let mut reasons = Vec::new();
        for authorizer in &self.0 {
            match authorizer.authorize(attributes).await {
                Decision::NoOpinion(reason) if reason.is_empty() => {}
                Decision::NoOpinion(reason) => reasons.push(reason),
                decision => return decision,
            }
        }
        Decision::NoOpinion(reasons.join("\n").into())
    }

    /// Returns the rules of all authorizers for a user in a namespace.
    pub async fn rules(&self, user: &UserInfo, namespace: &str) -> Rules {
        let all = || vec!["*".to_owned()];
        if user.is_master() {
            return Rules {
                resources: vec![ResourceRule { verbs: all(), groups: all(), resources: all() }],
                paths: vec![PathRule { verbs: all(), paths: all() }],
                incomplete: false,
            };
        }
        let public = ["/healthz", "/livez", "/readyz", "/version", "/version/"].map(str::to_owned).into();
        let mut rules = Rules {
            paths: vec![PathRule { verbs: vec!["get".to_owned()], paths: public }],
            ..Rules::default()
        };
        for authorizer in &self.0 {
            let more = authorizer.rules(user, namespace).await;
            rules.resources.extend(more.resources);
            rules.paths.extend(more.paths);
            rules.incomplete |= more.incomplete;
        }
        rules
    }
}

/// Returns true for reads of public paths.
fn is_public(attributes: &Attributes) -> bool {
    let public = |path: &&str| {
        let rest = attributes.path.strip_prefix(*path);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let reads = attributes.verb == Verb::Get || attributes.verb.as_str() == "head";
    !attributes.is_resource_request && reads && PUBLIC_PATHS.iter().any(public)
}

/// Returns the Forbidden status of a request, in Kubernetes' words.
pub fn forbidden(attributes: &Attributes, reason: &str) -> Status {
    let Attributes { user, verb, group, resource, namespace, name, path, .. } = attributes;
    let because = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    if !attributes.is_resource_request {
        let message = format!("forbidden: User {:?} cannot {verb} path {path:?}{because}", user.name);
        return Status::new(403, Reason::Forbidden, message);
    }
    let target = match attributes.subresource_name() {
        "" => resource.clone(),
        subresource => format!("{resource}/{subresource}"),
    };
    let scope = match namespace.as_str() {
        "" => "at the cluster scope".to_owned(),
        namespace => format!("in the namespace {namespace:?}"),
    };
    let why = format!(
        "User {:?} cannot {verb} resource {target:?} in API group {group:?} {scope}{because}",
        user.name
    );
    Status::forbidden(&GroupResource::new(group.clone(), resource.clone()), name, &why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Fixed(Decision);

    #[async_trait]
    impl Authorizer for Fixed {
        async fn authorize(&self, _attributes: &Attributes) -> Decision {
            self.0.clone()
        }
    }

    fn union(decisions: &[Decision]) -> UnionAuthorizer {
        let fixed = |decision: &Decision| Arc::new(Fixed(decision.clone())) as Arc<dyn Authorizer>;
        UnionAuthorizer::new(decisions.iter().map(fixed).collect())
    }

    fn attributes(verb: &str, path: &str) -> Attributes {
        Attributes { verb: verb.into(), path: path.into(), ..Attributes::default() }
    }

    #[tokio::test]
    async fn first_opinion_of_a_union_decides() {
        let (allow, deny) = (Decision::Allow("a".into()), Decision::Deny("d".into()));
        let none = |reason: &'static str| Decision::NoOpinion(reason.into());
        let decide = |decisions: Vec<Decision>| async move {
            union(&decisions).authorize(&attributes("get", "/metrics")).await
        };
        assert_eq!(decide(vec![none(""), allow.clone(), deny.clone()]).await, allow);
        assert_eq!(decide(vec![none("x"), deny.clone(), allow]).await, deny);
        assert_eq!(decide(vec![none("x"), none(""), none("y")]).await, none("x\ny"));
        assert_eq!(decide(Vec::new()).await, none(""));
    }

    #[tokio::test]
    async fn anybody_may_get_and_head_health_and_version_only() {
        let allowed = |verb: &'static str, path: &'static str| async move {
            matches!(union(&[]).authorize(&attributes(verb, path)).await, Decision::Allow(_))
        };
        for verb in ["get", "head"] {
            assert!(allowed(verb, "/livez").await);
            assert!(allowed(verb, "/readyz/etcd").await);
            assert!(allowed(verb, "/version").await);
            assert!(!allowed(verb, "/versions").await);
            assert!(!allowed(verb, "/metrics").await);
        }
        assert!(!allowed("post", "/version").await);
    }

    #[test]
    fn forbidden_message_matches_kubernetes() {
        let mut denied = attributes("get", "/metrics");
        assert_eq!(
            forbidden(&denied, "").message,
            "forbidden: User \"system:anonymous\" cannot get path \"/metrics\""
        );
        (denied.is_resource_request, denied.resource, denied.namespace) = (true, "pods".into(), "a".into());
        denied.subresource = Some("exec".into());
        assert_eq!(
            forbidden(&denied, "no such role").message,
            "pods is forbidden: User \"system:anonymous\" cannot get resource \"pods/exec\" in API group \"\" in \
             the namespace \"a\": no such role"
        );
    }
}
