//! CIDR ranges.

use std::net::IpAddr;

/// A CIDR range: an address and its prefix length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IpRange {
    pub(crate) address: IpAddr,
    pub(crate) bits: u32,
}

impl IpRange {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (address, bits) = text.split_once('/')?;
        let range = Self { address: address.parse().ok()?, bits: bits.parse().ok()? };
        (range.bits <= range.width()).then_some(range)
    }

    /// Returns the address width of its family, in bits.
    pub(crate) fn width(self) -> u32 {
        if self.address.is_ipv4() { 32 } else { 128 }
    }

    /// Returns the first address of the network.
    pub(crate) fn first(self) -> IpAddr {
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

    /// Returns true if `part` is a strict subset of this range.
    pub(crate) fn has_part(self, part: Self) -> bool {
        let same_family = part.address.is_ipv4() == self.address.is_ipv4();
        same_family && part.bits > self.bits && Self { address: part.address, ..self }.first() == self.first()
    }
}
