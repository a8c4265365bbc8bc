//! ValidatingAdmissionWebhook: calls all webhooks at once, and refuses what one of them denies.

use std::{sync::Arc, time::Instant};

use async_trait::async_trait;
use futures_util::{StreamExt, stream::FuturesUnordered};
use orlop_api::status::Status;
use serde_json::Value;

use super::{
    Context, WebhookKind,
    call::Call,
    client::WebhookClients,
    configuration::{Hook, Source},
    is_exempt, matches, meets_conditions,
    versioned::Versioned,
};
use crate::{Admission, AdmissionRequest, Operation, Phase, listers::Listers, matching::Match};

/// The plugin.
#[derive(Debug)]
pub(crate) struct ValidatingWebhooks {
    source: Source,
    context: Context,
}

/// A webhook that is called, and the place of its objects among the versions.
struct Invocation {
    hook: Arc<Hook>,
    matched: Match,
    version: usize,
}

impl ValidatingWebhooks {
    pub(crate) fn new(listers: Arc<dyn Listers>, clients: Arc<dyn WebhookClients>, context: Context) -> Self {
        Self { source: Source::new(WebhookKind::Validating, listers, clients), context }
    }
}

#[async_trait]
impl Admission for ValidatingWebhooks {
    fn handles(&self, phase: Phase, _operation: Operation) -> bool {
        phase == Phase::Validating
    }

    fn is_idle(&self, _phase: Phase, request: &AdmissionRequest<'_>) -> bool {
        self.source.is_empty() || is_exempt(request)
    }

    async fn validate(
        &self,
        request: &AdmissionRequest<'_>,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let hooks = self.source.hooks().await?;
        let (context, resource) = (&self.context, request.resource());
        let mut versions = vec![Versioned::new(request.kind, object, old)];
        let mut invocations = Vec::new();
        for hook in hooks.iter() {
            let Some(matched) = matches(context, hook, request, &resource, (object, old)).await? else {
                continue;
            };
            let known = versions.iter().position(|version| version.kind == matched.kind);
            let version = match (known, versions.first()) {
                (Some(known), _) => known,
                (None, Some(own)) => {
                    let converted = own.clone().convert(&*context.interfaces, &matched.kind).await?;
                    versions.push(converted);
                    versions.len() - 1
                }
                (None, None) => continue,
            };
            let objects = versions.get(version).map(Versioned::objects).unwrap_or_default();
            if meets_conditions(context, WebhookKind::Validating, hook, request, &matched, objects).await? {
                invocations.push(Invocation { hook: hook.clone(), matched, version });
            }
        }
        let calls = invocations.iter().enumerate().map(|(index, invocation)| {
            let Invocation { hook, matched, version } = invocation;
            let objects = versions.get(*version).map(Versioned::objects).unwrap_or_default();
            let call =
                Call { context, kind: WebhookKind::Validating, hook, request, resource: &resource, matched };
            async move {
                let started = Instant::now();
                let outcome = call.send(objects).await;
                call.conclude(started, &outcome, || {
                    format!("failed-open.validating.webhook.admission.k8s.io/round_0_index_{index}")
                })
            }
        });
        // All are awaited, so that each sees the request and is audited; the first error to arrive is returned.
        let mut calls: FuturesUnordered<_> = calls.collect();
        let mut error = None;
        while let Some(failed) = calls.next().await {
            error = error.or(failed);
        }
        error.map_or(Ok(()), Err)
    }
}
