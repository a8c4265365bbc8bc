//! Where the endpoint listens: a TCP address or a unix socket.

use std::{fmt, io, os::unix::fs::FileTypeExt, path::PathBuf, str::FromStr};

use tokio::net::{TcpListener, UnixListener};

/// An address to listen on: `host:port`, `http(s)://host:port` or `unix:///path`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A TCP address; an empty host is every address of the machine.
    Tcp(String),
    /// A socket in the file system.
    Unix(PathBuf),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let address = match text.split_once("://") {
            Some(("unix" | "unixs", path)) if !path.is_empty() => return Ok(Self::Unix(path.into())),
            Some(("tcp" | "http" | "https", address)) => address,
            Some(_) => return Err(format!("{text:?} is neither host:port nor unix:///path")),
            None => text,
        };
        match address.rsplit_once(':') {
            Some((_, port)) if port.parse::<u16>().is_ok() => Ok(Self::Tcp(address.to_owned())),
            _ => Err(format!("{text:?} has no port: write host:port or unix:///path")),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => f.write_str(address),
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
        }
    }
}

/// A bound socket.
#[derive(Debug)]
pub enum Listener {
    /// On TCP.
    Tcp(TcpListener),
    /// On a unix socket, whose file goes away with it.
    Unix(UnixListener, SocketFile),
}

/// A socket's file, removed when dropped.
#[derive(Debug)]
pub struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Listener {
    /// Binds an address. A socket file that nobody listens on any more is replaced.
    pub async fn bind(address: &Address) -> io::Result<Self> {
        match address {
            Address::Tcp(address) => {
                let address =
                    if address.starts_with(':') { format!("0.0.0.0{address}") } else { address.clone() };
                Ok(Self::Tcp(TcpListener::bind(address).await?))
            }
            Address::Unix(path) => {
                let left_over =
                    std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
                if left_over && tokio::net::UnixStream::connect(path).await.is_err() {
                    std::fs::remove_file(path)?;
                }
                Ok(Self::Unix(UnixListener::bind(path)?, SocketFile(path.clone())))
            }
        }
    }

    /// What it is bound to: with the port that the system chose, if it was asked to.
    pub fn address(&self) -> Address {
        match self {
            Self::Tcp(listener) => Address::Tcp(
                listener.local_addr().map_or_else(|_| "?:0".into(), |address| address.to_string()),
            ),
            Self::Unix(_, file) => Address::Unix(file.0.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_people_write_them() {
        assert_eq!("0.0.0.0:2379".parse(), Ok(Address::Tcp("0.0.0.0:2379".into())));
        assert_eq!("http://127.0.0.1:2379".parse(), Ok(Address::Tcp("127.0.0.1:2379".into())));
        assert_eq!(":2379".parse(), Ok(Address::Tcp(":2379".into())));
        assert_eq!("unix:///run/o.sock".parse(), Ok(Address::Unix("/run/o.sock".into())));
        for bad in ["", "localhost", "ftp://x:1", "unix://"] {
            assert!(bad.parse::<Address>().is_err(), "{bad}");
        }
    }
}
