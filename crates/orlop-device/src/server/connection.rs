//! A connection: the bytes, who is behind it, and its line in channelz.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpStream, UnixStream},
    sync::OwnedSemaphorePermit,
};
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

use super::{authority::Authority, caller::Caller, channelz::OpenSocket};

/// What requests know of their connection.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) caller: Caller,
    pub(crate) socket: Arc<OpenSocket>,
}

/// The ways in.
#[derive(Debug)]
pub(crate) enum Io {
    Unix(UnixStream, Authority),
    Tcp(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// An accepted connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) io: Io,
    pub(crate) peer: Peer,
    /// Its place among the connections that may be open.
    pub(crate) _place: OwnedSemaphorePermit,
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().io {
            Io::Unix(io, authority) => {
                let before = buf.filled().len();
                ready!(Pin::new(io).poll_read(cx, buf))?;
                authority.mend(&mut buf.filled_mut()[before..]);
                Poll::Ready(Ok(()))
            }
            Io::Tcp(io) => Pin::new(io).poll_read(cx, buf),
            Io::Tls(io) => Pin::new(io).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().io {
            Io::Unix(io, _) => Pin::new(io).poll_write(cx, buf),
            Io::Tcp(io) => Pin::new(io).poll_write(cx, buf),
            Io::Tls(io) => Pin::new(io).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().io {
            Io::Unix(io, _) => Pin::new(io).poll_flush(cx),
            Io::Tcp(io) => Pin::new(io).poll_flush(cx),
            Io::Tls(io) => Pin::new(io).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().io {
            Io::Unix(io, _) => Pin::new(io).poll_shutdown(cx),
            Io::Tcp(io) => Pin::new(io).poll_shutdown(cx),
            Io::Tls(io) => Pin::new(io).poll_shutdown(cx),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().io {
            Io::Unix(io, _) => Pin::new(io).poll_write_vectored(cx, bufs),
            Io::Tcp(io) => Pin::new(io).poll_write_vectored(cx, bufs),
            Io::Tls(io) => Pin::new(io).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.io {
            Io::Unix(io, _) => io.is_write_vectored(),
            Io::Tcp(io) => io.is_write_vectored(),
            Io::Tls(io) => io.is_write_vectored(),
        }
    }
}
