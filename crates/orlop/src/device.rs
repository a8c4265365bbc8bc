//! `orlop device`: a node's hardware API, its agent, and clients of it.

mod agent;
mod connect;
mod definition;
mod get;
mod serve;
mod table;
mod watch;

use clap::{Args, Subcommand};

/// Default address of the server.
const DEFAULT_SERVER: &str = "unix:///var/run/device-api/device.sock";

/// Serve a node's devices (GPUs) over gRPC, synchronize them with the hardware, and view them.
#[derive(Debug, Args)]
#[command(after_help = "Try it without a GPU, in three terminals:
  orlop device serve --bind-address unix:///tmp/device.sock
  orlop device agent --fake 4 --server unix:///tmp/device.sock
  orlop device watch          --server unix:///tmp/device.sock")]
pub(crate) struct Device {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(Box<serve::Serve>),
    Agent(agent::Agent),
    Get(get::Get),
    Watch(watch::Watch),
    Definition(definition::Definition),
}

impl Device {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        match self.command {
            Command::Serve(serve) => serve.run().await,
            Command::Agent(agent) => agent.run().await,
            Command::Get(get) => get.run().await,
            Command::Watch(watch) => watch.run().await,
            Command::Definition(definition) => definition.run(),
        }
    }
}
