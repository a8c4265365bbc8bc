//! Datagrams of a port, sent on to an endpoint: a flow per client, as connection tracking keeps it.

use std::{
    collections::HashMap,
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use tokio::{net::UdpSocket, task::AbortHandle, time::timeout};

use super::SharedBalancer;

/// Time without a datagram after which a flow ends.
const IDLE: Duration = Duration::from_secs(60);
/// Flows of a port at a time.
const FLOWS_MAX: usize = 256;
const DATAGRAM_BYTES_MAX: usize = 65_535;
/// Delay after a datagram could not be received.
const RECEIVE_RETRY: Duration = Duration::from_millis(50);

/// Datagrams between a client and an endpoint.
struct Flow {
    endpoint: SocketAddr,
    socket: Arc<UdpSocket>,
    replies: AbortHandle,
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.replies.abort();
    }
}

/// Sends datagrams on for ever.
pub(super) async fn serve(socket: UdpSocket, balancer: SharedBalancer) {
    let socket = Arc::new(socket);
    let mut flows: HashMap<SocketAddr, Flow> = HashMap::new();
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    loop {
        let (length, client) = match socket.recv_from(&mut buffer).await {
            Ok(received) => received,
            Err(error) => {
                tracing::debug!(%error, "cannot receive a datagram of a service");
                tokio::time::sleep(RECEIVE_RETRY).await;
                continue;
            }
        };
        let is_usable = flows.get(&client).is_some_and(|flow| {
            // An endpoint that is gone takes its flows with it.
            !flow.replies.is_finished() && balancer.lock().has(flow.endpoint)
        });
        if !is_usable {
            flows.remove(&client);
            flows.retain(|_, flow| !flow.replies.is_finished());
            if flows.len() >= FLOWS_MAX {
                continue;
            }
            let Some(endpoint) = balancer.lock().candidates(client.ip()).first().copied() else { continue };
            match open(socket.clone(), client, endpoint).await {
                Ok(flow) => {
                    balancer.lock().connected(client.ip(), endpoint);
                    flows.insert(client, flow);
                }
                Err(error) => {
                    tracing::debug!(%error, %endpoint, "cannot reach an endpoint of a service");
                    continue;
                }
            }
        }
        let sent = match flows.get(&client) {
            Some(flow) => flow.socket.send(&buffer[..length]).await,
            None => continue,
        };
        if sent.is_err() {
            // Refused: the next datagram goes to another endpoint.
            flows.remove(&client);
        }
    }
}

async fn open(listening: Arc<UdpSocket>, client: SocketAddr, endpoint: SocketAddr) -> io::Result<Flow> {
    let socket = Arc::new(UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await?);
    socket.connect(endpoint).await?;
    let replies = tokio::spawn(reply(socket.clone(), listening, client)).abort_handle();
    Ok(Flow { endpoint, socket, replies })
}

/// Sends an endpoint's datagrams back to the client until there are none for a while.
async fn reply(endpoint: Arc<UdpSocket>, listening: Arc<UdpSocket>, client: SocketAddr) {
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    while let Ok(Ok(length)) = timeout(IDLE, endpoint.recv(&mut buffer)).await {
        if listening.send_to(&buffer[..length], client).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::table::Backends;

    async fn echo(prefix: &'static str) -> SocketAddr {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        tokio::spawn(async move {
            let mut buffer = [0; 64];
            while let Ok((length, client)) = socket.recv_from(&mut buffer).await {
                let answer = [prefix.as_bytes(), &buffer[..length]].concat();
                socket.send_to(&answer, client).await.unwrap();
            }
        });
        address
    }

    async fn ask(client: &UdpSocket, text: &str) -> String {
        let mut buffer = [0; 64];
        client.send(text.as_bytes()).await.unwrap();
        let length = timeout(Duration::from_secs(10), client.recv(&mut buffer)).await.unwrap().unwrap();
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    }

    #[tokio::test]
    async fn flow_keeps_its_endpoint_until_that_is_gone() {
        let (first, second) = (echo("a").await, echo("b").await);
        let backends = |endpoint| Backends { endpoints: vec![endpoint], affinity: None };
        let balancer = SharedBalancer::new(backends(first));
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        tokio::spawn(serve(socket, balancer.clone()));
        let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        client.connect(address).await.unwrap();
        assert_eq!(ask(&client, "1").await, "a1");
        assert_eq!(ask(&client, "2").await, "a2");
        balancer.lock().set(backends(second));
        assert_eq!(ask(&client, "3").await, "b3");
    }
}
