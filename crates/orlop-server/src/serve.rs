//! Connections: TLS or plain, HTTP/1.1 or HTTP/2, until told to stop.

use std::{convert::Infallible, sync::Arc, time::Duration};

use hyper::service::service_fn;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto::Builder, graceful::GracefulShutdown},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;

use crate::{User, chain::Chain, pki};

/// How long a client may take over its headers, and over its handshake.
const HEADERS: Duration = Duration::from_secs(32);
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long requests that run are waited for when the server stops.
const DRAIN: Duration = Duration::from_secs(30);
/// Streams of one HTTP/2 connection: a client with many watches needs many.
const STREAMS: u32 = 1000;
/// Bytes of all headers of a request.
const HEADER_BYTES: u32 = 64 << 10;

/// Serves until `stop` resolves, then drains.
pub async fn serve(
    listener: TcpListener,
    chain: Chain,
    tls: Option<pki::Tls>,
    stop: impl Future<Output = ()>,
) {
    let acceptor = tls.map(TlsAcceptor::from);
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
        let (chain, acceptor, watcher) = (chain.clone(), acceptor.clone(), graceful.watcher());
        tokio::spawn(async move {
            match acceptor {
                None => connection(socket, chain, None, watcher).await,
                Some(acceptor) => match tokio::time::timeout(HANDSHAKE, acceptor.accept(socket)).await {
                    Ok(Ok(stream)) => {
                        let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
                        let user = certificates.first().and_then(|certificate| pki::user_of(certificate));
                        connection(stream, chain, user, watcher).await;
                    }
                    Ok(Err(error)) => tracing::debug!(%error, "handshake failed"),
                    Err(_) => tracing::debug!("handshake timed out"),
                },
            }
        });
    }
    drop(listener);
    chain.close();
    if let Some(graceful) = Arc::into_inner(graceful) {
        let _ = tokio::time::timeout(DRAIN, graceful.shutdown()).await;
    }
}

async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    chain: Chain,
    user: Option<User>,
    watcher: hyper_util::server::graceful::Watcher,
) {
    let service = service_fn(|request| {
        let (chain, user) = (chain.clone(), user.clone());
        async move { Ok::<_, Infallible>(chain.answer(request, user.as_ref()).await) }
    });
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS)
        .max_buf_size(HEADER_BYTES as usize * 4)
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(20))
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(HEADER_BYTES);
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service).into_owned();
    if let Err(error) = watcher.watch(connection).await {
        tracing::debug!(%error, "connection ended");
    }
}
