//! Sockets of the machine's network that take connections or datagrams, as /proc shows them.

use std::{
    collections::HashSet,
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

/// Tables of sockets, each with the state of those that listen.
const TABLES: &[(&str, &str)] = &[("tcp", "0A"), ("tcp6", "0A"), ("udp", "07"), ("udp6", "07")];

/// A socket that listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listener {
    pub(crate) address: SocketAddr,
    /// Number by which processes hold it.
    pub(crate) inode: u64,
}

/// Returns the sockets that listen in the network of this process.
pub(crate) fn all() -> Vec<Listener> {
    let of_table = |(name, state): &(&str, &str)| {
        let text = fs::read_to_string(format!("/proc/self/net/{name}")).unwrap_or_default();
        text.lines().filter_map(|line| parse(line, state)).collect::<Vec<_>>()
    };
    TABLES.iter().flat_map(of_table).collect()
}

/// Returns the numbers of the sockets of a process.
pub(crate) fn of_process(pid: u32) -> HashSet<u64> {
    let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    files
        .filter_map(|file| {
            let link = fs::read_link(file.path()).ok()?;
            link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
        })
        .collect()
}

/// Parses a line of a table: `0: 0100007F:1F90 00000000:0000 0A …`.
fn parse(line: &str, state: &str) -> Option<Listener> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [_, local, _, found, _, _, _, _, _, inode, ..] = *fields else { return None };
    let (address, port) = local.split_once(':').filter(|_| found == state)?;
    let port = u16::from_str_radix(port, 16).ok()?;
    Some(Listener { address: SocketAddr::new(ip(address)?, port), inode: inode.parse().ok()? })
}

/// Parses an address: words of 32 bits, each in the byte order of this machine.
fn ip(text: &str) -> Option<IpAddr> {
    let word = |index: usize| {
        let digits = text.get(index * 8..index * 8 + 8)?;
        u32::from_str_radix(digits, 16).ok().map(u32::to_ne_bytes)
    };
    match text.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let mut bytes = [0; 16];
            for (index, part) in bytes.chunks_exact_mut(4).enumerate() {
                part.copy_from_slice(&word(index)?);
            }
            Some(Ipv6Addr::from(bytes).to_canonical())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listening_sockets_are_found_with_their_process() {
        for bound in ["127.0.0.1:0", "0.0.0.0:0"] {
            let socket = std::net::TcpListener::bind(bound).unwrap();
            let address = socket.local_addr().unwrap();
            let client = std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, address.port())).unwrap();
            let found = all();
            let found: Vec<_> = found.iter().filter(|found| found.address == address).collect();
            assert_eq!(found.len(), 1, "{address}");
            assert!(of_process(std::process::id()).contains(&found[0].inode));
            // One that is connected does not listen.
            let connected = client.local_addr().unwrap();
            assert!(!all().iter().any(|found| found.address == connected));
        }
        let datagrams = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(all().iter().any(|found| found.address == datagrams.local_addr().unwrap()));
    }

    #[test]
    fn lines_without_a_listening_socket_are_left_out() {
        let line = "   0: 00000000:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 20911 1";
        let expected = Listener { address: ([0, 0, 0, 0], 8080).into(), inode: 20911 };
        assert_eq!(parse(line, "0A"), Some(expected));
        assert_eq!(parse(line, "07"), None);
        let header = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode";
        assert_eq!(parse(header, "0A"), None);
        assert_eq!(parse("", "0A"), None);
        let zeros = "0".repeat(32);
        assert_eq!(ip(&zeros), Some(Ipv6Addr::UNSPECIFIED.into()));
        assert_eq!(ip("0"), None);
    }
}
