//! Frames on the socket between the node and a monitor: a channel byte, a length and the bytes.

use std::{
    io,
    os::linux::net::SocketAddrExt,
    os::unix::net::{SocketAddr, UnixListener as StdListener, UnixStream as StdStream},
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{UnixListener, UnixStream},
};

/// Largest frame.
const FRAME_BYTES_MAX: usize = 1 << 20;

/// Channels of frames. The first five are those of Kubernetes' remote command protocol.
pub(crate) mod channel {
    /// Standard input.
    pub(crate) const STDIN: u8 = 0;
    /// Standard output.
    pub(crate) const STDOUT: u8 = 1;
    /// Standard error.
    pub(crate) const STDERR: u8 = 2;
    /// The outcome: the last frame of a monitor.
    pub(crate) const OUTCOME: u8 = 3;
    /// Size of the terminal: columns and rows, 16 bits each.
    pub(crate) const RESIZE: u8 = 4;
    /// The request: the first frame of a node.
    pub(crate) const REQUEST: u8 = 5;
    /// End of standard input.
    pub(crate) const STDIN_END: u8 = 255;
}

/// Reads a frame; `None` at the end of the stream.
pub(crate) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<(u8, Vec<u8>)>> {
    let mut header = [0; 5];
    if stream.read(&mut header[..1]).await? == 0 {
        return Ok(None);
    }
    stream.read_exact(&mut header[1..]).await?;
    let [channel, length @ ..] = header;
    let length = u32::from_be_bytes(length) as usize;
    if length > FRAME_BYTES_MAX {
        return Err(io::Error::other("frame too long"));
    }
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).await?;
    Ok(Some((channel, bytes)))
}

/// Writes a frame.
pub(crate) async fn write(
    stream: &mut (impl AsyncWrite + Unpin),
    channel: u8,
    bytes: &[u8],
) -> io::Result<()> {
    let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    let mut frame = Vec::with_capacity(5 + bytes.len());
    frame.push(channel);
    frame.extend(length.to_be_bytes());
    frame.extend(bytes);
    stream.write_all(&frame).await
}

/// Returns the size of a terminal as a frame's bytes.
pub(crate) fn resize(columns: u16, rows: u16) -> [u8; 4] {
    let ([a, b], [c, d]) = (columns.to_be_bytes(), rows.to_be_bytes());
    [a, b, c, d]
}

/// Binds the socket of a container's monitor. It has a name and no file: paths of sockets are short.
pub(crate) fn bind(id: &str) -> io::Result<UnixListener> {
    let listener = StdListener::bind_addr(&address(id)?)?;
    listener.set_nonblocking(true)?;
    UnixListener::from_std(listener)
}

/// Connects to a container's monitor.
pub(crate) fn connect(id: &str) -> io::Result<UnixStream> {
    let stream = StdStream::connect_addr(&address(id)?)?;
    stream.set_nonblocking(true)?;
    let stream = UnixStream::from_std(stream)?;
    check_peer(&stream)?;
    Ok(stream)
}

/// Refuses a peer of another user: names of sockets are not protected as files are.
pub(crate) fn check_peer(stream: &UnixStream) -> io::Result<()> {
    let peer = stream.peer_cred()?.uid();
    let own = rustix::process::geteuid().as_raw();
    if peer == own || peer == 0 { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}

fn address(id: &str) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("orlop-node/{id}"))
}
