//! `orlop device definition`: definitions by which an API server on the same database serves the devices.

use anyhow::Context;

/// Print the CustomResourceDefinitions of the device kinds. With them, an `orlop serve` on the same database
/// serves the devices to kubectl and every other Kubernetes client.
#[derive(Debug, clap::Args)]
#[command(after_help = "Both on one file:
  orlop device serve --storage-endpoint sqlite:///var/lib/orlop/orlop.db
  orlop serve        --endpoint         sqlite:///var/lib/orlop/orlop.db
  orlop device definition | kubectl apply -f -
  kubectl get gpus")]
pub(crate) struct Definition {}

impl Definition {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        for kind in orlop_device::kinds::ALL {
            let definition = orlop_device::definition(kind).context("a kind does not describe itself")?;
            println!("---\n{}", serde_json::to_string_pretty(&definition)?);
        }
        Ok(())
    }
}
