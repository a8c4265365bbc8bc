//! Settings of a node.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use orlop_net::ServerTls;

pub use crate::{images::Images, runtime::Isolation};

/// Addresses of pods by default.
pub const POD_RANGE: PodRange = PodRange { network: Ipv4Addr::new(127, 64, 0, 0), prefix_bits: 16 };

/// Settings of a node.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Name of the Node object.
    pub name: String,
    /// Directory of pods, volumes and logs.
    pub data_dir: PathBuf,
    /// Program that becomes a container's monitor: this one, whose `main` calls [`crate::shim::main`] first.
    pub program: PathBuf,
    /// Address in the Node object: where the API server reaches this node.
    pub address: IpAddr,
    /// Addresses of pods.
    pub pod_range: PodRange,
    /// Pods have networks of their own, and share the machine's otherwise.
    pub own_networks: bool,
    /// Number of pods at a time.
    pub pods_max: u32,
    /// Programs by image.
    pub images: Images,
    /// Isolation of containers.
    pub isolation: Isolation,
    /// Directory of manifests of static pods.
    pub static_pods: Option<PathBuf>,
    /// Labels of the Node object.
    pub labels: BTreeMap<String, String>,
    /// Cluster IPs and node ports are forwarded to endpoints.
    pub service_proxy: bool,
    /// Domain of services' names.
    pub cluster_domain: String,
    /// Address that the node answers DNS for services on.
    pub dns: Option<SocketAddr>,
    /// Address of a DNS server for pods' resolv.conf, if one runs.
    pub cluster_dns: Option<IpAddr>,
    /// Containers end with this process, however it ends. Otherwise they are taken up again.
    pub is_ephemeral: bool,
    /// Longest time for containers to end when the node stops.
    pub shutdown_grace: Duration,
    /// TLS of the node's own API. It must ask for client certificates.
    pub tls: ServerTls,
}

/// A range of loopback addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodRange {
    pub(crate) network: Ipv4Addr,
    pub(crate) prefix_bits: u32,
}

impl PodRange {
    /// Returns the first address, which no pod has: services of the node itself can.
    pub fn first(self) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(self.network) + 1)
    }
}

/// A text is not a range of loopback addresses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a range of loopback addresses from /10 to /28 without host bits, such as 127.64.0.0/16"
)]
pub struct BadPodRange(String);

impl std::str::FromStr for PodRange {
    type Err = BadPodRange;

    fn from_str(text: &str) -> Result<Self, BadPodRange> {
        let parse = || {
            let (network, prefix_bits) = text.split_once('/')?;
            let (network, prefix_bits): (Ipv4Addr, u32) = (network.parse().ok()?, prefix_bits.parse().ok()?);
            let is_usable = network.is_loopback() && (10..=28).contains(&prefix_bits);
            let has_host_bits = is_usable && u32::from(network) << prefix_bits != 0;
            (is_usable && !has_host_bits).then_some(Self { network, prefix_bits })
        };
        parse().ok_or_else(|| BadPodRange(text.to_owned()))
    }
}

impl std::fmt::Display for PodRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.network, self.prefix_bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pod_range_is_loopback_only() {
        assert_eq!("127.64.0.0/16".parse(), Ok(POD_RANGE));
        for text in ["10.0.0.0/16", "127.64.0.1/16", "127.64.0.0/8", "127.64.0.0", "x/16"] {
            assert!(text.parse::<PodRange>().is_err(), "{text}");
        }
    }
}
