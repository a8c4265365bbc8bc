//! Addresses to listen on or to connect to.

use std::{fmt, net::IpAddr, path::PathBuf, str::FromStr};

/// A TCP address or the path of a unix socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A TCP address.
    Tcp {
        /// The host name or IP address. Empty for every address of the machine.
        host: String,
        /// The port. A listener on port 0 gets any free one.
        port: u16,
    },
    /// A unix socket.
    Unix(PathBuf),
}

/// A text that is not an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid address {0:?}: expected host:port, :port or unix:///path")]
pub struct AddressError(String);

impl Address {
    /// Returns `true` if only processes of this machine can connect.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Unix(_) => true,
            Self::Tcp { host, .. } => {
                host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
            }
        }
    }
}

impl FromStr for Address {
    type Err = AddressError;

    /// Parses `host:port`, `:port`, `[v6]:port`, any of these as a `tcp`, `http` or `https` URL, and `unix://path`.
    fn from_str(text: &str) -> Result<Self, AddressError> {
        let invalid = || AddressError(text.to_owned());
        let authority = match text.split_once("://") {
            Some(("unix" | "unixs", path)) if !path.is_empty() => return Ok(Self::Unix(path.into())),
            Some(("tcp" | "http" | "https", authority)) => authority,
            Some(_) => return Err(invalid()),
            None => text,
        };
        let (host, port) = authority.rsplit_once(':').ok_or_else(invalid)?;
        let port = port.parse().map_err(|_| invalid())?;
        let host = match host.strip_prefix('[') {
            Some(v6) => v6.strip_suffix(']').ok_or_else(invalid)?,
            None => host,
        };
        Ok(Self::Tcp { host: host.to_owned(), port })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
        }
    }
}

impl From<std::net::SocketAddr> for Address {
    fn from(address: std::net::SocketAddr) -> Self {
        Self::Tcp { host: address.ip().to_string(), port: address.port() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16) -> Address {
        Address::Tcp { host: host.into(), port }
    }

    #[test]
    fn parses_tcp_url_and_unix_addresses() {
        for (text, address) in [
            ("0.0.0.0:2379", tcp("0.0.0.0", 2379)),
            ("http://127.0.0.1:2379", tcp("127.0.0.1", 2379)),
            ("tcp://127.0.0.1:0", tcp("127.0.0.1", 0)),
            (":9090", tcp("", 9090)),
            ("[::1]:5", tcp("::1", 5)),
            ("unix:///run/o.sock", Address::Unix("/run/o.sock".into())),
            ("unix://o.sock", Address::Unix("o.sock".into())),
        ] {
            assert_eq!(text.parse(), Ok(address), "{text}");
        }
        for bad in ["", "localhost", "ftp://x:1", "unix://", "host:port", ":70000", "[::1:5"] {
            assert!(bad.parse::<Address>().is_err(), "{bad}");
        }
    }

    #[test]
    fn displayed_address_parses_to_itself() {
        for address in [tcp("", 1), tcp("::1", 2), tcp("localhost", 3), Address::Unix("/run/o.sock".into())] {
            assert_eq!(address.to_string().parse(), Ok(address));
        }
    }

    #[test]
    fn only_loopback_and_unix_addresses_are_local() {
        for local in ["127.0.0.1:1", "127.8.0.1:1", "localhost:1", "[::1]:1", "unix:///run/o.sock"] {
            assert!(local.parse::<Address>().unwrap().is_local(), "{local}");
        }
        for remote in [":1", "0.0.0.0:1", "[::]:1", "10.0.0.1:1", "example.com:1"] {
            assert!(!remote.parse::<Address>().unwrap().is_local(), "{remote}");
        }
    }
}
