//! Watch: initial events if requested, then every change, in order and without gaps.
//!
//! The stream pulls from the store's watcher as fast as the client reads. A client that falls behind catches up from
//! history; one that falls behind compaction gets `OUT_OF_RANGE`. No event is dropped.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{Stream, stream};
use orlop_api::labels::Selector;
use orlop_device_client::api::{ListOptions, ObjectMeta};
use orlop_store::{KeyRange, Pages, Read, Revision, Watch, WatchEvent, Watcher};
use prost::Message;
use serde_json::json;
use tokio::time::{Instant, MissedTickBehavior};
use tonic::Status;

use crate::{error::Error, object::Object, resource::Resource, selector, wire};

/// Marks the bookmark that follows the last of the initial events.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Start of a watch.
enum Start {
    /// Initial events for all objects.
    State,
    /// Changes from now on.
    Now,
    /// Changes after a revision.
    After(Revision),
}

impl Resource {
    /// Opens a watch.
    pub(crate) async fn watch(self: &Arc<Self>, request: wire::ListRequest) -> Result<WatchStream, Error> {
        let opts = request.opts.unwrap_or_default();
        let range = self.range(request.namespace.as_deref())?;
        let selector = selector::parse(opts.label_selector())?;
        let start = self.start(&opts)?;
        let timeout =
            match opts.timeout_seconds() {
                0 => None,
                seconds => Some(Duration::from_secs(u64::try_from(seconds).map_err(|_| {
                    Error::BadRequest(format!("timeoutSeconds {seconds} must not be negative"))
                })?)),
            };
        let phase = match start {
            Start::State => {
                self.wait_for(self.versions.parse(opts.resource_version())?).await?;
                let filter = selector::filter(&selector);
                Phase::Initial {
                    pages: self.store.pages(Read { filter, ..Read::new(range.clone()) })?,
                    revision: 0,
                }
            }
            Start::Now => Phase::Changes(self.watcher(&range, &selector, None).await?),
            Start::After(revision) => {
                self.wait_for(Some(revision)).await?;
                Phase::Changes(self.watcher(&range, &selector, Some(revision)).await?)
            }
        };
        let bookmarks = opts.allow_watch_bookmarks().then(|| {
            let period = self.bookmark_period;
            let mut interval = tokio::time::interval_at(Instant::now() + period, period);
            interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
            interval
        });
        Ok(WatchStream {
            resource: self.clone(),
            range,
            selector,
            phase,
            queue: VecDeque::new(),
            mark_initial_end: opts.send_initial_events(),
            bookmarks,
            // A deadline beyond the clock's range is none.
            deadline: timeout.and_then(|timeout| Instant::now().checked_add(timeout)),
            sent_revision: 0,
        })
    }

    fn start(&self, opts: &ListOptions) -> Result<Start, Error> {
        let version = self.versions.parse(opts.resource_version())?;
        match (opts.send_initial_events, opts.resource_version_match()) {
            (Some(_), "NotOlderThan") => {}
            (Some(_), _) => {
                let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
                return Err(Error::BadRequest(why.into()));
            }
            (None, "") => {}
            (None, _) => {
                let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
                return Err(Error::BadRequest(why.into()));
            }
        }
        Ok(match (opts.send_initial_events, version) {
            (Some(true), _) | (None, None) => Start::State,
            (Some(false), None) => Start::Now,
            (_, Some(version)) => Start::After(version),
        })
    }

    async fn watcher(
        &self,
        range: &KeyRange,
        selector: &Selector,
        after: Option<Revision>,
    ) -> Result<Watcher, Error> {
        // The last state of what is gone is told too. Only a selector looks at what others were before: the index
        // does not know all that it asks.
        let watch = Watch::new(range.clone()).filter(selector::filter(selector));
        let watch = if selector.is_everything() { watch.previous_of_removed() } else { watch.previous() };
        let watch = match after {
            Some(after) => watch.after(after),
            None => watch,
        };
        Ok(self.store.watch(watch).await?)
    }
}

/// Phase of a watch.
enum Phase {
    /// Sending initial events, page by page, all at one revision.
    Initial { pages: Pages, revision: Revision },
    /// Sending changes.
    Changes(Watcher),
}

/// An open watch.
pub(crate) struct WatchStream {
    resource: Arc<Resource>,
    range: KeyRange,
    selector: Selector,
    phase: Phase,
    /// Queued responses: at most one page, or the changes of one revision.
    queue: VecDeque<wire::WatchResponse>,
    mark_initial_end: bool,
    bookmarks: Option<tokio::time::Interval>,
    deadline: Option<Instant>,
    /// The newest revision told in an event or a bookmark.
    sent_revision: Revision,
}

impl WatchStream {
    /// The watch as a stream. It ends after an error, and without one when its time is over.
    pub(crate) fn stream(self) -> impl Stream<Item = Result<wire::WatchResponse, Status>> + Send {
        stream::unfold(Some(self), |watching| async move {
            let mut watching = watching?;
            match watching.next().await {
                Ok(Some(event)) => Some((Ok(event), Some(watching))),
                Ok(None) => None,
                Err(error) => Some((Err(error.into()), None)),
            }
        })
    }

