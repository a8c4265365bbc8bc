//! Choice of an endpoint: in turn, or the one that a client had before.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
};

use tokio::time::Instant;

use super::table::Backends;

/// Clients whose endpoint is remembered.
const CLIENTS_MAX: usize = 10_000;

/// Balancer of one port.
#[derive(Debug, Default)]
pub(super) struct Balancer {
    backends: Backends,
    next: usize,
    clients: HashMap<IpAddr, (SocketAddr, Instant)>,
}

impl Balancer {
    pub(super) fn new(backends: Backends) -> Self {
        Self { backends, ..Self::default() }
    }

    /// Replaces the endpoints.
    pub(super) fn set(&mut self, backends: Backends) {
        self.clients.retain(|_, (endpoint, _)| backends.endpoints.contains(endpoint));
        self.backends = backends;
    }

    /// Returns true for an endpoint of the port.
    pub(super) fn has(&self, endpoint: SocketAddr) -> bool {
        self.backends.endpoints.contains(&endpoint)
    }

    /// Returns the endpoints to try for a client, in order.
    pub(super) fn candidates(&mut self, client: IpAddr) -> Vec<SocketAddr> {
        let count = self.backends.endpoints.len();
        if count == 0 {
            return Vec::new();
        }
        self.next = (self.next + 1) % count;
        let mut candidates = self.backends.endpoints.clone();
        candidates.rotate_left(self.next);
        if let Some(life) = self.backends.affinity
            && let Some((endpoint, since)) = self.clients.get(&client)
            && since.elapsed() < life
            && let Some(position) = candidates.iter().position(|candidate| candidate == endpoint)
        {
            candidates.swap(0, position);
        }
        candidates
    }

    /// Remembers the endpoint of a client.
    pub(super) fn connected(&mut self, client: IpAddr, endpoint: SocketAddr) {
        if self.backends.affinity.is_none() {
            return;
        }
        if self.clients.len() >= CLIENTS_MAX {
            self.clients.clear();
        }
        self.clients.insert(client, (endpoint, Instant::now()));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn backends(affinity: Option<Duration>) -> Backends {
        let endpoints = [1, 2, 3].map(|host| SocketAddr::from(([127, 64, 0, host], 80))).to_vec();
        Backends { endpoints, affinity }
    }

    #[test]
    fn connections_are_spread_over_all_endpoints() {
        let client = IpAddr::from([127, 0, 0, 1]);
        let mut balancer = Balancer::new(backends(None));
        let first: std::collections::BTreeSet<SocketAddr> =
            (0..3).filter_map(|_| balancer.candidates(client).first().copied()).collect();
        assert_eq!(first.len(), 3);
        assert_eq!(Balancer::default().candidates(client), []);
    }

    #[tokio::test(start_paused = true)]
    async fn client_keeps_its_endpoint_while_its_affinity_lasts() {
        let client = IpAddr::from([127, 0, 0, 1]);
        let life = Duration::from_secs(10);
        let mut balancer = Balancer::new(backends(Some(life)));
        let endpoint = balancer.candidates(client)[0];
        balancer.connected(client, endpoint);
        assert_eq!([0; 5].map(|_| balancer.candidates(client)[0]), [endpoint; 5]);
        tokio::time::advance(life).await;
        assert_ne!([0; 3].map(|_| balancer.candidates(client)[0]), [endpoint; 3]);
    }
}
