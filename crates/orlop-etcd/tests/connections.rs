//! Disconnected and greedy clients, limits, and requests in several frames.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::{collections::BTreeSet, net::TcpStream, time::Duration};

use orlop_etcd::{
    Client, ClientTls, Options, Server,
    pb::etcdserverpb::{PutRequest, RangeRequest, RequestOp, TxnRequest, request_op},
};
use orlop_net::{Listener, UnixSocketOptions};
use orlop_store::{Config, Endpoint, Store};
use orlop_testbed::http2::{self, PING, Peer, REFUSED_STREAM, RST_STREAM};
use tonic::Code;

const TIMEOUT: Duration = Duration::from_secs(20);

/// Starts a server on a free port. Returns its address. It ends with the test's runtime.
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
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    Peer::new(socket).unwrap()
}

fn put(value: Vec<u8>) -> PutRequest {
    PutRequest { key: "k".into(), value: value.into(), ..PutRequest::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn client_that_ignores_pings_is_disconnected() {
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
        assert!(!open.unwrap(), "the server closes the connection");
        pings
    });
    assert!(pings.await.unwrap() > 0, "it was sent PINGs first");
    alive.kv.put(put(vec![1])).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_over_the_limit_are_refused() {
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
    assert_eq!(refused.await.unwrap(), BTreeSet::from([17, 19, 21, 23]), "the first eight were accepted");
    connect(&address).await.kv.put(put(vec![1])).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn client_queues_requests_over_the_stream_limit() {
    let address = serve(Options { max_streams: 2, ..Options::default() }).await;
    let mut client = connect(&address).await;
    // The first response brings the limit.
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
async fn message_in_many_frames_is_accepted_and_one_over_the_limit_is_not() {
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
async fn request_past_its_deadline_fails_with_deadline_exceeded() {
    let address = serve(Options::default()).await;
    let mut slow = peer(&address);
    let answered = tokio::task::spawn_blocking(move || {
        let mut fields = http2::first_header_fields("/etcdserverpb.KV/Put", "test");
        http2::put_field(&mut fields, "grpc-timeout", "50m");
        // The message is never sent.
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

async fn fill(client: &mut Client, keys: usize, bytes: usize) {
    for n in 0..keys {
        let key = format!("large{n:03}").into();
        let request = PutRequest { key, value: vec![0; bytes].into(), ..PutRequest::default() };
        client.kv.put(request).await.unwrap();
    }
}

fn all_keys() -> RangeRequest {
    RangeRequest { key: vec![0].into(), range_end: vec![0].into(), ..RangeRequest::default() }
}

/// 128 ranges over 2 MiB returned 256 MiB, all of it in memory at once.
#[tokio::test(flavor = "multi_thread")]
async fn transaction_whose_ranges_return_too_much_fails() {
    let address = serve(Options::default()).await;
    let mut client = connect(&address).await;
    fill(&mut client, 2, 1 << 20).await;
    let range = RequestOp { request: Some(request_op::Request::RequestRange(all_keys())) };
    let txn = |ranges: usize| TxnRequest { success: vec![range.clone(); ranges], ..TxnRequest::default() };
    let allowed = client.kv.txn(txn(16)).await.unwrap().into_inner();
    assert_eq!(allowed.responses.len(), 16);
    let rejected = client.kv.txn(txn(128)).await.unwrap_err();
    assert_eq!(rejected.code(), Code::ResourceExhausted, "{rejected}");
    assert!(rejected.message().contains("larger than max"), "{rejected}");
}

#[tokio::test(flavor = "multi_thread")]
async fn range_over_the_response_limit_fails_and_a_paginated_one_does_not() {
    let address = serve(Options { max_response_bytes: 1 << 20, ..Options::default() }).await;
    let mut client = connect(&address).await;
    fill(&mut client, 20, 100_000).await;
    let rejected = client.kv.range(all_keys()).await.unwrap_err();
    assert_eq!(rejected.code(), Code::ResourceExhausted, "{rejected}");
    let page = client.kv.range(RangeRequest { limit: 5, ..all_keys() }).await.unwrap().into_inner();
    assert_eq!((page.kvs.len(), page.more, page.count), (5, true, 20));
    let counted =
        client.kv.range(RangeRequest { count_only: true, ..all_keys() }).await.unwrap().into_inner();
    assert_eq!(counted.count, 20);
}
