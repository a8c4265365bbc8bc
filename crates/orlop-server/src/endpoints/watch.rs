//! Watch: events of a collection.
//!
//! Each event is a line of JSON. For plain JSON the line is encoded once and shared by all watchers of the store; a
//! watcher with residual selectors, or one that wants tables, encodes its own.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use http::Response;
use orlop_api::{protobuf, status::Status, table::partial_object_metadata};
use orlop_store::{Error, Event, KeyValue, Read, Revision, Watch, WatchEvent, Watcher};
use rand::Rng;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::{Request, answer, listing};
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

/// Interval of bookmarks.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);
/// Time before its timeout at which a watch gets a last bookmark, to resume from.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);
/// Timeout of a watch that names none: at least this, at most twice as long.
const TIMEOUT_SECONDS_MIN: u64 = 1800;

/// Time after which a client may try again to watch objects that could not be converted.
const RETRY_AFTER_SECONDS: u32 = 1;

/// The start of a watch.
enum Start {
    /// At the present objects, followed by an initial-events-end bookmark if asked for.
    Now { mark: bool },
    /// After a revision.
    After(Revision),
    /// At the next change.
    Next,
}

pub(super) async fn watch(request: Request) -> Result<Response<Body>, Status> {
    if request.negotiated.encoding == Encoding::Yaml {
        return Err(Status::not_acceptable(&[JSON_STREAM, PROTOBUF_STREAM]));
    }
    request.cluster.check_open()?;
    let attributes = &request.attributes;
    let selection = Selection::of(
        &request.cluster.objects,
        &request.kind,
        &attributes.namespace,
        &attributes.name,
        &request.query,
    )
    .map_err(|refused| listing::refused_selection(&request.query, true, refused))?;
    let start = start(&request).await?;
    let timeout = match request.query.number("timeoutSeconds")? {
        Some(seconds) if seconds > 0 => Duration::from_secs(seconds as u64),
        _ => Duration::from_secs(rand::rng().random_range(TIMEOUT_SECONDS_MIN..TIMEOUT_SECONDS_MIN * 2)),
    };
    let mut initial = None;
    let wanted = Watch::new(selection.range.clone()).filter(selection.filter.clone());
    // Residual selectors are also checked on the previous version.
    let mut wanted =
        if selection.is_decided_by_key() { wanted.previous_of_removed() } else { wanted.previous() };
    match start {
        Start::After(revision) => wanted = wanted.after(revision),
        Start::Next => {}
        Start::Now { mark } => {
            let read = Read { filter: selection.filter.clone(), ..Read::new(selection.range.clone()) };
            let mut pages =
                request.cluster.objects.store.pages(read).map_err(|error| status_from_store_error(&error))?;
            let first =
                pages.next().await.map_err(|error| status_from_store_error(&error))?.unwrap_or_default();
            check_convertible(&request, &first).await?;
            wanted = wanted.after(first.revision);
            initial = Some((first, pages, mark));
        }
    }
    let media_type = match request.negotiated.encoding {
        Encoding::Protobuf => PROTOBUF_STREAM,
        _ => "application/json",
    };
    let watcher = request.cluster.objects.store.watch(wanted).await.map_err(|error| expired(&error))?;
    let sink = EventSink::new(request.cluster.stream_budget.clone());
    if initial.is_none() {
        sink.initialized();
    }
    // Counted as long as it is open: a write's work grows with the watches that it wakes.
    let node = match (request.kind.resource.as_str(), request.attributes.selectors.as_deref()) {
        ("pods", Some(_)) => node_of(request.query.text("fieldSelector")),
        _ => "",
    };
    let watched = request.cluster.flow_control.controller.watches.register(&request.attributes, node);
    let ending_sink = sink.clone();
    let (closing, retired) = (request.cluster.closing(), request.kind.retirement.retired());
    let mut stream = EventWriter { request, selection, sink: sink.clone(), definitions_sent: false };
    let deadline = Instant::now() + timeout;
    let events = WatchBody::new(sink, async move {
        let _watched = watched;
        let work = async {
            if let Some((first, pages, mark)) = initial {
                stream.send_present(first, pages, mark).await?;
                stream.sink.initialized();
            }
            stream.send_changes(watcher, deadline).await
        };
        let ending = async {
            tokio::select! {
                () = closing => {}
                () = retired => {}
            }
        };
        tokio::select! {
            // Events that have happened are sent before the end, however slowly the client reads.
            biased;
            // The error has been sent.
            Err(ErrorSent) = work => {}
            () = ending_sink.unless_full(ending) => {}
            () = sleep_until(deadline) => {}
        }
    });
    Ok(response::bytes(200, media_type, Body::Watch(Box::new(events))))
}

/// Returns the node that a field selector of pods requires; empty if it does not.
fn node_of(selector: &str) -> &str {
    let terms = selector.split(',').filter_map(|term| term.strip_prefix("spec.nodeName="));
    terms.map(|node| node.strip_prefix('=').unwrap_or(node)).next().unwrap_or_default()
}

