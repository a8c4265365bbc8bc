//! Evicts a pod that uses more local storage than it may.

use std::{collections::HashMap, fs, os::unix::fs::MetadataExt, path::Path, time::Duration};

use tokio::time::Instant;

use super::{TerminalState, Worker};
use crate::{
    events::Severity,
    pods::{
        phase::Phase,
        storage::{self, StorageUsage},
    },
};

/// Interval of measurements, as of a kubelet's eviction manager.
const INTERVAL: Duration = Duration::from_secs(10);
/// Reason of evictions.
pub(super) const EVICTED: &str = "Evicted";
/// Grace of a pod that is evicted for a limit.
pub(super) const GRACE: Duration = Duration::from_secs(1);
/// Size of a block in the metadata of files.
const BLOCK: u64 = 512;

#[derive(Debug, Default)]
struct Measured {
    volumes: HashMap<String, u64>,
    containers: HashMap<String, u64>,
}

impl StorageUsage for Measured {
    fn of_volume(&self, name: &str) -> u64 {
        self.volumes.get(name).copied().unwrap_or_default()
    }

    fn of_container(&self, name: &str) -> u64 {
        self.containers.get(name).copied().unwrap_or_default()
    }
}

impl Worker {
    /// Fails the pod if it uses too much. Looks only now and then, and only at pods with a limit.
    pub(super) async fn check_storage(&mut self) {
        if self.ended.is_some() || !storage::is_limited(&self.pod) {
            return;
        }
        let now = Instant::now();
        if now < self.storage_at {
            self.wake_in(self.storage_at - now);
            return;
        }
        self.storage_at = now + INTERVAL;
        self.wake_in(INTERVAL);
        let volumes = self.sources.clone().unwrap_or_default();
        let empty_dirs = self.pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        let empty_dirs = empty_dirs.filter(|volume| volume.empty_dir.is_some());
        let volumes: Vec<_> = empty_dirs
            .filter_map(|volume| volumes.get_key_value(&volume.name))
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        let containers: Vec<_> = self
            .members
            .iter()
            .map(|member| {
                let name = member.spec.name.clone();
                let run = self.node.runtime.run_folder(&self.uid, &name, member.state.restart_count);
                let logs = self.node.log_folder(&self.namespace, &self.name, &self.uid).join(&name);
                (name, [run.join("layer/upper"), logs])
            })
            .collect();
        let measured = tokio::task::spawn_blocking(move || Measured {
            volumes: volumes.into_iter().map(|(name, path)| (name, used(&path))).collect(),
            containers: containers
                .into_iter()
                .map(|(name, paths)| (name, paths.iter().map(|path| used(path)).sum()))
                .collect(),
        });
        let Ok(measured) = measured.await else { return };
        if let Some(message) = storage::exceeded(&self.pod, &measured) {
            self.node.events.pod(&self.pod, None, Severity::Warning, EVICTED, message.as_str());
            self.ended = Some(TerminalState {
                phase: Phase::Failed,
                reason: Some(EVICTED.to_owned()),
                message: Some(message),
            });
        }
    }
}

/// Returns the bytes that files below a path take.
fn used(path: &Path) -> u64 {
    let Ok(found) = fs::symlink_metadata(path) else { return 0 };
    let own = found.blocks() * BLOCK;
    if !found.is_dir() {
        return own;
    }
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.map(|entry| used(&entry.path())).sum::<u64>() + own
}
