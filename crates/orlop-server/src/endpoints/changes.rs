//! Stream of ownership-related changes of all kinds, for the garbage collector (decision 0014). It would
//! otherwise need a watch per kind, which costs memory even where nothing changes.
//!
//! The format is that of a watch: an object with owners or a deletionTimestamp is `ADDED` or `MODIFIED`, any object
//! that is removed is `DELETED`, and bookmarks carry the revision. Objects have their stored apiVersion and kind, and
//! the metadata that the collector reads.

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use http::Response;
use memchr::memmem::Finder;
use orlop_api::status::Status;
use orlop_store::{KeyRange, Pages, Read, ReadResult, Revision, Watch, WatchEvent, Watcher};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use crate::{
    cluster::Cluster,
    http::{
        body::Body,
        query::Query,
        response,
        watch_body::{EventSink, WatchBody},
    },
    request::resource_version,
    storage::status_from_store_error,
};

/// Interval of bookmarks, from which a client resumes.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);
/// Kind that is skipped: Events own nothing, are owned by nothing that matters, and are many.
const SKIPPED_KIND: &str = "Event";
/// Kinds whose objects define kinds.
const DEFINITION_KINDS: [&str; 2] = ["CustomResourceDefinition", "APIService"];
/// Texts of which every relevant object has one. Others may have them too, in their data.
static MARKS: LazyLock<Vec<Finder<'static>>> = LazyLock::new(|| {
    let fields = ["ownerReferences", "deletionTimestamp"];
    let quoted = fields.into_iter().chain(DEFINITION_KINDS).map(|text| format!("{text:?}"));
    quoted.map(|text| Finder::new(&text).into_owned()).collect()
});

/// Answers `/orlop/v1/elsewhere`: the kinds that other servers store, which are not in the stream.
pub(crate) fn remote_kinds(cluster: &Cluster) -> Response<Body> {
    let kinds = cluster.objects.registry.kinds();
    let remote_kinds = kinds.iter().filter(|kind| kind.storage.remote_server().is_some());
    let mut items: Vec<Value> = remote_kinds
        .map(|kind| json!({"apiVersion": kind.gvk.api_version(), "kind": kind.gvk.kind}))
        .collect();
    for remote in cluster.aggregator.catalog().remotes() {
        let service = &remote.service;
        let documents = remote.backend.documents();
        let known = documents.of(&service.group, &service.version);
        for resource in known.iter().flat_map(|known| known.resources.iter()) {
            let api_version = format!("{}/{}", service.group, service.version);
            items.push(json!({"apiVersion": api_version, "kind": resource.kind()}));
        }
    }
    response::bytes(200, "application/json", json!({"items": items}).to_string())
}

/// Answers `/orlop/v1/changes`: all objects and then their changes, or the changes after `resourceVersion`.
pub(crate) async fn answer(cluster: &Arc<Cluster>, query: &Query) -> Result<Response<Body>, Status> {
    cluster.check_open()?;
    let range = KeyRange::prefix(cluster.objects.own_key(""));
    let watch = Watch::new(range.clone()).previous_of_removed();
    let (present, after) = match resource_version::parse(query.text("resourceVersion"))? {
        Some(after) => (None, after),
        None => {
            let mut pages = cluster
                .objects
                .store
                .pages(Read::new(range))
                .map_err(|error| status_from_store_error(&error))?;
            let first =
                pages.next().await.map_err(|error| status_from_store_error(&error))?.unwrap_or_default();
            let revision = first.revision;
            (Some((first, pages)), revision)
        }
    };
    let watcher = cluster
        .objects
        .store
        .watch(watch.after(after))
        .await
        .map_err(|error| status_from_store_error(&error))?;
    let (sink, closing) = (EventSink::new(cluster.stream_budget.clone()), cluster.closing());
    let lines = EventWriter(sink.clone());
    let events = WatchBody::new(sink, async move {
        let work = async {
            if let Some((first, pages)) = present {
                lines.send_present(first, pages).await?;
            }
            lines.send_changes(watcher).await
        };
        tokio::select! {
            // The error has been sent.
            Err(ErrorSent) = work => {}
            () = closing => {}
        }
    });
    Ok(response::bytes(200, "application/json", Body::Watch(Box::new(events))))
}

