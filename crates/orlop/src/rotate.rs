//! `orlop rotate`: new keys for a cluster.

use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::ValueEnum;
use orlop_server::auth::identity::{self, ClusterKey, Rotated, Step};
use orlop_store::{Config, Endpoint, Store};

const EXAMPLES: &str = "\
Examples:
  orlop rotate service-account-key
  orlop rotate service-account-key
  (wait until old tokens have expired, an hour for most)
  orlop rotate service-account-key
      Replaces the key that signs service account tokens, and nobody notices.
  orlop rotate ca --endpoint postgres://orlop@db/orlop --cluster-key-file cluster.key
      The same in three steps for the cluster's CA. Before the second, give out the new DATA_DIR/pki/ca.crt; between
      the second and the third, new client certificates (orlop user add, orlop kubeconfig).
  orlop rotate front-proxy-ca
      The same for the CA by which extension API servers trust this cluster's servers.";

/// Replace the cluster's CA, its front proxy CA or its service account key, a step at a time.
///
/// The first call makes a new key, which servers accept. The second makes them sign with it. The third makes them
/// forget the old one. Running servers follow within a second or two and log it; leave them that time between two
/// steps. See docs/many-servers.md.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Rotate {
    /// The key to replace.
    #[arg(value_enum)]
    key: Target,

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
enum Target {
    /// The CA of serving and client certificates.
    Ca,
    /// The CA of servers' certificates towards extension API servers.
    FrontProxyCa,
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
            Target::Ca => Rotated::Ca,
            Target::FrontProxyCa => Rotated::FrontProxyCa,
            Target::ServiceAccountKey => Rotated::ServiceAccountKey,
        };
        let step = identity::rotate(&store, &key, rotated).await;
        store.close().await;
        println!("{}", next(step?, rotated));
        Ok(())
    }
}

fn next(step: Step, rotated: Rotated) -> &'static str {
    match (step, rotated) {
        (Step::Prepared, Rotated::Ca) => {
            "Step 1 of 3: there is a new CA. Running servers accept its certificates. Give out the new CAs \
             (DATA_DIR/pki/ca.crt, kubeconfigs), then run this again."
        }
        (Step::Prepared, _) => {
            "Step 1 of 3: there is a new key. Running servers accept it as soon as their log says so. Then run this \
             again."
        }
        (Step::Activated, Rotated::Ca) => {
            "Step 2 of 3: servers sign with the new CA, and still accept the old one. Give out new kubeconfigs and \
             client certificates, and then run this again."
        }
        (Step::Activated, Rotated::FrontProxyCa) => {
            "Step 2 of 3: servers show extension API servers a certificate of the new CA, and publish both. Run this \
             again once all servers' logs say so."
        }
        (Step::Activated, Rotated::ServiceAccountKey) => {
            "Step 2 of 3: servers sign with the new key, and still accept the old one. Wait until tokens of the old \
             key have expired, and then run this again."
        }
        (Step::Finished, _) => "Step 3 of 3: the old key is not accepted any more.",
    }
}
