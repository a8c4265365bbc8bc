//! Orlop: Kubernetes' API machinery as one small program on an ordinary SQL database.

mod serve;

use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;

#[derive(Debug, Parser)]
#[command(version, about, propagate_version = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a Kubernetes API server on SQLite or PostgreSQL.
    Serve(serve::Arguments),
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let filter = EnvFilter::try_from_env("ORLOP_LOG").unwrap_or_else(|_| EnvFilter::new("warn,orlop=info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        match arguments.command {
            Command::Serve(arguments) => serve::run(arguments).await,
        }
    })
}
