//! Keys and certificates of a running server: it takes part in rotations of the cluster's keys and renews its
//! certificates, without a restart.

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, Weak},
    time::Duration,
};

use orlop_net::{ClientVerifier, PemSource, ServerTls};
use orlop_server::{
    auth::identity::{self, ClusterSecrets},
    cluster::Cluster,
};
use orlop_store::Store;
use tokio::sync::watch;

use super::{
    authentication::{AuthenticationFlags, Verifiers},
    data_dir::DataDir,
    identity::Identity,
    trust::{Kubelet, RENEWAL_MARGIN, SharedTrust},
};

/// Interval at which the expiry of certificates is checked.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(12 * 60 * 60);
/// Delay before keys are tried again that could not be taken over: a retired CA is trusted until then.
const RETRY: Duration = Duration::from_secs(5);

/// Everything that is replaced when keys or certificates change.
pub(super) struct Renewal {
    pub(super) authentication: AuthenticationFlags,
    /// True if the certificate towards extension API servers is of the cluster's own CA.
    pub(super) uses_own_proxy_ca: bool,
    pub(super) identity: Identity,
    pub(super) data_dir: Arc<DataDir>,
    pub(super) kubeconfig: PathBuf,
    pub(super) address: SocketAddr,
    pub(super) cluster: Weak<Cluster>,
    pub(super) tls: ServerTls,
    pub(super) verifiers: Verifiers,
    pub(super) kubelet: Option<Kubelet>,
    /// Verifies API servers' certificates towards the resource metrics API in this process.
    pub(super) metrics: Option<Arc<ClientVerifier>>,
    pub(super) trust: SharedTrust,
    pub(super) root_ca: watch::Sender<String>,
    /// Keys that could not be taken over yet.
    pub(super) pending: Option<ClusterSecrets>,
}

impl Renewal {
    /// Follows rotations of the cluster's keys and renews certificates before they expire, for ever.
    pub(super) async fn run(mut self, store: Store) {
        let (sender, mut changes) = watch::channel(None);
        let (key, known) = (self.identity.key().clone(), self.identity.secrets().clone());
        let follow = identity::follow(&store, &key, known, |secrets: &ClusterSecrets| {
            sender.send_replace(Some(secrets.clone()));
        });
        let renew = async {
            loop {
                let pause = if self.pending.is_some() { RETRY } else { RENEWAL_INTERVAL };
                tokio::select! {
                    // The sender lives as long as this.
                    _ = changes.changed() => {
                        let secrets = changes.borrow_and_update().clone();
                        if let Some(secrets) = secrets {
                            self.rotate(secrets).await;
                        }
                    }
                    () = tokio::time::sleep(pause) => match self.pending.take() {
                        Some(secrets) => self.rotate(secrets).await,
                        None => self.renew().await,
                    },
                }
            }
        };
        tokio::select! {
            () = follow => {}
            () = renew => {}
        }
    }

    async fn rotate(&mut self, secrets: ClusterSecrets) {
        let adopted = self.identity.adopt(secrets.clone()).and_then(|()| self.apply());
        match adopted {
            Ok(()) => {
                self.pending = None;
                tracing::info!("took over the cluster's keys after a step of their rotation");
            }
            Err(error) => {
                self.pending = Some(secrets);
                tracing::error!(?error, "cannot take over the cluster's keys; trying again");
            }
        }
        self.write_files().await;
    }

    async fn renew(&mut self) {
        match self.identity.renew_if_due(RENEWAL_MARGIN) {
            Ok(false) => return,
            Ok(true) => {}
            Err(error) => return tracing::warn!(%error, "cannot renew certificates"),
        }
        match self.apply() {
            Ok(()) => tracing::info!("renewed this server's certificates"),
            Err(error) => tracing::warn!(%error, "cannot use renewed certificates"),
        }
        self.write_files().await;
    }

    /// Hands the identity's keys and certificates to whoever uses them. Trust grows before anything new is signed.
    fn apply(&mut self) -> anyhow::Result<()> {
        let (flags, identity) = (&self.authentication, &self.identity);
        self.verifiers.users.replace(flags.client_cas(identity.ca()))?;
        self.trust.store(Arc::new(identity.trust()?));
        if let Some(metrics) = &self.metrics {
            metrics.replace(identity.front_proxy_cas())?;
        }
        if let Some(kubelet) = &self.kubelet {
            kubelet.verifier.replace(vec![PemSource::Inline(identity.ca().to_owned())])?;
            let (certificate, key) =
                identity.kubelet_certificate(&kubelet.name, kubelet.address)?.to_sources();
            kubelet.tls.replace(certificate, key)?;
        }
        if let Some(serving) = identity.own_serving() {
            let (certificate, key) = serving.to_sources();
            self.tls.replace(certificate, key)?;
        }
        if let Some(cluster) = self.cluster.upgrade() {
            cluster.replace_issuer_keys(&flags.issuer(identity.issuer()?)?);
            cluster.set_node_tls(identity.node_tls()?);
            if self.uses_own_proxy_ca {
                cluster.set_front_proxy_client(identity.front_proxy_client()?);
            }
        }
        self.root_ca.send_if_modified(|current| {
            let is_new = *current != identity.root_ca;
            current.clone_from(&identity.root_ca);
            is_new
        });
        Ok(())
    }

    async fn write_files(&mut self) {
        self.identity.write_ca(&self.data_dir);
        let begun = self.identity.write_kubeconfig(&self.data_dir, &self.kubeconfig, self.address);
        let written = match begun {
            Ok(()) => self.identity.written().await,
            begun => begun,
        };
        if let Err(error) = written {
            tracing::warn!(?error, "cannot write the new CA and kubeconfig");
        }
    }
}
