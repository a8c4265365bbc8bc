//! State that all parts of a node share.

use std::{
    collections::HashMap,
    io,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use k8s_openapi::api::core::v1::Pod;
use orlop_client::Client;
use tokio::sync::Semaphore;

use crate::{
    addresses::Addresses,
    cgroups::Cgroups,
    claims::Claim,
    events::Recorder,
    networks::Networks,
    quantity::Resources,
    runtime::{Container, Runtime, Support},
    services::{Services, Slices},
    settings::Settings,
    volumes::{Certificates, Tokens},
};

/// A running node.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) settings: Settings,
    pub(crate) client: NodeClient,
    pub(crate) runtime: Runtime,
    pub(crate) support: Support,
    pub(crate) addresses: Addresses,
    /// Networks of pods; `None` if they share the machine's.
    pub(crate) networks: Option<Networks>,
    pub(crate) events: Recorder,
    pub(crate) services: Services,
    /// Endpoints, if pods are to reach the API server at its own address: this node may not forward its service.
    pub(crate) api_server: Option<Slices>,
    pub(crate) tokens: Arc<Tokens>,
    pub(crate) certificates: Arc<Certificates>,
    pub(crate) allocatable: Resources,
    pub(crate) directory: Directory,
    /// Claim on the Node object, with its uid.
    pub(crate) claim: Mutex<Option<(String, Claim)>>,
    /// Containers that may start at once.
    pub(crate) starts: Semaphore,
    /// Pods whose files may be removed at once.
    pub(crate) removals: Semaphore,
    /// Control groups, detected with the first container that has a limit. `Err` has the reason why there are none.
    pub(crate) cgroups: OnceLock<Result<Cgroups, String>>,
}

/// A client that can be shown in logs.
#[derive(Clone)]
pub(crate) struct NodeClient(pub(crate) Client);

impl std::fmt::Debug for NodeClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NodeClient")
    }
}

impl Node {
    /// Claims the Node object with a uid. Returns false if another process of this machine has it.
    pub(crate) fn claim(&self, uid: &str) -> bool {
        let mut claim = self.claim.lock().unwrap_or_else(PoisonError::into_inner);
        if claim.as_ref().is_some_and(|(known, _)| known == uid) {
            return true;
        }
        match Claim::node(uid) {
            Ok(new) => *claim = Some((uid.to_owned(), new)),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => return false,
            // No such sockets: nothing can be said about others.
            Err(error) => tracing::debug!(%error, "cannot claim the node"),
        }
        true
    }

    /// Returns the log file of a container's run.
    pub(crate) fn log_path(
        &self,
        namespace: &str,
        name: &str,
        uid: &str,
        container: &str,
        run: u32,
    ) -> PathBuf {
        self.log_folder(namespace, name, uid).join(container).join(format!("{run}.log"))
    }

    /// Returns the directory of a pod's logs.
    pub(crate) fn log_folder(&self, namespace: &str, name: &str, uid: &str) -> PathBuf {
        self.settings.data_dir.join("logs").join(format!("{namespace}_{name}_{uid}"))
    }

    /// Removes the files of a pod that is gone, and its logs if `logs` is their directory. On a thread for blocking calls, a
    /// few at a time: nobody waits for it, and a thousand pods may end at once.
    pub(crate) async fn remove_files(&self, uid: &str, logs: Option<PathBuf>) {
        let Ok(_turn) = self.removals.acquire().await else { return };
        let (runtime, pod) = (self.runtime.clone(), uid.to_owned());
        let removal = move || {
            let removed = runtime.remove_pod(&pod);
            match logs.map(std::fs::remove_dir_all) {
                Some(Err(error)) if error.kind() != io::ErrorKind::NotFound => removed.and(Err(error)),
                _ => removed,
            }
        };
        match tokio::task::spawn_blocking(removal).await {
            Ok(Err(error)) => tracing::warn!(%error, uid, "cannot remove the files of a pod"),
            Err(error) => tracing::warn!(%error, uid, "cannot remove the files of a pod"),
            Ok(Ok(())) => {}
        }
    }

    /// Returns the directory of static files of a pod, such as its hosts file.
    pub(crate) fn pod_file(&self, uid: &str, name: &str) -> PathBuf {
        self.runtime.pod_folder(uid).join(Path::new(name))
    }
}

/// Pods that run here, for the node's own API.
#[derive(Debug, Default)]
pub(crate) struct Directory(Mutex<HashMap<(String, String), Entry>>);

/// A pod of the directory.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) pod: Arc<Pod>,
    pub(crate) uid: String,
    pub(crate) address: Option<Ipv4Addr>,
    pub(crate) containers: HashMap<String, Runs>,
}

/// Runs of a container.
#[derive(Clone, Debug, Default)]
pub(crate) struct Runs {
    /// Number of the current run; `None` before the first.
    pub(crate) current: Option<u32>,
    /// The container, while it runs.
    pub(crate) live: Option<Container>,
}

impl Directory {
    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<Entry> {
        self.lock().get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Entry> {
        self.lock().values().cloned().collect()
    }

    /// Returns all pods but one.
    pub(crate) fn pods_beside(&self, uid: &str) -> Vec<Arc<Pod>> {
        self.lock().values().filter(|entry| entry.uid != uid).map(|entry| entry.pod.clone()).collect()
    }

    pub(crate) fn set(&self, namespace: &str, name: &str, entry: Entry) {
        self.lock().insert((namespace.to_owned(), name.to_owned()), entry);
    }

    /// Removes a pod, unless another of its name has taken its place.
    pub(crate) fn remove(&self, namespace: &str, name: &str, uid: &str) {
        let mut all = self.lock();
        let key = (namespace.to_owned(), name.to_owned());
        if all.get(&key).is_some_and(|entry| entry.uid == uid) {
            all.remove(&key);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(String, String), Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
