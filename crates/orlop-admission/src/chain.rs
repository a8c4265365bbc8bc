//! The admission chain: all plugins in Kubernetes' order, those of them that are on, and the two passes over them.

use std::{collections::HashMap, sync::Arc, time::Instant};

use orlop_api::status::Status;
use serde_json::Value;

use crate::{
    Admission, AdmissionRequest, Operation, Phase, Resources,
    metrics::ChainMetrics,
    plugins::{self, Initializer},
};

/// A plugin of the chain.
#[derive(Debug)]
pub struct Registration {
    /// Name, as in the flags.
    pub name: &'static str,
    /// True if it is on unless a flag says otherwise.
    pub is_default: bool,
}

/// All plugins, in order. NodeRestriction is on by default here, and off in kube-apiserver, because the Node authorizer
/// is: nodes would be limited in what they read, and not in what they write.
pub const PLUGINS: &[Registration] = &[
    off("AlwaysAdmit"),
    off("NamespaceAutoProvision"),
    on("NamespaceLifecycle"),
    off("NamespaceExists"),
    off("LimitPodHardAntiAffinityTopology"),
    on("LimitRanger"),
    on("ServiceAccount"),
    on("NodeRestriction"),
    on("TaintNodesByCondition"),
    off("AlwaysPullImages"),
    off("ImagePolicyWebhook"),
    on("PodSecurity"),
    off("PodNodeSelector"),
    on("Priority"),
    on("DefaultTolerationSeconds"),
    off("PodTolerationRestriction"),
    off("EventRateLimit"),
    off("ExtendedResourceToleration"),
    on("DefaultStorageClass"),
    on("StorageObjectInUseProtection"),
    on("PodGroupProtection"),
    off("OwnerReferencesPermissionEnforcement"),
    on("PersistentVolumeClaimResize"),
    on("RuntimeClass"),
    on("CertificateApproval"),
    on("CertificateSigning"),
    on("ClusterTrustBundleAttest"),
    on("CertificateSubjectRestriction"),
    on("DefaultIngressClass"),
    off("DenyServiceExternalIPs"),
    on("PodTopologyLabels"),
    on("NodeDeclaredFeatureValidator"),
    on("PodResizeValidator"),
    on("MutatingAdmissionPolicy"),
    on("MutatingAdmissionWebhook"),
    on("ValidatingAdmissionPolicy"),
    on("ValidatingAdmissionWebhook"),
    on("ResourceQuota"),
    off("AlwaysDeny"),
];

/// Plugins that are part of the server, because they are part of the transaction of a write or write themselves.
#[derive(Clone, Copy, Debug)]
pub struct ServerPlugins {
    /// NamespaceLifecycle: a create needs a namespace that is not terminating, and some namespaces stay.
    pub namespace_lifecycle: bool,
    /// NamespaceAutoProvision: a create makes its namespace.
    pub namespace_auto_provision: bool,
    /// NamespaceExists: a create needs a namespace.
    pub namespace_exists: bool,
    /// ResourceQuota: a write is charged to the quotas of its namespace.
    pub resource_quota: bool,
}

impl ServerPlugins {
    fn of(names: &[&str]) -> Self {
        Self {
            namespace_lifecycle: names.contains(&"NamespaceLifecycle"),
            namespace_auto_provision: names.contains(&"NamespaceAutoProvision"),
            namespace_exists: names.contains(&"NamespaceExists"),
            resource_quota: names.contains(&"ResourceQuota"),
        }
    }
}

/// Those of a server without a chain: only namespaces are held.
impl Default for ServerPlugins {
    fn default() -> Self {
        Self {
            namespace_lifecycle: true,
            namespace_auto_provision: false,
            namespace_exists: false,
            resource_quota: false,
        }
    }
}

const fn on(name: &'static str) -> Registration {
    Registration { name, is_default: true }
}

const fn off(name: &'static str) -> Registration {
    Registration { name, is_default: false }
}

/// The flags name plugins wrongly.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectionError {
    /// There is no such plugin.
    #[error("{flag} plugin {name:?} is unknown")]
    Unknown {
        /// The flag.
        flag: &'static str,
        /// The name.
        name: String,
    },
    /// Plugins are both enabled and disabled.
    #[error("[{}] in enable-admission-plugins and disable-admission-plugins overlapped", .0.join(" "))]
    Overlap(Vec<String>),
}

