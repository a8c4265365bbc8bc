//! Questions of plugins to the server's authorizers.

use orlop_auth::{Decision, Evaluation, UnionAuthorizer, request::Attributes};

use crate::AdmissionRequest;

/// A permission that a request's user needs besides.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Permission<'a> {
    pub(super) verb: &'a str,
    pub(super) group: &'a str,
    pub(super) version: &'a str,
    pub(super) resource: &'a str,
    pub(super) subresource: &'a str,
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
}

impl Permission<'_> {
    /// Asks whether the user has the permission.
    pub(super) async fn evaluate(
        &self,
        authorizer: &UnionAuthorizer,
        request: &AdmissionRequest<'_>,
    ) -> Evaluation {
        let attributes = Attributes {
            user: request.attributes.user.clone(),
            verb: self.verb.into(),
            is_resource_request: true,
            group: self.group.to_owned(),
            version: self.version.to_owned(),
            resource: self.resource.to_owned(),
            subresource: (!self.subresource.is_empty()).then(|| self.subresource.into()),
            namespace: self.namespace.to_owned(),
            name: self.name.to_owned(),
            ..Attributes::default()
        };
        authorizer.evaluate(&attributes).await
    }

    /// Returns true if the user has the permission.
    pub(super) async fn is_granted(
        &self,
        authorizer: &UnionAuthorizer,
        request: &AdmissionRequest<'_>,
    ) -> bool {
        matches!(self.evaluate(authorizer, request).await.decision, Decision::Allow(_))
    }
}

/// Returns the reason and the error of a refusal, as Go prints them: `reason, error`.
pub(super) fn explain(evaluation: &Evaluation) -> String {
    let (Decision::Allow(reason) | Decision::Deny(reason) | Decision::NoOpinion(reason)) =
        &evaluation.decision;
    format!("{reason}, {}", evaluation.error().unwrap_or_else(|| "<nil>".to_owned()))
}