    async fn next(&mut self) -> Result<Option<wire::WatchResponse>, Error> {
        loop {
            if let Some(event) = self.queue.pop_front() {
                return Ok(Some(event));
            }
            match &mut self.phase {
                Phase::Initial { .. } => self.queue_initial().await?,
                Phase::Changes(_) => match self.queue_change().await? {
                    true => {}
                    false => return Ok(None),
                },
            }
        }
    }

    /// Queues a page of initial events. After the last page, opens the watcher.
    async fn queue_initial(&mut self) -> Result<(), Error> {
        let Phase::Initial { pages, revision } = &mut self.phase else { return Ok(()) };
        if let Some(page) = pages.next().await? {
            if *revision == 0 {
                *revision = page.revision;
            }
            for kv in &page.kvs {
                if let Some(object) = self.resource.encode_matching(kv, &self.selector)? {
                    self.queue.push_back(event("ADDED", object));
                }
            }
            return Ok(());
        }
        let revision = *revision;
        let watcher = self.resource.watcher(&self.range, &self.selector, Some(revision)).await?;
        self.phase = Phase::Changes(watcher);
        if self.mark_initial_end && self.bookmarks.is_some() {
            self.sent_revision = revision;
            self.queue.push_back(self.bookmark(revision, true));
        }
        Ok(())
    }

    /// Waits for a change or a bookmark and queues it. Returns `false` past the deadline.
    async fn queue_change(&mut self) -> Result<bool, Error> {
        let Phase::Changes(watcher) = &mut self.phase else { return Ok(true) };
        let mut stopping = self.resource.stopping.clone();
        tokio::select! {
            biased;
            // Checked first, so that a busy watch ends in time too.
            _ = stopping.wait_for(|stopping| *stopping) => return Err(Error::ShuttingDown),
            () = sleep_until(self.deadline) => return Ok(false),
            batch = watcher.next() => {
                let batch = batch?;
                let mut events = Vec::new();
                for seen in batch.events() {
                    events.extend(self.convert(seen, batch.revision())?);
                }
                if !events.is_empty() {
                    self.sent_revision = batch.revision();
                    self.queue.extend(events);
                }
            }
            () = tick(&mut self.bookmarks) => {
                let progress = watcher.progress();
                if progress > self.sent_revision {
                    self.sent_revision = progress;
                    self.queue.push_back(self.bookmark(progress, false));
                }
            }
        }
        Ok(true)
    }

    /// Converts an event. An object that begins to match the selector is ADDED, one that ceases to is DELETED.
    fn convert(
        &self,
        seen: WatchEvent<'_>,
        revision: Revision,
    ) -> Result<Option<wire::WatchResponse>, Error> {
        let change = seen.event;
        if self.selector.is_everything() && !change.deleted {
            let kind = if change.created() { "ADDED" } else { "MODIFIED" };
            let object = self.resource.encode_matching(&change.kv, &self.selector)?;
            return Ok(object.map(|object| event(kind, object)));
        }
        let previous = change.previous.as_ref().and_then(|previous| previous.kv(&change.kv.key));
        // Compaction may have removed the previous version, which may have matched.
        let compacted = previous.is_none() && !change.created();
        let before = match &previous {
            Some(kv) => Some(Object::read(kv)?).filter(|object| selector::matches(&self.selector, object)),
            None if compacted => Some(name_only(&change.kv.key)),
            None => None,
        };
        let after = match change.deleted {
            true => None,
            false => self.resource.encode_matching(&change.kv, &self.selector)?,
        };
        let (kind, object) = match (before, after) {
            (None, Some(after)) => ("ADDED", after),
            (Some(_), Some(after)) => ("MODIFIED", after),
            (Some(before), None) => {
                let gone = self.resource.to_message(&Object { revision, ..before })?;
                ("DELETED", gone.encode_to_vec().into())
            }
            (None, None) => return Ok(None),
        };
        Ok(Some(event(kind, object)))
    }

    fn bookmark(&self, revision: Revision, initial_end: bool) -> wire::WatchResponse {
        let mut meta = ObjectMeta {
            resource_version: Some(self.resource.versions.text(revision)),
            ..ObjectMeta::default()
        };
        if initial_end {
            meta.annotations.insert(INITIAL_EVENTS_END.into(), "true".into());
        }
        let object = wire::Object {
            type_meta: Some(self.resource.type_meta("")),
            object_meta: Some(meta),
            spec: None,
            status: None,
        };
        event("BOOKMARK", object.encode_to_vec().into())
    }
}

/// Returns an object with only its name, for a previous version that is compacted.
fn name_only(key: &[u8]) -> Object {
    let key = String::from_utf8_lossy(key);
    let mut parts = key.rsplit('/');
    let (name, namespace) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    Object { value: json!({"metadata": {"name": name, "namespace": namespace}}), revision: 0 }
}

fn event(kind: &str, object: Bytes) -> wire::WatchResponse {
    wire::WatchResponse { r#type: kind.to_owned(), object: Some(object) }
}

async fn tick(bookmarks: &mut Option<tokio::time::Interval>) {
    match bookmarks {
        Some(interval) => {
            interval.tick().await;
        }
        None => std::future::pending().await,
    }
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
