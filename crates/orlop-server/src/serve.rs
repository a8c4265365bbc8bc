//! Connections: TLS or plain, HTTP/1.1 or HTTP/2, until told to stop.

use std::{convert::Infallible, sync::Arc, time::Duration};

use hyper::service::service_fn;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::{conn::auto::Builder, graceful::GracefulShutdown},
};
use socket2::{SockRef, TcpKeepalive};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;

use crate::{
    auth::pki::{Shown, Tls},
    chain::{Chain, Connected},
    corked::Corked,
    filters::intake::ConnectionIntake,
    in_place::InPlace,
};

/// How patient a server is with its clients.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// For the headers of a request.
    pub headers: Duration,
    /// For the beginning of a connection.
    pub handshake: Duration,
    /// For requests that run when the server stops.
    pub drain: Duration,
    /// For a sign of life on a connection where nothing happens.
    pub silence: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            headers: Duration::from_secs(32),
            handshake: Duration::from_secs(10),
            drain: Duration::from_secs(30),
            silence: Duration::from_secs(30),
        }
    }
}

/// Streams of one HTTP/2 connection: a client with many watches needs many.
const STREAMS: u32 = 1000;
/// Bytes of all headers of a request.
const HEADER_BYTES: u32 = 64 << 10;

/// Serves until `stop` resolves, then drains.
pub async fn serve(listener: TcpListener, chain: Chain, tls: Option<Tls>, stop: impl Future<Output = ()>) {
    serve_with(Patience::default(), listener, chain, tls, stop).await;
}

/// The same, as patient as told.
pub async fn serve_with(
    patience: Patience,
    listener: TcpListener,
    chain: Chain,
    tls: Option<Tls>,
    stop: impl Future<Output = ()>,
) {
    let graceful = Arc::new(GracefulShutdown::new());
    let mut stop = std::pin::pin!(stop);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut stop => break,
        };
        let socket = match accepted {
            Ok((socket, _)) => socket,
            Err(error) => {
                // Out of file descriptors, most likely: the next moment may be better.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let _ = socket.set_nodelay(true);
        // Without this, a watch whose client vanished without a word would stay until it times out.
        let keepalive = TcpKeepalive::new().with_time(patience.silence).with_interval(patience.silence);
        let _ = SockRef::from(&socket).set_tcp_keepalive(&keepalive);
        let (chain, tls, watcher) = (chain.clone(), tls.clone(), graceful.watcher());
        tokio::spawn(async move {
            let builder = Builder::new(InPlace::default());
            let Some(tls) = tls else {
                return connection(socket, builder, chain, Shown::Nothing, patience, watcher).await;
            };
            let handshake = TlsAcceptor::from(tls.config()).accept(socket);
            match tokio::time::timeout(patience.handshake, handshake).await {
                Ok(Ok(stream)) => {
                    let session = stream.get_ref().1;
                    let shown = tls.shown(session.peer_certificates().unwrap_or_default());
                    if session.alpn_protocol() == Some(b"h2") {
                        let corked = Corked::new(stream);
                        // Only HTTP/2: what another protocol is upgraded to would be driven by somebody else.
                        let builder = builder.http2_only();
                        let served = connection(corked.clone(), builder, chain, shown, patience, watcher);
                        corked.drive(served).await;
                    } else {
                        connection(stream, builder, chain, shown, patience, watcher).await;
                    }
                }
                Ok(Err(error)) => tracing::debug!(%error, "handshake failed"),
                Err(_) => tracing::debug!("handshake timed out"),
            }
        });
    }
    drop(listener);
    chain.close();
    if let Some(graceful) = Arc::into_inner(graceful) {
        let _ = tokio::time::timeout(patience.drain, graceful.shutdown()).await;
    }
}

async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    mut builder: Builder<InPlace>,
    chain: Chain,
    shown: Shown,
    patience: Patience,
    watcher: hyper_util::server::graceful::Watcher,
) {
    let connected = Arc::new(Connected { shown, intake: Some(ConnectionIntake::default()) });
    let service = service_fn(|request: http::Request<hyper::body::Incoming>| {
        let (chain, connected) = (chain.clone(), connected.clone());
        // In memory of its own, which is given back once there is an answer: a stream would hold on to it for as
        // long as it sends, and a watch sends for ever.
        Box::pin(async move { Ok::<_, Infallible>(chain.answer_on(&connected, request).await) })
    });
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(patience.headers)
        .max_buf_size(HEADER_BYTES as usize * 4)
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(patience.silence)
        .keep_alive_timeout(Duration::from_secs(20))
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(HEADER_BYTES);
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service).into_owned();
    if let Err(error) = watcher.watch(connection).await {
        tracing::debug!(%error, "connection ended");
    }
}
