//! Ranges that cluster IPs and node ports are allocated from.

use std::{net::IpAddr, ops::RangeInclusive};

use orlop_kinds::{IpFamily, IpRange};

/// Shortest prefix of a range of IPv6, as in Kubernetes.
const IPV6_PREFIX_BITS_MIN: u32 = 64;
/// Fewest host bits of a range: eight addresses.
const HOST_BITS_MIN: u32 = 3;

/// Ranges of cluster IPs, one per IP family of the cluster, and of node ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceRanges {
    /// The range of the default family.
    first: IpRange,
    /// The range of the other family, in a dual-stack cluster.
    second: Option<IpRange>,
    node_ports: RangeInclusive<u16>,
}

/// A range that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRange {
    /// Not a cluster IP range.
    #[error(
        "{0:?} is not an IP range without host bits, of at least 8 addresses and for IPv6 not larger than \
         /{IPV6_PREFIX_BITS_MIN}, such as 10.96.0.0/12 or fd00::/108"
    )]
    ClusterIps(String),
    /// More than two ranges, or two of one family.
    #[error("{0:?} is neither one range nor one of IPv4 and one of IPv6")]
    Families(String),
    /// Not a node port range.
    #[error("{0:?} is not a range of ports, such as 30000-32767")]
    NodePorts(String),
}

impl Default for ServiceRanges {
    fn default() -> Self {
        let first = IpRange { address: IpAddr::from([10, 0, 0, 0]), bits: 16 };
        Self { first, second: None, node_ports: 30000..=32767 }
    }
}

impl ServiceRanges {
    /// Parses cluster IP ranges (`10.96.0.0/12` or `10.96.0.0/12,fd00::/108`) and a node port range (`30000-32767`).
    pub fn parse(cluster_ips: &str, node_ports: &str) -> Result<Self, BadRange> {
        let range = |text: &str| parse_range(text).ok_or_else(|| BadRange::ClusterIps(text.to_owned()));
        let families = || BadRange::Families(cluster_ips.to_owned());
        let mut texts = cluster_ips.split(',');
        let first = range(texts.next().unwrap_or_default())?;
        let second = texts.next().map(range).transpose()?;
        let same_family = |other: IpRange| other.address.is_ipv4() == first.address.is_ipv4();
        if texts.next().is_some() || second.is_some_and(same_family) {
            return Err(families());
        }
        let node_ports =
            parse_node_ports(node_ports).ok_or_else(|| BadRange::NodePorts(node_ports.to_owned()))?;
        Ok(Self { first, second, node_ports })
    }

    /// Returns the cluster IP ranges; the first is of the default family.
    pub(crate) fn cluster_ips(&self) -> impl Iterator<Item = IpRange> {
        [Some(self.first), self.second].into_iter().flatten()
    }

    /// Returns the IP families; the first is the default.
    pub(crate) fn families(&self) -> Vec<IpFamily> {
        self.cluster_ips().map(|range| IpFamily::of(range.address)).collect()
    }

    /// Returns the cluster IP of the API server: the first of the default family.
    pub fn api_server(&self) -> IpAddr {
        self.first.at(1)
    }

    /// Returns the node port range.
    pub(crate) fn node_ports(&self) -> RangeInclusive<u16> {
        self.node_ports.clone()
    }
}

fn parse_range(text: &str) -> Option<IpRange> {
    let range = IpRange::parse(text.trim())?;
    let is_bounded = range.address.is_ipv4() || range.bits >= IPV6_PREFIX_BITS_MIN;
    let is_usable =
        is_bounded && range.width() - range.bits >= HOST_BITS_MIN && range.first() == range.address;
    is_usable.then_some(range)
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
    fn ranges_of_one_or_two_families_parse() {
        let ranges = ServiceRanges::parse("10.96.0.0/12", "30000-30010").unwrap();
        assert_eq!((ranges.families(), ranges.node_ports()), (vec![IpFamily::V4], 30000..=30010));
        assert_eq!(ranges.api_server().to_string(), "10.96.0.1");
        let ranges = ServiceRanges::parse("fd00::/108,10.0.0.0/24", "1-2").unwrap();
        assert_eq!(ranges.families(), [IpFamily::V6, IpFamily::V4]);
        assert_eq!(ranges.api_server().to_string(), "fd00::1");
    }

    #[test]
    fn unusable_ranges_are_refused() {
        for bad in ["", "10.96.0.0", "10.96.0.1/12", "10.0.0.0/30", "fd00::/63", "fd00::/126", "x/16"] {
            assert!(matches!(ServiceRanges::parse(bad, "1-2"), Err(BadRange::ClusterIps(_))), "{bad}");
        }
        for bad in ["10.0.0.0/16,10.1.0.0/16", "10.0.0.0/16,fd00::/108,fd01::/108"] {
            assert!(matches!(ServiceRanges::parse(bad, "1-2"), Err(BadRange::Families(_))), "{bad}");
        }
        for bad in ["30000", "2-1", "0-5", "1-70000", "a-b"] {
            assert!(matches!(ServiceRanges::parse("10.0.0.0/16", bad), Err(BadRange::NodePorts(_))), "{bad}");
        }
    }
}
