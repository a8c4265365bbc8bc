//! `orlop device get`.

use std::io::{IsTerminal, Write};

use clap::Args;
use orlop_device_client::{
    Gpus, Source,
    api::{GetGpuRequest, Gpu},
};

use super::{connect::ServerArguments, table::Table};

/// List the devices, or get one, as a table.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  orlop device get
  orlop device get gpu-6b7a32cf-3f6c-4d9e-9a53-2f9f6f0e7c11
  orlop device get -l device.nvidia.com/product=NVIDIA-H200")]
pub(crate) struct Get {
    /// Name of a device [default: all].
    name: Option<String>,

    #[command(flatten)]
    selection: Selection,

    #[command(flatten)]
    server: ServerArguments,
}

/// Selection of devices.
#[derive(Debug, Args)]
pub(crate) struct Selection {
    /// Namespace of the devices.
    #[arg(long, short, value_name = "NAMESPACE")]
    namespace: Option<String>,

    /// Label selector, as in `a=b,c in (d,e),!f`.
    #[arg(long, short = 'l', value_name = "SELECTOR")]
    selector: Option<String>,
}

impl Selection {
    /// Restricts a client to the selected devices.
    pub(crate) fn apply(&self, mut gpus: Gpus) -> Gpus {
        if let Some(namespace) = &self.namespace {
            gpus = gpus.namespace(namespace);
        }
        if let Some(selector) = &self.selector {
            gpus = gpus.selector(selector);
        }
        gpus
    }
}

impl Get {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let gpus = self.selection.apply(Gpus::new(self.server.open()?));
        let found: Vec<Gpu> = match self.name {
            None => gpus.list().await.map_err(|status| self.server.explain(&status))?.0,
            Some(name) => {
                let request = GetGpuRequest { name, namespace: self.selection.namespace.clone(), opts: None };
                let response = gpus.client().get_gpu(request).await;
                response
                    .map_err(|status| self.server.explain(&status))?
                    .into_inner()
                    .gpu
                    .into_iter()
                    .collect()
            }
        };
        let mut out = std::io::stdout().lock();
        if found.is_empty() {
            writeln!(out, "No devices. Register this machine's with: orlop device agent")?;
        } else {
            let table = Table { color: out.is_terminal() };
            write!(out, "{}", table.draw(found.iter()))?;
        }
        Ok(())
    }
}
