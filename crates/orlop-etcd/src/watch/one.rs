//! One watch: from the store's watcher to responses.

use std::{sync::Arc, time::Duration};

use futures_util::FutureExt;
use orlop_store::{Error, Revision, WatchBatch, Watcher};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, MissedTickBehavior, interval_at},
};

use super::{Responses, fragment};
use crate::{convert::event, errors::status, node::Node, pb::etcdserverpb::WatchResponse};

/// What one response gathers of a watch that is behind, if it does not have to hold more: a revision's
/// events are never split.
const GATHER_EVENTS: usize = 256;
const GATHER_BYTES: usize = 64 << 10;

/// The session asks a watch to stop at a revision together with the others of its stream.
pub(super) struct LineUp {
    /// Told first: the newest revision the watch has delivered.
    pub(super) newest: oneshot::Sender<Revision>,
    /// Then comes the revision to go on to, and not past it.
    pub(super) target: oneshot::Receiver<Revision>,
    /// Told when the watch is there.
    pub(super) reached: oneshot::Sender<()>,
    /// Until this is dropped the watch stands still.
    pub(super) release: oneshot::Receiver<()>,
}

pub(super) struct One {
    pub(super) node: Arc<Node>,
    pub(super) responses: Responses,
    pub(super) id: i64,
    pub(super) watcher: Watcher,
    pub(super) puts: bool,
    pub(super) deletes: bool,
    pub(super) previous: bool,
    pub(super) fragment: bool,
    pub(super) progress_notify: bool,
    /// Nothing after this revision has been delivered.
    pub(super) newest: Revision,
    /// Taken from the watcher, not delivered yet.
    pub(super) held: Option<WatchBatch>,
}

/// Why a watch is over.
enum Over {
    /// The client has gone away.
    Gone,
    Store(Error),
}

impl From<Error> for Over {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

impl One {
    pub(super) async fn run(mut self, mut line_ups: mpsc::Receiver<LineUp>) {
        match self.serve(&mut line_ups).await {
            Over::Gone => {}
            Over::Store(Error::Expired { compacted: oldest }) => {
                let now = self.node.store.revision().await.unwrap_or(oldest);
                let response = WatchResponse {
                    header: self.node.header(now),
                    watch_id: self.id,
                    ..WatchResponse::default()
                };
                let _ = self.responses.send(Ok(compacted(response, oldest))).await;
            }
            // The client cannot know what this watch has missed: the stream ends, and it resumes.
            Over::Store(error) => {
                let _ = self.responses.send(Err(status(error))).await;
            }
        }
    }

    async fn serve(&mut self, line_ups: &mut mpsc::Receiver<LineUp>) -> Over {
        let every = self.node.options.progress_interval.max(Duration::from_millis(100));
        let mut ticks = interval_at(Instant::now() + every, every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut idle = true;
        loop {
            let done = tokio::select! {
                biased;
                line_up = line_ups.recv() => match line_up {
                    Some(line_up) => self.line_up(line_up).await,
                    None => Err(Over::Gone),
                },
                _ = ticks.tick(), if self.progress_notify => {
                    let told = if idle { self.notify().await } else { Ok(()) };
                    idle = true;
                    told
                }
                batch = next(&mut self.held, &mut self.watcher) => match batch {
                    Ok(batch) => {
                        idle = false;
                        self.deliver(batch, Revision::MAX).await
                    }
                    Err(error) => Err(error.into()),
                },
            };
            if let Err(over) = done {
                return over;
            }
        }
    }

    /// Delivers a revision, and those after it that are there already, up to and with `until`.
    async fn deliver(&mut self, first: WatchBatch, until: Revision) -> Result<(), Over> {
        let (mut events, mut bytes) = (Vec::new(), 0);
        let mut batch = Some(first);
        while let Some(next) = batch {
            self.newest = next.revision();
            for seen in next.events() {
                if if seen.event.deleted { self.deletes } else { self.puts } {
                    bytes += seen.event.kv.key.len() + seen.event.kv.value.len() + 32;
                    events.push(event(seen.event, self.previous));
                }
            }
            if events.len() >= GATHER_EVENTS || bytes >= GATHER_BYTES {
                break;
            }
            batch = self.watcher.next().now_or_never().transpose()?;
            if batch.as_ref().is_some_and(|batch| batch.revision() > until) {
                self.held = batch.take();
            }
        }
        if events.is_empty() {
            return Ok(());
        }
        let response = WatchResponse { events, ..self.response(self.newest) };
        if !self.fragment {
            return self.send(response).await;
        }
        for part in fragment::split(response, self.node.options.max_request_bytes) {
            self.send(part).await?;
        }
        Ok(())
    }

    /// Tells an idle watch how far history has come.
    async fn notify(&mut self) -> Result<(), Over> {
        if self.held.is_some() {
            return Ok(());
        }
        let response = self.response(self.watcher.progress());
        self.send(response).await
    }

    /// Goes on to a revision that the whole stream has agreed on, and waits there.
    async fn line_up(&mut self, line_up: LineUp) -> Result<(), Over> {
        let _ = line_up.newest.send(self.newest);
        // An error means that the session is gone, and this watch with it.
        let Ok(target) = line_up.target.await else { return Ok(()) };
        loop {
            let batch = match self.held.take() {
                Some(batch) => batch,
                None => match self.watcher.next_up_to(target).await? {
                    Some(batch) => batch,
                    None => break,
                },
            };
            if batch.revision() > target {
                self.held = Some(batch);
                break;
            }
            self.deliver(batch, target).await?;
        }
        let _ = line_up.reached.send(());
        let _ = line_up.release.await;
        Ok(())
    }

    fn response(&self, revision: Revision) -> WatchResponse {
        WatchResponse { header: self.node.header(revision), watch_id: self.id, ..WatchResponse::default() }
    }

    async fn send(&self, response: WatchResponse) -> Result<(), Over> {
        self.responses.send(Ok(response)).await.map_err(|_| Over::Gone)
    }
}

/// What is held back, else what the watcher brings next.
async fn next(held: &mut Option<WatchBatch>, watcher: &mut Watcher) -> orlop_store::Result<WatchBatch> {
    match held.take() {
        Some(batch) => Ok(batch),
        None => watcher.next().await,
    }
}

/// The end of a watch whose history is gone.
pub(super) fn compacted(response: WatchResponse, compact_revision: Revision) -> WatchResponse {
    WatchResponse { canceled: true, compact_revision, ..response }
}
