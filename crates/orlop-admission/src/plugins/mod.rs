//! Built-in admission plugins, a file each. They do what Kubernetes' plugins of the same names do.

mod default_toleration_seconds;
mod pods;
mod priority;
mod service_account;
mod taint_nodes_by_condition;
#[cfg(test)]
mod testing;

use std::sync::Arc;

use orlop_auth::UnionAuthorizer;
use serde_json::Value;

use crate::{
    Admission,
    listers::Listers,
    matching::{ListedNamespaces, ObjectInterfaces},
    policy::{mutating::MutatingAdmissionPolicy, validating::ValidatingAdmissionPolicy},
    webhook::{self, MutatingWebhooks, ValidatingWebhooks, WebhookClients, WebhookMetrics},
};

/// Everything that plugins are built from.
#[derive(Clone, Debug)]
pub struct Initializer {
    /// Objects.
    pub listers: Arc<dyn Listers>,
    /// Kinds, and conversion between their versions.
    pub objects: Arc<dyn ObjectInterfaces>,
    /// Clients of webhooks.
    pub webhook_clients: Arc<dyn WebhookClients>,
    /// Metrics of webhooks.
    pub webhook_metrics: WebhookMetrics,
    /// The server's authorizers.
    pub authorizer: UnionAuthorizer,
    /// Settings of plugins.
    pub settings: Settings,
}

/// Settings of plugins, by flags and the admission configuration.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Time for which pods tolerate a node that is not ready.
    pub not_ready_toleration_seconds: i64,
    /// Time for which pods tolerate a node that cannot be reached.
    pub unreachable_toleration_seconds: i64,
    /// Configurations by plugin, as in an AdmissionConfiguration.
    pub configurations: Vec<(String, Value)>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            not_ready_toleration_seconds: 300,
            unreachable_toleration_seconds: 300,
            configurations: Vec::new(),
        }
    }
}

impl Settings {
    /// Returns the configuration of a plugin; null if it has none.
    pub fn configuration(&self, plugin: &str) -> &Value {
        let found = self.configurations.iter().find(|(name, _)| name == plugin);
        found.map_or(&Value::Null, |(_, configuration)| configuration)
    }
}

/// The configuration of a plugin cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("couldn't init admission plugin {plugin:?}: {why}")]
pub struct ConfigurationError {
    /// The plugin.
    pub plugin: &'static str,
    /// The reason.
    pub why: String,
}

/// Builds a plugin; `None` for one that has nothing to do here.
pub(crate) fn build(
    name: &'static str,
    initializer: &Initializer,
) -> Result<Option<Arc<dyn Admission>>, ConfigurationError> {
    let listers = || initializer.listers.clone();
    let plugin: Arc<dyn Admission> = match name {
        "ServiceAccount" => Arc::new(service_account::ServiceAccount::new(listers())),
        "TaintNodesByCondition" => Arc::new(taint_nodes_by_condition::TaintNodesByCondition),
        "Priority" => Arc::new(priority::Priority::new(listers())),
        "DefaultTolerationSeconds" => {
            Arc::new(default_toleration_seconds::DefaultTolerationSeconds::new(&initializer.settings))
        }
        "MutatingAdmissionPolicy" => {
            let (objects, authorizer) = (initializer.objects.clone(), initializer.authorizer.clone());
            Arc::new(MutatingAdmissionPolicy::new(listers(), objects, authorizer))
        }
        "ValidatingAdmissionPolicy" => {
            let (objects, authorizer) = (initializer.objects.clone(), initializer.authorizer.clone());
            Arc::new(ValidatingAdmissionPolicy::new(listers(), objects, authorizer))
        }
        "MutatingAdmissionWebhook" => {
            let clients = initializer.webhook_clients.clone();
            Arc::new(MutatingWebhooks::new(listers(), clients, webhooks(initializer)))
        }
        "ValidatingAdmissionWebhook" => {
            let clients = initializer.webhook_clients.clone();
            Arc::new(ValidatingWebhooks::new(listers(), clients, webhooks(initializer)))
        }
        _ => return Ok(None),
    };
    Ok(Some(plugin))
}

/// Returns what webhooks need of the server.
fn webhooks(initializer: &Initializer) -> webhook::Context {
    webhook::Context {
        interfaces: initializer.objects.clone(),
        namespaces: ListedNamespaces::new(initializer.listers.clone()),
        authorizer: initializer.authorizer.clone(),
        metrics: initializer.webhook_metrics.clone(),
    }
}
