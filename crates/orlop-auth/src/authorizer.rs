//! Authorization: may a user do what a request asks. Authorizers compose as a union.

use std::{borrow::Cow, fmt, sync::Arc};

use arc_swap::ArcSwap;
use async_trait::async_trait;
use futures_util::future::{BoxFuture, Either, FutureExt, Ready, ready};
use orlop_api::{
    field_error::aggregate,
    group_version::GroupResource,
    status::{Reason, Status},
    user::UserInfo,
};

use crate::request::Attributes;

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

/// A decision, and the errors on the way to it: a webhook that did not answer, for one. An error does not change an
/// allowed request; for any other it is the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evaluation {
    /// The decision.
    pub decision: Decision,
    /// Errors, in the order in which they happened.
    pub errors: Vec<String>,
}

impl Evaluation {
    /// Returns the errors as one; `None` if there are none.
    pub fn error(&self) -> Option<String> {
        (!self.errors.is_empty()).then(|| aggregate(&self.errors))
    }
}

impl From<Decision> for Evaluation {
    fn from(decision: Decision) -> Self {
        Self { decision, errors: Vec::new() }
    }
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
    /// Errors of finding the rules.
    pub errors: Vec<String>,
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
    /// Names of objects; empty for all.
    pub names: Vec<String>,
}

/// A rule for paths that are not resources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathRule {
    /// Verbs; `*` for all.
    pub verbs: Vec<String>,
    /// Paths; a trailing `*` is a wildcard.
    pub paths: Vec<String>,
}

/// A decision of an authorizer: made already by rules in memory, or later by a webhook.
pub type Authorizing<'a> = Either<Ready<Evaluation>, BoxFuture<'a, Evaluation>>;

/// Returns a decision that is made.
pub fn decided<'a>(evaluation: impl Into<Evaluation>) -> Authorizing<'a> {
    Either::Left(ready(evaluation.into()))
}

/// Returns a decision that has to be waited for.
pub fn deciding<'a>(evaluation: impl Future<Output = Evaluation> + Send + 'a) -> Authorizing<'a> {
    Either::Right(evaluation.boxed())
}

/// Authorizes requests.
#[async_trait]
pub trait Authorizer: fmt::Debug + Send + Sync {
    /// Decides about a request.
    fn authorize<'a>(&'a self, attributes: &'a Attributes) -> Authorizing<'a>;

    /// Returns the rules for a user in a namespace.
    async fn rules(&self, user: &UserInfo, namespace: &str) -> Rules;
}

/// The authorizers of a server. Allows `system:masters` everything, then asks each authorizer in order. The first
/// that allows or denies decides.
///
/// Clones share the authorizers, which can be replaced while requests are served.
#[derive(Clone, Debug, Default)]
pub struct UnionAuthorizer(Arc<ArcSwap<Vec<Arc<dyn Authorizer>>>>);

impl UnionAuthorizer {
    /// Returns a union of authorizers.
    pub fn new(authorizers: Vec<Arc<dyn Authorizer>>) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(authorizers)))
    }

    /// Replaces the authorizers. Decisions that are being made use the old ones.
    pub fn replace(&self, authorizers: Vec<Arc<dyn Authorizer>>) {
        self.0.store(Arc::new(authorizers));
    }

    /// Decides about a request.
    pub async fn authorize(&self, attributes: &Attributes) -> Decision {
        self.evaluate(attributes).await.decision
    }

    /// Decides about a request, and reports errors besides.
    pub async fn evaluate(&self, attributes: &Attributes) -> Evaluation {
        if attributes.user.is_master() {
            return Decision::Allow(Cow::Borrowed("")).into();
        }
        let authorizers = self.0.load();
        let (mut reasons, mut errors) = (Vec::new(), Vec::new());
        for authorizer in authorizers.iter() {
            let evaluation = authorizer.authorize(attributes).await;
            errors.extend(evaluation.errors);
            match evaluation.decision {
                Decision::NoOpinion(reason) if reason.is_empty() => {}
                Decision::NoOpinion(reason) => reasons.push(reason),
                decision => return Evaluation { decision, errors },
            }
        }
        Evaluation { decision: Decision::NoOpinion(reasons.join("\n").into()), errors }
    }

    /// Returns the rules of all authorizers for a user in a namespace.
    pub async fn rules(&self, user: &UserInfo, namespace: &str) -> Rules {
        let authorizers = self.0.load_full();
        let mut rules = Rules::default();
        for authorizer in &*authorizers {
            let more = authorizer.rules(user, namespace).await;
            rules.resources.extend(more.resources);
            rules.paths.extend(more.paths);
            rules.incomplete |= more.incomplete;
            rules.errors.extend(more.errors);
        }
        rules
    }
}

/// Allows everything.
#[derive(Clone, Copy, Debug)]
pub struct AlwaysAllow;

#[async_trait]
impl Authorizer for AlwaysAllow {
    fn authorize<'a>(&'a self, _attributes: &'a Attributes) -> Authorizing<'a> {
        decided(Decision::Allow(Cow::Borrowed("")))
    }

    async fn rules(&self, _user: &UserInfo, _namespace: &str) -> Rules {
        let all = || vec!["*".to_owned()];
        Rules {
            resources: vec![ResourceRule {
                verbs: all(),
                groups: all(),
                resources: all(),
                names: Vec::new(),
            }],
            paths: vec![PathRule { verbs: all(), paths: all() }],
            ..Rules::default()
        }
    }
}

/// Allows nothing. As in Kubernetes it has no opinion rather than denying.
#[derive(Clone, Copy, Debug)]
pub struct AlwaysDeny;

#[async_trait]
impl Authorizer for AlwaysDeny {
    fn authorize<'a>(&'a self, _attributes: &'a Attributes) -> Authorizing<'a> {
        decided(Decision::NoOpinion(Cow::Borrowed("Everything is forbidden.")))
    }

    async fn rules(&self, _user: &UserInfo, _namespace: &str) -> Rules {
        Rules::default()
    }
}

/// Returns the Forbidden status of a request, in Kubernetes' words.
pub fn forbidden(attributes: &Attributes, reason: &str) -> Status {
    let Attributes { user, verb, group, resource, namespace, path, .. } = attributes;
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
    Status::forbidden(&GroupResource::new(group.clone(), resource.clone()), attributes.object_name(), &why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Fixed(Decision);

    #[async_trait]
    impl Authorizer for Fixed {
        fn authorize<'a>(&'a self, _attributes: &'a Attributes) -> Authorizing<'a> {
            decided(self.0.clone())
        }

        async fn rules(&self, _user: &UserInfo, _namespace: &str) -> Rules {
            Rules::default()
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
