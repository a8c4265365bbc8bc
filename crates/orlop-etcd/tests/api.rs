//! Behaviour that the differential suite cannot compare: newer than Debian's etcd, or specific to fragmentation.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::time::Duration;

use orlop_etcd::{
    Client, Options, Server,
    pb::etcdserverpb::{
        CompactionRequest, PutRequest, RangeRequest, WatchCancelRequest, WatchCreateRequest,
        WatchProgressRequest, WatchRequest, WatchResponse, watch_request::RequestUnion,
    },
};
use orlop_store::{Config, Endpoint, Store};
use tokio::{sync::mpsc, time::timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Streaming};

async fn client(options: Options) -> Client {
    let store = Store::open(Config::new(Endpoint::Memory)).await.unwrap();
    Client::in_process(&Server::new(store, options).await.unwrap()).await.unwrap()
}

async fn put(client: &mut Client, key: &str, value: &str) -> i64 {
    let request =
        PutRequest { key: key.to_owned().into(), value: value.to_owned().into(), ..PutRequest::default() };
    client.kv.put(request).await.unwrap().into_inner().header.unwrap().revision
}

struct Watch {
    requests: mpsc::Sender<WatchRequest>,
    responses: Streaming<WatchResponse>,
}

impl Watch {
    async fn open(client: &Client) -> Self {
        let (requests, sent) = mpsc::channel(8);
        let responses = client.watch.clone().watch(ReceiverStream::new(sent)).await.unwrap().into_inner();
        Self { requests, responses }
    }

    async fn send(&self, request: RequestUnion) {
        self.requests.send(WatchRequest { request_union: Some(request) }).await.unwrap();
    }

    async fn next(&mut self) -> WatchResponse {
        timeout(Duration::from_secs(10), self.responses.message()).await.unwrap().unwrap().unwrap()
    }

    async fn create(&mut self, request: WatchCreateRequest) -> WatchResponse {
        self.send(RequestUnion::CreateRequest(request)).await;
        self.next().await
    }
}

fn prefix(key: &'static str, end: &'static str) -> WatchCreateRequest {
    WatchCreateRequest { key: key.into(), range_end: end.into(), ..WatchCreateRequest::default() }
}

#[tokio::test]
async fn streamed_range_equals_range_and_ends_with_the_header() {
    let mut client = client(Options::default()).await;
    for n in 0..30 {
        put(&mut client, &format!("k{n:02}"), "v").await;
    }
    let everything = RangeRequest { key: "k".into(), range_end: "l".into(), ..RangeRequest::default() };
    for limit in [0, 7] {
        let request = RangeRequest { limit, ..everything.clone() };
        let whole = client.kv.range(request.clone()).await.unwrap().into_inner();
        let mut stream = client.kv.range_stream(request).await.unwrap().into_inner();
        let (mut kvs, mut last) = (Vec::new(), None);
        while let Some(piece) = stream.message().await.unwrap() {
            assert!(last.is_none(), "the response with the header is the last");
            let piece = piece.range_response.unwrap();
            kvs.extend(piece.kvs);
            last = piece.header.map(|header| (header.revision, piece.count, piece.more));
        }
        assert_eq!(kvs, whole.kvs);
        assert_eq!(last, Some((whole.header.unwrap().revision, whole.count, whole.more)));
    }
    let sorted = RangeRequest { sort_order: 2, ..everything };
    let refused = client.kv.range_stream(sorted).await.map(drop).unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented);
}

#[tokio::test]
async fn unknown_sort_target_is_invalid() {
    let mut client = client(Options::default()).await;
    let unknown = RangeRequest { key: "k".into(), sort_target: 9, ..RangeRequest::default() };
    let refused = client.kv.range(unknown).await.unwrap_err();
    assert_eq!(
        (refused.code(), refused.message()),
        (Code::InvalidArgument, "etcdserver: invalid sort option")
    );
}

