//! Host ports of a pod, forwarded to its address.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::{RETRY, Worker};
use crate::{
    events::Severity,
    proxy::{self, Protocol},
};

impl Worker {
    /// Forwards the pod's host ports. One without an address is that of the node and of the machine itself: a wildcard would
    /// take the port from every other pod.
    pub(super) async fn forward_host_ports(&mut self) {
        let Some(address) = self.address.filter(|_| self.host_ports.is_none()) else { return };
        let mut forwarded = Vec::new();
        let mut is_complete = true;
        let spec = self.pod.spec.clone().unwrap_or_default();
        let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
        for port in containers.flat_map(|container| container.ports.iter().flatten()) {
            let number = |number: i32| u16::try_from(number).ok().filter(|number| *number > 0);
            let Some(host_port) = port.host_port.and_then(number) else { continue };
            let Some(target) = number(port.container_port) else { continue };
            let Some(protocol) = Protocol::of(port.protocol.as_deref()) else { continue };
            let mut hosts = match port.host_ip.as_deref().unwrap_or_default() {
                "" | "0.0.0.0" => vec![IpAddr::from(Ipv4Addr::LOCALHOST), self.node.settings.address],
                text => text.parse().into_iter().collect(),
            };
            hosts.dedup();
            for host in hosts {
                let from = SocketAddr::new(host, host_port);
                match proxy::host_port(protocol, from, SocketAddr::new(address.into(), target)).await {
                    Ok(port) => forwarded.push(port),
                    Err(error) => {
                        is_complete = false;
                        let message = format!("Host port {from} is not forwarded: {error}");
                        self.node.events.pod(&self.pod, None, Severity::Warning, "HostPortFailed", message);
                    }
                }
            }
        }
        if is_complete {
            self.host_ports = Some(forwarded);
        } else {
            // Another pod may be about to give them back.
            drop(forwarded);
            self.wake_in(RETRY);
        }
    }
}
