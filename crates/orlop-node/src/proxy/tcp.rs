//! Connections of a port, copied to an endpoint.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::timeout,
};

use super::SharedBalancer;

/// Limit on connecting to an endpoint.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Delay after a connection could not be accepted.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// Accepts connections for ever.
pub(super) async fn serve(listener: TcpListener, balancer: SharedBalancer, connections: Arc<Semaphore>) {
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
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

/// Copies a connection to an endpoint, or to the next that does not refuse.
async fn forward(mut client: TcpStream, address: SocketAddr, balancer: &SharedBalancer) {
    let candidates = balancer.lock().candidates(address.ip());
    let _ = client.set_nodelay(true);
    for endpoint in candidates {
        if let Ok(Ok(mut socket)) = timeout(CONNECT_TIMEOUT, TcpStream::connect(endpoint)).await {
            let _ = socket.set_nodelay(true);
            balancer.lock().connected(address.ip(), endpoint);
            let _ = tokio::io::copy_bidirectional(&mut client, &mut socket).await;
            return;
        }
    }
}
