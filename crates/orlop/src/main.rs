//! The command line. Each subcommand has its file; this one lists them.

mod duration;
mod etcd;
mod logging;
mod serve;
mod shutdown;

use clap::{Parser, Subcommand};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Kubernetes' API machinery as one small program on an ordinary SQL database.
#[derive(Debug, Parser)]
#[command(name = "orlop", version, propagate_version = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    logging: logging::Logging,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a Kubernetes API server on SQLite or PostgreSQL.
    Serve(serve::Arguments),
    Etcd(Box<etcd::Etcd>),
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    arguments.logging.start()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        match arguments.command {
            Command::Serve(arguments) => serve::run(arguments).await,
            Command::Etcd(etcd) => etcd.run().await,
        }
    })
}
