//! Admission webhooks: HTTP servers that change or refuse writes.
//!
//! The two plugins are `MutatingAdmissionWebhook` and `ValidatingAdmissionWebhook`. Mutating webhooks are called one
//! after the other, each with the result of the one before; validating ones all at once. A call goes matching → review
//! → client → response; its failure is one of three kinds ([`call::CallError`]): the webhook could not be called, it
//! denied the request, or the server itself failed. Only the first is subject to the failure policy.
//!
//! Modules form layers; each imports only those above it in this list:
//!
//! ```text
//! client                 the interface of HTTP clients
//! review, rejection      AdmissionReview; the Status of a denial
//! metrics                counters and histograms
//! configuration          webhooks of all configurations, compiled
//! versioned              the objects of a request in the versions that webhooks ask for
//! call                   one call
//! mutating, validating   the plugins
//! ```

mod call;
mod client;
mod configuration;
mod metrics;
mod mutating;
mod rejection;
mod review;
mod validating;
mod versioned;

use std::{sync::Arc, time::Instant};

pub use client::{CallFailure, WebhookClient, WebhookClients};
pub use metrics::WebhookMetrics;
pub(crate) use mutating::MutatingWebhooks;
pub(crate) use review::request_variable;
pub(crate) use validating::ValidatingWebhooks;
pub(crate) use versioned::Versioned;

use orlop_api::{group_version::GroupVersionResource, status::Status};
use orlop_auth::UnionAuthorizer;
use orlop_cel::ResourceAttributes;
use orlop_kinds::VIRTUAL_RESOURCES;
use serde_json::Value;

use self::{configuration::Hook, metrics::Observed};
use crate::{
    AdmissionRequest,
    listers::Resource,
    matching::{
        AuthorizerChecks, ConditionsOutcome, ListedNamespaces, Match, MatchAttributes, ObjectInterfaces,
        Variables,
    },
};

/// The two kinds of webhooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WebhookKind {
    Mutating,
    Validating,
}

impl WebhookKind {
    /// Returns the resource of the configurations.
    fn resource(self) -> Resource<'static> {
        let resource = match self {
            Self::Mutating => "mutatingwebhookconfigurations",
            Self::Validating => "validatingwebhookconfigurations",
        };
        Resource::new("admissionregistration.k8s.io", "v1", resource)
    }

    /// Returns the label `type` of metrics.
    fn metric_type(self) -> &'static str {
        match self {
            Self::Mutating => "admit",
            Self::Validating => "validating",
        }
    }
}

/// Parts of the server that both plugins need.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    pub(crate) interfaces: Arc<dyn ObjectInterfaces>,
    pub(crate) namespaces: ListedNamespaces,
    pub(crate) authorizer: UnionAuthorizer,
    pub(crate) metrics: WebhookMetrics,
}

/// Returns true for requests that no webhook sees: webhooks and policies themselves, so that a broken one can be
/// repaired, and reviews, so that it cannot lock everybody out.
pub(crate) fn is_exempt(request: &AdmissionRequest<'_>) -> bool {
    const EXEMPT_KINDS: [&str; 6] = [
        "MutatingAdmissionPolicy",
        "MutatingAdmissionPolicyBinding",
        "MutatingWebhookConfiguration",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "ValidatingWebhookConfiguration",
    ];
    let is_configuration = request.kind.group == "admissionregistration.k8s.io"
        && EXEMPT_KINDS.contains(&request.kind.kind.as_str());
    let attributes = request.attributes;
    is_configuration || VIRTUAL_RESOURCES.contains(&(&attributes.group, &attributes.resource))
}

/// Matches a request against a webhook's rules and selectors.
async fn matches(
    context: &Context,
    hook: &Hook,
    request: &AdmissionRequest<'_>,
    resource: &GroupVersionResource,
    objects: (Option<&Value>, Option<&Value>),
) -> Result<Option<Match>, Status> {
    let attributes = MatchAttributes {
        operation: request.operation,
        resource,
        subresource: request.subresource(),
        kind: request.kind,
        namespace: request.review_namespace(),
        name: &request.name,
        object: objects.0,
        old: objects.1,
    };
    hook.constraints.matches(&attributes, &*context.interfaces, &context.namespaces).await
}

/// Evaluates a webhook's match conditions on the objects in the version that it sees. Returns false if it is not called.
async fn meets_conditions(
    context: &Context,
    kind: WebhookKind,
    hook: &Hook,
    request: &AdmissionRequest<'_>,
    matched: &Match,
    objects: (Option<&Value>, Option<&Value>),
) -> Result<bool, Status> {
    if hook.conditions.is_empty() {
        return Ok(true);
    }
    let started = Instant::now();
    let attributes = request.attributes;
    let variable = request_variable(request, &request.resource(), matched);
    let resource = ResourceAttributes {
        group: attributes.group.clone(),
        resource: attributes.resource.clone(),
        subresource: request.subresource().to_owned(),
        namespace: request.review_namespace().to_owned(),
        name: request.name.to_string(),
        ..ResourceAttributes::default()
    };
    let variables = Variables {
        object: objects.0,
        old: objects.1,
        request: &variable,
        namespace: None,
        params: None,
        authorizer: &Arc::new(AuthorizerChecks::new(attributes.user.clone())),
        resource: &resource,
    };
    let outcome = hook.conditions.evaluate(&variables, &context.authorizer).await;
    let observed = Observed { webhook: &hook.name, kind, operation: request.operation };
    let errors = match &outcome {
        ConditionsOutcome::Failed { count, .. } => *count,
        _ => 0,
    };
    let (is_called, failure) = match outcome {
        ConditionsOutcome::Match => (true, None),
        ConditionsOutcome::Excluded(_) => (false, None),
        ConditionsOutcome::Failed { .. } if hook.ignores_failures => (false, None),
        ConditionsOutcome::Failed { error, .. } => (false, Some(error)),
    };
    let is_excluded = !is_called && failure.is_none();
    context.metrics.conditions(observed, started.elapsed(), errors, is_excluded);
    match failure {
        None => Ok(is_called),
        Some(error) => {
            tracing::warn!(webhook = hook.name, error, "cannot evaluate match conditions, failing closed");
            Err(Status::forbidden(&request.group_resource(), &request.name, &error))
        }
    }
}
