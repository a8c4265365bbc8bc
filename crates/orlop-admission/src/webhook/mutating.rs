//! MutatingAdmissionWebhook: calls webhooks one after the other, and applies their patches.

use std::{borrow::Cow, collections::HashSet, mem, sync::Arc, time::Instant};

use async_trait::async_trait;
use orlop_api::{decode, go_text, patch::JsonPatch, status::Status};
use serde::Serialize;
use serde_json::Value;

use super::{
    Context, WebhookKind,
    call::{Call, CallError},
    client::WebhookClients,
    configuration::{Hook, Source},
    is_exempt, matches, meets_conditions,
    review::Response,
    versioned::Versioned,
};
use crate::{Admission, AdmissionRequest, Operation, Phase, listers::Listers};

const PLUGIN: &str = "MutatingAdmissionWebhook";

/// The plugin.
#[derive(Debug)]
pub(crate) struct MutatingWebhooks {
    source: Source,
    context: Context,
}

/// State of reinvocation, by the uids of webhooks.
#[derive(Debug, Default)]
struct Reinvoked {
    /// The object after the first pass.
    output: Option<Value>,
    /// Webhooks that were called and ask to be called again after a change.
    called: HashSet<String>,
    /// Webhooks that are called again.
    again: HashSet<String>,
}

impl Reinvoked {
    /// Notes that the object has changed since webhooks were called.
    fn changed(&mut self) {
        self.again.extend(mem::take(&mut self.called));
    }
}

impl MutatingWebhooks {
    pub(crate) fn new(listers: Arc<dyn Listers>, clients: Arc<dyn WebhookClients>, context: Context) -> Self {
        Self { source: Source::new(WebhookKind::Mutating, listers, clients), context }
    }

    /// Calls the webhooks in order. Returns the objects as the last one left them, if any changed.
    async fn dispatch<'a>(
        &self,
        request: &AdmissionRequest<'_>,
        mut versioned: Versioned<'a>,
    ) -> Result<Option<Versioned<'a>>, Status> {
        let (context, resource) = (&self.context, request.resource());
        let hooks = self.source.hooks().await?;
        let round = usize::from(request.reinvocation.is_second_pass());
        let mut is_changed = false;
        for (index, hook) in hooks.iter().enumerate() {
            let matched = matches(context, hook, request, &resource, versioned.objects()).await?;
            let Some(matched) = matched else { continue };
            if !hook.conditions.is_empty() {
                // An earlier webhook may have changed the object: it is converted with its changes.
                versioned = versioned.convert(&*context.interfaces, &matched.kind).await?;
                let objects = versioned.objects();
                let kind = WebhookKind::Mutating;
                if !meets_conditions(context, kind, hook, request, &matched, objects).await? {
                    continue;
                }
            }
            // A webhook that was not called in the first pass is not called in the second.
            let is_called_again = || {
                request
                    .reinvocation
                    .with_value(PLUGIN, |state: &mut Reinvoked| state.again.contains(&hook.uid))
            };
            if round == 1 && !is_called_again() {
                continue;
            }
            versioned = versioned.convert(&*context.interfaces, &matched.kind).await?;
            let call = Call {
                context,
                kind: WebhookKind::Mutating,
                hook,
                request,
                resource: &resource,
                matched: &matched,
            };
            let started = Instant::now();
            let place = format!("round_{round}_index_{index}");
            let mut outcome = call.send(versioned.objects()).await.and_then(|response| {
                let patched = patch(context, hook, &versioned, &response)?;
                Ok(patched.map(|patched| (patched, response)))
            });
            let mut mutated = false;
            if let Ok(Some((patched, response))) = &mut outcome {
                annotate_patch(request, hook, &place, &response.patch);
                mutated = versioned.object.as_deref() != Some(patched);
                versioned.object = Some(Cow::Owned(mem::take(patched)));
            }
            annotate_mutation(request, hook, &place, mutated);
            request.reinvocation.with_value(PLUGIN, |state: &mut Reinvoked| {
                if mutated {
                    state.changed();
                    request.reinvocation.request();
                }
                if hook.reinvocation_if_needed {
                    state.called.insert(hook.uid.clone());
                }
            });
            is_changed |= mutated;
            let failed_open = || format!("failed-open.mutation.webhook.admission.k8s.io/{place}");
            if let Some(status) = call.conclude(started, &outcome, failed_open) {
                return Err(status);
            }
        }
        Ok(is_changed.then_some(versioned))
    }
}

