//! One call of a webhook.

use std::time::Instant;

use orlop_api::{go_text, group_version::GroupVersionResource, names, object_meta, status::Status};
use serde_json::Value;

use super::{
    Context, WebhookKind,
    configuration::{Hook, SideEffects},
    metrics::{ErrorType, Observed},
    rejection,
    review::{self, Response, ResponseError},
};
use crate::{AdmissionRequest, matching::Match};

/// Status code of calls that brought no usable answer.
const UNAVAILABLE: u16 = 503;

/// Failure of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CallError {
    /// The webhook could not be called, or its answer could not be used. The failure policy decides.
    Calling {
        /// The reason.
        reason: String,
        /// Status code, for metrics.
        code: u16,
    },
    /// The webhook denied the request.
    Denied(Status),
    /// The request fails whatever the failure policy is.
    Refused(Status),
}

impl CallError {
    pub(super) fn unavailable(reason: String) -> Self {
        Self::Calling { reason, code: UNAVAILABLE }
    }
}

/// A webhook to call for a request.
pub(super) struct Call<'a> {
    pub(super) context: &'a Context,
    pub(super) kind: WebhookKind,
    pub(super) hook: &'a Hook,
    pub(super) request: &'a AdmissionRequest<'a>,
    pub(super) resource: &'a GroupVersionResource,
    pub(super) matched: &'a Match,
}

impl Call<'_> {
    /// Calls the webhook with objects, new and old. Returns its response if it allows the request.
    pub(super) async fn send(
        &self,
        objects: (Option<&Value>, Option<&Value>),
    ) -> Result<Response, CallError> {
        let (hook, request) = (self.hook, self.request);
        if request.dry_run {
            match hook.side_effects {
                SideEffects::NoneOnDryRun => {}
                SideEffects::Some => {
                    return Err(CallError::Refused(rejection::dry_run_unsupported(&hook.name)));
                }
                SideEffects::Unset => {
                    let reason = "Webhook SideEffects is nil".to_owned();
                    return Err(CallError::Calling { reason, code: 400 });
                }
            }
        }
        let Some(version) = hook.version else {
            let why = "webhook does not accept known AdmissionReview versions (v1, v1beta1)";
            let reason = format!("could not create admission objects: {why}");
            return Err(CallError::Calling { reason, code: 400 });
        };
        let client = hook.client.as_ref().map_err(|why| CallError::Calling {
            reason: format!("could not get REST client: {why}"),
            code: 500,
        })?;
        let uid = object_meta::uuid(rand::random());
        let body = review::encode(version, &uid, request, self.resource, self.matched, objects);
        let name = match self.kind {
            WebhookKind::Mutating => "Call mutating webhook",
            WebhookKind::Validating => "Call validating webhook",
        };
        let attributes = || {
            vec![
                ("configuration", hook.configuration.clone().into()),
                ("webhook", hook.name.clone().into()),
                ("operation", request.operation.name().into()),
                ("UID", uid.clone().into()),
            ]
        };
        let timeout = request.remaining().map_or(hook.timeout, |remaining| remaining.min(hook.timeout));
        let answer = orlop_trace::in_span(name, attributes, client.post(body, timeout)).await;
        let answer = answer.map_err(|failure| CallError::Calling {
            reason: format!("failed to call webhook: {}", failure.message),
            code: failure.code,
        })?;
        let is_mutating = self.kind == WebhookKind::Mutating;
        let response = review::decode(version, &uid, is_mutating, &answer).map_err(|error| {
            CallError::unavailable(match error {
                ResponseError::Undecodable(why) => format!("failed to call webhook: {why}"),
                ResponseError::Invalid(why) => format!("received invalid webhook response: {why}"),
            })
        })?;
        for (key, value) in &response.audit_annotations {
            let key = format!("{}/{key}", hook.name);
            if names::qualified_name(&key).is_empty() {
                request.annotate(key, value.clone());
            }
        }
        response.warnings.iter().for_each(|warning| request.warn(warning.clone()));
        match response.allowed {
            true => Ok(response),
            false => Err(CallError::Denied(rejection::denied(&hook.name, response.result.as_ref()))),
        }
    }

    /// Records a call in the metrics, and returns the error that the request fails with: `None` if the webhook allowed
    /// it, or if the failure policy ignores its failure.
    pub(super) fn conclude<T>(
        &self,
        started: Instant,
        outcome: &Result<T, CallError>,
        annotation: impl FnOnce() -> String,
    ) -> Option<Status> {
        let (hook, metrics) = (self.hook, &self.context.metrics);
        let observed = Observed { webhook: &hook.name, kind: self.kind, operation: self.request.operation };
        let observe = |rejected: bool, code: u16| metrics.call(observed, started.elapsed(), rejected, code);
        match outcome {
            Ok(_) => {
                observe(false, 200);
                None
            }
            Err(CallError::Calling { reason, code }) => {
                observe(!hook.ignores_failures, *code);
                let failure = format!("failed calling webhook {}: {reason}", go_text::quote(&hook.name));
                if hook.ignores_failures {
                    tracing::warn!(webhook = hook.name, reason, "cannot call a webhook, failing open");
                    metrics.failed_open(observed);
                    self.request.annotate(annotation(), hook.name.clone());
                    return None;
                }
                tracing::warn!(webhook = hook.name, reason, "cannot call a webhook, failing closed");
                metrics.rejection(observed, ErrorType::CallingWebhook, *code);
                Some(Status::internal(&failure))
            }
            Err(CallError::Denied(status)) => {
                observe(true, status.code);
                metrics.rejection(observed, ErrorType::NoError, status.code);
                Some(status.clone())
            }
            Err(CallError::Refused(status)) => {
                observe(true, 0);
                metrics.rejection(observed, ErrorType::Internal, 0);
                Some(status.clone())
            }
        }
    }
}