#[tokio::test]
async fn watches_share_a_stream_and_a_cancelled_one_sends_nothing_more() {
    let mut client = client(Options::default()).await;
    let mut watch = Watch::open(&client).await;
    let first = watch.create(prefix("a", "b")).await;
    let chosen = watch.create(WatchCreateRequest { watch_id: 42, ..prefix("a", "c") }).await;
    let twice = watch.create(WatchCreateRequest { watch_id: 42, ..prefix("a", "c") }).await;
    assert_eq!((first.watch_id, chosen.watch_id, twice.watch_id), (0, 42, -1));
    assert!(twice.canceled && twice.cancel_reason.contains("duplicate watch ID"));
    put(&mut client, "a1", "x").await;
    let mut ids = [watch.next().await.watch_id, watch.next().await.watch_id];
    ids.sort_unstable();
    assert_eq!(ids, [0, 42]);
    watch.send(RequestUnion::CancelRequest(WatchCancelRequest { watch_id: 0 })).await;
    let canceled = watch.next().await;
    assert!(canceled.canceled && canceled.watch_id == 0);
    let revision = put(&mut client, "a2", "x").await;
    assert_eq!(watch.next().await.watch_id, 42);
    watch.send(RequestUnion::ProgressRequest(WatchProgressRequest {})).await;
    let progress = watch.next().await;
    assert_eq!((progress.watch_id, progress.header.unwrap().revision), (-1, revision));
    assert!(progress.events.is_empty());
}

#[tokio::test]
async fn idle_watch_with_progress_notify_gets_progress() {
    let options = Options { progress_interval: Duration::from_millis(100), ..Options::default() };
    let mut client = client(options).await;
    let mut watch = Watch::open(&client).await;
    watch.create(WatchCreateRequest { progress_notify: true, ..prefix("a", "b") }).await;
    let revision = put(&mut client, "elsewhere", "x").await;
    loop {
        let response = watch.next().await;
        assert!(response.events.is_empty() && response.watch_id == 0);
        let reached = response.header.unwrap().revision;
        assert!(reached >= 1, "progress is never 0");
        if reached == revision {
            break;
        }
    }
}

#[tokio::test]
async fn large_response_is_fragmented_only_on_request() {
    let options = Options { max_request_bytes: 20_000, ..Options::default() };
    let mut client = client(options).await;
    for n in 0..8 {
        put(&mut client, &format!("a{n}"), &"x".repeat(9000)).await;
    }
    for fragment in [false, true] {
        let mut watch = Watch::open(&client).await;
        watch.create(WatchCreateRequest { fragment, start_revision: 2, ..prefix("a", "b") }).await;
        let (mut events, mut fragments) = (0, 0);
        while events < 8 {
            let response = watch.next().await;
            events += response.events.len();
            fragments += usize::from(response.fragment);
        }
        assert_eq!((events, fragments > 0), (8, fragment));
    }
}

/// etcd reads the previous version at the revision before the event, which is compacted.
#[tokio::test]
async fn prev_kv_of_an_event_at_the_compacted_revision_is_absent() {
    let mut client = client(Options::default()).await;
    for value in ["1", "2"] {
        put(&mut client, "a", value).await;
    }
    let compacted = put(&mut client, "a", "3").await;
    let request = CompactionRequest { revision: compacted, physical: true };
    client.kv.compact(request).await.unwrap();
    put(&mut client, "a", "4").await;
    let mut watch = Watch::open(&client).await;
    let create = WatchCreateRequest { prev_kv: true, start_revision: compacted, ..prefix("a", "b") };
    assert!(watch.create(create).await.created);
    let mut previous = Vec::new();
    while previous.len() < 2 {
        let events = watch.next().await.events;
        previous.extend(events.into_iter().map(|event| event.prev_kv.map(|kv| kv.value)));
    }
    assert_eq!(previous, [None, Some("3".into())]);
}
