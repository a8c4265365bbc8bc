//! Peers that are gone, and peers that want too much.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

mod support;

use std::{collections::BTreeSet, os::unix::net::UnixStream, time::Duration};

use orlop_device_client::api::ListOptions;
use orlop_testbed::http2::{self, PING, Peer, REFUSED_STREAM, RST_STREAM};
use support::{Calls, Fixture, Storage, gpu};

const PATIENCE: Duration = Duration::from_secs(20);
const WATCH: &str = "/nvidia.nvsentinel.v1alpha1.GpuService/WatchGpus";
/// Calls that the server takes on one connection.
const STREAMS: u32 = 100;

fn peer(fixture: &Fixture) -> Peer<UnixStream> {
    let socket = UnixStream::connect(fixture.socket()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    Peer::new(socket).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_gives_no_sign_of_life_is_dropped_and_one_that_does_is_kept() {
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
        assert!(!open.unwrap(), "the server hangs up");
        pings
    });
    assert!(pings.await.unwrap() > 0, "it was asked first");
    // The watch has been idle for as long, but its client answers.
    fixture.client.create(gpu("a")).await.unwrap();
    let event = tokio::time::timeout(PATIENCE, watch.message()).await.unwrap().unwrap().unwrap();
    assert_eq!(event.r#type, "ADDED");
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_past_the_limit_of_a_connection_wait_for_a_place() {
    let mut fixture = Fixture::start(Storage::Memory).await;
    let mut watches = Vec::new();
    for _ in 0..STREAMS {
        watches.push(fixture.client.watch(ListOptions::default()).await.unwrap());
    }
    let mut client = fixture.client.clone();
    let mut waiting = tokio::spawn(async move { client.get("a").await });
    // Others have connections of their own.
    let mut other = Fixture::connect(&fixture.socket());
    other.create(gpu("a")).await.unwrap();
    let early = tokio::time::timeout(Duration::from_millis(100), &mut waiting).await;
    assert!(early.is_err(), "{early:?}");
    watches.pop();
    let answer = tokio::time::timeout(PATIENCE, waiting).await.unwrap().unwrap();
    assert_eq!(support::meta(&answer.unwrap()).name(), "a");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_ignores_the_limit_is_refused_and_hurts_nobody() {
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
