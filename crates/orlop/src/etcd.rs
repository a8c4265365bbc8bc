//! `orlop etcd`: etcd's API on a SQL database, and copies to and from it.

mod copy;
mod restore;
mod serve;

use clap::{Args, Subcommand};

/// Serve etcd's v3 API on SQLite or PostgreSQL.
///
/// etcdctl, any etcd client and a kube-apiserver (--etcd-servers=http://127.0.0.1:2379) use it unmodified.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  orlop etcd                                              # on ./orlop.db, port 2379
  orlop etcd --endpoint memory                            # for tests: lost with the process
  orlop etcd --endpoint postgres://me@db/orlop            # any number of servers on one database
  orlop etcd --listen-address unix:///run/orlop.sock
  orlop etcd import --from http://old-etcd:2379           # migrate to orlop
  etcdctl snapshot save backup.db && orlop etcd restore backup.db --endpoint sqlite://new.db"
)]
pub(crate) struct Etcd {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: serve::Serve,
}

#[derive(Debug, Subcommand)]
enum Command {
    Import(copy::Import),
    Export(copy::Export),
    Restore(restore::Restore),
}

impl Etcd {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        match self.command {
            None => self.serve.run().await,
            Some(Command::Import(import)) => import.run().await,
            Some(Command::Export(export)) => export.run().await,
            Some(Command::Restore(restore)) => restore.run().await,
        }
    }
}
