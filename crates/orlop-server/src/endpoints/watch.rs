//! Watch: what happens to a collection, as it happens.
//!
//! Each event is a line of JSON. For the plain form the line is made once and shared by every watcher of
//! the store; a watcher with a selector that the index cannot answer, or one that wants tables, makes its
//! own.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use http::Response;
use orlop_api::{protobuf, status::Status, table::partial_object_metadata};
use orlop_store::{Error, Event, KeyValue, Read, Revision, Watch, WatchEvent, Watcher};
use rand::Rng;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::{Request, answer};
use crate::{
    http::{
        body::Body,
        negotiation::{Encoding, JSON_STREAM, PROTOBUF_STREAM, Transform},
        response,
        watch_body::{EventSink, WatchBody},
    },
    registry::Found,
    request::{options::check_list, resource_version},
    storage::{selection::Selection, status_from_store_error},
};

/// How often a quiet watch says how far it is.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// How long before its end a watch is told how far it has come, for whoever goes on from there.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);
/// How long a watch lasts that does not say: at least this long, at most twice as long.
const LASTS_SECONDS: u64 = 1800;

/// Where a watch begins.
enum Beginning {
    /// With what is there now, and then a mark if one is asked for.
    Now { mark: bool },
    /// After a revision.
    After(Revision),
    /// With the next change.
    Next,
}

pub(super) async fn watch(request: Request) -> Result<Response<Body>, Status> {
    if request.negotiated.encoding == Encoding::Yaml {
        return Err(Status::not_acceptable(&[JSON_STREAM, PROTOBUF_STREAM]));
    }
    request.cluster.check_open()?;
    let about = &request.about;
    let selection = Selection::of(
        &request.cluster.objects,
        &request.kind,
        &about.namespace,
        &about.name,
        &request.query,
    )?;
    let beginning = beginning(&request).await?;
    let lasts = match request.query.number("timeoutSeconds")? {
        Some(seconds) if seconds > 0 => Duration::from_secs(seconds as u64),
        _ => Duration::from_secs(rand::rng().random_range(LASTS_SECONDS..LASTS_SECONDS * 2)),
    };
    let mut initial = None;
    let wanted = Watch::new(selection.range.clone()).filter(selection.filter.clone());
    // What the index cannot answer is found out by looking at what was there before.
    let mut wanted =
        if selection.is_told_by_key() { wanted.previous_of_removed() } else { wanted.previous() };
    match beginning {
        Beginning::After(revision) => wanted = wanted.after(revision),
        Beginning::Next => {}
        Beginning::Now { mark } => {
            let read = Read { filter: selection.filter.clone(), ..Read::new(selection.range.clone()) };
            let mut pages =
                request.cluster.objects.store.pages(read).map_err(|error| status_from_store_error(&error))?;
            let first =
                pages.next().await.map_err(|error| status_from_store_error(&error))?.unwrap_or_default();
            wanted = wanted.after(first.revision);
            initial = Some((first, pages, mark));
        }
    }
    let media_type = match request.negotiated.encoding {
        Encoding::Protobuf => PROTOBUF_STREAM,
        _ => "application/json",
    };
    let watcher = request.cluster.objects.store.watch(wanted).await.map_err(|error| expired(&error))?;
    let sink = EventSink::default();
    let told = sink.clone();
    let (closing, retired) = (request.cluster.closing(), request.kind.retirement.retired());
    let mut stream = Stream { request, selection, sink: sink.clone(), headings_sent: false };
    let deadline = Instant::now() + lasts;
    let events = WatchBody::new(sink, async move {
        let work = async {
            if let Some((first, pages, mark)) = initial {
                stream.initial(first, pages, mark).await?;
            }
            stream.follow(watcher, deadline).await
        };
        let ending = async {
            tokio::select! {
                () = closing => {}
                () = retired => {}
            }
        };
        tokio::select! {
            // What has happened is told before the end, however late the client asks for it.
            biased;
            // An error, which has been told.
            Err(Ended) = work => {}
            () = told.unless_full(ending) => {}
            () = sleep_until(deadline) => {}
        }
    });
    Ok(response::bytes(200, media_type, Body::Watch(Box::new(events))))
}

/// When a watch that ends at a deadline is told how far it has come; `None` if it is too late for that.
fn next_bookmark(deadline: Instant) -> Option<Instant> {
    let now = Instant::now();
    let last = deadline.checked_sub(BOOKMARK_BEFORE_END).filter(|last| *last > now)?;
    Some(last.min(now + BOOKMARK_EVERY))
}

