//! Serves a chain on a listener: TLS or plain, HTTP/1.1 or HTTP/2, until shutdown.

use std::{convert::Infallible, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use hyper::{body::Incoming, service::service_fn};
use orlop_net::{
    AcceptOptions, Connection, HttpOptions, PeerAddress, ServerTls, Watcher, accept,
    http::{coalesces_writes, serve_connection, serve_connection_until},
};
use tokio::net::TcpListener;

use crate::{
    auth::authentication::Peer,
    chain::{Chain, ConnectionState},
    filters::intake::ConnectionIntake,
    http::request_body::RequestBody,
};

/// Timeouts of a server.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// For the headers of a request.
    pub headers: Duration,
    /// For a TLS handshake.
    pub handshake: Duration,
    /// For open requests on shutdown.
    pub drain: Duration,
    /// Interval of keepalive probes on an idle connection.
    pub keepalive: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            headers: Duration::from_secs(32),
            handshake: Duration::from_secs(10),
            drain: Duration::from_secs(30),
            keepalive: Duration::from_secs(30),
        }
    }
}

/// Serves until `stop` resolves, then drains.
pub async fn serve(
    listener: TcpListener,
    chain: Chain,
    tls: Option<ServerTls>,
    stop: impl Future<Output = ()> + Send + 'static,
) {
    serve_with(Timeouts::default(), listener, chain, tls, stop).await;
}

/// Serves with timeouts of the caller's choice.
pub async fn serve_with(
    timeouts: Timeouts,
    listener: TcpListener,
    chain: Chain,
    tls: Option<ServerTls>,
    stop: impl Future<Output = ()> + Send + 'static,
) {
    serve_until(timeouts, listener, chain, tls, Box::pin(stop)).await;
}

/// Serves a chain. Not generic, and boxed: its code is compiled here, and not in each program that serves.
fn serve_until(
    timeouts: Timeouts,
    listener: TcpListener,
    chain: Chain,
    tls: Option<ServerTls>,
    stop: BoxFuture<'static, ()>,
) -> BoxFuture<'static, ()> {
    let options = AcceptOptions {
        tls,
        handshake_timeout: timeouts.handshake,
        tcp_keepalive: timeouts.keepalive,
        drain_timeout: timeouts.drain,
        ..AcceptOptions::default()
    };
    let http = Arc::new(HttpOptions {
        header_timeout: timeouts.headers,
        keep_alive_interval: timeouts.keepalive,
        write_barrier: chain.write_barrier(),
        ..HttpOptions::default()
    });
    let closing = chain.clone();
    let shutdown = async move {
        stop.await;
        // Ends watches, which would otherwise hold up the drain.
        closing.close();
    };
    Box::pin(accept(listener.into(), options, shutdown, move |connection, watcher| {
        serve_connection_with(connection, http.clone(), chain.clone(), watcher)
    }))
}

async fn serve_connection_with(
    connection: Connection,
    http: Arc<HttpOptions>,
    chain: Chain,
    watcher: Watcher,
) {
    let session = connection.tls.as_ref();
    let client = session.map_or(Peer::Unknown, |session| Peer::of(&session.client));
    let peer = match &connection.peer {
        PeerAddress::Tcp { remote, .. } => Some(remote.ip()),
        PeerAddress::Unix { .. } => None,
    };
    let intake = Some(ConnectionIntake::default());
    let behind_barrier = http.write_barrier.is_some() && coalesces_writes(&connection.stream);
    let goaway = chain.sends_goaway().then(tokio::sync::Notify::new);
    let state = Arc::new(ConnectionState { client, intake, peer, goaway, behind_barrier });
    let closing = chain.cluster().closing();
    let (chain, requests) = (Arc::new(chain), state.clone());
    let service = service_fn(move |request: http::Request<Incoming>| {
        let (chain, state) = (chain.clone(), requests.clone());
        async move { Ok::<_, Infallible>(chain.answer_on(&state, request.map(RequestBody::Incoming)).await) }
    });
    if state.goaway.is_none() {
        return serve_connection(connection.stream, &http, service, watcher).await;
    }
    let goaway = async move {
        match &state.goaway {
            Some(goaway) => tokio::select! {
                () = goaway.notified() => {}
                () = closing => {}
            },
            None => closing.await,
        }
    };
    serve_connection_until(connection.stream, &http, service, watcher, goaway).await;
}
