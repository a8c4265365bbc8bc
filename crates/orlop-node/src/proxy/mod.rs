//! The service proxy of a node: cluster IPs and node ports, forwarded to ready endpoints; and host ports of pods.
//!
//! kube-proxy rewrites packets in the kernel; here a task per port accepts connections or datagrams and copies them, so that
//! no rights are needed. An endpoint that refuses is passed over: one that has just ended fails no request. What cannot be
//! forwarded is an event of its service.

mod balancer;
mod table;
mod tcp;
mod udp;

use std::{
    collections::{HashMap, HashSet},
    io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use k8s_openapi::api::core::v1::Service;
use orlop_client::ResourceExt;
use tokio::{
    net::{TcpListener, UdpSocket},
    sync::Semaphore,
    task::AbortHandle,
};

pub(crate) use self::table::Protocol;
use self::{
    balancer::Balancer,
    table::{Backends, Table},
};
use crate::{
    events::Recorder,
    services::{Services, Slices},
};

/// Delay before a port that could not be bound is tried again.
const BIND_RETRY: Duration = Duration::from_secs(5);
/// Connections of all services at a time.
const CONNECTIONS_MAX: usize = 10_000;
/// Connections of a host port at a time.
const HOST_PORT_CONNECTIONS_MAX: usize = 1000;
/// Reason of events about addresses that are not forwarded.
const NOT_FORWARDED: &str = "ServiceNotForwarded";

/// A port that is listened on, until dropped.
#[derive(Debug)]
pub(crate) struct Port {
    balancer: SharedBalancer,
    task: AbortHandle,
}

impl Drop for Port {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The balancer of a port, shared by its connections.
#[derive(Clone, Debug)]
struct SharedBalancer(Arc<Mutex<Balancer>>);

impl SharedBalancer {
    fn new(backends: Backends) -> Self {
        Self(Arc::new(Mutex::new(Balancer::new(backends))))
    }

    fn lock(&self) -> MutexGuard<'_, Balancer> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A bound socket.
enum Socket {
    Tcp(TcpListener),
    Udp(UdpSocket),
}

impl Socket {
    async fn bind(protocol: Protocol, address: SocketAddr) -> io::Result<Self> {
        Ok(match protocol {
            Protocol::Tcp => Self::Tcp(TcpListener::bind(address).await?),
            Protocol::Udp => Self::Udp(UdpSocket::bind(address).await?),
        })
    }

    /// Forwards what arrives, for ever.
    async fn serve(self, balancer: SharedBalancer, connections: Arc<Semaphore>) {
        match self {
            Self::Tcp(listener) => tcp::serve(listener, balancer, connections).await,
            Self::Udp(socket) => udp::serve(socket, balancer).await,
        }
    }
}

/// The service proxy of a node.
#[derive(Debug)]
pub(crate) struct Proxy {
    services: Services,
    node: IpAddr,
    events: Recorder,
    connections: Arc<Semaphore>,
}

impl Proxy {
    pub(crate) fn new(services: Services, node: IpAddr, events: Recorder) -> Self {
        Self { services, node, events, connections: Arc::new(Semaphore::new(CONNECTIONS_MAX)) }
    }

    /// Warns of services whose address cannot be forwarded, once each.
    fn warn_of_foreign_addresses(&self, services: &[Arc<Service>], warned: &mut HashSet<String>) {
        let foreign = services.iter().filter_map(|service| Some((service, table::foreign_address(service)?)));
        let mut found = HashSet::new();
        for (service, address) in foreign {
            let uid = service.uid().unwrap_or_default();
            if !warned.contains(&uid) {
                let message = format!(
                    "{address} is not of 127.0.0.0/8: this node forwards no other addresses \
                     (--service-cluster-ip-range of the API server)"
                );
                self.events.service(service, NOT_FORWARDED, message);
            }
            found.insert(uid);
        }
        *warned = found;
    }

    /// Warns of an address that cannot be listened on.
    fn warn(&self, protocol: Protocol, address: SocketAddr, error: &io::Error) {
        tracing::warn!(?protocol, %address, %error, "cannot listen for a service");
        let listens = |service: &Arc<Service>| {
            table::build(std::slice::from_ref(service), &[], self.node).contains_key(&(protocol, address))
        };
        if let Some(service) = self.services.all().iter().find(|service| listens(service)) {
            let hint = match error.kind() {
                io::ErrorKind::PermissionDenied => {
                    ". Ports below 1024 need root, or sysctl net.ipv4.ip_unprivileged_port_start=0"
                }
                _ => "",
            };
            self.events.service(service, NOT_FORWARDED, format!("cannot listen on {address}: {error}{hint}"));
        }
    }
}

/// Forwards services for ever.
pub(crate) async fn run(proxy: Proxy, slices: Slices) {
    let proxy = Arc::new(proxy);
    let (mut service_changes, mut slice_changes) = (proxy.services.changes(), slices.changes());
    let mut ports: HashMap<(Protocol, SocketAddr), Port> = HashMap::new();
    let mut warned = HashSet::new();
    loop {
        if proxy.services.is_synced() && slices.is_synced() {
            let services = proxy.services.all();
            proxy.warn_of_foreign_addresses(&services, &mut warned);
            apply(&proxy, table::build(&services, &slices.all(), proxy.node), &mut ports);
        }
        let changed = tokio::select! {
            changed = service_changes.changed() => changed,
            changed = slice_changes.changed() => changed,
        };
        if changed.is_err() {
            return;
        }
    }
}

/// Forwards a host port to a pod.
pub(crate) async fn host_port(
    protocol: Protocol,
    address: SocketAddr,
    endpoint: SocketAddr,
) -> io::Result<Port> {
    let socket = Socket::bind(protocol, address).await?;
    let balancer = SharedBalancer::new(Backends { endpoints: vec![endpoint], affinity: None });
    let connections = Arc::new(Semaphore::new(HOST_PORT_CONNECTIONS_MAX));
    let task = tokio::spawn(socket.serve(balancer.clone(), connections)).abort_handle();
    Ok(Port { balancer, task })
}

/// Listens on the ports of a table, and no others.
fn apply(proxy: &Arc<Proxy>, table: Table, ports: &mut HashMap<(Protocol, SocketAddr), Port>) {
    ports.retain(|address, _| table.contains_key(address));
    for (key, backends) in table {
        if let Some(port) = ports.get(&key) {
            port.balancer.lock().set(backends);
            continue;
        }
        let balancer = SharedBalancer::new(backends);
        let (serving, proxy) = (balancer.clone(), proxy.clone());
        let task = tokio::spawn(async move { listen(proxy, key, serving).await }).abort_handle();
        ports.insert(key, Port { balancer, task });
    }
}

async fn listen(proxy: Arc<Proxy>, (protocol, address): (Protocol, SocketAddr), balancer: SharedBalancer) {
    let mut is_reported = false;
    loop {
        match Socket::bind(protocol, address).await {
            Ok(socket) => return socket.serve(balancer, proxy.connections.clone()).await,
            Err(error) => {
                if !std::mem::replace(&mut is_reported, true) {
                    proxy.warn(protocol, address, &error);
                }
                tokio::time::sleep(BIND_RETRY).await;
            }
        }
    }
}