async fn beginning(request: &Request) -> Result<Beginning, Status> {
    let query = &request.query;
    check_list(query, true)?;
    let version = resource_version::parse(query.text("resourceVersion"))?;
    Ok(match (query.switch("sendInitialEvents"), version) {
        (Some(true), version) => {
            if let Some(version) = version {
                request.cluster.objects.not_older_than(version).await?;
            }
            Beginning::Now { mark: query.flag("allowWatchBookmarks") }
        }
        (Some(false), None) => Beginning::Next,
        (None, None) => Beginning::Now { mark: false },
        (_, Some(version)) => Beginning::After(version),
    })
}

fn expired(error: &Error) -> Status {
    match error {
        Error::Expired { .. } => Status::expired("The resourceVersion for the provided watch is too old."),
        error => status_from_store_error(error),
    }
}

/// The client has been told why there is nothing more.
struct Ended;

/// The body of a watch, being written.
struct Stream {
    request: Request,
    selection: Selection,
    sink: EventSink,
    headings_sent: bool,
}

impl Stream {
    /// Sends what is there at the beginning.
    async fn initial(
        &mut self,
        first: orlop_store::ReadResult,
        mut pages: orlop_store::Pages,
        mark: bool,
    ) -> Result<(), Ended> {
        let revision = first.revision;
        let mut page = Some(first);
        while let Some(current) = page {
            for kv in current.kvs {
                if self.selection.admits(&kv.key)
                    && let Some(line) = self.line("ADDED", &Found::from(kv)).await
                {
                    self.sink.send(line).await;
                }
            }
            page = match pages.next().await {
                Ok(page) => page,
                Err(error) => return self.fail(&expired(&error)).await,
            };
        }
        if mark {
            self.sink.send(self.bookmark(revision, true)).await;
        }
        Ok(())
    }

    /// Sends what happens from then on.
    async fn follow(&mut self, mut watcher: Watcher, deadline: Instant) -> Result<(), Ended> {
        let asked = self.request.query.flag("allowWatchBookmarks");
        let mut bookmark_at = next_bookmark(deadline).filter(|_| asked);
        loop {
            tokio::select! {
                batch = watcher.next() => match batch {
                    Ok(batch) => {
                        for seen in batch.events() {
                            if let Some(line) = self.event(&seen).await {
                                self.sink.send(line).await;
                            }
                        }
                    }
                    Err(error) => return self.fail(&expired(&error)).await,
                },
                () = sleep_until(bookmark_at.unwrap_or(deadline)), if bookmark_at.is_some() => {
                    bookmark_at = next_bookmark(deadline);
                    let line = self.bookmark(watcher.progress(), false);
                    self.sink.send(line).await;
                }
            }
        }
    }

    async fn fail(&self, status: &Status) -> Result<(), Ended> {
        self.sink.send(self.framed("ERROR", &status.to_value())).await;
        Err(Ended)
    }

    /// The line of an event; `None` if it is of no concern after all.
    async fn event(&mut self, seen: &WatchEvent<'_>) -> Option<Bytes> {
        let event = seen.event;
        if !self.selection.admits(&event.kv.key) {
            return None;
        }
        let (now, before) = self.looked_at(seen).await;
        let kind = match (now, before) {
            (true, false) => "ADDED",
            (true, true) => "MODIFIED",
            (false, true) => "DELETED",
            (false, false) => return None,
        };
        let told = told(kind, event);
        if self.request.negotiated.is_plain() && self.request.kind.passes(&told.bytes) {
            // Those who see the object as it is stored share one line.
            return if kind == natural_type(event) && self.request.kind.storage.is_own() {
                Some(event.encoded_once.get_or_init(|| self.plain_line(kind, &told)).clone())
            } else {
                Some(self.plain_line(kind, &told))
            };
        }
        if let Some(line) = self.passed_line(kind, &told) {
            return Some(line);
        }
        let object = self.read(&told).await?;
        Some(self.line_of(kind, told.revision, object))
    }

    /// Whether the version now, and the one before, are selected.
    async fn looked_at(&self, seen: &WatchEvent<'_>) -> (bool, bool) {
        if self.selection.is_told_by_key() {
            return (seen.matches, seen.matched_before);
        }
        let event = seen.event;
        let now = seen.matches && self.selected(&event.kv).await;
        // What cannot be looked at any more is told as leaving: a client that never saw it ignores that.
        let before = match event.previous.as_ref().filter(|_| seen.matched_before) {
            None => false,
            Some(previous) => match previous.kv(&event.kv.key) {
                None => true,
                Some(kv) => self.selected(&kv).await,
            },
        };
        (now, before)
    }

    async fn selected(&self, kv: &KeyValue) -> bool {
        let object = self.read(&Found::from(kv.clone())).await;
        object.is_some_and(|object| self.selection.matches(&self.request.kind, &object))
    }

