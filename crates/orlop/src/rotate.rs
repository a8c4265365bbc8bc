//! `orlop rotate`: new keys for a cluster.

use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::ValueEnum;
use orlop_server::auth::identity::{self, ClusterKey, Rotated, Step};
use orlop_store::{Config, Endpoint, Store};

const EXAMPLES: &str = "\
Examples:
  orlop rotate service-account-key
  (restart all servers)
  orlop rotate service-account-key
  (restart all servers; wait until old tokens have expired, an hour for most)
  orlop rotate service-account-key
  (restart all servers)
      Replaces the key that signs service account tokens, and nobody notices.
  orlop rotate ca --endpoint postgres://orlop@db/orlop --cluster-key-file cluster.key
      The same in three steps for the cluster's CA. Between the second and the third, give out new client
      certificates (orlop user add, orlop kubeconfig) and the new DATA_DIR/pki/ca.crt.";

/// Replace the cluster's CA or its service account key, a step at a time.
///
/// The first call makes a new key, which servers accept once they are restarted. The second makes them sign with it.
/// The third makes them forget the old one. Restart all servers after each: see docs/access.md.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Rotate {
    /// The key to replace.
    #[arg(value_enum)]
    key: Key,

    /// Data directory of a server of the cluster.
    #[arg(long, env = "ORLOP_DATA_DIR", default_value = "orlop-data", value_name = "DIR")]
    data_dir: PathBuf,

    /// Database: sqlite:///path/to/file.db or postgres://user@host/database [default: DATA_DIR/orlop.db].
    #[arg(long, env = "ORLOP_ENDPOINT", value_name = "URL", hide_env_values = true)]
    endpoint: Option<String>,

    /// File of the cluster key [default: DATA_DIR/cluster.key].
    #[arg(long, env = "ORLOP_CLUSTER_KEY_FILE", value_name = "PATH")]
    cluster_key_file: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Key {
    /// The CA of serving and client certificates.
    Ca,
    /// The key that signs service account tokens.
    ServiceAccountKey,
}

impl Rotate {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let endpoint = match &self.endpoint {
            Some(text) => Endpoint::parse(text)?,
            None => Endpoint::Sqlite(self.data_dir.join("orlop.db")),
        };
        if let Endpoint::Sqlite(path) = &endpoint
            && !path.exists()
        {
            bail!("there is no database at {}", path.display());
        }
        let key_file = self.cluster_key_file.clone().unwrap_or_else(|| self.data_dir.join("cluster.key"));
        let key = ClusterKey::read(&key_file)?;
        let store = Store::open(Config::new(endpoint.clone()))
            .await
            .with_context(|| format!("cannot open {endpoint}"))?;
        let rotated = match self.key {
            Key::Ca => Rotated::Ca,
            Key::ServiceAccountKey => Rotated::ServiceAccountKey,
        };
        let step = identity::rotate(&store, &key, rotated).await;
        store.close().await;
        println!("{}", next(step?, rotated));
        Ok(())
    }
}

fn next(step: Step, rotated: Rotated) -> &'static str {
    match (step, rotated) {
        (Step::Prepared, _) => {
            "Step 1 of 3: there is a new key. Restart all servers, one after the other: they will accept it. Then run \
             this again."
        }
        (Step::Activated, Rotated::Ca) => {
            "Step 2 of 3: servers sign with the new CA once they are restarted, and still accept the old one. Restart \
             them, give out new kubeconfigs and client certificates, and then run this again."
        }
        (Step::Activated, Rotated::ServiceAccountKey) => {
            "Step 2 of 3: servers sign with the new key once they are restarted, and still accept the old one. Restart \
             them, wait until tokens of the old key have expired, and then run this again."
        }
        (Step::Finished, _) => {
            "Step 3 of 3: servers will not accept the old key any more once they are restarted. Restart them."
        }
    }
}
