//! The task of one watch: converts the store's events to responses.

use std::{sync::Arc, time::Duration};

use futures_util::FutureExt;
use orlop_store::{Error, Revision, WatchBatch, Watcher};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, MissedTickBehavior, interval_at},
};
use tonic::Status;

use super::fragment;
use crate::{convert::event, errors::status, node::Node, pb::etcdserverpb::WatchResponse};

/// Sender of a stream's responses. An error ends the stream.
pub(super) type Responses = mpsc::Sender<Result<WatchResponse, Status>>;

/// Events coalesced into one response while a watch catches up. The events of one revision are never split, so that a
/// response may exceed this.
const COALESCE_EVENTS: usize = 256;
const COALESCE_BYTES: usize = 64 << 10;

/// A barrier: the session aligns all watches of its stream at one revision.
pub(super) struct Barrier {
    /// Receives the newest revision that the watch has delivered.
    pub(super) delivered: oneshot::Sender<Revision>,
    /// The revision to deliver up to, and not past.
    pub(super) target: oneshot::Receiver<Revision>,
    /// Receives a message once the watch has delivered up to the target.
    pub(super) reached: oneshot::Sender<()>,
    /// The watch pauses until its sender is dropped.
    pub(super) release: oneshot::Receiver<()>,
}

/// A running watch.
pub(super) struct WatchTask {
    pub(super) node: Arc<Node>,
    pub(super) responses: Responses,
    pub(super) id: i64,
    pub(super) watcher: Watcher,
    pub(super) puts: bool,
    pub(super) deletes: bool,
    /// Sends `prev_kv`.
    pub(super) prev_kv: bool,
    /// Compacted revision when the watch was created. The version before an event at or below it is gone in etcd.
    pub(super) compacted: Revision,
    pub(super) fragment: bool,
    pub(super) progress_notify: bool,
    /// Newest revision delivered.
    pub(super) delivered: Revision,
    /// Received from the watcher, not delivered yet.
    pub(super) pending: Option<WatchBatch>,
}

/// The end of a watch.
enum WatchEnd {
    /// The client disconnected.
    Disconnected,
    Store(Error),
}

impl From<Error> for WatchEnd {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

impl WatchTask {
    pub(super) async fn run(mut self, mut barriers: mpsc::Receiver<Barrier>) {
        match self.serve(&mut barriers).await {
            WatchEnd::Disconnected => {}
            WatchEnd::Store(Error::Expired { compacted: oldest }) => {
                let now = self.node.store.revision().await.unwrap_or(oldest);
                let response = WatchResponse {
                    header: self.node.header(now),
                    watch_id: self.id,
                    ..WatchResponse::default()
                };
                let _ = self.responses.send(Ok(compacted(response, oldest))).await;
            }
            // Ends the stream: the client resumes each watch from the last revision it received.
            WatchEnd::Store(error) => {
                let _ = self.responses.send(Err(status(error))).await;
            }
        }
    }

    async fn serve(&mut self, barriers: &mut mpsc::Receiver<Barrier>) -> WatchEnd {
        let every = self.node.options.progress_interval.max(Duration::from_millis(100));
        let mut ticks = interval_at(Instant::now() + every, every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut idle = true;
        loop {
            let done = tokio::select! {
                biased;
                barrier = barriers.recv() => match barrier {
                    Some(barrier) => self.align(barrier).await,
                    None => Err(WatchEnd::Disconnected),
                },
                _ = ticks.tick(), if self.progress_notify => {
                    let sent = if idle { self.send_progress().await } else { Ok(()) };
                    idle = true;
                    sent
                }
                batch = next(&mut self.pending, &mut self.watcher) => match batch {
                    Ok(batch) => {
                        idle = false;
                        self.deliver(batch, Revision::MAX).await
                    }
                    Err(error) => Err(error.into()),
                },
            };
            if let Err(end) = done {
                return end;
            }
        }
    }

    /// Delivers a revision together with those after it that are available, up to and including `until`.
    async fn deliver(&mut self, first: WatchBatch, until: Revision) -> Result<(), WatchEnd> {
        let (mut events, mut bytes) = (Vec::new(), 0);
        let mut batch = Some(first);
        while let Some(next) = batch {
            self.delivered = next.revision();
            for seen in next.events() {
                if if seen.event.deleted { self.deletes } else { self.puts } {
                    bytes += seen.event.kv.key.len() + seen.event.kv.value.len() + 32;
                    let prev_kv = self.prev_kv && seen.event.kv.revision > self.compacted;
                    events.push(event(seen.event, prev_kv));
                }
            }
            if events.len() >= COALESCE_EVENTS || bytes >= COALESCE_BYTES {
                break;
            }
            batch = self.watcher.next().now_or_never().transpose()?;
            if batch.as_ref().is_some_and(|batch| batch.revision() > until) {
                self.pending = batch.take();
            }
        }
        if events.is_empty() {
            return Ok(());
        }
        let response = WatchResponse { events, ..self.response(self.delivered) };
        if !self.fragment {
            return self.send(response).await;
        }
        for part in fragment::split(response, self.node.options.max_request_bytes) {
            self.send(part).await?;
        }
        Ok(())
    }

    /// Sends a progress notification.
    async fn send_progress(&mut self) -> Result<(), WatchEnd> {
        if self.pending.is_some() {
            return Ok(());
        }
        let response = self.response(self.watcher.progress());
        self.send(response).await
    }

    /// Delivers up to the barrier's revision, and waits there until it is released.
    async fn align(&mut self, barrier: Barrier) -> Result<(), WatchEnd> {
        let _ = barrier.delivered.send(self.delivered);
        // An error means that the session ended, and with it this watch.
        let Ok(target) = barrier.target.await else { return Ok(()) };
        loop {
            let batch = match self.pending.take() {
                Some(batch) => batch,
                None => match self.watcher.next_up_to(target).await? {
                    Some(batch) => batch,
                    None => break,
                },
            };
            if batch.revision() > target {
                self.pending = Some(batch);
                break;
            }
            self.deliver(batch, target).await?;
        }
        let _ = barrier.reached.send(());
        let _ = barrier.release.await;
        Ok(())
    }

    fn response(&self, revision: Revision) -> WatchResponse {
        WatchResponse { header: self.node.header(revision), watch_id: self.id, ..WatchResponse::default() }
    }

    async fn send(&self, response: WatchResponse) -> Result<(), WatchEnd> {
        self.responses.send(Ok(response)).await.map_err(|_| WatchEnd::Disconnected)
    }
}

/// Returns the pending batch, or the watcher's next.
async fn next(pending: &mut Option<WatchBatch>, watcher: &mut Watcher) -> orlop_store::Result<WatchBatch> {
    match pending.take() {
        Some(batch) => Ok(batch),
        None => watcher.next().await,
    }
}

/// Cancels a watch whose start revision is compacted.
pub(super) fn compacted(response: WatchResponse, compact_revision: Revision) -> WatchResponse {
    WatchResponse { canceled: true, compact_revision, ..response }
}