    /// An object as it is served. One that cannot be read is left out: it must not end the watch of all
    /// others.
    async fn read(&self, found: &Found) -> Option<Value> {
        match self.request.kind.read(found).await {
            Ok(object) => Some(object),
            Err(status) => {
                tracing::warn!(message = status.message, "an object is left out of a watch");
                None
            }
        }
    }

    /// The line of an object that is there at the beginning; `None` if it is not selected.
    async fn line(&mut self, kind: &str, found: &Found) -> Option<Bytes> {
        if self.selection.is_told_by_key()
            && let Some(line) = self.passed_line(kind, found)
        {
            return Some(line);
        }
        let object = self.read(found).await?;
        self.selection
            .matches(&self.request.kind, &object)
            .then(|| self.line_of(kind, found.revision, object))
    }

    /// A line of bytes that can be handed out as they are.
    fn plain_line(&self, kind: &str, found: &Found) -> Bytes {
        let mut line = opening(kind, found.bytes.len() + 96);
        self.request.kind.pass(&mut line, &found.bytes, found.revision);
        line.put_slice(b"}\n");
        line.freeze()
    }

    /// A line of bytes that need not be decoded, if it can be made of such.
    fn passed_line(&self, kind: &str, found: &Found) -> Option<Bytes> {
        if self.request.negotiated.is_plain() {
            return self.request.kind.passes(&found.bytes).then(|| self.plain_line(kind, found));
        }
        let object = answer::passed(&self.request, found)?;
        Some(match self.request.negotiated.encoding {
            Encoding::Protobuf => protobuf::watch_frame(kind, &object).into(),
            _ => json_line(kind, &object),
        })
    }

    /// A line in the form that was asked for.
    fn line_of(&mut self, kind: &str, revision: Revision, object: Value) -> Bytes {
        let object = match self.request.negotiated.transform {
            Transform::Whole => object,
            Transform::Metadata(version) => partial_object_metadata(&object, version),
            Transform::Table(version) => {
                let headings = !std::mem::replace(&mut self.headings_sent, true);
                let metadata = json!({"resourceVersion": revision.to_string()});
                answer::table(&self.request, version, std::slice::from_ref(&object), headings, metadata)
            }
        };
        self.framed(kind, &object)
    }

    /// An event of an object, in the encoding that was asked for.
    fn framed(&self, kind: &str, object: &Value) -> Bytes {
        match self.request.negotiated.encoding {
            Encoding::Protobuf => protobuf::encode(object)
                .map_or_else(Bytes::new, |envelope| protobuf::watch_frame(kind, &envelope).into()),
            _ => json_line(kind, object.to_string().as_bytes()),
        }
    }

    /// How far the watch is, and nothing else.
    fn bookmark(&self, revision: Revision, initial_events_end: bool) -> Bytes {
        let kind = &self.request.kind;
        let mut metadata = json!({"resourceVersion": revision.to_string(), "creationTimestamp": null});
        if initial_events_end {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object = match self.request.negotiated.transform {
            Transform::Metadata(version) => {
                json!({"kind": "PartialObjectMetadata", "apiVersion": version, "metadata": metadata})
            }
            Transform::Table(version) => json!({
                "kind": "Table", "apiVersion": version, "metadata": {"resourceVersion": revision.to_string()},
                "columnDefinitions": [],
                "rows": [{"cells": [], "object": {
                    "kind": "PartialObjectMetadata", "apiVersion": version, "metadata": metadata}}],
            }),
            Transform::Whole => {
                json!({"kind": kind.gvk.kind, "apiVersion": kind.gvk.api_version(), "metadata": metadata})
            }
        };
        self.framed("BOOKMARK", &object)
    }
}

/// What an event is to a watch that selects everything.
fn natural_type(event: &Event) -> &'static str {
    match (event.deleted, event.created()) {
        (true, _) => "DELETED",
        (false, true) => "ADDED",
        (false, false) => "MODIFIED",
    }
}

/// The state that an event tells: of one that went, the last there was, at the revision it went.
fn told(kind: &str, event: &Event) -> Found {
    let revision = event.kv.revision;
    let previous = || event.previous.as_ref().and_then(|previous| previous.kv(&event.kv.key));
    let bytes = if kind == "DELETED" {
        previous().map(|kv| kv.value).unwrap_or_default()
    } else {
        event.kv.value.clone()
    };
    Found { bytes, revision }
}

fn opening(kind: &str, capacity: usize) -> BytesMut {
    let mut line = BytesMut::with_capacity(capacity);
    line.put_slice(b"{\"type\":\"");
    line.put_slice(kind.as_bytes());
    line.put_slice(b"\",\"object\":");
    line
}

fn json_line(kind: &str, object: &[u8]) -> Bytes {
    let mut line = opening(kind, object.len() + 40);
    line.put_slice(object);
    line.put_slice(b"}\n");
    line.freeze()
}
