//! `orlop etcd restore`: creates a database from a snapshot.

use std::path::PathBuf;

use anyhow::bail;
use clap::Args;
use orlop_store::{Endpoint, Store};

use super::serve::Data;

/// Create a database from a snapshot that `etcdctl snapshot save` took from orlop.
///
/// Verifies the snapshot's digest first and never overwrites existing data: a SQLite file must be new, a
/// PostgreSQL database (or its schema) empty. Restores revisions, history, leases and the cluster id, from
/// either kind of database to either.
#[derive(Debug, Args)]
pub(crate) struct Restore {
    /// Snapshot file.
    snapshot: PathBuf,
    #[command(flatten)]
    data: Data,
}

impl Restore {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let endpoint = self.data.endpoint()?;
        let (bytes, revision) = match &endpoint {
            Endpoint::Sqlite(path) => {
                let bytes = orlop_etcd::snapshot::restore(&self.snapshot, path).await?;
                let store = self.data.open(0).await?;
                let revision = store.revision().await?;
                store.close().await;
                (bytes, revision)
            }
            Endpoint::Postgres(_) => {
                let folder = tempfile::tempdir()?;
                let copy = folder.path().join("copy.db");
                let bytes = orlop_etcd::snapshot::restore(&self.snapshot, &copy).await?;
                (bytes, Store::restore(&self.data.config()?, &copy).await?)
            }
            Endpoint::Memory => bail!("a database in memory would be lost when this command ends"),
        };
        println!("restored {bytes} bytes to {endpoint} at revision {revision}");
        Ok(())
    }
}
