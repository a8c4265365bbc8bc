//! ValidatingAdmissionPolicy: refuses, warns about or audits requests.

mod validator;

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use orlop_api::status::{Cause, Status};
use orlop_auth::UnionAuthorizer;
use serde_json::Value;

use self::validator::{Annotation, Denied, Outcome, Reason, Validator};
use super::{
    INVOCATIONS_PER_TURN,
    definition::{Action, FailurePolicy},
    dispatch::{Invocation, PolicyError, invocations},
    expression::Stop,
    metrics::{Checked, PolicyMetrics},
    request::{Context, Interfaces, is_exempt},
    source::Source,
};
use crate::{
    Admission, AdmissionRequest, Operation, Phase,
    listers::{Listers, Resource},
    matching::{ConditionsOutcome, ObjectInterfaces, Variables},
};

const GROUP: &str = "admissionregistration.k8s.io";
const POLICIES: Resource<'_> = Resource::new(GROUP, "v1", "validatingadmissionpolicies");
const BINDINGS: Resource<'_> = Resource::new(GROUP, "v1", "validatingadmissionpolicybindings");

/// Maximum number of failures in an audit annotation.
const AUDITED_FAILURES_MAX: usize = 50;
/// Maximum length of the value of an audit annotation.
const ANNOTATION_BYTES_MAX: usize = 10 * 1024;

/// The plugin.
#[derive(Debug)]
pub struct ValidatingAdmissionPolicy {
    source: Source<Validator>,
    interfaces: Interfaces,
}

impl ValidatingAdmissionPolicy {
    /// Returns the plugin.
    pub fn new(
        listers: Arc<dyn Listers>,
        objects: Arc<dyn ObjectInterfaces>,
        authorizer: UnionAuthorizer,
        metrics: PolicyMetrics,
    ) -> Self {
        let source = Source::new(POLICIES, BINDINGS, Validator::compile);
        Self { source, interfaces: Interfaces::new(listers, objects, authorizer, metrics) }
    }
}

#[async_trait]
impl Admission for ValidatingAdmissionPolicy {
    fn handles(&self, phase: Phase, _operation: Operation) -> bool {
        phase == Phase::Validating
    }

    fn is_idle(&self, _phase: Phase, _request: &AdmissionRequest<'_>) -> bool {
        self.source.is_empty(&*self.interfaces.listers)
    }

    async fn validate(
        &self,
        request: &AdmissionRequest<'_>,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        if is_exempt(request) {
            return Ok(());
        }
        let hooks = self.source.hooks(&*self.interfaces.listers).await?;
        if hooks.list.is_empty() {
            return Ok(());
        }
        let context = Context::new(request, &self.interfaces);
        let mut results = Results::default();
        for (index, invocation) in invocations(&context, &hooks, object, old).await.into_iter().enumerate() {
            if index % INVOCATIONS_PER_TURN == INVOCATIONS_PER_TURN - 1 {
                tokio::task::yield_now().await;
            }
            match invocation {
                Err(error) => results.configuration_error(error),
                Ok(invocation) => evaluate(&context, &invocation, object, old, &mut results).await?,
            }
        }
        results.publish(request);
        results.denied(request, object)
    }
}

/// Evaluates a policy for a binding and parameter.
async fn evaluate(
    context: &Context<'_>,
    invocation: &Invocation<Validator>,
    object: Option<&Value>,
    old: Option<&Value>,
    results: &mut Results,
) -> Result<(), Status> {
    let policy = &invocation.policy;
    let (matched, failure_policy) = (&invocation.matched, policy.definition.failure_policy);
    let versioned = match context.versioned(&matched.kind, object, old).await {
        Ok(versioned) => versioned,
        Err(status) => {
            let message =
                format!("failed to configure binding: failed to convert object version: {}", status.message);
            let (policy, binding) = (policy.clone(), Some(invocation.binding.clone()));
            results.configuration_error(PolicyError { policy, binding, message, is_evaluated: false });
            return Ok(());
        }
    };
    let namespace = context.namespace_object().await?;
    let request = context.request_variable(matched);
    let (object, old) = versioned.objects();
    let variables = Variables {
        object,
        old,
        request: &request,
        namespace: None,
        params: invocation.params.as_deref(),
        authorizer: &context.checks,
        resource: &context.request_resource,
    };
    let authorizer = &context.interfaces.authorizer;
    let conditions = &policy.definition.conditions;
    if !conditions.is_empty() {
        match conditions.evaluate(&variables, authorizer).await {
            ConditionsOutcome::Match => {}
            ConditionsOutcome::Excluded(_) => return Ok(()),
            ConditionsOutcome::Failed { .. } if failure_policy == FailurePolicy::Ignore => return Ok(()),
            ConditionsOutcome::Failed { error, .. } => {
                results.take(invocation, Outcome::failed(error, failure_policy));
                return Ok(());
            }
        }
    }
    let variables = Variables { namespace: namespace.as_deref(), ..variables };
    let started = Instant::now();
    let outcome = loop {
        match policy.compiled.validate(&variables, failure_policy) {
            Ok(outcome) => break outcome,
            Err(Stop::OutOfBudget) => break Outcome::out_of_budget(failure_policy),
            Err(Stop::Interrupted) => {}
        }
        if !context.checks.resolve(authorizer).await {
            break Outcome::out_of_budget(failure_policy);
        }
    };
    // Expressions run without waiting. After long ones, other requests of this thread are served first.
    if outcome.is_expensive {
        tokio::task::yield_now().await;
    }
    count(&context.interfaces.metrics, invocation, &outcome, started.elapsed());
    results.take(invocation, outcome);
    Ok(())
}

