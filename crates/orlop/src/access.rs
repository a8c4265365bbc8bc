//! Commands that hand out credentials: `orlop user`, `orlop token`, `orlop kubeconfig`.

pub(crate) mod kubeconfig;
pub(crate) mod token;
pub(crate) mod user;

use std::path::{Path, PathBuf};

use anyhow::Context;
use orlop_client::{Client, Config, Kubeconfig};

/// The administrator's kubeconfig.
#[derive(Debug, clap::Args)]
pub(crate) struct Administrator {
    /// Kubeconfig to act with [default: DATA_DIR/kubeconfig, which the server writes].
    #[arg(long, value_name = "PATH")]
    kubeconfig: Option<PathBuf>,

    /// Data directory of the server.
    #[arg(long, env = "ORLOP_DATA_DIR", default_value = "orlop-data", value_name = "DIR")]
    data_dir: PathBuf,
}

impl Administrator {
    /// Reads the kubeconfig.
    pub(crate) fn read(&self) -> anyhow::Result<Kubeconfig> {
        let path = self.kubeconfig.clone().unwrap_or_else(|| self.data_dir.join("kubeconfig"));
        Kubeconfig::read_from(&path)
            .with_context(|| format!("cannot read {}: name it with --kubeconfig", path.display()))
    }

    /// Returns a client that acts with it.
    pub(crate) async fn client(&self) -> anyhow::Result<Client> {
        let config = Config::of(&self.read()?).context("the kubeconfig cannot be used")?;
        Ok(Client::connect(config).await?)
    }
}

/// Returns a kubeconfig as YAML.
fn to_yaml(kubeconfig: &Kubeconfig) -> anyhow::Result<String> {
    Ok(serde_saphyr::to_string(&kubeconfig.to_value())?)
}

/// Writes a file with credentials, for its owner only, or prints it.
fn write_or_print(path: Option<&Path>, content: &str) -> anyhow::Result<()> {
    match path {
        Some(path) => orlop_store::private_files::write(path, content.as_bytes())
            .with_context(|| format!("cannot write {}", path.display())),
        None => {
            println!("{}", content.trim_end());
            Ok(())
        }
    }
}
