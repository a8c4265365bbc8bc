//! Encryption options, named as kube-apiserver's.

use std::{path::PathBuf, sync::Arc};

use anyhow::{Context, bail};
use orlop_encryption::{Encryption, KmsTiming, PROBE_NAME, is_encrypted};
use orlop_server::chain::Chain;
use orlop_store::{Config, Store};

/// Encryption of stored objects.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Encryption at rest")]
pub(super) struct EncryptionOptions {
    /// Providers and keys that objects are encrypted with in the database
    /// (apiserver.config.k8s.io/v1 EncryptionConfiguration). See also "orlop encrypt".
    #[arg(long, value_name = "FILE")]
    encryption_provider_config: Option<PathBuf>,

    /// Load the encryption configuration again when its file changes.
    #[arg(long, requires = "encryption_provider_config")]
    encryption_provider_config_automatic_reload: bool,
}

impl EncryptionOptions {
    /// Loads the configuration, and has the store use it. `None` if nothing is encrypted.
    pub(super) async fn load(&self, store: &mut Config) -> anyhow::Result<Option<Arc<Encryption>>> {
        let Some(path) = &self.encryption_provider_config else { return Ok(None) };
        let encryption = Encryption::load(path, KmsTiming::default())
            .await
            .with_context(|| format!("--encryption-provider-config {}", path.display()))?;
        store.transformer = Some(encryption.clone());
        Ok(Some(encryption))
    }

    /// Begins to use the configuration. Without one, an encrypted database would be served half unreadable, and secrets
    /// would be written to it in clear: that is refused.
    pub(super) async fn open(
        &self,
        encryption: Option<&Arc<Encryption>>,
        store: &Store,
    ) -> anyhow::Result<()> {
        let Some(encryption) = encryption else {
            if is_encrypted(store).await.map_err(anyhow::Error::msg)? {
                bail!(
                    "objects of this database are encrypted: start with --encryption-provider-config. To stop \
                     encrypting, put the provider identity first in that file and run \"orlop encrypt --rekey\""
                );
            }
            return Ok(());
        };
        if let Err(error) = encryption.open_index(store).await {
            bail!("{error}");
        }
        if self.encryption_provider_config_automatic_reload {
            encryption.follow_file(store);
        }
        Ok(())
    }
}

/// Adds the health check of KMS plugins.
pub(super) fn add_check(chain: &Chain, encryption: &Arc<Encryption>) {
    let encryption = encryption.clone();
    let check = move || -> std::pin::Pin<Box<dyn Future<Output = bool> + Send>> {
        let encryption = encryption.clone();
        Box::pin(async move {
            let checked = encryption.check().await;
            if let Err(error) = &checked {
                tracing::warn!(error, "KMS plugins are not healthy");
            }
            checked.is_ok()
        })
    };
    chain.add_check(PROBE_NAME, Arc::new(check));
}
