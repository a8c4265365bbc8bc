//! Peers that are gone, peers that want too much, and calls that do not come in one piece.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::{collections::BTreeSet, net::TcpStream, time::Duration};

use orlop_etcd::{
    Client, ClientTls, Options, Server,
    pb::etcdserverpb::{PutRequest, RangeRequest},
};
use orlop_net::{Listener, UnixSocketOptions};
use orlop_store::{Config, Endpoint, Store};
use orlop_testbed::http2::{self, PING, Peer, REFUSED_STREAM, RST_STREAM};
use tonic::Code;

const PATIENCE: Duration = Duration::from_secs(20);

/// A server on a port of its own, and where it listens. It ends with the test's runtime.
async fn serve(options: Options) -> String {
    let store = Store::open(Config::new(Endpoint::Memory)).await.unwrap();
    let loopback = "127.0.0.1:0".parse().unwrap();
    let listener = Listener::bind(&loopback, &UnixSocketOptions::default()).await.unwrap();
    let address = listener.local_address().to_string();
    let server = Server::new(store, options).await.unwrap();
    tokio::spawn(async move { server.serve(listener, None, std::future::pending()).await });
    address
}

async fn connect(address: &str) -> Client {
    Client::connect(address, &ClientTls::default()).await.unwrap()
}

fn peer(address: &str) -> Peer<TcpStream> {
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    Peer::new(socket).unwrap()
}

fn put(value: Vec<u8>) -> PutRequest {
    PutRequest { key: "k".into(), value: value.into(), ..PutRequest::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_gives_no_sign_of_life_is_dropped_and_one_that_does_is_kept() {
    let options = Options { keep_alive: Duration::from_millis(100), ..Options::default() };
    let address = serve(options).await;
    let mut alive = connect(&address).await;
    let mut dead = peer(&address);
    let pings = tokio::task::spawn_blocking(move || {
        let mut pings = 0;
        let open = dead.until(|frame| {
            pings += usize::from(frame.kind == PING && frame.flags & http2::ACK == 0);
            false
        });
        assert!(!open.unwrap(), "the server hangs up");
        pings
    });
    assert!(pings.await.unwrap() > 0, "it was asked first");
    alive.kv.put(put(vec![1])).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_ignores_the_limit_of_streams_is_refused_and_hurts_nobody() {
    let address = serve(Options { max_streams: 8, ..Options::default() }).await;
    let mut rude = peer(&address);
    let refused = tokio::task::spawn_blocking(move || {
        rude.open("/etcdserverpb.Watch/Watch", 12).unwrap();
        let mut refused = BTreeSet::new();
        let all = rude.until(|frame| {
            if frame.kind == RST_STREAM && frame.number() == Some(REFUSED_STREAM) {
                refused.insert(frame.stream);
            }
            refused.len() == 4
        });
        assert!(all.unwrap(), "{refused:?}");
        refused
    });
    assert_eq!(refused.await.unwrap(), BTreeSet::from([17, 19, 21, 23]), "the first come first");
    connect(&address).await.kv.put(put(vec![1])).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_knows_the_limit_of_streams_waits_for_its_turn() {
    let address = serve(Options { max_streams: 2, ..Options::default() }).await;
    let mut client = connect(&address).await;
    // With the first answer the client knows the limit.
    client.kv.put(put(vec![0])).await.unwrap();
    let mut calls = tokio::task::JoinSet::new();
    for n in 0..50 {
        let mut client = client.clone();
        calls.spawn(async move { client.kv.put(put(vec![n])).await.unwrap().into_inner().header });
    }
    let mut revisions = BTreeSet::new();
    while let Some(header) = calls.join_next().await {
        revisions.insert(header.unwrap().unwrap().revision);
    }
    assert_eq!(revisions.len(), 50);
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_many_frames_are_put_together_and_larger_ones_refused() {
    let address = serve(Options::default()).await;
    let mut client = connect(&address).await;
    let value: Vec<u8> = (0..1_500_000u32).map(|n| n as u8).collect();
    client.kv.put(put(value.clone())).await.unwrap();
    let request = RangeRequest { key: "k".into(), ..RangeRequest::default() };
    let found = client.kv.range(request).await.unwrap().into_inner();
    assert_eq!(found.kvs[0].value, value);
    let refused = client.kv.put(put(vec![0; 1_600_000])).await.unwrap_err();
    assert_eq!(
        (refused.code(), refused.message()),
        (Code::InvalidArgument, "etcdserver: request is too large")
    );
    let refused = client.kv.put(put(vec![0; 3_000_000])).await.unwrap_err();
    assert_eq!(refused.code(), Code::OutOfRange, "{refused}");
    let refused = client.kv.put(PutRequest::default()).await.unwrap_err();
    assert_eq!(
        (refused.code(), refused.message()),
        (Code::InvalidArgument, "etcdserver: key is not provided")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_time_is_up_is_answered_whatever_it_waits_for() {
    let address = serve(Options::default()).await;
    let mut slow = peer(&address);
    let answered = tokio::task::spawn_blocking(move || {
        let mut fields = http2::first_header_fields("/etcdserverpb.KV/Put", "test");
        http2::put_field(&mut fields, "grpc-timeout", "50m");
        // The message never comes.
        slow.send(http2::HEADERS, http2::END_HEADERS, 1, &fields).unwrap();
        slow.until(|frame| {
            frame.stream == 1 && frame.kind == http2::HEADERS && frame.flags & http2::END_STREAM != 0
        })
    });
    assert!(answered.await.unwrap().unwrap());
    let mut request = tonic::Request::new(put(vec![3]));
    request.set_timeout(Duration::from_secs(20));
    connect(&address).await.kv.put(request).await.unwrap();
}
