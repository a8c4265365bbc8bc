//! Runs of containers that an earlier node process left on disk.

use std::{fs, io, path::Path};

use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Container, Runtime};
use crate::shim::{
    config::{Config, Exit, read, write},
    frames,
};

const RECORD: &str = "run.json";
const CONFIG: &str = "config.json";
/// Name of a configuration that no monitor may start from any more.
const WITHDRAWN: &str = "config.withdrawn.json";

/// Facts about a run that began.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) id: String,
    pub(crate) image_id: String,
    pub(crate) started_at: Timestamp,
}

impl Record {
    pub(super) fn write(&self, folder: &Path) -> io::Result<()> {
        write(&folder.join(RECORD), self)
    }

    pub(crate) fn read(folder: &Path) -> Option<Self> {
        read(&folder.join(RECORD)).ok()
    }
}

/// A run of a container as found on disk.
#[derive(Debug)]
pub(crate) enum Found {
    /// It runs.
    Alive(Container),
    /// It has ended.
    Ended(Exit),
    /// It ran, and nobody saw its end.
    Lost,
}

impl Runtime {
    /// Returns the numbers of a container's runs with a folder, in order.
    pub(crate) fn runs(&self, uid: &str, container: &str) -> Vec<u32> {
        let entries = fs::read_dir(self.container_folder(uid, container));
        let entries = entries.into_iter().flatten().flatten();
        let mut runs: Vec<u32> =
            entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        runs.sort_unstable();
        runs
    }

    /// Returns the names of a pod's containers with a folder.
    pub(crate) fn containers(&self, uid: &str) -> Vec<String> {
        let entries = fs::read_dir(self.pod_folder(uid).join("containers"));
        let entries = entries.into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    /// Returns the state of a run that an earlier process of this node began. A monitor that has not begun to listen
    /// yet is kept from starting its program: no container ever runs twice.
    pub(crate) fn find(&self, uid: &str, container: &str, run: u32) -> Found {
        let folder = self.run_folder(uid, container, run);
        if let Some(exit) = Exit::read(&folder) {
            return Found::Ended(exit);
        }
        let (path, withdrawn) = (folder.join(CONFIG), folder.join(WITHDRAWN));
        let config: Option<Config> = read(&path).or_else(|_| read(&withdrawn)).ok();
        // Withdrawn before the socket is tried: the monitor listens before it reads its configuration.
        let _ = fs::rename(&path, &withdrawn);
        match config.and_then(|config| adopt(config.id, &folder).ok()) {
            Some(container) => {
                let _ = fs::rename(&withdrawn, &path);
                Found::Alive(container)
            }
            // It may have ended meanwhile.
            None => Exit::read(&folder).map_or(Found::Lost, Found::Ended),
        }
    }

    /// Removes the folder of a run.
    pub(crate) fn remove_run(&self, uid: &str, container: &str, run: u32) {
        let _ = fs::remove_dir_all(self.run_folder(uid, container, run));
    }
}

fn adopt(id: String, folder: &Path) -> io::Result<Container> {
    let pid = frames::connect(&id)?.peer_cred()?.pid().ok_or(io::ErrorKind::NotFound)?;
    Container::of_monitor(pid, id, folder)
}
