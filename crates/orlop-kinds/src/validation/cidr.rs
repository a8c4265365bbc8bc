//! CIDR ranges.

use std::{fmt, net::IpAddr};

/// A CIDR range: an address and its prefix length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpRange {
    /// An address of the network; the first one where the range is in canonical form.
    pub address: IpAddr,
    /// Prefix length.
    pub bits: u32,
}

impl IpRange {
    /// Parses CIDR notation.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, bits) = text.split_once('/')?;
        let range = Self { address: address.parse().ok()?, bits: bits.parse().ok()? };
        (range.bits <= range.width()).then_some(range)
    }

    /// Returns the address width of its family, in bits.
    pub fn width(self) -> u32 {
        if self.address.is_ipv4() { 32 } else { 128 }
    }

    /// Returns the first address of the network.
    pub fn first(self) -> IpAddr {
        match self.address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - self.bits).unwrap_or(0);
                IpAddr::V4((u32::from(address) & mask).into())
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128 - self.bits).unwrap_or(0);
                IpAddr::V6((u128::from(address) & mask).into())
            }
        }
    }

    /// Returns the offset of the last address from the first.
    pub fn last_offset(self) -> u128 {
        u128::MAX.checked_shr(128 - (self.width() - self.bits)).unwrap_or(0)
    }

    /// Returns the address at an offset from the first, within the range.
    pub fn at(self, offset: u128) -> IpAddr {
        let offset = offset.min(self.last_offset());
        match self.first() {
            IpAddr::V4(first) => {
                IpAddr::V4((u32::from(first) | u32::try_from(offset).unwrap_or(u32::MAX)).into())
            }
            IpAddr::V6(first) => IpAddr::V6((u128::from(first) | offset).into()),
        }
    }

    /// Returns true if an address is in the range.
    pub fn contains(self, address: IpAddr) -> bool {
        let same_family = address.is_ipv4() == self.address.is_ipv4();
        same_family && Self { address, ..self }.first() == self.first()
    }

    /// Returns true if `part` is a strict subset of this range.
    pub(crate) fn has_part(self, part: Self) -> bool {
        part.bits > self.bits && self.contains(part.address)
    }
}

impl fmt::Display for IpRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_counted_from_the_first() {
        let at = |range: &str, offset: u128| IpRange::parse(range).unwrap().at(offset).to_string();
        assert_eq!(at("10.0.0.0/24", 1), "10.0.0.1");
        assert_eq!(at("10.0.0.0/24", 255), "10.0.0.255");
        assert_eq!(at("10.0.0.0/24", 1000), "10.0.0.255", "the last one");
        assert_eq!(at("fd00::/108", 0x12345), "fd00::1:2345");
        for (range, last) in [("0.0.0.0/0", u128::from(u32::MAX)), ("::/0", u128::MAX), ("10.0.0.1/32", 0)] {
            assert_eq!(IpRange::parse(range).unwrap().last_offset(), last, "{range}");
        }
    }

    #[test]
    fn range_contains_its_addresses_of_its_family() {
        let contains =
            |range: &str, address: &str| IpRange::parse(range).unwrap().contains(address.parse().unwrap());
        assert!(contains("10.96.0.0/12", "10.111.255.255") && !contains("10.96.0.0/12", "10.112.0.0"));
        assert!(contains("fd00::/108", "fd00::f:ffff") && !contains("fd00::/108", "fd00::10:0"));
        assert!(!contains("::/0", "10.0.0.1") && contains("0.0.0.0/0", "10.0.0.1"));
    }
}
