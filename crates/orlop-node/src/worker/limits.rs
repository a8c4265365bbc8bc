//! Limits of containers, by control groups.

use std::{io, path::PathBuf};

use k8s_openapi::api::core::v1::Container;
use sha2::{Digest, Sha256};

use super::Worker;
use crate::{
    cgroups::{Cgroups, Limits},
    events::Severity,
    quantity::{Resources, milli},
};

impl Worker {
    /// Creates the control groups of a container with limits. Where there are none, an event says so.
    pub(super) fn cgroups(&mut self, spec: &Container, id: &str) -> io::Result<Vec<PathBuf>> {
        let limits = limits(spec);
        // One with requests only may be given limits later.
        if !has_resources(spec) {
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
                let is_limited = limits.memory_bytes.is_some() || limits.cpu_milli.is_some();
                if is_limited && !std::mem::replace(&mut self.limits_reported, true) {
                    let message = format!("This node does not enforce limits of cpu and memory: {reason}");
                    self.node.events.pod(&self.pod, None, Severity::Warning, "LimitsNotEnforced", message);
                }
                Ok(Vec::new())
            }
        }
    }
}

/// Returns true if a container has requests or limits of cpu or memory.
fn has_resources(spec: &Container) -> bool {
    let resources = spec.resources.clone().unwrap_or_default();
    let mut names = resources.requests.iter().flatten().chain(resources.limits.iter().flatten());
    names.any(|(name, _)| matches!(name.as_str(), "cpu" | "memory"))
}

/// Returns the limits of a container, and its share of the cpu.
pub(super) fn limits(spec: &Container) -> Limits {
    let resources = spec.resources.clone().unwrap_or_default();
    let of = |list: &Option<Resources>, name: &str| {
        let amount = list.as_ref().and_then(|list| list.get(name)).map(milli);
        amount.and_then(|amount| u64::try_from(amount).ok()).filter(|amount| *amount > 0)
    };
    Limits {
        memory_bytes: of(&resources.limits, "memory").map(|amount| amount / 1000),
        cpu_milli: of(&resources.limits, "cpu"),
        cpu_request_milli: of(&resources.requests, "cpu"),
    }
}
