//! Ranges that cluster IPs and node ports are allocated from.

use std::{net::Ipv4Addr, ops::RangeInclusive};

/// Longest prefix of the cluster IP range: eight addresses, as in Kubernetes.
const PREFIX_BITS_MAX: u32 = 29;
/// Shortest prefix of the cluster IP range, as in Kubernetes.
const PREFIX_BITS_MIN: u32 = 12;

/// Ranges of cluster IPs and node ports. IPv4 only: the cluster is single-stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceRanges {
    network: Ipv4Addr,
    prefix_bits: u32,
    node_ports: RangeInclusive<u16>,
}

/// A range that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRange {
    /// Not a cluster IP range.
    #[error(
        "{0:?} is not an IPv4 range from /{PREFIX_BITS_MIN} to /{PREFIX_BITS_MAX} without host bits, such as \
         10.96.0.0/12"
    )]
    ClusterIps(String),
    /// Not a node port range.
    #[error("{0:?} is not a range of ports, such as 30000-32767")]
    NodePorts(String),
}

impl Default for ServiceRanges {
    fn default() -> Self {
        Self { network: Ipv4Addr::new(10, 0, 0, 0), prefix_bits: 16, node_ports: 30000..=32767 }
    }
}

impl ServiceRanges {
    /// Parses a cluster IP range (`10.96.0.0/12`) and a node port range (`30000-32767`).
    pub fn parse(cluster_ips: &str, node_ports: &str) -> Result<Self, BadRange> {
        let (network, prefix_bits) =
            parse_cluster_ips(cluster_ips).ok_or_else(|| BadRange::ClusterIps(cluster_ips.to_owned()))?;
        let node_ports =
            parse_node_ports(node_ports).ok_or_else(|| BadRange::NodePorts(node_ports.to_owned()))?;
        Ok(Self { network, prefix_bits, node_ports })
    }

    /// Returns the cluster IP range in CIDR notation.
    pub fn cidr(&self) -> String {
        format!("{}/{}", self.network, self.prefix_bits)
    }

    /// Returns the cluster IP of the API server: the first of the range.
    pub fn api_server(&self) -> Ipv4Addr {
        self.address(1)
    }

    /// Returns true if an address is in the cluster IP range.
    pub(crate) fn contains(&self, address: Ipv4Addr) -> bool {
        let host_bits = 32 - self.prefix_bits;
        u32::from(address) >> host_bits == u32::from(self.network) >> host_bits
    }

    /// Returns the number of addresses in the cluster IP range.
    pub(crate) fn size(&self) -> u32 {
        1 << (32 - self.prefix_bits)
    }

    /// Returns an address of the cluster IP range.
    pub(crate) fn address(&self, host: u32) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(self.network) + host)
    }

    /// Returns the node port range.
    pub(crate) fn node_ports(&self) -> RangeInclusive<u16> {
        self.node_ports.clone()
    }
}

fn parse_cluster_ips(text: &str) -> Option<(Ipv4Addr, u32)> {
    let (network, prefix_bits) = text.split_once('/')?;
    let (network, prefix_bits) = (network.parse::<Ipv4Addr>().ok()?, prefix_bits.parse::<u32>().ok()?);
    let has_host_bits = || u32::from(network) << prefix_bits != 0;
    let is_usable = (PREFIX_BITS_MIN..=PREFIX_BITS_MAX).contains(&prefix_bits) && !has_host_bits();
    is_usable.then_some((network, prefix_bits))
}

fn parse_node_ports(text: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-')?;
    let (first, last) = (first.parse::<u16>().ok()?, last.parse::<u16>().ok()?);
    (first > 0 && first <= last).then_some(first..=last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_parse_and_contain_their_addresses() {
        let ranges = ServiceRanges::parse("10.96.0.0/12", "30000-30010").unwrap();
        assert_eq!(
            (ranges.cidr(), ranges.api_server()),
            ("10.96.0.0/12".to_owned(), Ipv4Addr::new(10, 96, 0, 1))
        );
        assert!(ranges.contains(Ipv4Addr::new(10, 111, 255, 255)));
        assert!(!ranges.contains(Ipv4Addr::new(10, 112, 0, 0)));
        assert_eq!(ranges.node_ports(), 30000..=30010);
        for bad in ["10.96.0.0", "10.96.0.1/12", "10.0.0.0/8", "10.0.0.0/30", "fd00::/108", "x/16"] {
            assert!(matches!(ServiceRanges::parse(bad, "1-2"), Err(BadRange::ClusterIps(_))), "{bad}");
        }
        for bad in ["30000", "2-1", "0-5", "1-70000", "a-b"] {
            assert!(matches!(ServiceRanges::parse("10.0.0.0/16", bad), Err(BadRange::NodePorts(_))), "{bad}");
        }
    }
}
