//! The session of a stream: creates and cancels watches, and reports progress.

use std::{collections::HashMap, sync::Arc};

use orlop_store::{Error, Revision, Store, Watch};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
};
use tonic::Streaming;

use super::task::{Barrier, Responses, WatchTask};
use crate::{
    convert::key_range,
    errors::{COMPACTED, status},
    node::Node,
    pb::etcdserverpb::{
        WatchCreateRequest, WatchRequest, WatchResponse, watch_create_request::FilterType,
        watch_request::RequestUnion,
    },
};

/// Watch id of responses that concern no watch, or all of them.
const NO_WATCH: i64 = -1;

/// The watches of one stream.
pub(super) struct Session {
    node: Arc<Node>,
    responses: Responses,
    watches: HashMap<i64, Running>,
    next_id: i64,
}

/// A watch's task, which is aborted on drop.
struct Running {
    task: JoinHandle<()>,
    barriers: mpsc::Sender<Barrier>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Session {
    pub(super) fn new(node: Arc<Node>, responses: Responses) -> Self {
        Self { node, responses, watches: HashMap::new(), next_id: 0 }
    }

    /// Serves the stream until the client disconnects. Closing the request side keeps the watches.
    pub(super) async fn run(mut self, mut requests: Streaming<WatchRequest>) {
        let responses = self.responses.clone();
        let served = async {
            while let Ok(Some(request)) = requests.message().await {
                match self.handle(request).await {
                    Ok(()) => {}
                    Err(SessionError::Disconnected) => return,
                    Err(SessionError::Store(error)) => {
                        let _ = self.responses.send(Err(status(error))).await;
                        return;
                    }
                }
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = served => {}
            () = responses.closed() => {}
        }
    }

    async fn handle(&mut self, request: WatchRequest) -> Result<(), SessionError> {
        match request.request_union {
            Some(RequestUnion::CreateRequest(create)) => self.create(create).await,
            Some(RequestUnion::CancelRequest(cancel)) => self.cancel(cancel.watch_id).await,
            Some(RequestUnion::ProgressRequest(_)) => self.progress().await,
            None => Ok(()),
        }
    }

    async fn create(&mut self, request: WatchCreateRequest) -> Result<(), SessionError> {
        let now = self.node.store.revision().await?;
        let (id, range) = match self.validate(&request) {
            Ok(validated) => validated,
            Err(reason) => return self.reject(now, reason).await,
        };
        // Without a start revision the watch begins after the one in the header.
        let after = if request.start_revision == 0 { now } else { request.start_revision - 1 };
        // An event at the compacted revision itself is still readable, the version before it is not.
        let compacted = if request.prev_kv && request.start_revision > 0 {
            self.node.store.compacted().await?
        } else {
            0
        };
        let opened = open(&self.node.store, range, after, request.prev_kv).await;
        self.send(WatchResponse { created: true, ..self.response(id, now) }).await?;
        let watcher = match opened {
            Ok(watcher) => watcher,
            Err(Error::Expired { compacted }) => {
                let response = self.response(id, now);
                return self.send(super::task::compacted(response, compacted)).await;
            }
            Err(error) => return Err(error.into()),
        };
        let (barriers, received) = mpsc::channel(1);
        let task = WatchTask {
            node: self.node.clone(),
            responses: self.responses.clone(),
            id,
            watcher,
            puts: !request.filters.contains(&(FilterType::Noput as i32)),
            deletes: !request.filters.contains(&(FilterType::Nodelete as i32)),
            prev_kv: request.prev_kv,
            compacted,
            fragment: request.fragment,
            progress_notify: request.progress_notify,
            delivered: now.min(after),
            pending: None,
        };
        self.watches.insert(id, Running { task: tokio::spawn(task.run(received)), barriers });
        Ok(())
    }

    /// Validates a create request. Returns the watch's id and range, or the reason of the rejection.
    fn validate(&mut self, request: &WatchCreateRequest) -> Result<(i64, orlop_store::KeyRange), String> {
        if request.start_revision < 0 {
            return Err(COMPACTED.1.into());
        }
        if self.watches.len() >= self.node.options.max_watches {
            return Err(format!("orlop: too many watches on one stream: {}", self.watches.len()));
        }
        let key = if request.key.is_empty() { vec![0].into() } else { request.key.clone() };
        let range = key_range(&key, &request.range_end);
        if range.is_empty() {
            return Err("mvcc: watcher range is empty".into());
        }
        let id = match request.watch_id {
            0 => {
                while self.watches.contains_key(&self.next_id) {
                    self.next_id += 1;
                }
                self.next_id += 1;
                self.next_id - 1
            }
            chosen if self.watches.contains_key(&chosen) => {
                return Err("mvcc: duplicate watch ID provided on the WatchStream".into());
            }
            chosen => chosen,
        };
        Ok((id, range))
    }

    async fn reject(&mut self, now: Revision, cancel_reason: String) -> Result<(), SessionError> {
        let response = self.response(NO_WATCH, now);
        self.send(WatchResponse { created: true, canceled: true, cancel_reason, ..response }).await
    }

    /// Cancels a watch. No event of it follows the response. An unknown id gets no response, as in etcd.
    async fn cancel(&mut self, id: i64) -> Result<(), SessionError> {
        let Some(mut running) = self.watches.remove(&id) else { return Ok(()) };
        running.task.abort();
        // Once the task has ended it sends nothing more.
        let _ = (&mut running.task).await;
        let now = self.node.store.revision().await?;
        self.send(WatchResponse { canceled: true, ..self.response(id, now) }).await
    }

    /// Reports progress: one revision at which every watch of the stream has delivered all events up to it and none after
    /// it.
    async fn progress(&mut self) -> Result<(), SessionError> {
        let (mut delivered, mut targets, mut reached, mut releases) = (0, Vec::new(), Vec::new(), Vec::new());
        for watch in self.watches.values() {
            let ((barrier, ends), delivered_of) = Barrier::new();
            // A watch that has ended sends nothing more.
            if watch.barriers.send(barrier).await.is_ok()
                && let Ok(newest) = delivered_of.await
            {
                delivered = newest.max(delivered);
                targets.push(ends.target);
                reached.push(ends.reached);
                releases.push(ends.release);
            }
        }
        if targets.is_empty() {
            return Ok(());
        }
        let target = self.node.store.revision().await?.max(delivered);
        for send in targets {
            let _ = send.send(target);
        }
        for reached in reached {
            let _ = reached.await;
        }
        let response = self.response(NO_WATCH, target);
        self.send(response).await?;
        drop(releases);
        Ok(())
    }

    fn response(&self, watch_id: i64, revision: Revision) -> WatchResponse {
        WatchResponse { header: self.node.header(revision), watch_id, ..WatchResponse::default() }
    }

    async fn send(&mut self, response: WatchResponse) -> Result<(), SessionError> {
        self.responses.send(Ok(response)).await.map_err(|_| SessionError::Disconnected)
    }
}

/// The end of a session.
enum SessionError {
    /// The client disconnected.
    Disconnected,
    Store(Error),
}

impl From<Error> for SessionError {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

async fn open(
    store: &Store,
    range: orlop_store::KeyRange,
    after: Revision,
    previous: bool,
) -> orlop_store::Result<orlop_store::Watcher> {
    let watch = Watch::new(range).after(after);
    store.watch(if previous { watch.previous() } else { watch }).await
}

impl Barrier {
    /// Returns a barrier, the session's ends of it, and the receiver of the revision delivered so far.
    fn new() -> ((Self, BarrierEnds), oneshot::Receiver<Revision>) {
        let (delivered, delivered_of) = oneshot::channel();
        let (target, targeted) = oneshot::channel();
        let (reaching, reached) = oneshot::channel();
        let (release, released) = oneshot::channel();
        let barrier = Self { delivered, target: targeted, reached: reaching, release: released };
        ((barrier, BarrierEnds { target, reached, release }), delivered_of)
    }
}

/// The session's ends of a [`Barrier`].
struct BarrierEnds {
    target: oneshot::Sender<Revision>,
    reached: oneshot::Receiver<()>,
    release: oneshot::Sender<()>,
}
