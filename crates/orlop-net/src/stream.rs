//! Byte streams of accepted connections.

use std::{
    io::{self, IoSlice},
    net::SocketAddr,
    path::PathBuf,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpStream, unix::UCred},
};
use tokio_rustls::server::TlsStream;

use crate::authority::UnixSocketStream;

/// The two ends of a connection.
#[derive(Clone, Debug)]
pub enum PeerAddress {
    /// A TCP connection.
    Tcp {
        /// The address connected to.
        local: SocketAddr,
        /// The client's address.
        remote: SocketAddr,
    },
    /// A unix socket connection.
    Unix {
        /// The path connected to.
        path: PathBuf,
        /// The client process's user, group and id, as told by the kernel.
        credentials: Option<UCred>,
    },
}

/// A connected socket, before TLS.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixSocketStream),
}

/// A connection's byte stream, ready for HTTP.
#[derive(Debug)]
pub struct Stream(Inner);

#[derive(Debug)]
enum Inner {
    Plain(Socket),
    Tls(Box<TlsStream<Socket>>),
}

impl From<Socket> for Stream {
    fn from(socket: Socket) -> Self {
        Self(Inner::Plain(socket))
    }
}

impl From<TlsStream<Socket>> for Stream {
    fn from(stream: TlsStream<Socket>) -> Self {
        Self(Inner::Tls(Box::new(stream)))
    }
}

impl Stream {
    /// Returns `true` if the client negotiated HTTP/2 by ALPN.
    pub fn negotiated_http2(&self) -> bool {
        matches!(&self.0, Inner::Tls(stream) if stream.get_ref().1.alpn_protocol() == Some(b"h2"))
    }
}

/// Forwards `AsyncRead` and `AsyncWrite`, vectored writes included, to the variants of an enum.
macro_rules! forward_io {
    ($type:ty, |$value:ident| $inner:expr, $($variant:path),+) => {
        impl AsyncRead for $type {
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                let $value = self.get_mut();
                match &mut $inner {
                    $($variant(io) => Pin::new(io).poll_read(cx, buf),)+
                }
            }
        }

        impl AsyncWrite for $type {
            fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
                let $value = self.get_mut();
                match &mut $inner {
                    $($variant(io) => Pin::new(io).poll_write(cx, buf),)+
                }
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bufs: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                let $value = self.get_mut();
                match &mut $inner {
                    $($variant(io) => Pin::new(io).poll_write_vectored(cx, bufs),)+
                }
            }

            fn is_write_vectored(&self) -> bool {
                let $value = self;
                match &$inner {
                    $($variant(io) => io.is_write_vectored(),)+
                }
            }

            fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                let $value = self.get_mut();
                match &mut $inner {
                    $($variant(io) => Pin::new(io).poll_flush(cx),)+
                }
            }

            fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                let $value = self.get_mut();
                match &mut $inner {
                    $($variant(io) => Pin::new(io).poll_shutdown(cx),)+
                }
            }
        }
    };
}

forward_io!(Socket, |socket| *socket, Socket::Tcp, Socket::Unix);
forward_io!(Stream, |stream| stream.0, Inner::Plain, Inner::Tls);
