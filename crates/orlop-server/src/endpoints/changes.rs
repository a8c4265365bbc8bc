//! What happens to objects of all kinds, as far as ownership goes, in one stream. Orlop's own, for the garbage
//! collector, which must otherwise hold a watch on every kind: those cost memory even where nothing happens.
//!
//! It reads like a watch: an object that has owners or is being deleted is `ADDED` or `MODIFIED`, any object that
//! goes is `DELETED`, and bookmarks say how far it is. Objects come as their apiVersion and kind, in the version
//! they are stored in, and of their metadata only what the collector looks at.

use std::{sync::Arc, time::Duration};

use http::Response;
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

/// How often the stream says how far it is, so that whoever comes back need not begin anew.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// Events own nothing, are owned by nothing that matters, and are many.
const LEFT_OUT: &str = "Event";

/// Answers `/orlop/v1/elsewhere`: the kinds whose objects other servers keep, which the stream knows nothing of.
pub(crate) fn elsewhere(cluster: &Cluster) -> Response<Body> {
    let kinds = cluster.objects.registry.kinds();
    let kept_elsewhere = kinds.iter().filter(|kind| kind.storage.elsewhere().is_some());
    let items: Vec<Value> = kept_elsewhere
        .map(|kind| json!({"apiVersion": kind.gvk.api_version(), "kind": kind.gvk.kind}))
        .collect();
    response::bytes(200, "application/json", json!({"items": items}).to_string())
}

/// Answers `/orlop/v1/changes`: everything there is and then what happens, or what happens after
/// `resourceVersion`.
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
    let (sink, closing) = (EventSink::default(), cluster.closing());
    let lines = Lines(sink.clone());
    let events = WatchBody::new(sink, async move {
        let work = async {
            if let Some((first, pages)) = present {
                lines.present(first, pages).await?;
            }
            lines.follow(watcher).await
        };
        tokio::select! {
            // An error, which has been told.
            Err(Ended) = work => {}
            () = closing => {}
        }
    });
    Ok(response::bytes(200, "application/json", Body::Watch(Box::new(events))))
}

/// The client has been told why there is nothing more.
struct Ended;

/// The body of the stream, being written.
struct Lines(EventSink);

impl Lines {
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

    async fn fail(&self, error: &orlop_store::Error) -> Result<(), Ended> {
        self.send("ERROR", status_from_store_error(error).to_value()).await;
        Err(Ended)
    }

    /// Sends what is there at the beginning.
    async fn present(&self, first: ReadResult, mut pages: Pages) -> Result<(), Ended> {
        let revision = first.revision;
        let mut page = Some(first);
        while let Some(current) = page {
            for kv in current.kvs {
                if let Some(object) = Object::read(&kv.value, kv.revision).filter(Object::concerns) {
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

    /// Sends what happens from then on.
    async fn follow(&self, mut watcher: Watcher) -> Result<(), Ended> {
        let mut next_bookmark = Instant::now() + BOOKMARK_EVERY;
        loop {
            tokio::select! {
                batch = watcher.next() => match batch {
                    Ok(batch) => {
                        for seen in batch.events() {
                            if let Some((event, object)) = told(&seen) {
                                self.send(event, object).await;
                            }
                        }
                    }
                    Err(error) => return self.fail(&error).await,
                },
                () = sleep_until(next_bookmark) => {
                    next_bookmark = Instant::now() + BOOKMARK_EVERY;
                    self.bookmark(watcher.progress()).await;
                }
            }
        }
    }
}

/// What is told of an event, if it is of concern.
fn told(seen: &WatchEvent<'_>) -> Option<(&'static str, Object)> {
    let event = seen.event;
    let revision = event.kv.revision;
    if event.deleted {
        let last = event.previous.as_ref()?.kv(&event.kv.key)?;
        return Some(("DELETED", Object::read(&last.value, revision)?));
    }
    let object = Object::read(&event.kv.value, revision)?;
    let kind = if event.created() { "ADDED" } else { "MODIFIED" };
    object.concerns().then_some((kind, object))
}

/// What is told of an object.
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
    /// Reads a stored value; `None` if it is no object, or one that is left out.
    fn read(stored: &[u8], revision: Revision) -> Option<Self> {
        let mut object: Self = serde_json::from_slice(stored).ok()?;
        object.metadata.resource_version = revision.to_string();
        (object.kind != LEFT_OUT).then_some(object)
    }

    /// Whether the collector may have something to do with it while it is there. Definitions tell it of kinds
    /// that come and go.
    fn concerns(&self) -> bool {
        let Metadata { deletion_timestamp, owner_references, .. } = &self.metadata;
        deletion_timestamp.is_some() || !owner_references.is_empty() || defines_kinds(&self.kind)
    }
}

fn defines_kinds(kind: &str) -> bool {
    matches!(kind, "CustomResourceDefinition" | "APIService")
}