/// Counts the decisions of a policy. Each is counted with its part of the time that they took together.
fn count(metrics: &PolicyMetrics, invocation: &Invocation<Validator>, outcome: &Outcome, taken: Duration) {
    let latency = taken / u32::try_from(outcome.decisions.len().max(1)).unwrap_or(u32::MAX);
    for decision in &outcome.decisions {
        let (policy, binding) = (&invocation.policy.definition.name, &invocation.binding);
        let checked = Checked { policy, binding: &binding.name, error: decision.error };
        if decision.denied.is_none() {
            metrics.validation(checked, "allow", latency);
            continue;
        }
        for action in &binding.actions {
            let action = match action {
                Action::Deny => "deny",
                Action::Warn => "warn",
                Action::Audit => "audit",
            };
            metrics.validation(checked, action, latency);
        }
    }
}

/// A reason to refuse a request.
struct Denial {
    policy: String,
    binding: Option<String>,
    message: String,
    reason: Reason,
}

/// A failure that is audited.
struct AuditedFailure {
    message: String,
    policy: String,
    binding: String,
    index: usize,
    actions: Vec<&'static str>,
}

/// The results of all policies for a request.
#[derive(Default)]
struct Results {
    denials: Vec<Denial>,
    failures: Vec<AuditedFailure>,
    warnings: Vec<String>,
    /// Values of audit annotations, by policy and key.
    annotations: BTreeMap<(String, String), Vec<String>>,
}

impl Results {
    fn configuration_error(&mut self, error: PolicyError<Validator>) {
        let definition = &error.policy.definition;
        if definition.failure_policy == FailurePolicy::Fail {
            self.denials.push(Denial {
                policy: definition.name.clone(),
                binding: error.binding.map(|binding| binding.name.clone()),
                message: error.message,
                reason: Reason::Invalid,
            });
        }
    }

    fn take(&mut self, invocation: &Invocation<Validator>, outcome: Outcome) {
        let (policy, binding) = (&invocation.policy.definition.name, &invocation.binding);
        let deny = |message: String, reason: Reason| Denial {
            policy: policy.clone(),
            binding: Some(binding.name.clone()),
            message,
            reason,
        };
        for (index, decision) in outcome.decisions.into_iter().enumerate() {
            let Some(Denied { message, reason }) = decision.denied else { continue };
            for action in &binding.actions {
                match action {
                    Action::Deny => self.denials.push(deny(message.clone(), reason)),
                    Action::Warn => self.warnings.push(format!(
                        "Validation failed for ValidatingAdmissionPolicy '{policy}' with binding '{}': {message}",
                        binding.name
                    )),
                    Action::Audit => self.failures.push(AuditedFailure {
                        message: message.clone(),
                        policy: policy.clone(),
                        binding: binding.name.clone(),
                        index,
                        actions: binding.actions.iter().map(|action| action.name()).collect(),
                    }),
                }
            }
        }
        for annotation in outcome.annotations {
            match annotation {
                Annotation::Exclude => {}
                // Denies whatever the actions of the binding are.
                Annotation::Failed(message) => self.denials.push(deny(message, Reason::Invalid)),
                Annotation::Publish { key, mut value } => {
                    value.truncate(value.floor_char_boundary(ANNOTATION_BYTES_MAX));
                    let values = self.annotations.entry((policy.clone(), key)).or_default();
                    if !values.contains(&value) {
                        values.push(value);
                    }
                }
            }
        }
    }

    /// Adds warnings and audit annotations to the request.
    fn publish(&mut self, request: &AdmissionRequest<'_>) {
        for warning in self.warnings.drain(..) {
            request.warn(warning);
        }
        for ((policy, key), values) in &self.annotations {
            request.annotate(format!("{policy}/{key}"), values.join(", "));
        }
        if self.failures.is_empty() {
            return;
        }
        let failures = self.failures.iter().take(AUDITED_FAILURES_MAX).map(|failure| {
            let quote = |text: &str| Value::from(text).to_string();
            format!(
                r#"{{"message":{},"policy":{},"binding":{},"expressionIndex":{},"validationActions":{}}}"#,
                quote(&failure.message),
                quote(&failure.policy),
                quote(&failure.binding),
                failure.index,
                Value::from(failure.actions.clone()),
            )
        });
        let failures: Vec<String> = failures.collect();
        let key = "validation.policy.admission.k8s.io/validation_failure";
        request.annotate(key, format!("[{}]", failures.join(",")));
    }

    /// Refuses the request for the first denial.
    fn denied(&self, request: &AdmissionRequest<'_>, object: Option<&Value>) -> Result<(), Status> {
        let Some(denial) = self.denials.first() else { return Ok(()) };
        let Denial { policy, message, .. } = denial;
        let message = match &denial.binding {
            Some(binding) => {
                format!(
                    "ValidatingAdmissionPolicy '{policy}' with binding '{binding}' denied request: {message}"
                )
            }
            None => format!("ValidatingAdmissionPolicy '{policy}' denied request: {message}"),
        };
        let mut status = request.forbidden(object.unwrap_or(&Value::Null), &message);
        (status.code, status.reason) = denial.reason.status();
        status.details_mut().causes.push(Cause { message, ..Cause::default() });
        Err(status)
    }
}
