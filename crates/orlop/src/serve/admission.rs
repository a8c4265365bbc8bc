//! Admission options, named as kube-apiserver's.

use std::path::PathBuf;

use orlop_server::{
    admission::{Settings, chain, configuration},
    cluster::Cluster,
};

/// Admission of writes.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Admission")]
pub(super) struct AdmissionOptions {
    /// Admission plugins to turn on besides the default ones. Their order does not matter.
    #[arg(long, value_delimiter = ',', value_name = "LIST", long_help = enable_help())]
    enable_admission_plugins: Vec<String>,

    /// Admission plugins to turn off although they are on by default. Their order does not matter.
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    disable_admission_plugins: Vec<String>,

    /// File with the configuration of admission plugins (apiserver.config.k8s.io/v1 AdmissionConfiguration).
    #[arg(long, value_name = "FILE")]
    admission_control_config_file: Option<PathBuf>,

    /// Time in seconds that pods stay on a node that is not ready, unless they say otherwise.
    #[arg(long, default_value = "300", value_name = "SECONDS")]
    default_not_ready_toleration_seconds: i64,

    /// Time in seconds that pods stay on a node that cannot be reached, unless they say otherwise.
    #[arg(long, default_value = "300", value_name = "SECONDS")]
    default_unreachable_toleration_seconds: i64,
}

fn enable_help() -> String {
    let all: Vec<&str> = chain::PLUGINS.iter().map(|plugin| plugin.name).collect();
    format!(
        "Admission plugins to turn on besides the default ones ({}). Comma-delimited list of: {}. Their order does not \
         matter",
        chain::defaults().join(", "),
        all.join(", ")
    )
}

impl AdmissionOptions {
    /// Sets the admission plugins of a cluster.
    pub(super) fn install(&self, cluster: Cluster) -> anyhow::Result<Cluster> {
        let names = chain::select(&self.enable_admission_plugins, &self.disable_admission_plugins)?;
        let configurations = match &self.admission_control_config_file {
            Some(path) => configuration::read(path)?,
            None => Vec::new(),
        };
        let settings = Settings {
            not_ready_toleration_seconds: self.default_not_ready_toleration_seconds,
            unreachable_toleration_seconds: self.default_unreachable_toleration_seconds,
            configurations,
        };
        Ok(cluster.with_admission_plugins(&names, settings)?)
    }
}
