//! Compares the events of the same watches on both sides.

use std::time::Duration;

use orlop_etcd::{
    Client,
    pb::{
        etcdserverpb::{
            WatchCreateRequest, WatchProgressRequest, WatchRequest, WatchResponse,
            watch_request::RequestUnion,
        },
        mvccpb::Event,
    },
};
use tokio::{sync::mpsc, time::timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use super::compare::Sides;

/// Interval of progress requests: etcd drops them while a watch catches up.
const PROGRESS_RETRY: Duration = Duration::from_millis(100);
const TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Default)]
pub(crate) struct Watches {
    pairs: Vec<(WatchCreateRequest, One, One)>,
}

struct One {
    requests: mpsc::Sender<WatchRequest>,
    responses: Streaming<WatchResponse>,
    received: Received,
    /// Start revision, and the store's revision at creation.
    start: i64,
    created_at: i64,
}

/// The compared result of a watch.
#[derive(Debug, Default, PartialEq)]
struct Received {
    id: i64,
    created: bool,
    canceled: bool,
    cancel_reason: String,
    compact_revision: i64,
    events: Vec<Event>,
}

impl Watches {
    /// Opens a watch on both sides and waits until it has caught up, so that later compactions do not affect it.
    pub(crate) async fn open(&mut self, sides: &mut Sides, request: WatchCreateRequest) {
        sides.log.push(format!("{request:?}"));
        let theirs = One::open(&sides.etcd, request.clone()).await;
        let ours = One::open(&sides.orlop, request.clone()).await;
        sides.same(&format!("{request:?}"), &theirs.received, &ours.received);
        self.pairs.push((request, theirs, ours));
    }

    /// Waits until every watch has caught up, and compares their events.
    pub(crate) async fn compare(&mut self, sides: &mut Sides, revision: i64) {
        for (request, theirs, ours) in &mut self.pairs {
            theirs.catch_up(revision).await;
            ours.catch_up(revision).await;
            sides.same(&format!("events of {request:?}"), &theirs.received, &ours.received);
        }
    }
}

impl One {
    async fn open(client: &Client, request: WatchCreateRequest) -> Self {
        let (requests, sent) = mpsc::channel(4);
        let start = request.start_revision;
        requests.send(union(RequestUnion::CreateRequest(request))).await.unwrap();
        let responses = client.watch.clone().watch(ReceiverStream::new(sent)).await.unwrap().into_inner();
        let mut one = Self { requests, responses, received: Received::default(), start, created_at: 0 };
        while !one.received.created {
            let response = timeout(TIMEOUT, one.responses.message()).await.unwrap().unwrap().unwrap();
            one.created_at = response.header.map_or(0, |header| header.revision);
            one.take(response);
        }
        one.catch_up(0).await;
        one
    }

    /// Reads until all events up to a revision were received, or the watch was cancelled.
    async fn catch_up(&mut self, revision: i64) {
        let caught_up = async {
            let mut reached = -1;
            while reached < revision && !self.received.canceled {
                self.requests
                    .send(union(RequestUnion::ProgressRequest(WatchProgressRequest {})))
                    .await
                    .unwrap();
                while let Ok(response) = timeout(PROGRESS_RETRY, self.responses.message()).await {
                    let progress = self.take(response.unwrap().unwrap());
                    reached = reached.max(progress.unwrap_or(-1));
                    if reached >= revision || self.received.canceled {
                        break;
                    }
                }
                // A watch that starts in the future has neither progress nor events.
                if reached < revision && self.start > self.created_at.max(revision) {
                    break;
                }
            }
        };
        timeout(TIMEOUT, caught_up).await.expect("a watch catches up");
    }

    /// Records a response. Returns the revision of a progress response.
    fn take(&mut self, response: WatchResponse) -> Option<i64> {
        let header = response.header.expect("a header");
        let Received { id, created, canceled, cancel_reason, compact_revision, events } = &mut self.received;
        if response.watch_id == -1 && !response.canceled {
            return Some(header.revision);
        }
        *id = response.watch_id;
        *created |= response.created;
        *canceled |= response.canceled;
        cancel_reason.push_str(&response.cancel_reason);
        *compact_revision = response.compact_revision.max(*compact_revision);
        events.extend(response.events);
        None
    }
}

fn union(request: RequestUnion) -> WatchRequest {
    WatchRequest { request_union: Some(request) }
}
