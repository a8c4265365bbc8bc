//! The authenticators of a cluster, put together.

use std::{sync::Arc, time::Duration};

use orlop_auth::{
    TokenAuthenticator, Tokens, UnionAuthenticator,
    authentication::{
        Anonymous, AuthenticationMetrics, BootstrapTokens, Cached, FrontProxy, LegacyServiceAccountTokens,
        Lifetimes, RequestAuthenticator, ServiceAccountTokens, UseTracker, oidc::ReloadCounts,
    },
    authenticator::AudienceAgnostic,
    lookup::ObjectLookup,
};

use crate::cluster::Cluster;

/// Time for which the user of a token is cached, as in Kubernetes. Changes of the objects that a token depends on take
/// effect at once on the server that makes them, and within this time on others.
const TOKEN_CACHE_LIFETIME: Duration = Duration::from_secs(10);

/// Authentication besides client certificates and the cluster's own service accounts.
#[derive(Debug)]
pub struct AuthenticationOptions {
    /// Static tokens.
    pub tokens: Tokens,
    /// Accepts bootstrap tokens.
    pub bootstrap_tokens: bool,
    /// Authenticators of tokens that are asked last: issuers and webhooks.
    pub remote: Vec<Arc<dyn TokenAuthenticator>>,
    /// Front proxies.
    pub front_proxy: Option<FrontProxy>,
    /// Requests without a credential.
    pub anonymous: Anonymous,
    /// Records uses of tokens in secrets.
    pub use_tracker: Option<UseTracker>,
    /// Reloads of the configuration of issuers, for metrics.
    pub reloads: Option<ReloadCounts>,
}

impl From<Tokens> for AuthenticationOptions {
    fn from(tokens: Tokens) -> Self {
        Self {
            tokens,
            bootstrap_tokens: false,
            remote: Vec::new(),
            front_proxy: None,
            anonymous: Anonymous::Enabled,
            use_tracker: None,
            reloads: None,
        }
    }
}

impl AuthenticationOptions {
    /// Returns the authenticator of a cluster's requests. Local authenticators come first, as in Kubernetes.
    pub(crate) fn build(self, cluster: &Cluster) -> RequestAuthenticator {
        let audiences = cluster.audiences().to_vec();
        let (issuer, objects) = (cluster.issuer(), cluster.credential_objects());
        let lookup = || objects.clone() as Arc<dyn ObjectLookup>;
        let legacy =
            LegacyServiceAccountTokens::new(issuer.clone(), lookup(), audiences.clone(), self.use_tracker);
        let bound = ServiceAccountTokens::new(issuer.clone(), lookup(), audiences.clone());
        let mut all: Vec<Arc<dyn TokenAuthenticator>> = vec![
            Arc::new(AudienceAgnostic::new(self.tokens, audiences.clone())),
            Arc::new(legacy),
            Arc::new(bound),
        ];
        if self.bootstrap_tokens {
            let bootstrap = BootstrapTokens::new(lookup());
            all.push(Arc::new(AudienceAgnostic::new(bootstrap, audiences.clone())));
        }
        all.extend(self.remote);
        let lifetimes = Lifetimes { success: TOKEN_CACHE_LIFETIME, failure: Duration::ZERO, errors: false };
        let changes = Some(cluster.credential_changes().clone());
        let metrics = AuthenticationMetrics::default();
        let tokens =
            Cached::new(UnionAuthenticator::new(all), lifetimes, changes).with_metrics(metrics.clone());
        RequestAuthenticator::new(Arc::new(tokens), audiences)
            .with_metrics(metrics)
            .with_front_proxy(self.front_proxy)
            .with_anonymous(self.anonymous)
    }
}
