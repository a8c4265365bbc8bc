//! Dead clients, and limits of connections.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

mod support;

use std::{collections::BTreeSet, os::unix::net::UnixStream, time::Duration};

use orlop_device_client::api::ListOptions;
use orlop_testbed::http2::{self, PING, Peer, REFUSED_STREAM, RST_STREAM};
use support::{Calls, Fixture, Storage, gpu};

const TIMEOUT: Duration = Duration::from_secs(20);
const WATCH: &str = "/nvidia.nvsentinel.v1alpha1.GpuService/WatchGpus";
/// Stream limit of one connection.
const STREAMS: u32 = 100;

fn peer(fixture: &Fixture) -> Peer<UnixStream> {
    let socket = UnixStream::connect(fixture.socket()).unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    Peer::new(socket).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn client_that_ignores_pings_is_disconnected() {
    let keep_alive = Duration::from_millis(100);
    let mut fixture = Fixture::start_with(Storage::Memory, |config| config.keep_alive = keep_alive).await;
    let mut watch = fixture.client.watch(ListOptions::default()).await.unwrap();
    let mut dead = peer(&fixture);
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
    // The watch was idle for as long, but its client replies to PINGs.
    fixture.client.create(gpu("a")).await.unwrap();
    let event = tokio::time::timeout(TIMEOUT, watch.message()).await.unwrap().unwrap().unwrap();
    assert_eq!(event.r#type, "ADDED");
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_over_the_stream_limit_of_a_connection_wait() {
    let mut fixture = Fixture::start(Storage::Memory).await;
    let mut watches = Vec::new();
    for _ in 0..STREAMS {
        watches.push(fixture.client.watch(ListOptions::default()).await.unwrap());
    }
    let mut client = fixture.client.clone();
    let mut waiting = tokio::spawn(async move { client.get("a").await });
    // Other connections have a limit of their own.
    let mut other = Fixture::connect(&fixture.socket());
    other.create(gpu("a")).await.unwrap();
    let early = tokio::time::timeout(Duration::from_millis(100), &mut waiting).await;
    assert!(early.is_err(), "{early:?}");
    watches.pop();
    let answer = tokio::time::timeout(TIMEOUT, waiting).await.unwrap().unwrap();
    assert_eq!(support::meta(&answer.unwrap()).name(), "a");
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_over_the_limit_are_refused() {
    let mut fixture = Fixture::start(Storage::Memory).await;
    let mut rude = peer(&fixture);
    let refused = tokio::task::spawn_blocking(move || {
        rude.open(WATCH, STREAMS + 20).unwrap();
        let mut refused = BTreeSet::new();
        let all = rude.until(|frame| {
            if frame.kind == RST_STREAM && frame.number() == Some(REFUSED_STREAM) {
                refused.insert(frame.stream);
            }
            refused.len() == 20
        });
        assert!(all.unwrap(), "{refused:?}");
        refused
    });
    let refused = refused.await.unwrap();
    assert!(refused.iter().all(|stream| *stream > 2 * STREAMS), "the first come first: {refused:?}");
    fixture.client.create(gpu("a")).await.unwrap();
    fixture.client.get("a").await.unwrap();
}
