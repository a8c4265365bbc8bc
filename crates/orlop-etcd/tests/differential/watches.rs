//! The same watches on both sides, and what they brought.

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

/// How long to wait for progress before asking for it again: etcd gives none while it is catching up.
const AGAIN: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Default)]
pub(crate) struct Watches {
    pairs: Vec<(WatchCreateRequest, One, One)>,
}

struct One {
    requests: mpsc::Sender<WatchRequest>,
    responses: Streaming<WatchResponse>,
    brought: Brought,
    /// Where it starts, and the revision when it was created.
    start: i64,
    created_at: i64,
}

/// What a watch has brought, as it is compared.
#[derive(Debug, Default, PartialEq)]
struct Brought {
    id: i64,
    created: bool,
    canceled: bool,
    cancel_reason: String,
    compact_revision: i64,
    events: Vec<Event>,
}

impl Watches {
    /// Opens a watch on both sides and lets it catch up, so that what is compacted next is behind it.
    pub(crate) async fn open(&mut self, sides: &mut Sides, request: WatchCreateRequest) {
        sides.log.push(format!("{request:?}"));
        let theirs = One::open(&sides.etcd, request.clone()).await;
        let ours = One::open(&sides.orlop, request.clone()).await;
        sides.same(&format!("{request:?}"), &theirs.brought, &ours.brought);
        self.pairs.push((request, theirs, ours));
    }

    /// Lets every watch catch up with the newest revision, and compares what they brought.
    pub(crate) async fn compare(&mut self, sides: &mut Sides, revision: i64) {
        for (request, theirs, ours) in &mut self.pairs {
            theirs.catch_up(revision).await;
            ours.catch_up(revision).await;
            sides.same(&format!("events of {request:?}"), &theirs.brought, &ours.brought);
        }
    }
}

impl One {
    async fn open(client: &Client, request: WatchCreateRequest) -> Self {
        let (requests, sent) = mpsc::channel(4);
        let start = request.start_revision;
        requests.send(union(RequestUnion::CreateRequest(request))).await.unwrap();
        let responses = client.watch.clone().watch(ReceiverStream::new(sent)).await.unwrap().into_inner();
        let mut one = Self { requests, responses, brought: Brought::default(), start, created_at: 0 };
        while !one.brought.created {
            let response = timeout(PATIENCE, one.responses.message()).await.unwrap().unwrap().unwrap();
            one.created_at = response.header.map_or(0, |header| header.revision);
            one.take(response);
        }
        one.catch_up(0).await;
        one
    }

    /// Reads until everything up to a revision has come, or the watch is over.
    async fn catch_up(&mut self, revision: i64) {
        let caught_up = async {
            let mut reached = -1;
            while reached < revision && !self.brought.canceled {
                self.requests
                    .send(union(RequestUnion::ProgressRequest(WatchProgressRequest {})))
                    .await
                    .unwrap();
                while let Ok(response) = timeout(AGAIN, self.responses.message()).await {
                    let progress = self.take(response.unwrap().unwrap());
                    reached = reached.max(progress.unwrap_or(-1));
                    if reached >= revision || self.brought.canceled {
                        break;
                    }
                }
                // A watch of the future has no progress before its time, and nothing to bring either.
                if reached < revision && self.start > self.created_at.max(revision) {
                    break;
                }
            }
        };
        timeout(PATIENCE, caught_up).await.expect("a watch catches up");
    }

    /// Takes a response in; the revision of one that tells progress.
    fn take(&mut self, response: WatchResponse) -> Option<i64> {
        let header = response.header.expect("a header");
        let Brought { id, created, canceled, cancel_reason, compact_revision, events } = &mut self.brought;
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