/// Refuses a watch of present objects if the first of them that must be converted cannot be. As in Kubernetes, whose watch
/// cache is not ready then, the client is told to come back.
async fn check_convertible(request: &Request, first: &orlop_store::ReadResult) -> Result<(), Status> {
    let mut found = first.kvs.iter().map(|kv| Found::from(kv.clone()));
    match found.find(|found| !request.kind.serves_stored(&found.bytes)) {
        Some(found) if request.kind.flags.custom => match request.kind.read(&found).await {
            Ok(_) => Ok(()),
            Err(status) => Err(Status::too_many_requests(status.message, RETRY_AFTER_SECONDS)),
        },
        _ => Ok(()),
    }
}

/// Returns the time of the next bookmark of a watch with a deadline; `None` if there is none before it.
fn next_bookmark(deadline: Instant) -> Option<Instant> {
    let now = Instant::now();
    let last = deadline.checked_sub(BOOKMARK_BEFORE_END).filter(|last| *last > now)?;
    Some(last.min(now + BOOKMARK_INTERVAL))
}

async fn start(request: &Request) -> Result<Start, Status> {
    let query = &request.query;
    check_list(query, true)?;
    let version = resource_version::parse(query.text("resourceVersion"))?;
    Ok(match (query.switch("sendInitialEvents"), version) {
        (Some(true), version) => {
            if let Some(version) = version {
                request.cluster.objects.not_older_than(version).await?;
            }
            Start::Now { mark: query.flag("allowWatchBookmarks") }
        }
        (Some(false), None) => Start::Next,
        (None, None) => Start::Now { mark: false },
        (_, Some(version)) => Start::After(version),
    })
}

fn expired(error: &Error) -> Status {
    match error {
        Error::Expired { .. } => Status::expired("The resourceVersion for the provided watch is too old."),
        error => status_from_store_error(error),
    }
}

/// The watch ended after an error event.
struct ErrorSent;

/// Writes the events of a watch.
struct EventWriter {
    request: Request,
    selection: Selection,
    sink: EventSink,
    definitions_sent: bool,
}

