//! One cluster: its objects, the kinds it serves, its admission plugins and its token issuer. A value, never
//! a global: two clusters in one process are independent.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use orlop_admission::{AdmissionMetrics, plugins::Initializer};
use orlop_api::status::Status;
use orlop_auth::{authentication_info::AuthenticationInfo, lookup::ObjectChanges};
use orlop_store::{Store, Txn, TxnResult};
use serde_json::Value;
use tokio::sync::watch;

use crate::{
    admission::{
        Admission, ConfigurationError, Settings, chain, interfaces::ClusterInterfaces,
        listers::ClusterListers, webhook_clients::AdmissionClients,
    },
    aggregation::{self, Aggregator},
    auth::{
        UnionAuthorizer,
        issuer::Issuer,
        lookup::{ClusterObjects, keys_of_credentials},
        pki::Credential,
    },
    definitions::{self, Definitions},
    flow_control::{self, FlowControl, FlowControlOptions},
    http::stream_budget::StreamBudget,
    openapi,
    proxy::NodeTls,
    rbac::{self, Policy},
    registry::{Kind, Kinds, Registry},
    storage::{
        ObjectStore,
        generated_name::{NameSuffixSource, RandomSuffix},
        service_ranges::ServiceRanges,
        status_from_store_error,
        turns::Turns,
    },
    version::Version,
};

/// Source of the facts that are published for extension API servers.
struct PublishAuthentication(Box<dyn Fn() -> AuthenticationInfo + Send + Sync>);

impl std::fmt::Debug for PublishAuthentication {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PublishAuthentication").finish_non_exhaustive()
    }
}

/// A cluster.
#[derive(Debug)]
pub struct Cluster {
    /// Objects and the kinds they are of.
    pub objects: Arc<ObjectStore>,
    /// Cache of OpenAPI documents.
    pub(crate) openapi: openapi::Cache,
    /// CustomResourceDefinitions that are served.
    pub(crate) definitions: Definitions,
    /// APIServices.
    pub(crate) aggregator: Arc<Aggregator>,
    /// Roles and bindings.
    pub(crate) policy: Arc<Policy>,
    /// Flow control of requests.
    pub(crate) flow_control: Arc<FlowControl>,
    authorizer: UnionAuthorizer,
    authentication_info: Option<PublishAuthentication>,
    issuer: Arc<Issuer>,
    /// Changes of objects that credentials depend on.
    credential_changes: Arc<ObjectChanges>,
    /// Audiences of the API server, which tokens must be for.
    audiences: Vec<String>,
    admission: chain::Chain,
    pub(crate) admission_metrics: AdmissionMetrics,
    /// Resources that may only be used where a quota covers them.
    limited_resources: Vec<Value>,
    /// Turns of writes that quotas are charged for.
    pub(crate) quota_turns: Turns,
    /// Objects that admission plugins read.
    pub(crate) listers: Arc<ClusterListers>,
    name_suffixes: Arc<dyn NameSuffixSource>,
    /// TLS towards nodes; `None` for a cluster whose nodes cannot be reached.
    node_tls: ArcSwapOption<NodeTls>,
    /// True once the server shuts down.
    closing: watch::Sender<bool>,
    /// Bytes that streamed responses hold.
    pub(crate) stream_budget: StreamBudget,
    pub(crate) version: Version,
}

impl Cluster {
    /// Returns a cluster below `/registry/` of a store. `issuer` signs its service accounts' tokens.
    pub fn new(store: Store, kinds: Kinds, issuer: Issuer) -> Self {
        let objects = Arc::new(ObjectStore::new(store, Registry::new(kinds)));
        let closing = watch::Sender::new(false);
        Self {
            aggregator: Arc::new(Aggregator::new(objects.clone(), closing.subscribe())),
            policy: Arc::new(Policy::new(objects.clone(), closing.subscribe())),
            flow_control: Arc::new(FlowControl::new(
                objects.clone(),
                closing.subscribe(),
                FlowControlOptions::default(),
            )),
            listers: Arc::new(ClusterListers::new(objects.clone(), closing.subscribe())),
            authorizer: UnionAuthorizer::default(),
            authentication_info: None,
            objects,
            openapi: openapi::Cache::default(),
            definitions: Definitions::default(),
            audiences: issuer.names().to_vec(),
            issuer: Arc::new(issuer),
            credential_changes: Arc::default(),
            admission: chain::Chain::default(),
            admission_metrics: AdmissionMetrics::default(),
            limited_resources: Vec::new(),
            quota_turns: Turns::default(),
            name_suffixes: Arc::new(RandomSuffix),
            node_tls: ArcSwapOption::empty(),
            closing,
            stream_budget: StreamBudget::default(),
            version: Version::default(),
        }
    }

