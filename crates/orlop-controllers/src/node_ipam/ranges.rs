//! Ranges of addresses and their parts.

use std::{fmt, net::IpAddr, str::FromStr};

/// Most parts of a range: 16 bits of them, as kube-controller-manager limits it.
const PART_BITS_MAX: u8 = 16;

/// A text is not a range, or a range cannot be split.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadRange(pub(super) String);

/// A range of addresses, such as 10.244.0.0/16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First address, at the upper end for IPv4 too.
    first: u128,
    prefix: u8,
    is_v4: bool,
}

impl Range {
    /// Returns true for IPv4.
    pub fn is_v4(&self) -> bool {
        self.is_v4
    }

    /// Checks that the range has parts of a prefix.
    pub(super) fn check_parts(&self, prefix: u8) -> Result<(), BadRange> {
        let longest = if self.is_v4 { 32 } else { 128 };
        match prefix.checked_sub(self.prefix) {
            None => Err(BadRange(format!("the node's part /{prefix} is larger than the range {self}"))),
            Some(_) if prefix > longest => Err(BadRange(format!("/{prefix} is not a prefix of {self}"))),
            Some(bits) if bits > PART_BITS_MAX => {
                Err(BadRange(format!("{self} has more than 2^{PART_BITS_MAX} parts of /{prefix}")))
            }
            Some(_) => Ok(()),
        }
    }

    /// Returns the first part of a prefix that overlaps none of the others.
    pub(super) fn first_free_part(&self, prefix: u8, taken: &[Self]) -> Option<Self> {
        let bits = prefix.checked_sub(self.prefix)?.min(PART_BITS_MAX);
        (0..1_u128 << bits).find_map(|index| {
            let part = Self { first: self.first | shift(index, prefix), prefix, is_v4: self.is_v4 };
            (!taken.iter().any(|other| other.overlaps(&part))).then_some(part)
        })
    }

    fn overlaps(&self, other: &Self) -> bool {
        let prefix = self.prefix.min(other.prefix);
        self.is_v4 == other.is_v4 && (self.first ^ other.first) & !mask(prefix) == 0
    }
}

/// Returns the bits after a prefix.
fn mask(prefix: u8) -> u128 {
    u128::MAX.checked_shr(prefix.into()).unwrap_or(0)
}

/// Puts an index at the end of a prefix.
fn shift(index: u128, prefix: u8) -> u128 {
    index.checked_shl(128 - u32::from(prefix)).unwrap_or(0)
}

impl FromStr for Range {
    type Err = BadRange;

    fn from_str(text: &str) -> Result<Self, BadRange> {
        let bad = || BadRange(format!("{text:?} is not a range of addresses, such as 10.244.0.0/16"));
        let (address, prefix) = text.split_once('/').ok_or_else(bad)?;
        let (address, prefix): (IpAddr, u8) =
            (address.parse().map_err(|_| bad())?, prefix.parse().map_err(|_| bad())?);
        let (bits, is_v4, longest) = match address {
            IpAddr::V4(address) => (u128::from(u32::from(address)) << 96, true, 32),
            IpAddr::V6(address) => (u128::from(address), false, 128),
        };
        if prefix > longest || bits & mask(prefix) != 0 {
            return Err(bad());
        }
        Ok(Self { first: bits, prefix, is_v4 })
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = match self.is_v4 {
            true => IpAddr::V4(u32::try_from(self.first >> 96).unwrap_or_default().into()),
            false => IpAddr::V6(self.first.into()),
        };
        write!(f, "{address}/{}", self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_have_no_host_bits() {
        for text in ["10.0.0.0/8", "0.0.0.0/0", "fd00::/8", "::/0", "127.64.0.0/16"] {
            assert_eq!(text.parse::<Range>().unwrap().to_string(), text);
        }
        for text in ["10.0.0.1/8", "10.0.0.0/33", "10.0.0.0", "x/8", "fd00::1/64"] {
            assert!(text.parse::<Range>().is_err(), "{text}");
        }
    }
}
