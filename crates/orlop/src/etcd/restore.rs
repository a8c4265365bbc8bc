//! `orlop etcd restore`: a new database from a snapshot.

use std::path::PathBuf;

use anyhow::bail;
use clap::Args;
use orlop_store::Endpoint;

use super::serve::Data;

/// Make a new SQLite database of a snapshot that `etcdctl snapshot save` took from orlop.
///
/// The snapshot's digest is checked first, and an existing database is never overwritten. Everything comes
/// back: revisions, history, leases and the cluster's id. To restore into PostgreSQL, restore into a file,
/// serve it, and `orlop etcd import` from it.
#[derive(Debug, Args)]
pub(crate) struct Restore {
    /// The snapshot.
    snapshot: PathBuf,
    #[command(flatten)]
    data: Data,
}

impl Restore {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let Endpoint::Sqlite(path) = self.data.parsed()? else {
            bail!("a snapshot is restored into a new SQLite file: --endpoint sqlite:///path/to/new.db");
        };
        let bytes = orlop_etcd::snapshot::restore(&self.snapshot, &path).await?;
        let store = self.data.open(0).await?;
        println!("restored {bytes} bytes to {} at revision {}", path.display(), store.revision().await?);
        store.close().await;
        Ok(())
    }
}
