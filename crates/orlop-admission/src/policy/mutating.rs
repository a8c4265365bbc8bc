//! MutatingAdmissionPolicy: changes objects by apply configurations and JSON patches.

mod patcher;
mod reinvocation;

use std::{borrow::Cow, sync::Arc, time::Instant};

use async_trait::async_trait;
use orlop_api::status::{Cause, Reason, Status};
use orlop_auth::UnionAuthorizer;
use serde_json::Value;

use self::{
    patcher::{Mutator, Patch, PatchError},
    reinvocation::{InvocationKey, PolicyReinvocation},
};
use super::{
    INVOCATIONS_PER_TURN,
    definition::FailurePolicy,
    dispatch::{Invocation, PolicyError, invocations},
    expression::Stop,
    metrics::{Checked, PolicyErrorType, PolicyMetrics},
    request::{Context, Interfaces, is_exempt},
    source::Source,
};
use crate::{
    Admission, AdmissionRequest, Operation, Phase,
    listers::{Listers, Resource},
    matching::{ConditionsOutcome, ObjectInterfaces, Variables},
};

const NAME: &str = "MutatingAdmissionPolicy";
const GROUP: &str = "admissionregistration.k8s.io";
const POLICIES: Resource<'_> = Resource::new(GROUP, "v1", "mutatingadmissionpolicies");
const BINDINGS: Resource<'_> = Resource::new(GROUP, "v1", "mutatingadmissionpolicybindings");

/// The plugin.
#[derive(Debug)]
pub struct MutatingAdmissionPolicy {
    source: Source<Mutator>,
    interfaces: Interfaces,
}

impl MutatingAdmissionPolicy {
    /// Returns the plugin.
    pub fn new(
        listers: Arc<dyn Listers>,
        objects: Arc<dyn ObjectInterfaces>,
        authorizer: UnionAuthorizer,
        metrics: PolicyMetrics,
    ) -> Self {
        let source = Source::new(POLICIES, BINDINGS, Mutator::compile);
        Self { source, interfaces: Interfaces::new(listers, objects, authorizer, metrics) }
    }
}

#[async_trait]
impl Admission for MutatingAdmissionPolicy {
    fn handles(&self, phase: Phase, operation: Operation) -> bool {
        // There is nothing to change in a delete.
        phase == Phase::Mutating && operation != Operation::Delete
    }

    fn is_idle(&self, _phase: Phase, _request: &AdmissionRequest<'_>) -> bool {
        self.source.is_empty(&*self.interfaces.listers)
    }

    async fn mutate(
        &self,
        request: &AdmissionRequest<'_>,
        object: &mut Value,
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
        let (mut errors, mut selected) = (Vec::new(), Vec::new());
        for invocation in invocations(&context, &hooks, Some(object), old).await {
            match invocation {
                Ok(invocation) => selected.push(invocation),
                Err(error) => errors.push(error),
            }
        }
        if !selected.is_empty() {
            let namespace = context.namespace_object().await?;
            request.reinvocation.with_value(NAME, |state: &mut PolicyReinvocation| {
                if request.reinvocation.is_second_pass() && !state.is_last_output(object) {
                    // A plugin after the policies has changed the object.
                    state.require_previously_invoked();
                }
            });
            for (index, invocation) in selected.iter().enumerate() {
                if index % INVOCATIONS_PER_TURN == INVOCATIONS_PER_TURN - 1 {
                    tokio::task::yield_now().await;
                }
                let namespace = namespace.as_deref();
                errors.extend(invoke(&context, invocation, namespace, object, old).await?);
            }
            request
                .reinvocation
                .with_value(NAME, |state: &mut PolicyReinvocation| state.set_last_output(object));
        }
        denied(request, object, &errors)
    }
}