impl EventWriter {
    /// Sends the present objects.
    async fn send_present(
        &mut self,
        first: orlop_store::ReadResult,
        mut pages: orlop_store::Pages,
        mark: bool,
    ) -> Result<(), ErrorSent> {
        let revision = first.revision;
        let mut page = Some(first);
        while let Some(current) = page {
            for kv in current.kvs {
                if !self.selection.may_select_key(&kv.key) {
                    continue;
                }
                match self.line("ADDED", &Found::from(kv)).await {
                    Ok(Some(line)) => self.sink.send(line).await,
                    Ok(None) => {}
                    Err(status) => return self.fail(&status).await,
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

    /// Sends changes as they happen.
    async fn send_changes(&mut self, mut watcher: Watcher, deadline: Instant) -> Result<(), ErrorSent> {
        let asked = self.request.query.flag("allowWatchBookmarks");
        let mut bookmark_at = next_bookmark(deadline).filter(|_| asked);
        loop {
            tokio::select! {
                batch = watcher.next() => match batch {
                    Ok(batch) => {
                        for seen in batch.events() {
                            match self.event(&seen).await {
                                Ok(Some(line)) => self.sink.send(batch.share(line)).await,
                                Ok(None) => {}
                                Err(status) => return self.fail(&status).await,
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

    async fn fail(&self, status: &Status) -> Result<(), ErrorSent> {
        self.sink.send(self.encode_event("ERROR", &status.to_value())).await;
        Err(ErrorSent)
    }

    /// Encodes an event; `None` if it does not concern the watcher. An object that cannot be converted fails the watch:
    /// left out, an informer would take its cache for complete.
    async fn event(&mut self, seen: &WatchEvent<'_>) -> Result<Option<Bytes>, Status> {
        let event = seen.event;
        if !self.selection.may_select_key(&event.kv.key) {
            return Ok(None);
        }
        let kind = match self.selected_versions(seen).await? {
            (true, false) => "ADDED",
            (true, true) => "MODIFIED",
            (false, true) => "DELETED",
            (false, false) => return Ok(None),
        };
        let state = event_state(kind, event);
        // Watchers of the stored version share one line.
        if kind == natural_type(event)
            && let Some(shared) = self.shared_slot(&state)
        {
            let encoded = &event.encoded_once[shared];
            if let Some(line) = encoded.get() {
                return Ok(Some(line.clone()));
            }
            if let Some(line) = self.stored_line(kind, &state) {
                return Ok(Some(encoded.get_or_init(|| line).clone()));
            }
        } else if let Some(line) = self.stored_line(kind, &state) {
            return Ok(Some(line));
        }
        let object = self.request.kind.read(&state).await?;
        Ok(Some(self.line_of(kind, state.revision, object)))
    }

    /// Returns the place of the line among the encodings that watchers share; `None` if this watch has lines of its own.
    fn shared_slot(&self, state: &Found) -> Option<usize> {
        let (kind, negotiated) = (&self.request.kind, self.request.negotiated);
        let is_stored = kind.storage.is_own() && kind.serves_stored(&state.bytes);
        match (negotiated.transform, negotiated.encoding) {
            (Transform::Whole, Encoding::Json) if is_stored => Some(0),
            (Transform::Whole, Encoding::Protobuf) if is_stored => Some(1),
            _ => None,
        }
    }

    /// Returns true for the current and the previous version if they are selected.
    async fn selected_versions(&self, seen: &WatchEvent<'_>) -> Result<(bool, bool), Status> {
        if self.selection.is_decided_by_key() {
            return Ok((seen.matches, seen.matched_before));
        }
        let event = seen.event;
        let now = seen.matches && self.selected(&event.kv).await?;
        // A previous version that is compacted counts as selected: a client that never saw the object ignores DELETED.
        let before = match event.previous.as_ref().filter(|_| seen.matched_before) {
            None => false,
            Some(previous) => match previous.kv(&event.kv.key) {
                None => true,
                Some(kv) => self.selected(&kv).await?,
            },
        };
        Ok((now, before))
    }

    async fn selected(&self, kv: &KeyValue) -> Result<bool, Status> {
        let object = self.request.kind.read(&Found::from(kv.clone())).await?;
        Ok(self.selection.matches(&self.request.kind, &object))
    }

    /// Encodes a present object; `None` if it is not selected.
    async fn line(&mut self, kind: &str, found: &Found) -> Result<Option<Bytes>, Status> {
        if self.selection.is_decided_by_key()
            && let Some(line) = self.stored_line(kind, found)
        {
            return Ok(Some(line));
        }
        let object = self.request.kind.read(found).await?;
        let is_selected = self.selection.matches(&self.request.kind, &object);
        Ok(is_selected.then(|| self.line_of(kind, found.revision, object)))
    }

    /// Encodes a line from stored bytes as plain JSON.
    fn plain_line(&self, kind: &str, found: &Found) -> Bytes {
        let mut line = event_prefix(kind, found.bytes.len() + 96);
        self.request.kind.append_served(&mut line, &found.bytes, found.revision);
        line.put_slice(b"}\n");
        line.freeze()
    }

    /// Encodes a line from stored bytes as negotiated, if that takes no decoding.
    fn stored_line(&self, kind: &str, found: &Found) -> Option<Bytes> {
        if self.request.negotiated.is_plain() {
            return self.request.kind.serves_stored(&found.bytes).then(|| self.plain_line(kind, found));
        }
        let object = answer::encode_stored(&self.request, found)?;
        Some(match self.request.negotiated.encoding {
            Encoding::Protobuf => protobuf::watch_frame(kind, &object).into(),
            _ => json_line(kind, &object),
        })
    }

    /// Encodes a line from a decoded object, transformed as negotiated.
    fn line_of(&mut self, kind: &str, revision: Revision, object: Value) -> Bytes {
        let object = match self.request.negotiated.transform {
            Transform::Whole => object,
            Transform::Metadata(version) => partial_object_metadata(&object, version),
            Transform::Table(version) => {
                let headings = !std::mem::replace(&mut self.definitions_sent, true);
                let metadata = json!({"resourceVersion": revision.to_string()});
                answer::table(&self.request, version, std::slice::from_ref(&object), headings, metadata)
            }
        };
        self.encode_event(kind, &object)
    }

    /// Encodes an event of an object in the negotiated encoding.
    fn encode_event(&self, kind: &str, object: &Value) -> Bytes {
        match self.request.negotiated.encoding {
            Encoding::Protobuf => protobuf::encode(object)
                .map_or_else(Bytes::new, |envelope| protobuf::watch_frame(kind, &envelope).into()),
            _ => json_line(kind, object.to_string().as_bytes()),
        }
    }

    /// Encodes a bookmark.
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
        self.encode_event("BOOKMARK", &object)
    }
}

/// Returns the type of an event for a watch that selects everything.
fn natural_type(event: &Event) -> &'static str {
    match (event.deleted, event.created()) {
        (true, _) => "DELETED",
        (false, true) => "ADDED",
        (false, false) => "MODIFIED",
    }
}

/// Returns the state that an event carries: of a deleted object the last one, at the revision of the deletion.
fn event_state(kind: &str, event: &Event) -> Found {
    let revision = event.kv.revision;
    let previous = || event.previous.as_ref().and_then(|previous| previous.kv(&event.kv.key));
    let bytes = if kind == "DELETED" {
        previous().map(|kv| kv.value).unwrap_or_default()
    } else {
        event.kv.value.clone()
    };
    Found { bytes, revision, stale: false }
}

fn event_prefix(kind: &str, capacity: usize) -> BytesMut {
    let mut line = BytesMut::with_capacity(capacity);
    line.put_slice(b"{\"type\":\"");
    line.put_slice(kind.as_bytes());
    line.put_slice(b"\",\"object\":");
    line
}

fn json_line(kind: &str, object: &[u8]) -> Bytes {
    let mut line = event_prefix(kind, object.len() + 40);
    line.put_slice(object);
    line.put_slice(b"}\n");
    line.freeze()
}