/// Returns the plugins that are on, in order, as kube-apiserver finds them from its two flags.
pub fn select(enabled: &[String], disabled: &[String]) -> Result<Vec<&'static str>, SelectionError> {
    for (flag, names) in [("enable-admission-plugins", enabled), ("disable-admission-plugins", disabled)] {
        let is_known = |name: &str| PLUGINS.iter().any(|plugin| plugin.name == name);
        if let Some(name) = names.iter().find(|name| !is_known(name)) {
            return Err(SelectionError::Unknown { flag, name: name.clone() });
        }
    }
    let mut both: Vec<String> = enabled.iter().filter(|name| disabled.contains(name)).cloned().collect();
    if !both.is_empty() {
        both.sort();
        both.dedup();
        return Err(SelectionError::Overlap(both));
    }
    let names = |list: &[String], name: &str| list.iter().any(|listed| listed == name);
    let is_on = |plugin: &&Registration| {
        names(enabled, plugin.name) || (plugin.is_default && !names(disabled, plugin.name))
    };
    Ok(PLUGINS.iter().filter(is_on).map(|plugin| plugin.name).collect())
}

/// Returns the plugins that are on by default, in order.
pub fn defaults() -> Vec<&'static str> {
    PLUGINS.iter().filter(|plugin| plugin.is_default).map(|plugin| plugin.name).collect()
}

/// Plugins of a pass for an operation, by their places in the chain.
type Row = [[Vec<u16>; Operation::ALL.len()]; Phase::ALL.len()];

/// Plugins, in order, with an index of those that handle a resource.
#[derive(Debug, Default)]
pub struct Chain {
    plugins: Vec<(&'static str, Arc<dyn Admission>)>,
    metrics: ChainMetrics,
    server_plugins: ServerPlugins,
    /// Plugins of the resources that any plugin names, by plural name and group.
    by_resource: HashMap<&'static str, Vec<(&'static str, Row)>>,
    /// Plugins of all other resources.
    others: Row,
}

impl Chain {
    /// Returns the chain of the named plugins.
    pub fn build(
        names: &[&'static str],
        initializer: &Initializer,
    ) -> Result<Self, plugins::ConfigurationError> {
        let mut chain = Self {
            server_plugins: ServerPlugins::of(names),
            metrics: initializer.metrics.chain.clone(),
            ..Self::default()
        };
        for name in names {
            if let Some(plugin) = plugins::build(name, initializer)? {
                chain.plugins.push((name, plugin));
            }
        }
        chain.index();
        Ok(chain)
    }

    /// Appends a plugin.
    pub fn push(&mut self, name: &'static str, plugin: Arc<dyn Admission>) {
        self.plugins.push((name, plugin));
        self.index();
    }

    /// Returns the plugins that are part of the server.
    pub fn server_plugins(&self) -> ServerPlugins {
        self.server_plugins
    }

    /// Returns true if no plugin handles a request.
    pub fn is_empty(&self, phase: Phase, operation: Operation, group: &str, resource: &str) -> bool {
        self.row(group, resource)[phase as usize][operation as usize].is_empty()
    }

    /// Returns true if no plugin has anything to do for a request.
    pub fn is_idle(&self, phase: Phase, request: &AdmissionRequest<'_>) -> bool {
        self.of(phase, request).next().is_none()
    }

    /// Runs the mutating pass, and once more if a plugin asks for it. `object` is null on delete.
    pub async fn mutate(
        &self,
        request: &AdmissionRequest<'_>,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let started = Instant::now();
        let admitted = self.mutating_passes(request, object, old).await;
        self.metrics.step(Phase::Mutating, request.operation, admitted.is_err(), started.elapsed());
        admitted
    }

    async fn mutating_passes(
        &self,
        request: &AdmissionRequest<'_>,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        loop {
            for (name, plugin) in self.of(Phase::Mutating, request) {
                let attributes = || vec![("plugin", (*name).into())];
                let admitted = plugin.mutate(request, object, old);
                let admitted = orlop_trace::in_span("mutating admission", attributes, admitted);
                self.timed(name, Phase::Mutating, request.operation, admitted).await?;
            }
            if !request.reinvocation.begin_second_pass() {
                return Ok(());
            }
        }
    }