    /// Replaces the version that is reported.
    #[must_use]
    pub fn with_version(mut self, version: Version) -> Self {
        self.version = version;
        self
    }

    /// Turns on built-in admission plugins, by name (see [`chain::select`]). A cluster is without any at first.
    pub fn with_admission_plugins(
        mut self,
        names: &[&'static str],
        settings: Settings,
    ) -> Result<Self, ConfigurationError> {
        let limited = settings.configuration("ResourceQuota").get("limitedResources");
        self.limited_resources = limited.and_then(Value::as_array).cloned().unwrap_or_default();
        let initializer = Initializer {
            listers: self.listers.clone(),
            objects: Arc::new(ClusterInterfaces::new(self.objects.clone())),
            webhook_clients: Arc::new(AdmissionClients::new(self.objects.clone())),
            metrics: self.admission_metrics.clone(),
            authorizer: self.authorizer.clone(),
            settings,
        };
        self.admission = chain::Chain::build(names, &initializer)?;
        Ok(self)
    }

    /// Appends an admission plugin of the library's user.
    #[must_use]
    pub fn with_admission(mut self, admission: Arc<dyn Admission>) -> Self {
        self.admission.push("Custom", admission);
        self
    }

    /// Sets limits of requests in flight, and whether they are queued by priority and fairness.
    #[must_use]
    pub fn with_flow_control(mut self, options: FlowControlOptions) -> Self {
        let closing = self.closing.subscribe();
        self.flow_control = Arc::new(FlowControl::new(self.objects.clone(), closing, options));
        self
    }

    /// Makes nodes reachable, with this server's client certificate: logs, exec, attach, port-forward and proxies.
    #[must_use]
    pub fn with_node_tls(self, tls: NodeTls) -> Self {
        self.set_node_tls(tls);
        self
    }

    /// Replaces the TLS towards nodes, when its certificate is renewed.
    pub fn set_node_tls(&self, tls: NodeTls) {
        self.node_tls.store(Some(Arc::new(tls)));
    }

    /// Sets the client certificate of the front proxy, by which extension API servers trust this server. May be
    /// called again when it is renewed.
    pub fn set_front_proxy_client(&self, client: Credential) {
        self.aggregator.set_identity(client);
    }

    /// Sets the source of the facts that are published for extension API servers. It is called now and then, since CAs
    /// may be in files that change.
    #[must_use]
    pub fn with_authentication_info(
        mut self,
        info: impl Fn() -> AuthenticationInfo + Send + Sync + 'static,
    ) -> Self {
        self.authentication_info = Some(PublishAuthentication(Box::new(info)));
        self
    }

    /// Returns the facts that are published for extension API servers.
    pub(crate) fn authentication_info(&self) -> Option<AuthenticationInfo> {
        self.authentication_info.as_ref().map(|PublishAuthentication(info)| info())
    }

    /// Returns TLS towards nodes.
    pub(crate) fn node_tls(&self) -> Option<Arc<NodeTls>> {
        self.node_tls.load_full()
    }

    /// Sets the ranges that cluster IPs and node ports are allocated from.
    #[must_use]
    pub fn with_service_ranges(self, ranges: ServiceRanges) -> Self {
        self.objects.set_service_ranges(ranges);
        self
    }

    /// Returns the resources that may only be used where a quota covers them.
    pub(crate) fn limited_resources(&self) -> &[Value] {
        &self.limited_resources
    }

    /// Returns the admission chain.
    pub(crate) fn admission(&self) -> &chain::Chain {
        &self.admission
    }

    /// Replaces the source of generated names' suffixes.
    #[must_use]
    pub fn with_name_suffixes(mut self, suffixes: Arc<dyn NameSuffixSource>) -> Self {
        self.name_suffixes = suffixes;
        self
    }

    /// Returns the source of generated names' suffixes.
    pub(crate) fn name_suffixes(&self) -> &dyn NameSuffixSource {
        &*self.name_suffixes
    }

    /// Replaces the audiences of the API server; the issuer's names if empty.
    #[must_use]
    pub fn with_audiences(mut self, audiences: Vec<String>) -> Self {
        if !audiences.is_empty() {
            self.audiences = audiences;
        }
        self
    }

    /// Returns the audiences of the API server.
    pub(crate) fn audiences(&self) -> &[String] {
        &self.audiences
    }

    /// Returns true once the server shuts down, for tasks that end with it.
    pub(crate) fn closing_state(&self) -> watch::Receiver<bool> {
        self.closing.subscribe()
    }

    /// Returns the authorizers, which all parts of the server share.
    pub fn authorizer(&self) -> &UnionAuthorizer {
        &self.authorizer
    }

    /// Replaces the keys of service account tokens. Tokens that were verified before are verified again.
    pub fn replace_issuer_keys(&self, issuer: &Issuer) {
        self.issuer.replace_keys(issuer);
        self.credential_changes.record_all();
    }

    /// Returns the issuer of service account tokens.
    pub fn issuer(&self) -> &Arc<Issuer> {
        &self.issuer
    }

    /// Returns the objects that credentials depend on.
    pub(crate) fn credential_objects(&self) -> Arc<ClusterObjects> {
        Arc::new(ClusterObjects::new(self.objects.clone(), self.credential_changes.clone()))
    }

    /// Returns the counters of their changes.
    pub(crate) fn credential_changes(&self) -> &Arc<ObjectChanges> {
        &self.credential_changes
    }

    /// Shuts down: ends watches and fails readiness.
    pub fn close(&self) {
        self.closing.send_replace(true);
    }

    /// Returns true once the server shuts down.
    pub fn is_closing(&self) -> bool {
        *self.closing.borrow()
    }

    /// Refuses a long-running request during shutdown: a watch that ended at once would be retried in a loop.
    pub(crate) fn check_open(&self) -> Result<(), Status> {
        if self.is_closing() {
            let message = "The apiserver is shutting down, please try again later.";
            return Err(Status::too_many_requests(message, 5));
        }
        Ok(())
    }

    /// Completes when the server shuts down.
    pub fn closing(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut closing = self.closing.subscribe();
        async move {
            // An error means that the cluster was dropped, which is as good.
            let _ = closing.wait_for(|closing| *closing).await;
        }
    }

    /// Commits a transaction that writes objects of a kind. What a CustomResourceDefinition defines is
    /// served before this returns, what a role or binding grants is in force, and so is what admission depends on.
    pub(crate) async fn commit(&self, kind: &Kind, txn: Txn) -> Result<TxnResult, Status> {
        let keys = keys_of_credentials(kind, &txn);
        let committed =
            orlop_trace::in_span("store transaction", Vec::new, self.objects.store.txn(txn)).await;
        let result = committed.map_err(|error| status_from_store_error(&error))?;
        for key in keys {
            self.credential_changes.record(&key);
        }
        if result.succeeded && definitions::is_definition(kind) {
            self.definitions.wait_for(result.revision).await;
        }
        if result.succeeded && aggregation::is_api_service(kind) {
            self.aggregator.wait_for(result.revision).await;
        }
        if result.succeeded && rbac::is_rbac(kind) {
            self.policy.wait_for(result.revision).await;
        }
        if result.succeeded && flow_control::is_flow_control(kind) {
            self.flow_control.wait_for(result.revision).await;
        }
        if result.succeeded {
            self.listers.wait_for(kind, result.revision).await;
        }
        Ok(result)
    }
}
