//! Limits of containers, by control groups.

use std::{io, path::PathBuf};

use k8s_openapi::api::core::v1::Container;
use sha2::{Digest, Sha256};

use super::Worker;
use crate::{
    cgroups::{Cgroups, Limits},
    events::Severity,
    quantity::milli,
};

impl Worker {
    /// Creates the control groups of a container with limits. Where there are none, an event says so.
    pub(super) fn cgroups(&mut self, spec: &Container, id: &str) -> io::Result<Vec<PathBuf>> {
        let limits = limits(spec);
        if limits == Limits::default() {
            return Ok(Vec::new());
        }
        let node = self.node.clone();
        let found = node.cgroups.get_or_init(|| {
            // Of the folder, so that a node finds its own again after a restart.
            let digest = Sha256::digest(node.settings.data_dir.as_os_str().as_encoded_bytes());
            let name: String = digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
            Cgroups::detect(&format!("orlop-node-{name}"))
        });
        match found {
            Ok(cgroups) => cgroups.create(id, limits),
            Err(reason) => {
                if !std::mem::replace(&mut self.limits_reported, true) {
                    let message = format!("This node does not enforce limits of cpu and memory: {reason}");
                    self.node.events.pod(&self.pod, None, Severity::Warning, "LimitsNotEnforced", message);
                }
                Ok(Vec::new())
            }
        }
    }
}

fn limits(spec: &Container) -> Limits {
    let limits = spec.resources.as_ref().and_then(|resources| resources.limits.as_ref());
    let of = |name: &str| {
        let amount = limits.and_then(|limits| limits.get(name)).map(milli);
        amount.and_then(|amount| u64::try_from(amount).ok()).filter(|amount| *amount > 0)
    };
    Limits { memory_bytes: of("memory").map(|amount| amount / 1000), cpu_milli: of("cpu") }
}
