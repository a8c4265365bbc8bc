//! Tracing options, named as kube-apiserver's.

use std::{path::PathBuf, sync::Arc};

use orlop_trace::{Exporter, Tracer, TracingConfig};

/// Traces of requests.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Tracing")]
pub(super) struct TracingOptions {
    /// Collector of OpenTelemetry traces and the part of requests that is traced
    /// (apiserver.config.k8s.io/v1 TracingConfiguration).
    #[arg(long, value_name = "FILE")]
    tracing_config_file: Option<PathBuf>,
}

impl TracingOptions {
    /// Starts the exporter. `None` if nothing is traced.
    pub(super) fn start(&self, instance: &str) -> anyhow::Result<Option<Arc<Tracer>>> {
        let Some(path) = &self.tracing_config_file else { return Ok(None) };
        let config = TracingConfig::read(path)?;
        let exporter = Exporter::start(&config.endpoint, instance).map_err(|error| anyhow::anyhow!(error))?;
        Ok(Some(Arc::new(Tracer::new(exporter, config.sampling_rate_per_million))))
    }
}