/// Runs the mutations of a policy, in order. Returns the errors that the failure policy decides about.
async fn invoke(
    context: &Context<'_>,
    invocation: &Invocation<Mutator>,
    namespace: Option<&Value>,
    object: &mut Value,
    old: Option<&Value>,
) -> Result<Vec<PolicyError<Mutator>>, Status> {
    let (request, policy, matched) = (context.request, &invocation.policy, &invocation.matched);
    let failed = |message: String| PolicyError {
        policy: policy.clone(),
        binding: Some(invocation.binding.clone()),
        message,
        is_evaluated: true,
    };
    let versioned = match context.versioned(&matched.kind, Some(object), old).await {
        Ok(versioned) => versioned,
        Err(status) => {
            let message = format!("failed to configure policy: {}", status.message);
            return Ok(vec![PolicyError { binding: None, is_evaluated: false, ..failed(message) }]);
        }
    };
    let admission_request = context.request_variable(matched);
    let mut current = versioned.object.map(Cow::into_owned).unwrap_or_default();
    let variables = Variables {
        object: None,
        old: versioned.old.as_deref(),
        request: &admission_request,
        namespace,
        params: invocation.params.as_deref(),
        authorizer: &context.checks,
        resource: &context.request_resource,
    };
    let conditions = &policy.definition.conditions;
    if !conditions.is_empty() {
        let variables = Variables { object: Some(&current), namespace: None, ..variables };
        match conditions.evaluate(&variables, &context.interfaces.authorizer).await {
            ConditionsOutcome::Match => {}
            ConditionsOutcome::Excluded(_) => return Ok(Vec::new()),
            ConditionsOutcome::Failed { .. } if policy.definition.failure_policy == FailurePolicy::Ignore => {
                return Ok(Vec::new());
            }
            ConditionsOutcome::Failed { error, .. } => return Ok(vec![failed(error)]),
        }
    }
    let key = InvocationKey::new(invocation);
    let reinvocation = request.reinvocation;
    if reinvocation.is_second_pass()
        && !reinvocation.with_value(NAME, |state: &mut PolicyReinvocation| state.should_reinvoke(&key))
    {
        return Ok(Vec::new());
    }
    let (mut errors, mut changed) = (Vec::new(), false);
    for patch in policy.compiled.patches() {
        let started = Instant::now();
        let applied = apply(context, invocation, patch, &variables, &current).await;
        let error = match &applied {
            Err(PatchError::Failed(message)) => PolicyErrorType::of(message),
            _ => PolicyErrorType::NoError,
        };
        let checked = Checked { policy: &policy.definition.name, binding: &invocation.binding.name, error };
        context.interfaces.metrics.mutation(checked, started.elapsed());
        match applied {
            Ok(patched) => {
                changed |= patched != current;
                current = patched;
            }
            Err(PatchError::Status(status)) => return Err(status),
            Err(PatchError::Failed(message)) => errors.push(failed(message)),
        }
    }
    if changed {
        let converted = match matched.kind == *request.kind {
            true => current,
            false => context.interfaces.objects.convert(current, request.kind).await.map_err(|status| {
                Status::internal(&format!("failed to convert object: {}", status.message))
            })?,
        };
        *object = converted;
    }
    reinvocation.with_value(NAME, |state: &mut PolicyReinvocation| {
        if changed {
            state.require_previously_invoked();
        }
        if policy.compiled.is_reinvoked_if_needed() {
            state.add(key);
        }
    });
    if changed {
        reinvocation.request();
    }
    Ok(errors)
}

/// Applies one mutation to an object. Returns the object with its defaults.
async fn apply(
    context: &Context<'_>,
    invocation: &Invocation<Mutator>,
    patch: &Patch,
    variables: &Variables<'_>,
    object: &Value,
) -> Result<Value, PatchError> {
    let (kind, objects) = (&invocation.matched.kind, &*context.interfaces.objects);
    let evaluated = loop {
        let variables = Variables { object: Some(object), ..*variables };
        match invocation.policy.compiled.evaluate(patch, &variables) {
            Ok(evaluated) => break evaluated?,
            Err(Stop::OutOfBudget) => return Err(PatchError::out_of_budget()),
            Err(Stop::Interrupted) => {}
        }
        if !context.checks.resolve(&context.interfaces.authorizer).await {
            return Err(PatchError::out_of_budget());
        }
    };
    if evaluated.is_expensive {
        // Expressions run without waiting. After long ones, other requests of this thread are served first.
        tokio::task::yield_now().await;
    }
    let patched = evaluated.patch.apply(object, kind, objects)?;
    if patched == *object {
        return Ok(patched);
    }
    objects.decode(patched, kind).map_err(|why| PatchError::Status(Status::internal(&why)))
}

/// Refuses a request for the errors of policies that fail.
fn denied(
    request: &AdmissionRequest<'_>,
    object: &Value,
    errors: &[PolicyError<Mutator>],
) -> Result<(), Status> {
    let fail = errors.iter().filter(|error| error.policy.definition.failure_policy == FailurePolicy::Fail);
    let mut status: Option<Status> = None;
    for error in fail {
        let (policy, message) = (&error.policy.definition.name, &error.message);
        let text = match &error.binding {
            Some(binding) => {
                format!("policy '{policy}' with binding '{}' denied request: {message}", binding.name)
            }
            None => format!("policy {policy:?} denied request: {message}"),
        };
        let status = status.get_or_insert_with(|| {
            let mut status = request.forbidden(object, "admission request denied by policy");
            status.message.clone_from(&text);
            // Kubernetes changes the reason and not the code.
            if error.is_evaluated {
                status.reason = Reason::Invalid;
            }
            status
        });
        status.details_mut().causes.push(Cause { message: text, ..Cause::default() });
    }
    status.map_or(Ok(()), Err)
}
