//! The invocations of a request: policies that match it, with their bindings and parameters.

use std::sync::Arc;

use serde_json::Value;

use super::{
    definition::Binding,
    params,
    request::{Context, Interfaces},
    source::{Hook, Hooks, Policy},
};
use crate::matching::Match;

/// A policy, a binding and a parameter.
pub(super) struct Invocation<C> {
    pub(super) policy: Arc<Policy<C>>,
    pub(super) binding: Arc<Binding>,
    pub(super) matched: Match,
    pub(super) params: Option<Arc<Value>>,
}

/// A policy or binding that cannot be evaluated. The failure policy decides.
pub(super) struct PolicyError<C> {
    pub(super) policy: Arc<Policy<C>>,
    /// Absent if the policy itself is the cause.
    pub(super) binding: Option<Arc<Binding>>,
    pub(super) message: String,
    /// True if it was evaluated, and that failed.
    pub(super) is_evaluated: bool,
}

/// Returns the invocations of a request and the errors in finding them, in order.
pub(super) async fn invocations<C>(
    context: &Context<'_>,
    hooks: &Hooks<C>,
    object: Option<&Value>,
    old: Option<&Value>,
) -> Vec<Result<Invocation<C>, PolicyError<C>>> {
    let mut found = Vec::new();
    for hook in &hooks.list {
        if let Err(message) = of_hook(context, hook, object, old, &mut found).await {
            let message = format!("failed to configure policy: {message}");
            found.push(Err(PolicyError {
                policy: hook.policy.clone(),
                binding: None,
                message,
                is_evaluated: false,
            }));
        }
    }
    found
}

async fn of_hook<C>(
    context: &Context<'_>,
    hook: &Hook<C>,
    object: Option<&Value>,
    old: Option<&Value>,
    found: &mut Vec<Result<Invocation<C>, PolicyError<C>>>,
) -> Result<(), String> {
    let definition = &hook.policy.definition;
    let (attributes, objects) = (context.attributes(object, old), &*context.interfaces.objects);
    let Interfaces { listers, namespaces, .. } = context.interfaces;
    let Some(constraints) = &definition.constraints else {
        return Err("policy contained no match constraints, a required field".to_owned());
    };
    let matched = constraints.matches(&attributes, objects, namespaces).await;
    let Some(matched) = matched.map_err(|status| status.message)? else { return Ok(()) };
    if let Some(kind) = &definition.param_kind
        && params::find_resource(&**listers, kind).is_none()
    {
        return Err(params::unknown_kind(kind));
    }
    for binding in &hook.bindings {
        let is_bound = match &binding.constraints {
            None => Ok(true),
            Some(constraints) => {
                constraints.matches(&attributes, objects, namespaces).await.map(|matched| matched.is_some())
            }
        };
        let params = match is_bound {
            Ok(false) => continue,
            Ok(true) => {
                let (kind, reference) = (definition.param_kind.as_ref(), binding.param_ref.as_ref());
                params::collect(context.interfaces, kind, reference, context.request.review_namespace()).await
            }
            Err(status) => Err(status.message),
        };
        match params {
            Ok(params) => found.extend(params.into_iter().map(|params| {
                let (policy, binding) = (hook.policy.clone(), binding.clone());
                Ok(Invocation { policy, binding, matched: matched.clone(), params })
            })),
            Err(message) => found.push(Err(PolicyError {
                policy: hook.policy.clone(),
                binding: Some(binding.clone()),
                message: format!("failed to configure binding: {message}"),
                is_evaluated: false,
            })),
        }
    }
    Ok(())
}
