//! Opening the addresses that the server listens on.

use std::{
    fmt, fs, io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown},
    path::{Path, PathBuf},
};

use tokio::net::{TcpListener, UnixListener};

use super::StartError;

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A unix socket.
    Unix(PathBuf),
    /// A TCP port; every address of the machine if none is named.
    Tcp {
        /// The host, or nothing for all.
        host: String,
        /// The port; 0 for any free one.
        port: u16,
    },
}

impl Address {
    /// Reads `unix:///path`, `host:port` or `:port`, the latter two with or without `tcp://`.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix://") {
            if !path.starts_with('/') {
                return Err(format!(
                    "address {text:?}: a socket's path begins with /, as in unix:///run/x.sock"
                ));
            }
            return Ok(Self::Unix(path.into()));
        }
        let rest = text.strip_prefix("tcp://").unwrap_or(text);
        let (host, port) = rest
            .rsplit_once(':')
            .ok_or_else(|| format!("address {text:?} is none of unix:///path, host:port, :port"))?;
        let port = port.parse().map_err(|_| format!("address {text:?}: {port:?} is not a port"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        Ok(Self::Tcp { host: host.to_owned(), port })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

/// Opens a TCP port.
pub(crate) async fn tcp(host: &str, port: u16) -> Result<TcpListener, StartError> {
    let failed = |error: io::Error| StartError::Listen { address: format!("{host}:{port}"), error };
    if !host.is_empty() {
        return TcpListener::bind((host, port)).await.map_err(failed);
    }
    match TcpListener::bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))).await {
        Ok(listener) => Ok(listener),
        // A machine without IPv6.
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Err(failed(error)),
        Err(_) => TcpListener::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))).await.map_err(failed),
    }
}

/// A unix socket that disappears with the server.
#[derive(Debug)]
pub(crate) struct UnixSocket {
    pub(crate) listener: UnixListener,
    path: PathBuf,
    inode: u64,
}

impl UnixSocket {
    /// Opens a socket with the mode and owner it shall have. It appears at its path only once it has them,
    /// so there is no moment at which others could connect.
    pub(crate) fn open(
        path: &Path,
        mode: u32,
        owner: (Option<u32>, Option<u32>),
    ) -> Result<Self, StartError> {
        let failed =
            |error: io::Error| StartError::Listen { address: format!("unix://{}", path.display()), error };
        Self::make_room(path).map_err(failed)?;
        let mut fresh = path.as_os_str().to_owned();
        fresh.push(".new");
        let fresh = PathBuf::from(fresh);
        let opened = (|| {
            let _ = fs::remove_file(&fresh);
            let listener = UnixListener::bind(&fresh)?;
            fs::set_permissions(&fresh, fs::Permissions::from_mode(mode))?;
            if owner != (None, None) {
                chown(&fresh, owner.0, owner.1)?;
            }
            let inode = fs::metadata(&fresh)?.ino();
            fs::rename(&fresh, path)?;
            Ok(Self { listener, path: path.to_owned(), inode })
        })();
        opened.map_err(|error| {
            let _ = fs::remove_file(&fresh);
            failed(error)
        })
    }

    /// Sees to it that the path can be used: its folder exists, and no other server listens there.
    fn make_room(path: &Path) -> io::Result<()> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
            Ok(found) if !found.file_type().is_socket() => {
                Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is a file that is not a socket"))
            }
            Ok(_) => match std::os::unix::net::UnixStream::connect(path) {
                Ok(_) => Err(io::Error::new(io::ErrorKind::AddrInUse, "another server listens there")),
                // Left behind by a server that was killed; the rename replaces it.
                Err(_) => Ok(()),
            },
        }
    }
}

impl Drop for UnixSocket {
    fn drop(&mut self) {
        // Only if it is still ours: a successor may have taken the path.
        if fs::metadata(&self.path).is_ok_and(|found| found.ino() == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let tcp = |host: &str, port| Ok(Address::Tcp { host: host.into(), port });
        assert_eq!(Address::parse("unix:///run/d.sock"), Ok(Address::Unix("/run/d.sock".into())));
        assert_eq!(Address::parse(":9090"), tcp("", 9090));
        assert_eq!(Address::parse("tcp://127.0.0.1:0"), tcp("127.0.0.1", 0));
        assert_eq!(Address::parse("[::1]:5"), tcp("::1", 5));
        for bad in ["", "unix://relative", "host", "host:port", ":70000"] {
            assert!(Address::parse(bad).is_err(), "{bad}");
        }
    }
}
