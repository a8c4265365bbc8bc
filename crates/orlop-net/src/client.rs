//! HTTP/1.1 connections of clients.

use std::{future::Future, pin::Pin};

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;

use crate::erased::ErasedStream;

/// A handshake that is under way.
type Handshake = Pin<Box<dyn Future<Output = hyper::Result<SendRequest<Full<Bytes>>>> + Send>>;

/// Begins HTTP/1.1 on a byte stream. Requests are sent, and connections upgraded, while the sender or a response lives.
///
/// The stream's type is erased: hyper's client is compiled once, for all that call other servers.
pub fn handshake(stream: ErasedStream) -> Handshake {
    Box::pin(async move {
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(async move {
            if let Err(error) = connection.with_upgrades().await {
                tracing::debug!(%error, "a connection to another server ended");
            }
        });
        Ok(sender)
    })
}