/// The stream ended after an error event.
struct ErrorSent;

/// Writes the events of the stream.
struct EventWriter(EventSink);

impl EventWriter {
    async fn send(&self, event: &str, object: impl Serialize) {
        let mut line = json!({"type": event, "object": object}).to_string();
        line.push('\n');
        self.0.send(line.into()).await;
    }

    async fn bookmark(&self, revision: Revision) {
        let metadata = json!({"resourceVersion": revision.to_string()});
        let object =
            json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata});
        self.send("BOOKMARK", object).await;
    }

    async fn fail(&self, error: &orlop_store::Error) -> Result<(), ErrorSent> {
        self.send("ERROR", status_from_store_error(error).to_value()).await;
        Err(ErrorSent)
    }

    /// Sends the present objects.
    async fn send_present(&self, first: ReadResult, mut pages: Pages) -> Result<(), ErrorSent> {
        let revision = first.revision;
        let mut page = Some(first);
        while let Some(current) = page {
            for kv in current.kvs {
                if let Some(object) = Object::read_relevant(&kv.value, kv.revision) {
                    self.send("ADDED", object).await;
                }
            }
            page = match pages.next().await {
                Ok(page) => page,
                Err(error) => return self.fail(&error).await,
            };
        }
        self.bookmark(revision).await;
        Ok(())
    }

    /// Sends changes as they happen.
    async fn send_changes(&self, mut watcher: Watcher) -> Result<(), ErrorSent> {
        let mut next_bookmark = Instant::now() + BOOKMARK_INTERVAL;
        loop {
            tokio::select! {
                batch = watcher.next() => match batch {
                    Ok(batch) => {
                        for seen in batch.events() {
                            if let Some((event, object)) = event_of(&seen) {
                                self.send(event, object).await;
                            }
                        }
                    }
                    Err(error) => return self.fail(&error).await,
                },
                () = sleep_until(next_bookmark) => {
                    next_bookmark = Instant::now() + BOOKMARK_INTERVAL;
                    self.bookmark(watcher.progress()).await;
                }
            }
        }
    }
}

/// Returns the event to send for a change, if the collector needs it.
fn event_of(seen: &WatchEvent<'_>) -> Option<(&'static str, Object)> {
    let event = seen.event;
    let revision = event.kv.revision;
    if event.deleted {
        let last = event.previous.as_ref()?.kv(&event.kv.key)?;
        return Some(("DELETED", Object::read(&last.value, revision)?));
    }
    let object = Object::read_relevant(&event.kv.value, revision)?;
    Some((if event.created() { "ADDED" } else { "MODIFIED" }, object))
}

/// An object as the collector sees it.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Object {
    api_version: String,
    kind: String,
    metadata: Metadata,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    uid: String,
    #[serde(default)]
    resource_version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    deletion_timestamp: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    finalizers: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    owner_references: Vec<Value>,
}

impl Object {
    /// Decodes a stored value; `None` if it is not an object or is skipped.
    fn read(stored: &[u8], revision: Revision) -> Option<Self> {
        let mut object: Self = serde_json::from_slice(stored).ok()?;
        object.metadata.resource_version = revision.to_string();
        (object.kind != SKIPPED_KIND).then_some(object)
    }

    /// Decodes a stored value that is relevant. Few are, and the others are told by a search of their bytes: decoding
    /// every object took the collector more time than all else.
    fn read_relevant(stored: &[u8], revision: Revision) -> Option<Self> {
        let may_be_relevant = MARKS.iter().any(|mark| mark.find(stored).is_some());
        may_be_relevant.then(|| Self::read(stored, revision)).flatten().filter(Self::is_relevant)
    }

    /// Returns true if the collector may act on the object while it exists. Definitions announce new kinds.
    fn is_relevant(&self) -> bool {
        let Metadata { deletion_timestamp, owner_references, .. } = &self.metadata;
        deletion_timestamp.is_some() || !owner_references.is_empty() || defines_kinds(&self.kind)
    }
}

fn defines_kinds(kind: &str) -> bool {
    DEFINITION_KINDS.contains(&kind)
}