#[async_trait]
impl Admission for MutatingWebhooks {
    fn handles(&self, phase: Phase, _operation: Operation) -> bool {
        phase == Phase::Mutating
    }

    fn is_idle(&self, _phase: Phase, request: &AdmissionRequest<'_>) -> bool {
        self.source.is_empty() || is_exempt(request)
    }

    async fn mutate(
        &self,
        request: &AdmissionRequest<'_>,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        if request.reinvocation.is_second_pass() {
            request.reinvocation.with_value(PLUGIN, |state: &mut Reinvoked| {
                if state.output.take().is_some_and(|output| output != *object) {
                    state.changed();
                }
            });
        }
        let current = (!object.is_null()).then_some(&*object);
        let changed = self.dispatch(request, Versioned::new(request.kind, current, old)).await?;
        if let Some(changed) = changed {
            let converted = changed.convert(&*self.context.interfaces, request.kind).await?;
            let converted = converted.object.map(Cow::into_owned);
            if let Some(converted) = converted {
                *object = converted;
            }
        }
        request.reinvocation.with_value(PLUGIN, |state: &mut Reinvoked| {
            if !state.called.is_empty() {
                state.output = Some(object.clone());
            }
        });
        Ok(())
    }
}

/// Applies the patch of a response. Returns the object, decoded and with defaults; `None` if there is no patch.
fn patch(
    context: &Context,
    hook: &Hook,
    versioned: &Versioned<'_>,
    response: &Response,
) -> Result<Option<Value>, CallError> {
    if response.patch.is_empty() {
        return Ok(None);
    }
    let undecodable = |why: String| {
        CallError::unavailable(format!("received undecodable patch in webhook response: {why}"))
    };
    let decoded = decode::json(&response.patch).map_err(|error| undecodable(error.to_string()))?;
    if decoded.value.is_null() || decoded.value.as_array().is_some_and(Vec::is_empty) {
        return Ok(None);
    }
    let patch = JsonPatch::read(decoded, &response.patch, false);
    let patch = patch.map_err(|error| undecodable(error.to_string()))?;
    let internal = |why: String| CallError::Refused(Status::internal(&why));
    let Some(object) = versioned.object.as_deref() else {
        return Err(internal(format!(
            "admission webhook {} attempted to modify the object, which is not supported for this operation",
            go_text::quote(&hook.name)
        )));
    };
    if response.patch_type != "JSONPatch" {
        let reason = format!("unsupported patch type {}", go_text::quote(&response.patch_type));
        return Err(CallError::Calling { reason, code: 400 });
    }
    let patched = patch.apply(object).map_err(|error| internal(error.to_string()))?;
    context.interfaces.decode(patched, &versioned.kind).map(Some).map_err(internal)
}

/// Value of an audit annotation, with the fields in Kubernetes' order.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Annotation<'a> {
    configuration: &'a str,
    webhook: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    mutated: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
}

impl Annotation<'_> {
    fn add(&self, request: &AdmissionRequest<'_>, key: String) {
        if let Ok(value) = serde_json::to_string(self) {
            request.annotate(key, value);
        }
    }
}

/// Records in the audit event whether a webhook changed the object.
fn annotate_mutation(request: &AdmissionRequest<'_>, hook: &Hook, place: &str, mutated: bool) {
    let (configuration, webhook) = (&*hook.configuration, &*hook.name);
    let annotation =
        Annotation { configuration, webhook, mutated: Some(mutated), patch: None, patch_type: None };
    annotation.add(request, format!("mutation.webhook.admission.k8s.io/{place}"));
}

/// Records a patch in the audit event, if it records requests.
fn annotate_patch(request: &AdmissionRequest<'_>, hook: &Hook, place: &str, patch: &[u8]) {
    if !request.audit.is_some_and(orlop_audit::Context::wants_request_object) {
        return;
    }
    let (configuration, webhook) = (&*hook.configuration, &*hook.name);
    let (patch, patch_type) = (serde_json::from_slice(patch).ok(), Some("JSONPatch"));
    let annotation = Annotation { configuration, webhook, mutated: None, patch, patch_type };
    annotation.add(request, format!("patch.webhook.admission.k8s.io/{place}"));
}
