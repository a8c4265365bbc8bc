//! Channels of gRPC clients: TCP, unix sockets and streams within the process.
//!
//! The type of a byte stream is erased, and nothing here is generic: tonic's and h2's connections are compiled once,
//! for every client (decision 0091).

use std::{io, path::PathBuf, sync::Arc};

use futures_util::future::BoxFuture;
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::UnixStream,
};
use tonic::transport::{Channel, Endpoint, Error, Uri};
use tower::service_fn;

/// A byte stream in both directions.
pub trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> ByteStream for T {}

/// Opens a byte stream.
pub type Open = Arc<dyn Fn() -> BoxFuture<'static, io::Result<Box<dyn ByteStream>>> + Send + Sync>;

/// The server of a channel.
pub enum Target {
    /// The endpoint's own address, over TCP.
    Address,
    /// A unix socket. The endpoint's address is only its authority.
    Unix(PathBuf),
    /// Whatever opens a byte stream. The endpoint's address is only its authority.
    Stream(Open),
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Address => f.write_str("Address"),
            Self::Unix(path) => f.debug_tuple("Unix").field(path).finish(),
            Self::Stream(_) => f.write_str("Stream"),
        }
    }
}

impl Target {
    /// Returns the opener; `None` for an address, which tonic connects to.
    fn open(self) -> Option<Open> {
        match self {
            Self::Address => None,
            Self::Unix(path) => Some(Arc::new(move || {
                let path = path.clone();
                Box::pin(async move {
                    let stream: Box<dyn ByteStream> = Box::new(UnixStream::connect(path).await?);
                    Ok(stream)
                })
            })),
            Self::Stream(open) => Some(open),
        }
    }
}

/// Returns a channel that connects with the first call, and again when the connection is lost.
pub fn connect_lazy(endpoint: &Endpoint, target: Target) -> Channel {
    match target.open() {
        None => endpoint.connect_lazy(),
        Some(open) => endpoint.connect_with_connector_lazy(service_fn(move |_: Uri| connected(open()))),
    }
}

/// Connects.
pub fn connect(endpoint: Endpoint, target: Target) -> BoxFuture<'static, Result<Channel, Error>> {
    Box::pin(async move {
        match target.open() {
            None => endpoint.connect().await,
            Some(open) => endpoint.connect_with_connector(service_fn(move |_: Uri| connected(open()))).await,
        }
    })
}

type Connected = BoxFuture<'static, io::Result<TokioIo<Box<dyn ByteStream>>>>;

fn connected(opened: BoxFuture<'static, io::Result<Box<dyn ByteStream>>>) -> Connected {
    Box::pin(async move { opened.await.map(TokioIo::new) })
}
