//! Built-in admission plugins, a file each. They do what Kubernetes' plugins of the same names do.

mod always_deny;
mod authorization;
mod certificates;
mod default_classes;
mod default_toleration_seconds;
mod event_rate_limit;
mod limit_ranger;
mod node_restriction;
mod owner_references;
mod persistent_volume_claim_resize;
mod pod_defaults;
mod pod_placement;
mod pod_resize_validator;
mod pod_security;
mod pod_topology_labels;
mod pods;
mod priority;
mod protection;
mod runtime_class;
mod service_account;
mod taint_nodes_by_condition;
#[cfg(test)]
mod testing;
mod tolerations;

use std::sync::Arc;

use orlop_auth::UnionAuthorizer;
use serde_json::Value;

use crate::{
    Admission, AdmissionMetrics,
    listers::Listers,
    matching::{ListedNamespaces, ObjectInterfaces},
    policy::{mutating::MutatingAdmissionPolicy, validating::ValidatingAdmissionPolicy},
    webhook::{self, MutatingWebhooks, ValidatingWebhooks, WebhookClients},
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
    /// Metrics of plugins.
    pub metrics: AdmissionMetrics,
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

/// Builds a plugin; `None` for one that is part of the server (NamespaceLifecycle, ResourceQuota) or does nothing.
pub(crate) fn build(
    name: &'static str,
    initializer: &Initializer,
) -> Result<Option<Arc<dyn Admission>>, ConfigurationError> {
    let listers = || initializer.listers.clone();
    let authorizer = || initializer.authorizer.clone();
    let objects = || initializer.objects.clone();
    let metrics = &initializer.metrics;
    let policies = || metrics.policies.clone();
    let configuration = initializer.settings.configuration(name);
    let refuse = |why: String| ConfigurationError { plugin: name, why };
    let plugin: Arc<dyn Admission> = match name {
        "LimitPodHardAntiAffinityTopology" => Arc::new(pod_defaults::LimitPodHardAntiAffinityTopology),
        "LimitRanger" => Arc::new(limit_ranger::LimitRanger::new(listers())),
        "NodeRestriction" => Arc::new(node_restriction::NodeRestriction::new(listers(), authorizer())),
        "AlwaysPullImages" => Arc::new(pod_defaults::AlwaysPullImages),
        "PodSecurity" => {
            let metrics = metrics.pod_security.clone();
            Arc::new(pod_security::PodSecurity::new(listers(), configuration, metrics).map_err(refuse)?)
        }
        "PodNodeSelector" => Arc::new(pod_placement::PodNodeSelector::new(listers(), configuration)),
        "PodTolerationRestriction" => {
            pod_placement::check_tolerations(configuration).map_err(refuse)?;
            Arc::new(pod_placement::PodTolerationRestriction::new(listers(), configuration))
        }
        "EventRateLimit" => Arc::new(event_rate_limit::EventRateLimit::new(configuration).map_err(refuse)?),
        "ExtendedResourceToleration" => Arc::new(pod_defaults::ExtendedResourceToleration),
        "DefaultStorageClass" => Arc::new(default_classes::DefaultClass::of_storage(listers())),
        "DefaultIngressClass" => Arc::new(default_classes::DefaultClass::of_ingress(listers())),
        "StorageObjectInUseProtection" => Arc::new(protection::Protection::of_storage()),
        "PodGroupProtection" => Arc::new(protection::Protection::of_pod_groups()),
        "OwnerReferencesPermissionEnforcement" => {
            Arc::new(owner_references::OwnerReferencesPermissionEnforcement::new(authorizer(), listers()))
        }
        "PersistentVolumeClaimResize" => {
            Arc::new(persistent_volume_claim_resize::PersistentVolumeClaimResize::new(listers()))
        }
        "RuntimeClass" => Arc::new(runtime_class::RuntimeClass::new(listers())),
        "CertificateApproval" => Arc::new(certificates::CertificateApproval(authorizer())),
        "CertificateSigning" => Arc::new(certificates::CertificateSigning(authorizer())),
        "ClusterTrustBundleAttest" => Arc::new(certificates::ClusterTrustBundleAttest(authorizer())),
        "CertificateSubjectRestriction" => Arc::new(certificates::CertificateSubjectRestriction),
        "DenyServiceExternalIPs" => Arc::new(pod_defaults::DenyServiceExternalIPs),
        "PodTopologyLabels" => Arc::new(pod_topology_labels::PodTopologyLabels::new(listers())),
        "PodResizeValidator" => Arc::new(pod_resize_validator::PodResizeValidator::new(listers())),
        "AlwaysDeny" => Arc::new(always_deny::AlwaysDeny),
        "ServiceAccount" => Arc::new(service_account::ServiceAccount::new(listers())),
        "TaintNodesByCondition" => Arc::new(taint_nodes_by_condition::TaintNodesByCondition),
        "Priority" => Arc::new(priority::Priority::new(listers())),
        "DefaultTolerationSeconds" => {
            Arc::new(default_toleration_seconds::DefaultTolerationSeconds::new(&initializer.settings))
        }
        "MutatingAdmissionPolicy" => {
            Arc::new(MutatingAdmissionPolicy::new(listers(), objects(), authorizer(), policies()))
        }
        "ValidatingAdmissionPolicy" => {
            Arc::new(ValidatingAdmissionPolicy::new(listers(), objects(), authorizer(), policies()))
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
        metrics: initializer.metrics.webhooks.clone(),
    }
}
