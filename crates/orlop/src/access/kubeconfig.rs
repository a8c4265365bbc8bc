//! `orlop kubeconfig`: the administrator's kubeconfig, for another machine or another file.

use std::path::PathBuf;

use super::{Administrator, to_yaml, write_or_print};

const EXAMPLES: &str = "\
Examples:
  orlop kubeconfig --output ~/.kube/config
      Makes kubectl use the server in ./orlop-data.
  orlop kubeconfig --data-dir /var/lib/orlop --server https://api.example.org:6443
      Prints one for another machine.";

/// Print the administrator's kubeconfig, which the server writes into its data directory.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    administrator: Administrator,

    /// Address by which the server is reached.
    #[arg(long, value_name = "URL")]
    server: Option<String>,

    /// File to write, mode 0600, instead of printing.
    #[arg(long, short, value_name = "PATH")]
    output: Option<PathBuf>,
}

impl Arguments {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let mut kubeconfig = self.administrator.read()?;
        if let Some(server) = &self.server {
            kubeconfig.set_server(server);
        }
        write_or_print(self.output.as_deref(), &to_yaml(&kubeconfig)?)
    }
}
