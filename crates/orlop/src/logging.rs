//! Logging to standard error, as text or JSON.

use std::io::IsTerminal;

use anyhow::Context;
use clap::{Args, ValueEnum};
use tracing_subscriber::EnvFilter;

/// Logging options.
#[derive(Debug, Args)]
#[command(next_help_heading = "Logging")]
pub(crate) struct Logging {
    /// Log filter: a level (error, warn, info, debug, trace), or levels per module, as in
    /// `warn,orlop_store=debug`.
    #[arg(
        long,
        global = true,
        env = "ORLOP_LOG",
        default_value = "warn,audit=info,orlop=info,orlop_etcd=info,orlop_device=info",
        value_name = "FILTER"
    )]
    log: String,

    /// Log format.
    #[arg(long, global = true, env = "ORLOP_LOG_FORMAT", default_value = "plain", value_name = "FORMAT")]
    log_format: Format,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// Text.
    Plain,
    /// One JSON object per line.
    Json,
}

impl Logging {
    pub(crate) fn start(&self) -> anyhow::Result<()> {
        let filter = EnvFilter::try_new(&self.log).with_context(|| format!("--log {:?}", self.log))?;
        let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
        match self.log_format {
            Format::Plain => builder.with_ansi(std::io::stderr().is_terminal()).with_target(false).init(),
            Format::Json => builder.json().init(),
        }
        Ok(())
    }
}
