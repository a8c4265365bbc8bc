//! Follows the objects below a prefix of the store: all that there are, then every change, in order.

use std::{sync::Arc, time::Duration};

use orlop_api::status::Status;
use orlop_store::{Error, KeyRange, KeyValue, Read, Revision, Watch, WatchBatch, Watcher};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot, watch};

use super::{ObjectStore, status_from_store_error};
use crate::registry::Found;

/// Pause before objects are listed again after an error.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// Callers that may wait for a follower at a time; more wait for a place.
const WAITING_MAX: usize = 64;

/// Receives objects and their changes.
pub(crate) trait Sink: Send + 'static {
    /// Begins anew: all objects follow.
    fn reset(&mut self);

    /// Takes an object, by its key after the prefix; `None` if it was removed.
    fn apply(&mut self, key: &str, object: Option<&Value>);

    /// Notes that everything up to a revision has been applied.
    fn publish(&mut self, revision: Revision);
}

/// A handle of a sink that is kept up to date.
#[derive(Clone, Debug)]
pub(crate) struct Follower(mpsc::Sender<(Revision, oneshot::Sender<()>)>);

impl Follower {
    /// Applies all objects below a prefix to a sink, and every change of them until the server closes.
    pub(crate) async fn start(
        objects: &Arc<ObjectStore>,
        prefix: String,
        mut closing: watch::Receiver<bool>,
        sink: impl Sink,
    ) -> Result<Self, Status> {
        let (sender, waiting) = mpsc::channel(WAITING_MAX);
        let mut following = Following { objects: objects.clone(), prefix, sink };
        let watcher = following.list().await?;
        tokio::spawn(async move {
            tokio::select! {
                () = following.run(watcher, waiting) => {}
                // An error means that the cluster was dropped.
                _ = closing.wait_for(|closing| *closing) => {}
            }
        });
        Ok(Self(sender))
    }

    /// Waits until everything up to a revision has been applied, or the server closes.
    pub(crate) async fn catch_up(&self, revision: Revision) {
        let (sender, reached) = oneshot::channel();
        if self.0.send((revision, sender)).await.is_ok() {
            let _ = reached.await;
        }
    }
}

struct Following<S> {
    objects: Arc<ObjectStore>,
    prefix: String,
    sink: S,
}

impl<S: Sink> Following<S> {
    async fn run(
        &mut self,
        mut watcher: Watcher,
        mut waiting: mpsc::Receiver<(Revision, oneshot::Sender<()>)>,
    ) {
        loop {
            let ended = tokio::select! {
                batch = watcher.next() => batch.map(|batch| self.take(&batch)),
                Some((revision, done)) = waiting.recv() => {
                    self.take_up_to(&mut watcher, revision).await.map(|()| {
                        let _ = done.send(());
                    })
                }
            };
            if let Err(error) = ended {
                tracing::warn!(%error, prefix = self.prefix, "watch failed, listing again");
                watcher = loop {
                    match self.list().await {
                        Ok(watcher) => break watcher,
                        Err(status) => {
                            tracing::warn!(message = status.message, prefix = self.prefix, "cannot list");
                        }
                    }
                    tokio::time::sleep(RETRY_PAUSE).await;
                };
            }
        }
    }

    async fn take_up_to(&mut self, watcher: &mut Watcher, revision: Revision) -> Result<(), Error> {
        while let Some(batch) = watcher.next_up_to(revision).await? {
            self.take(&batch);
        }
        Ok(())
    }

    fn take(&mut self, batch: &WatchBatch) {
        for seen in batch.events() {
            self.apply(&seen.event.kv, seen.event.deleted);
        }
        self.sink.publish(batch.revision());
    }

    /// Applies all objects. Returns a watch from that revision on.
    async fn list(&mut self) -> Result<Watcher, Status> {
        let status = |error| status_from_store_error(&error);
        let all = KeyRange::prefix(self.prefix.clone());
        let store = self.objects.store.clone();
        let mut pages = store.pages(Read::new(all.clone())).map_err(status)?;
        let mut revision = None;
        self.sink.reset();
        while let Some(page) = pages.next().await.map_err(status)? {
            revision.get_or_insert(page.revision);
            page.kvs.iter().for_each(|kv| self.apply(kv, false));
        }
        let revision = match revision {
            Some(revision) => revision,
            None => store.revision().await.map_err(status)?,
        };
        let watcher = store.watch(Watch::new(all).after(revision)).await.map_err(status)?;
        self.sink.publish(revision);
        Ok(watcher)
    }

    fn apply(&mut self, kv: &KeyValue, deleted: bool) {
        let key = String::from_utf8_lossy(&kv.key);
        let Some(rest) = key.strip_prefix(&self.prefix) else { return };
        // Only another program can have written an unreadable object: it is as good as absent.
        let object = (!deleted).then(|| Found::from(kv.clone()).as_stored()).and_then(|read| {
            read.inspect_err(|status| tracing::warn!(%key, message = status.message, "cannot read")).ok()
        });
        self.sink.apply(rest, object.as_ref());
    }
}
