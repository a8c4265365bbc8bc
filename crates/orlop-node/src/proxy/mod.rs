//! The service proxy of a node: cluster IPs and node ports, forwarded to ready endpoints.
//!
//! kube-proxy rewrites packets in the kernel; here a task per port accepts connections and copies them, so that no rights
//! are needed. An endpoint that refuses is passed over: one that has just ended fails no request.

mod balancer;
mod table;

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::StreamExt;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use orlop_client::{
    Api, Client, ResourceExt, watch_kind,
    watcher::{self, Event},
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::AbortHandle,
    time::timeout,
};

use self::{balancer::Balancer, table::Table};
use crate::services::Services;

/// Limit on connecting to an endpoint.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Delay before a port that could not be bound is tried again.
const BIND_RETRY: Duration = Duration::from_secs(5);
/// Connections of all services at a time.
const CONNECTIONS_MAX: usize = 10_000;

/// A port that is listened on.
struct Port {
    balancer: Arc<Mutex<Balancer>>,
    task: AbortHandle,
}

impl Drop for Port {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Forwards services for ever.
pub(crate) async fn run(client: Client, services: Services) {
    let mut changes = services.changes();
    let api: Api<EndpointSlice> = Api::all(client);
    let mut events = watch_kind(&api, watcher::Config::default());
    let mut slices: HashMap<(String, String), Arc<EndpointSlice>> = HashMap::new();
    let mut listed = HashMap::new();
    let mut is_synced = false;
    let mut ports: HashMap<SocketAddr, Port> = HashMap::new();
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let key = |slice: &EndpointSlice| (slice.namespace().unwrap_or_default(), slice.name_any());
        tokio::select! {
            event = events.next() => match event {
                Some(Ok(Event::Init)) => listed.clear(),
                Some(Ok(Event::InitApply(slice))) => drop(listed.insert(key(&slice), Arc::new(slice))),
                Some(Ok(Event::InitDone)) => {
                    slices = std::mem::take(&mut listed);
                    is_synced = true;
                }
                Some(Ok(Event::Apply(slice))) => drop(slices.insert(key(&slice), Arc::new(slice))),
                Some(Ok(Event::Delete(slice))) => drop(slices.remove(&key(&slice))),
                Some(Err(error)) => tracing::debug!(%error, "cannot watch endpoints"),
                None => return,
            },
            changed = changes.changed() => {
                if changed.is_err() {
                    return;
                }
            }
        }
        if is_synced && *changes.borrow() > 0 {
            let slices: Vec<_> = slices.values().cloned().collect();
            apply(table::build(&services.all(), &slices), &mut ports, &connections);
        }
    }
}

/// Listens on the ports of a table, and no others.
fn apply(table: Table, ports: &mut HashMap<SocketAddr, Port>, connections: &Arc<Semaphore>) {
    ports.retain(|address, _| table.contains_key(address));
    for (address, backends) in table {
        if let Some(port) = ports.get(&address) {
            port.balancer.lock().unwrap_or_else(PoisonError::into_inner).set(backends);
            continue;
        }
        let balancer = Arc::new(Mutex::new(Balancer::new(backends)));
        let task = tokio::spawn(listen(address, balancer.clone(), connections.clone())).abort_handle();
        ports.insert(address, Port { balancer, task });
    }
}

async fn listen(address: SocketAddr, balancer: Arc<Mutex<Balancer>>, connections: Arc<Semaphore>) {
    let mut is_reported = false;
    let listener = loop {
        match TcpListener::bind(address).await {
            Ok(listener) => break listener,
            Err(error) => {
                if !std::mem::replace(&mut is_reported, true) {
                    tracing::warn!(%address, %error, "cannot listen for a service");
                }
                tokio::time::sleep(BIND_RETRY).await;
            }
        }
    };
    loop {
        let Ok(permit) = connections.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((socket, client)) => {
                let balancer = balancer.clone();
                tokio::spawn(async move {
                    forward(socket, client, &balancer).await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::debug!(%error, "cannot accept a connection of a service");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// Copies a connection to an endpoint, or to the next that does not refuse.
async fn forward(mut client: TcpStream, address: SocketAddr, balancer: &Mutex<Balancer>) {
    let candidates = balancer.lock().unwrap_or_else(PoisonError::into_inner).candidates(address.ip());
    let _ = client.set_nodelay(true);
    for endpoint in candidates {
        if let Ok(Ok(mut socket)) = timeout(CONNECT_TIMEOUT, TcpStream::connect(endpoint)).await {
            let _ = socket.set_nodelay(true);
            balancer.lock().unwrap_or_else(PoisonError::into_inner).connected(address.ip(), endpoint);
            let _ = tokio::io::copy_bidirectional(&mut client, &mut socket).await;
            return;
        }
    }
}
