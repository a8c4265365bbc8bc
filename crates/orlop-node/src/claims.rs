//! Claims: what only one node of a machine may have at a time. Each is a socket with a name of its own, which the kernel takes
//! back with the process, however that ends.

use std::{
    fs, io,
    net::Ipv4Addr,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener},
    },
};

use crate::settings::PodRange;

const NODES: &str = "orlop-node/node/";
const RANGES: &str = "orlop-node/range/";

/// A claim, until dropped.
#[derive(Debug)]
pub struct Claim {
    _socket: UnixListener,
}

impl Claim {
    /// Claims a Node object by its uid. Two processes that are one node would run its pods twice.
    pub(crate) fn node(uid: &str) -> io::Result<Self> {
        Self::named(&format!("{NODES}{uid}"))
    }

    /// Claims a range of addresses of pods. The error is `AddrInUse` if another process has some of them.
    pub fn range(range: PodRange) -> io::Result<Self> {
        let claim = Self::named(&format!("{RANGES}{range}"))?;
        // After the own one: of two that begin at once, at least one sees the other.
        let table = fs::read_to_string("/proc/net/unix").unwrap_or_default();
        match claimed_ranges(&table).any(|other| other != range && overlap(other, range)) {
            true => Err(io::ErrorKind::AddrInUse.into()),
            false => Ok(claim),
        }
    }

    fn named(name: &str) -> io::Result<Self> {
        Ok(Self { _socket: UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)? })
    }
}

/// Returns the ranges that processes have claimed, of the kernel's table of sockets.
fn claimed_ranges(table: &str) -> impl Iterator<Item = PodRange> {
    let names = table.lines().filter_map(|line| line.split_whitespace().last());
    names.filter_map(|name| name.strip_prefix('@')?.strip_prefix(RANGES)?.parse().ok())
}

fn overlap(a: PodRange, b: PodRange) -> bool {
    let bits = a.prefix_bits.min(b.prefix_bits);
    let prefix = |address: Ipv4Addr| u32::from(address) >> (32 - bits);
    prefix(a.network) == prefix(b.network)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claim_is_of_one_until_it_is_dropped() {
        let uid = format!("test-{}", std::process::id());
        let claim = Claim::node(&uid).unwrap();
        assert_eq!(Claim::node(&uid).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(claim);
        Claim::node(&uid).unwrap();
    }

    #[test]
    fn ranges_that_overlap_are_claimed_once() {
        let range = |text: &str| text.parse::<PodRange>().unwrap();
        let claim = Claim::range(range("127.127.240.0/20")).unwrap();
        for text in ["127.127.240.0/20", "127.127.0.0/16", "127.127.255.0/24"] {
            assert_eq!(Claim::range(range(text)).unwrap_err().kind(), io::ErrorKind::AddrInUse, "{text}");
        }
        let other = Claim::range(range("127.127.224.0/20")).unwrap();
        drop((claim, other));
        Claim::range(range("127.127.240.0/20")).unwrap();
    }

    #[test]
    fn names_of_other_sockets_are_no_ranges() {
        let table = "Num RefCount Protocol Flags Type St Inode Path\n\
            0: 00000002 00000000 00010000 0001 01 9 @orlop-node/range/127.64.0.0/16\n\
            0: 00000002 00000000 00010000 0001 01 9 /orlop-node/range/127.65.0.0/16\n\
            0: 00000002 00000000 00010000 0001 01 9\n";
        assert_eq!(claimed_ranges(table).collect::<Vec<_>>(), ["127.64.0.0/16".parse().unwrap()]);
    }
}
