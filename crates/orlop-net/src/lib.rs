//! Listening, TLS, accept loops and HTTP connections: the network stack that the API, etcd and device fronts share.
//!
//! A front binds a [`Listener`], loads a [`ServerTls`] where it serves TLS, and hands both to [`accept()`] with a
//! handler that serves one [`Connection`]. Handlers that speak HTTP call [`http::serve_connection`].
//!
//! ```no_run
//! # async fn run() -> std::io::Result<()> {
//! use std::convert::Infallible;
//! use hyper::{Response, service::service_fn};
//! use orlop_net::{AcceptOptions, Connection, HttpOptions, Listener, UnixSocketOptions, accept, http};
//!
//! let address = "127.0.0.1:8080".parse().map_err(std::io::Error::other)?;
//! let listener = Listener::bind(&address, &UnixSocketOptions::default()).await?;
//! let shutdown = std::future::pending();
//! accept(listener, AcceptOptions::default(), shutdown, |connection: Connection, watcher| async move {
//!     let service = service_fn(async |_| Ok::<_, Infallible>(Response::new(String::from("hello"))));
//!     http::serve_connection(connection.stream, &HttpOptions::default(), service, watcher).await;
//! })
//! .await;
//! # Ok(())
//! # }
//! ```
//!
//! Layers, each importing only those before it: `address`, `authority`, `coalesce`, `erased`, `executor` → `stream` → `listener`, `tls` →
//! `accept`, `client`, `http`.
//!
//! Invariants: nothing here knows what a front serves; every handshake, header and shutdown has a deadline; the number
//! of connections is bounded; no peer can end the process or stop the accept loop.

mod accept;
mod address;
mod authority;
mod busy;
pub mod client;
mod coalesce;
mod erased;
mod executor;
pub mod grpc;
pub mod http;
mod listener;
mod stream;
mod tls;

pub use accept::{AcceptOptions, Connection, ConnectionLimit, accept};
pub use address::{Address, AddressError};
pub use busy::is_busy_thread;
pub use erased::{ByteStream, ErasedStream};
pub use http::HttpOptions;
pub use hyper_util::server::graceful::Watcher;
pub use listener::{Listener, UnixSocketOptions};
pub use stream::{PeerAddress, Stream};
pub use tls::{
    ALPN_HTTP, ALPN_HTTP2, ClientAuth, ClientCertificate, ClientVerifier, PemSource, PresentedCertificate,
    ServerTls, TlsError, TlsOptions, TlsSession,
};
