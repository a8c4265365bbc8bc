//! `orlop etcd restore`: a new database from a snapshot.

use std::path::PathBuf;

use anyhow::bail;
use clap::Args;
use orlop_store::{Endpoint, Store};

use super::serve::Data;

/// Make a new database of a snapshot that `etcdctl snapshot save` took from orlop.
///
/// The snapshot's digest is checked first, and existing data is never overwritten: a SQLite file must be new,
/// a PostgreSQL database (or its schema) empty. Everything comes back: revisions, history, leases and the
/// cluster's id, whichever of the two it was taken from.
#[derive(Debug, Args)]
pub(crate) struct Restore {
    /// The snapshot.
    snapshot: PathBuf,
    #[command(flatten)]
    data: Data,
}

impl Restore {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let endpoint = self.data.parsed()?;
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
            Endpoint::Memory => bail!("what is restored into memory is gone with this command"),
        };
        println!("restored {bytes} bytes to {endpoint} at revision {revision}");
        Ok(())
    }
}
