//! `orlop device agent`.

use std::time::Duration;

use clap::Args;
use orlop_device::agent::{self, Fake, Nvml};

use super::connect::ServerArguments;
use crate::shutdown;

/// Register this machine's GPUs and update their conditions.
///
/// Queries NVIDIA's driver (NVML) and registers each GPU under its UUID. Conditions follow the driver: Ready,
/// MemoryHealthy, ThermalHealthy and XidHealthy, with a recommended action on failures. After a restart of a
/// server without storage, registers the GPUs again.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  orlop device agent                                    # this machine's GPUs, to the default socket
  orlop device agent --fake 8 --server unix:///tmp/device.sock")]
pub(crate) struct Agent {
    /// Register this many fake GPUs, for machines without any.
    #[arg(long, value_name = "N")]
    fake: Option<usize>,

    /// Polling interval of the driver. Errors that it reports are published at once.
    #[arg(long, default_value = "5s", value_parser = orlop_duration::parse_unsigned, value_name = "DURATION")]
    period: Duration,

    #[command(flatten)]
    server: ServerArguments,
}

impl Agent {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let connection = self.server.open()?;
        let source = match self.fake {
            Some(count) => Fake::source(count),
            None => Nvml::source(),
        };
        tokio::select! {
            result = agent::run(connection, source, self.period.max(Duration::from_millis(100))) => Ok(result?),
            () = shutdown::requested() => Ok(()),
        }
    }
}
