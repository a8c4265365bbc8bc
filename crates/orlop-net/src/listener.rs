//! Listeners on TCP and unix sockets.

use std::{
    fs, io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown},
    path::{Path, PathBuf},
    time::Duration,
};

use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, UnixListener};

use crate::{
    address::Address,
    stream::{PeerAddress, Socket},
};

/// Permissions of a unix socket.
#[derive(Clone, Copy, Debug)]
pub struct UnixSocketOptions {
    /// Permission bits of the socket file.
    pub mode: u32,
    /// User that owns the socket file, if not the process's own.
    pub uid: Option<u32>,
    /// Group of the socket file, if not the process's own.
    pub gid: Option<u32>,
}

impl Default for UnixSocketOptions {
    fn default() -> Self {
        Self { mode: 0o600, uid: None, gid: None }
    }
}

/// A bound socket.
#[derive(Debug)]
pub struct Listener(Inner);

#[derive(Debug)]
enum Inner {
    Tcp(TcpListener),
    Unix(UnixSocket),
}

impl From<TcpListener> for Listener {
    fn from(listener: TcpListener) -> Self {
        Self(Inner::Tcp(listener))
    }
}

impl Listener {
    /// Binds an address. A unix socket replaces one that nobody listens on any more.
    pub async fn bind(address: &Address, unix: &UnixSocketOptions) -> io::Result<Self> {
        Ok(Self(match address {
            Address::Tcp { host, port } if host.is_empty() => Inner::Tcp(bind_any(*port).await?),
            Address::Tcp { host, port } => Inner::Tcp(TcpListener::bind((host.as_str(), *port)).await?),
            Address::Unix(path) => Inner::Unix(UnixSocket::bind(path, unix)?),
        }))
    }

    /// Returns the bound address, with the port that the system chose if it was asked to.
    pub fn local_address(&self) -> Address {
        match &self.0 {
            Inner::Tcp(listener) => {
                // An address of an open listener is always known.
                listener.local_addr().unwrap_or(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))).into()
            }
            Inner::Unix(socket) => Address::Unix(socket.path.clone()),
        }
    }

    /// Returns the bound TCP address; `None` for a unix socket.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        match &self.0 {
            Inner::Tcp(listener) => listener.local_addr().ok(),
            Inner::Unix(_) => None,
        }
    }

    /// Accepts one connection. TCP sockets send without delay and probe idle peers every `keepalive`.
    pub(crate) async fn accept(&self, keepalive: Duration) -> io::Result<(Socket, PeerAddress)> {
        match &self.0 {
            Inner::Tcp(listener) => {
                let (stream, remote) = listener.accept().await?;
                let local = stream.local_addr()?;
                // Responses are small and awaited: Nagle's algorithm would only add latency.
                let _ = stream.set_nodelay(true);
                // Without probes, a watch whose client vanished would stay until its deadline.
                let probes = TcpKeepalive::new().with_time(keepalive).with_interval(keepalive);
                let _ = SockRef::from(&stream).set_tcp_keepalive(&probes);
                Ok((Socket::Tcp(stream), PeerAddress::Tcp { local, remote }))
            }
            Inner::Unix(socket) => {
                let (stream, _) = socket.listener.accept().await?;
                let credentials = stream.peer_cred().ok();
                Ok((
                    Socket::Unix(stream.into()),
                    PeerAddress::Unix { path: socket.path.clone(), credentials },
                ))
            }
        }
    }
}

/// Binds a port on every address: dual-stack, or IPv4 alone on a machine without IPv6.
async fn bind_any(port: u16) -> io::Result<TcpListener> {
    match TcpListener::bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))).await {
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
            TcpListener::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))).await
        }
        bound => bound,
    }
}

/// A unix socket whose file is removed on drop.
#[derive(Debug)]
struct UnixSocket {
    listener: UnixListener,
    path: PathBuf,
    inode: u64,
}

impl UnixSocket {
    /// Binds beside the path, sets mode and owner, then renames: nobody can connect before the permissions hold.
    fn bind(path: &Path, options: &UnixSocketOptions) -> io::Result<Self> {
        check_path(path)?;
        let mut staged = path.as_os_str().to_owned();
        staged.push(".new");
        let staged = PathBuf::from(staged);
        let bound = (|| {
            let _ = fs::remove_file(&staged);
            let listener = UnixListener::bind(&staged)?;
            fs::set_permissions(&staged, fs::Permissions::from_mode(options.mode))?;
            if options.uid.is_some() || options.gid.is_some() {
                chown(&staged, options.uid, options.gid)?;
            }
            let inode = fs::metadata(&staged)?.ino();
            fs::rename(&staged, path)?;
            Ok(Self { listener, path: path.to_owned(), inode })
        })();
        if bound.is_err() {
            let _ = fs::remove_file(&staged);
        }
        bound
    }
}

/// Creates the socket's folder, and fails if the path is taken by another server or by a file that is not a socket.
fn check_path(path: &Path) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(found) if !found.file_type().is_socket() => {
            Err(io::Error::new(io::ErrorKind::AlreadyExists, "the path exists and is not a socket"))
        }
        Ok(_) => match std::os::unix::net::UnixStream::connect(path) {
            Ok(_) => Err(io::Error::new(io::ErrorKind::AddrInUse, "another server listens on it")),
            // Left behind by a server that was killed. The rename replaces it.
            Err(_) => Ok(()),
        },
    }
}

impl Drop for UnixSocket {
    fn drop(&mut self) {
        // A successor may have taken the path already.
        if fs::metadata(&self.path).is_ok_and(|found| found.ino() == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[tokio::test]
    async fn unix_socket_is_private_by_default_and_removed_on_drop() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/o.sock");
        let address = Address::Unix(path.clone());
        let listener = Listener::bind(&address, &UnixSocketOptions::default()).await.unwrap();
        assert_eq!((listener.local_address(), mode(&path)), (address, 0o600));
        drop(listener);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn stale_socket_is_replaced_and_one_in_use_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("o.sock");
        let address = Address::Unix(path.clone());
        // A listener of the standard library leaves its file behind, as a killed process does.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let options = UnixSocketOptions { mode: 0o660, ..UnixSocketOptions::default() };
        let listener = Listener::bind(&address, &options).await.unwrap();
        assert_eq!(mode(&path), 0o660);
        let error = Listener::bind(&address, &options).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        drop(listener);
        fs::write(&path, "data").unwrap();
        let error = Listener::bind(&address, &options).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"data");
    }
}
