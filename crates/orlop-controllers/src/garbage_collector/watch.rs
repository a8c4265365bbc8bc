//! Watches of one resource's metadata.

use futures_util::{Stream, StreamExt};
use orlop_client::api::{ListParams, WatchEvent, WatchParams};

use super::Collector;
use crate::{
    backoff::Backoff,
    discovery::{Metadata, Resource},
    status::{is_expired, is_not_found},
};

/// Objects listed at a time.
const PAGE: u32 = 500;

/// Reason that a stream of events ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The resource is not served.
    NotFound,
    /// The resourceVersion is compacted: a new list is needed.
    Expired,
    /// The watch can be resumed at its resourceVersion.
    Broken,
}

impl End {
    pub(super) fn of(error: &orlop_client::Error) -> Self {
        match error {
            error if is_not_found(error) => Self::NotFound,
            error if is_expired(error) => Self::Expired,
            _ => Self::Broken,
        }
    }
}

impl Collector {
    /// Lists and watches a resource until it is no longer served.
    pub(super) async fn watch(&self, resource: &Resource) {
        let mut backoff = Backoff::default();
        loop {
            let mut resource_version = match self.list(resource).await {
                Ok(resource_version) => {
                    self.watch_started(resource);
                    resource_version
                }
                Err(error) if is_not_found(&error) => return,
                Err(error) => {
                    tracing::debug!(%error, resource = resource.api.plural, "list failed; retrying with back-off");
                    backoff.wait().await;
                    continue;
                }
            };
            let objects = resource.objects(&self.client, None);
            loop {
                let end = match objects.watch(&WatchParams::default(), &resource_version).await {
                    Ok(events) => {
                        self.follow(events.boxed(), &mut resource_version, &mut backoff, Some(resource)).await
                    }
                    Err(error) => End::of(&error),
                };
                match end {
                    End::NotFound => return,
                    End::Expired => break,
                    End::Broken => backoff.wait().await,
                }
            }
        }
    }

    /// Handles events until the stream ends. `resource_version` follows them; it stays empty until the initial
    /// objects have all been seen. Objects name their kind themselves unless all are of one `resource`.
    pub(super) async fn follow(
        &self,
        mut events: impl Stream<Item = orlop_client::Result<WatchEvent<Metadata>>> + Unpin,
        resource_version: &mut String,
        backoff: &mut Backoff,
        resource: Option<&Resource>,
    ) -> End {
        while let Some(event) = events.next().await {
            let reached = match event {
                Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                    self.object_changed(type_of(resource, &object), &object);
                    object.metadata.resource_version.filter(|_| !resource_version.is_empty())
                }
                Ok(WatchEvent::Deleted(object)) => {
                    self.object_deleted(type_of(resource, &object), &object);
                    object.metadata.resource_version.filter(|_| !resource_version.is_empty())
                }
                Ok(WatchEvent::Bookmark(bookmark)) => Some(bookmark.metadata.resource_version),
                Ok(WatchEvent::Error(status)) if status.code == 410 => return End::Expired,
                Ok(WatchEvent::Error(_)) | Err(_) => return End::Broken,
            };
            if let Some(reached) = reached {
                *resource_version = reached;
            }
            backoff.reset();
        }
        End::Broken
    }

    /// Handles every existing object, page by page. Returns the resourceVersion to watch from.
    async fn list(&self, resource: &Resource) -> orlop_client::Result<String> {
        let objects = resource.objects(&self.client, None);
        let mut page = ListParams::default().limit(PAGE);
        loop {
            let list = objects.list(&page).await?;
            list.items.iter().for_each(|object| self.object_changed(resource.type_of(), object));
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return Ok(list.metadata.resource_version.unwrap_or_default()),
            }
        }
    }
}

/// Returns the apiVersion and kind of an object.
fn type_of<'a>(resource: Option<&'a Resource>, object: &'a Metadata) -> (&'a str, &'a str) {
    match (resource, &object.types) {
        (Some(resource), _) => resource.type_of(),
        (None, Some(types)) => (&types.api_version, &types.kind),
        (None, None) => ("", ""),
    }
}
