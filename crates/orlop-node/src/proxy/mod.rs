//! The service proxy of a node: cluster IPs and node ports, forwarded to ready endpoints; and host ports of pods.
//!
//! kube-proxy rewrites packets in the kernel; here a task per port accepts connections or datagrams and copies them, so that
//! no rights are needed. An endpoint that refuses is passed over: one that has just ended fails no request.

mod balancer;
mod table;
mod tcp;
mod udp;

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

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
use crate::services::{Services, Slices};

/// Delay before a port that could not be bound is tried again.
const BIND_RETRY: Duration = Duration::from_secs(5);
/// Connections of all services at a time.
const CONNECTIONS_MAX: usize = 10_000;
/// Connections of a host port at a time.
const HOST_PORT_CONNECTIONS_MAX: usize = 1000;

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

/// Forwards services for ever.
pub(crate) async fn run(services: Services, slices: Slices, node: IpAddr) {
    let (mut service_changes, mut slice_changes) = (services.changes(), slices.changes());
    let mut ports: HashMap<(Protocol, SocketAddr), Port> = HashMap::new();
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        if services.is_synced() && slices.is_synced() {
            apply(table::build(&services.all(), &slices.all(), node), &mut ports, &connections);
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
fn apply(table: Table, ports: &mut HashMap<(Protocol, SocketAddr), Port>, connections: &Arc<Semaphore>) {
    ports.retain(|address, _| table.contains_key(address));
    for (key, backends) in table {
        if let Some(port) = ports.get(&key) {
            port.balancer.lock().set(backends);
            continue;
        }
        let balancer = SharedBalancer::new(backends);
        let (serving, connections) = (balancer.clone(), connections.clone());
        let task = tokio::spawn(async move { listen(key, serving, connections).await }).abort_handle();
        ports.insert(key, Port { balancer, task });
    }
}

async fn listen(
    (protocol, address): (Protocol, SocketAddr),
    balancer: SharedBalancer,
    connections: Arc<Semaphore>,
) {
    let mut is_reported = false;
    loop {
        match Socket::bind(protocol, address).await {
            Ok(socket) => return socket.serve(balancer, connections).await,
            Err(error) => {
                if !std::mem::replace(&mut is_reported, true) {
                    tracing::warn!(?protocol, %address, %error, "cannot listen for a service");
                }
                tokio::time::sleep(BIND_RETRY).await;
            }
        }
    }
}
