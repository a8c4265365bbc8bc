//! A stream's session: creates and cancels watches, and answers how far all of them have come.

use std::{collections::HashMap, sync::Arc};

use orlop_store::{Error, Revision, Store, Watch};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
};
use tonic::{Status, Streaming};

use super::{
    Responses,
    one::{LineUp, One},
};
use crate::{
    convert::key_range,
    errors::{COMPACTED, status},
    node::Node,
    pb::etcdserverpb::{
        WatchCreateRequest, WatchRequest, WatchResponse, watch_create_request::FilterType,
        watch_request::RequestUnion,
    },
};

/// The id in responses that concern no watch, or all.
const NO_WATCH: i64 = -1;

/// The client has gone away: there is nobody left to tell.
struct Gone;

pub(super) struct Session {
    node: Arc<Node>,
    responses: Responses,
    watches: HashMap<i64, Running>,
    next_id: i64,
}

struct Running {
    task: JoinHandle<()>,
    line_up: mpsc::Sender<LineUp>,
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

    /// Serves the stream until the client goes away. One that only stops asking keeps its watches.
    pub(super) async fn run(mut self, mut requests: Streaming<WatchRequest>) {
        let responses = self.responses.clone();
        let served = async {
            while let Ok(Some(request)) = requests.message().await {
                match self.request(request).await {
                    Ok(()) => {}
                    Err(Ok(Gone)) => return,
                    Err(Err(status)) => {
                        let _ = self.responses.send(Err(status)).await;
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

    async fn request(&mut self, request: WatchRequest) -> Result<(), Result<Gone, Status>> {
        let done = match request.request_union {
            Some(RequestUnion::CreateRequest(create)) => self.create(create).await,
            Some(RequestUnion::CancelRequest(cancel)) => self.cancel(cancel.watch_id).await,
            Some(RequestUnion::ProgressRequest(_)) => self.progress().await,
            None => Ok(()),
        };
        done.map_err(|failed| match failed {
            Failed::Gone => Ok(Gone),
            Failed::Store(error) => Err(status(error)),
        })
    }

    async fn create(&mut self, request: WatchCreateRequest) -> Result<(), Failed> {
        let now = self.node.store.revision().await?;
        let (id, range) = match self.admit(&request) {
            Ok(admitted) => admitted,
            Err(reason) => return self.refuse(now, reason).await,
        };
        // "From now on" begins after the revision that the client is told of.
        let after = if request.start_revision == 0 { now } else { request.start_revision - 1 };
        let opened = open(&self.node.store, range, after, request.prev_kv).await;
        self.send(WatchResponse { created: true, ..self.response(id, now) }).await?;
        let watcher = match opened {
            Ok(watcher) => watcher,
            Err(Error::Expired { compacted }) => {
                let response = self.response(id, now);
                return self.send(super::one::compacted(response, compacted)).await;
            }
            Err(error) => return Err(error.into()),
        };
        let (line_up, lined_up) = mpsc::channel(1);
        let one = One {
            node: self.node.clone(),
            responses: self.responses.clone(),
            id,
            watcher,
            puts: !request.filters.contains(&(FilterType::Noput as i32)),
            deletes: !request.filters.contains(&(FilterType::Nodelete as i32)),
            previous: request.prev_kv,
            fragment: request.fragment,
            progress_notify: request.progress_notify,
            newest: now.min(after),
            held: None,
        };
        self.watches.insert(id, Running { task: tokio::spawn(one.run(lined_up)), line_up });
        Ok(())
    }

    /// The id and range of a new watch, or why there is none.
    fn admit(&mut self, request: &WatchCreateRequest) -> Result<(i64, orlop_store::KeyRange), String> {
        if request.start_revision < 0 {
            return Err(COMPACTED.1.into());
        }
        if self.watches.len() >= self.node.options.max_watches {
            return Err(format!("orlop: {} watches on one stream", self.watches.len()));
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

    async fn refuse(&mut self, now: Revision, cancel_reason: String) -> Result<(), Failed> {
        let response = self.response(NO_WATCH, now);
        self.send(WatchResponse { created: true, canceled: true, cancel_reason, ..response }).await
    }

    /// Cancels a watch. Nothing of it follows the answer; one that there is not gets none.
    async fn cancel(&mut self, id: i64) -> Result<(), Failed> {
        let Some(mut running) = self.watches.remove(&id) else { return Ok(()) };
        running.task.abort();
        // It ends in being cut short, and then has no response on its way any more.
        let _ = (&mut running.task).await;
        let now = self.node.store.revision().await?;
        self.send(WatchResponse { canceled: true, ..self.response(id, now) }).await
    }

    /// Says how far all watches of the stream have come: to one and the same revision, with nothing before
    /// it still to come and nothing after it already there.
    async fn progress(&mut self) -> Result<(), Failed> {
        let (mut newest, mut targets, mut reached, mut releases) = (0, Vec::new(), Vec::new(), Vec::new());
        for watch in self.watches.values() {
            let ((line_up, ends), newest_of) = LineUp::new();
            // A watch that is over has nothing to come.
            if watch.line_up.send(line_up).await.is_ok()
                && let Ok(delivered) = newest_of.await
            {
                newest = delivered.max(newest);
                targets.push(ends.target);
                reached.push(ends.reached);
                releases.push(ends.release);
            }
        }
        if targets.is_empty() {
            return Ok(());
        }
        let target = self.node.store.revision().await?.max(newest);
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

    async fn send(&mut self, response: WatchResponse) -> Result<(), Failed> {
        self.responses.send(Ok(response)).await.map_err(|_| Failed::Gone)
    }
}

enum Failed {
    Gone,
    Store(Error),
}

impl From<Error> for Failed {
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

impl LineUp {
    /// A request to line up, the session's ends of it, and where the watch says what it has delivered.
    fn new() -> ((Self, Ends), oneshot::Receiver<Revision>) {
        let (newest, newest_of) = oneshot::channel();
        let (target, targeted) = oneshot::channel();
        let (reaching, reached) = oneshot::channel();
        let (release, released) = oneshot::channel();
        let line_up = Self { newest, target: targeted, reached: reaching, release: released };
        ((line_up, Ends { target, reached, release }), newest_of)
    }
}

struct Ends {
    target: oneshot::Sender<Revision>,
    reached: oneshot::Receiver<()>,
    release: oneshot::Sender<()>,
}
