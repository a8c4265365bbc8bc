//! A node that runs pods as processes of the machine, against any Kubernetes API.
//!
//! It does what a kubelet does with the pods that are bound to it, and serves a kubelet's API for logs, exec, attach and
//! port-forward. An image is the name of a program ([`Images`]); a pod's address is one of 127.0.0.0/8; a container is a
//! process with a monitor ([`shim`]) that outlives the node.
//!
//! Layers, each importing only those before it: `quantity`, `expansion`, `images`, `listeners`, `capabilities`, `cgroups`, `networks`, `shim`, `pods` (pure) →
//! `downward`, `environment`, `volumes`, `runtime`, `usage`, `logs`, `dial`, `watched` → `probes`, `events`, `services`, `addresses`, `claims` →
//! `proxy`, `dns`, `context` → `worker` → `manager`; `registration`, `server`, `static_pods` → this file.
//!
//! Invariants: only the API is spoken to the cluster; no container runs twice, and none outlives its pod; every queue,
//! output and wait is bounded.

mod addresses;
mod capabilities;
mod cgroups;
mod claims;
mod context;
mod data_dir;
mod dial;
mod dns;
mod downward;
mod environment;
mod events;
mod expansion;
mod images;
mod listeners;
mod logs;
mod manager;
mod networks;
mod pods;
mod probes;
mod proxy;
mod quantity;
mod registration;
mod runtime;
mod server;
mod services;
mod settings;
pub mod shim;
mod static_pods;
mod usage;
mod volumes;
mod watched;
mod worker;

pub use claims::Claim;
pub use settings::{BadPodRange, Images, Isolation, POD_RANGE, PodRange, Settings};

use futures_util::future::BoxFuture;
use std::{
    io,
    sync::{Arc, Mutex, OnceLock},
};

use orlop_client::Client;
use tokio::{
    net::TcpListener,
    sync::{Semaphore, mpsc},
};

use crate::{
    addresses::Addresses,
    context::{Directory, Node, NodeClient},
    events::Recorder,
    networks::Networks,
    runtime::{Runtime, Spawner, Support},
    services::{Services, Slices},
};

/// Pods whose files are removed at once.
const REMOVALS_MAX: usize = 2;

/// Errors of starting a node.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A directory or socket could not be used.
    #[error("{0}: {1}")]
    Io(String, io::Error),
    /// Networks of pods were asked for, and cannot be had.
    #[error("pods cannot have networks of their own on this machine: {0}")]
    Network(String),
    /// The Node object is that of another process.
    #[error(
        "another process of this machine is the node {0:?} of this cluster: give this one a --node-name, a --node-listen and a --pod-range of its own"
    )]
    Taken(String),
    /// Namespaces were asked for, and the machine has none.
    #[error("containers cannot have namespaces on this machine: {0}")]
    Isolation(String),
}

/// Runs a node until `shutdown`, then stops its pods. `listener` is that of its own API; `proxy_client` that of the service
/// proxy, which reads what a node may not.
pub fn run(
    client: Client,
    proxy_client: Client,
    settings: Settings,
    listener: TcpListener,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> BoxFuture<'static, Result<(), Error>> {
    // A thread has the scheduling priority of the one that starts it, and so have containers.
    let spawner = Spawner::start();
    run_until(client, proxy_client, settings, listener, spawner, Box::pin(shutdown))
}