    /// Runs the validating pass. `object` is absent on delete, `old` on create.
    pub async fn validate(
        &self,
        request: &AdmissionRequest<'_>,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let started = Instant::now();
        let admitted = self.validating_pass(request, object, old).await;
        self.metrics.step(Phase::Validating, request.operation, admitted.is_err(), started.elapsed());
        admitted
    }

    async fn validating_pass(
        &self,
        request: &AdmissionRequest<'_>,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        for (name, plugin) in self.of(Phase::Validating, request) {
            let attributes = || vec![("plugin", (*name).into())];
            let admitted = plugin.validate(request, object, old);
            let admitted = orlop_trace::in_span("validating admission", attributes, admitted);
            self.timed(name, Phase::Validating, request.operation, admitted).await?;
        }
        Ok(())
    }

    /// Waits for a plugin, and counts the time.
    async fn timed(
        &self,
        plugin: &'static str,
        phase: Phase,
        operation: Operation,
        admitted: impl Future<Output = Result<(), Status>>,
    ) -> Result<(), Status> {
        let started = Instant::now();
        let admitted = admitted.await;
        self.metrics.plugin(plugin, phase, operation, admitted.is_err(), started.elapsed());
        admitted
    }

    fn of<'a>(
        &'a self,
        phase: Phase,
        request: &'a AdmissionRequest<'_>,
    ) -> impl Iterator<Item = &'a (&'static str, Arc<dyn Admission>)> {
        let row = self.row(&request.attributes.group, &request.attributes.resource);
        let places = &row[phase as usize][request.operation as usize];
        let plugins = places.iter().filter_map(|place| self.plugins.get(usize::from(*place)));
        plugins.filter(move |(_, plugin)| !plugin.is_idle(phase, request))
    }

    fn row(&self, group: &str, resource: &str) -> &Row {
        let rows = self.by_resource.get(resource).into_iter().flatten();
        rows.into_iter().find(|(of, _)| *of == group).map_or(&self.others, |(_, row)| row)
    }

    fn index(&mut self) {
        self.by_resource.clear();
        let named = self.plugins.iter().flat_map(|(_, plugin)| match plugin.resources() {
            Resources::All => &[],
            Resources::Only(resources) => resources,
        });
        for (group, resource) in named {
            let rows = self.by_resource.entry(resource).or_default();
            if rows.iter().all(|(of, _)| of != group) {
                rows.push((group, Row::default()));
            }
        }
        for (resource, rows) in &mut self.by_resource {
            for (group, row) in rows {
                *row = row_of(&self.plugins, Some((group, resource)));
            }
        }
        self.others = row_of(&self.plugins, None);
    }
}

/// Returns the plugins that handle a resource, or those that handle any.
fn row_of(plugins: &[(&'static str, Arc<dyn Admission>)], resource: Option<(&str, &str)>) -> Row {
    let mut row = Row::default();
    for (place, (_, plugin)) in (0_u16..).zip(plugins) {
        let is_named = match plugin.resources() {
            Resources::All => true,
            Resources::Only(named) => resource.is_some_and(|resource| named.contains(&resource)),
        };
        for phase in Phase::ALL {
            for operation in Operation::ALL {
                if is_named && plugin.handles(phase, operation) {
                    row[phase as usize][operation as usize].push(place);
                }
            }
        }
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        text.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
    }

    #[test]
    fn flags_turn_plugins_on_and_off_and_do_not_order_them() {
        let on = select(&names("AlwaysDeny,AlwaysPullImages"), &names("Priority")).unwrap();
        assert!(on.contains(&"AlwaysPullImages") && !on.contains(&"Priority"));
        assert_eq!((on.first(), on.last()), (Some(&"NamespaceLifecycle"), Some(&"AlwaysDeny")));
        assert_eq!(select(&[], &[]).unwrap(), defaults());
    }

    #[test]
    fn selection_errors_match_kubernetes() {
        let error = |enabled: &str, disabled: &str| {
            select(&names(enabled), &names(disabled)).unwrap_err().to_string()
        };
        assert_eq!(error("Nope", ""), r#"enable-admission-plugins plugin "Nope" is unknown"#);
        assert_eq!(error("", "Nope"), r#"disable-admission-plugins plugin "Nope" is unknown"#);
        assert_eq!(
            error("Priority,AlwaysDeny", "AlwaysDeny,Priority"),
            "[AlwaysDeny Priority] in enable-admission-plugins and disable-admission-plugins overlapped"
        );
    }
}
