//! Options of aggregation, with kube-apiserver's names.

use std::{fs, path::Path, path::PathBuf, sync::Arc, time::Duration};

use anyhow::Context;
use orlop_server::{
    auth::{files::Files, pki::Credential},
    cluster::Cluster,
};

use super::identity::Identity;
use crate::private_key::refuse_if_public;

/// Interval at which the files of the certificate are checked for changes.
const RELOAD_INTERVAL: Duration = Duration::from_secs(10);

/// Extension API servers.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Aggregation")]
pub(super) struct AggregationOptions {
    /// Client certificate (PEM) by which extension API servers trust this server's requests, instead of one of the
    /// cluster's own front proxy CA. The file is followed.
    #[arg(long, requires = "proxy_client_key_file", value_name = "PATH")]
    proxy_client_cert_file: Option<PathBuf>,

    /// Key (PEM) of the certificate.
    #[arg(long, requires = "proxy_client_cert_file", value_name = "PATH")]
    proxy_client_key_file: Option<PathBuf>,
}

impl AggregationOptions {
    /// Returns true if the certificate is of the cluster's own front proxy CA.
    pub(super) fn uses_own_ca(&self) -> bool {
        self.proxy_client_cert_file.is_none()
    }

    /// Gives a cluster its client certificate, and a new one when its files change.
    pub(super) fn install(&self, cluster: &Arc<Cluster>, identity: &Identity) -> anyhow::Result<()> {
        let (Some(certificate), Some(key)) = (&self.proxy_client_cert_file, &self.proxy_client_key_file)
        else {
            cluster.set_front_proxy_client(identity.front_proxy_client()?);
            return Ok(());
        };
        refuse_if_public(key)?;
        let mut files = Files::new(vec![certificate.clone(), key.clone()]);
        cluster.set_front_proxy_client(read(certificate, key)?);
        let (certificate, key) = (certificate.clone(), key.clone());
        let cluster = Arc::downgrade(cluster);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(RELOAD_INTERVAL).await;
                let Some(cluster) = cluster.upgrade() else { return };
                if files.changed_now() {
                    match read(&certificate, &key) {
                        Ok(client) => cluster.set_front_proxy_client(client),
                        Err(error) => tracing::warn!(%error, "cannot reload the proxy client certificate"),
                    }
                }
            }
        });
        Ok(())
    }
}

fn read(certificate: &Path, key: &Path) -> anyhow::Result<Credential> {
    let text =
        |path: &Path| fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()));
    let credential = Credential { certificate: text(certificate)?, key: text(key)? };
    credential
        .check()
        .with_context(|| format!("{} and {} cannot be used", certificate.display(), key.display()))?;
    Ok(credential)
}