fn run_until(
    client: Client,
    proxy_client: Client,
    settings: Settings,
    listener: TcpListener,
    spawner: io::Result<Spawner>,
    shutdown: BoxFuture<'static, ()>,
) -> BoxFuture<'static, Result<(), Error>> {
    Box::pin(async move {
        let in_folder = |error| Error::Io(settings.data_dir.display().to_string(), error);
        data_dir::create(&settings.data_dir).map_err(in_folder)?;
        let spawner = spawner.map_err(|error| Error::Io("a thread for containers".to_owned(), error))?;
        registration::raise_file_limit();
        let port = listener.local_addr().map_err(in_folder)?.port();
        let support = support(&settings)?;
        let networks = match settings.own_networks {
            true => {
                let machine = settings.pod_range.first();
                let (program, data_dir) = (&settings.program, &settings.data_dir);
                let networks = Networks::new(program, data_dir, settings.is_ephemeral, machine);
                Some(networks.map_err(Error::Network)?)
            }
            false => None,
        };
        let services = Services::start(client.clone());
        let slices = (settings.service_proxy || settings.dns.is_some()).then(|| Slices::start(proxy_client));
        let dns = match (settings.dns, &slices) {
            (Some(address), Some(slices)) => {
                let zone = settings.cluster_domain.clone();
                let bound = dns::Server::bind(address, zone, services.clone(), slices.clone()).await;
                match bound {
                    // Another node of this machine does.
                    Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                        tracing::info!(%address, "another program answers DNS there");
                        None
                    }
                    bound => Some(bound.map_err(|error| Error::Io(format!("DNS on {address}"), error))?),
                }
            }
            _ => None,
        };
        let is_forwarded = !settings.service_proxy || services::may_listen_for_https();
        let api_server = slices.clone().filter(|_| !is_forwarded);
        let node = Arc::new(Node {
            runtime: Runtime::new(settings.data_dir.clone(), settings.program.clone(), spawner),
            support,
            networks,
            addresses: Addresses::new(settings.pod_range),
            events: Recorder::start(client.clone(), settings.name.clone()),
            services: services.clone(),
            api_server,
            cgroups: OnceLock::new(),
            tokens: Arc::default(),
            certificates: Arc::default(),
            allocatable: registration::capacity(&settings),
            directory: Directory::default(),
            claim: Mutex::default(),
            starts: Semaphore::new(starts_max()),
            removals: Semaphore::new(REMOVALS_MAX),
            client: NodeClient(client.clone()),
            settings,
        });
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let serving = tokio::spawn(server::serve(node.clone(), listener, async move {
            let mut stopped = stopped;
            let _ = stopped.wait_for(|stopped| *stopped).await;
        }));
        let mut shutdown = std::pin::pin!(shutdown);
        let registered = tokio::select! {
            registered = registration::register(&node, port) => registered,
            () = &mut shutdown => return Ok(()),
        };
        let registered =
            registered.map_err(|registration::Taken| Error::Taken(node.settings.name.clone()))?;
        registration::announce(&node, &registered);
        let lease = tokio::spawn(registration::renew_lease(client, registered));
        let status = tokio::spawn({
            let node = node.clone();
            async move { registration::sync_node_status(&node, port).await }
        });
        let proxy = slices.filter(|_| node.settings.service_proxy).map(|slices| {
            let proxy = proxy::Proxy::new(services, node.settings.address, node.events.clone());
            tokio::spawn(proxy::run(proxy, slices))
        });
        let dns = dns.map(|dns| tokio::spawn(dns.run()));
        let (static_changes, changes) = mpsc::channel(16);
        let static_pods = node
            .settings
            .static_pods
            .clone()
            .map(|folder| tokio::spawn(static_pods::watch(node.clone(), folder, static_changes.clone())));
        let stopping = async {
            shutdown.await;
            status.abort();
            registration::stopping(&node, port).await;
        };
        manager::Manager::new(node.clone()).run(changes, stopping).await;
        lease.abort();
        for task in [proxy, dns, static_pods].into_iter().flatten() {
            task.abort();
        }
        stop.send_replace(true);
        let _ = serving.await;
        Ok(())
    })
}

/// Returns the number of containers that may start at once. Each is a few processes that compute until it has started: with
/// many of them, everything else on the machine waits for its turn behind them, and none starts sooner.
fn starts_max() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn support(settings: &Settings) -> Result<Support, Error> {
    if settings.isolation == Isolation::None {
        return Ok(Support::default());
    }
    match Support::probe(&settings.program, &settings.data_dir.join("probe")) {
        Ok(support) => Ok(support),
        Err(reason) if settings.isolation == Isolation::Namespaces => Err(Error::Isolation(reason)),
        Err(reason) => {
            tracing::info!(reason, "containers have no namespaces on this machine");
            Ok(Support::default())
        }
    }
}
