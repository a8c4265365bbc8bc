//! Reinvocation: a second pass for policies whose object was changed after them.

use std::collections::HashSet;

use serde_json::Value;

use super::{super::dispatch::Invocation, Mutator};

/// Identity of an invocation within a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct InvocationKey {
    policy: String,
    binding: String,
    /// Namespace and name of the parameter.
    params: (String, String),
}

impl InvocationKey {
    pub(super) fn new(invocation: &Invocation<Mutator>) -> Self {
        let metadata = invocation.params.as_deref().map(|params| &params["metadata"]);
        let text = |field: &str| {
            let value = metadata.and_then(|metadata| metadata.get(field)).and_then(Value::as_str);
            value.unwrap_or_default().to_owned()
        };
        Self {
            policy: invocation.policy.definition.name.clone(),
            binding: invocation.binding.name.clone(),
            params: (text("namespace"), text("name")),
        }
    }
}

/// State that the policies' plugin keeps between the two passes of a request.
#[derive(Debug, Default)]
pub(super) struct PolicyReinvocation {
    last_output: Option<Value>,
    /// Invocations that are repeated if a later one changes the object.
    previously_invoked: HashSet<InvocationKey>,
    reinvoked: HashSet<InvocationKey>,
}

impl PolicyReinvocation {
    pub(super) fn is_last_output(&self, object: &Value) -> bool {
        self.last_output.as_ref() == Some(object)
    }

    pub(super) fn set_last_output(&mut self, object: &Value) {
        self.last_output = Some(object.clone());
    }

    pub(super) fn should_reinvoke(&self, key: &InvocationKey) -> bool {
        self.reinvoked.contains(key)
    }

    pub(super) fn require_previously_invoked(&mut self) {
        self.reinvoked.extend(self.previously_invoked.drain());
    }

    pub(super) fn add(&mut self, key: InvocationKey) {
        self.previously_invoked.insert(key);
    }
}
