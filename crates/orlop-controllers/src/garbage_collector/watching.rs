//! Watching the metadata of one kind, from what is there now.

use futures_util::{Stream, StreamExt};
use kube::api::{ListParams, WatchEvent, WatchParams};

use super::Collector;
use crate::{
    discovered::{Metadata, Resource},
    retry::{Backoff, is_expired, is_missing},
};

/// Objects looked at in one go.
const PAGE: u32 = 500;

/// Why a stream of events is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// There is no such thing to watch.
    Missing,
    /// What happened since is not known any more: everything has to be looked at anew.
    Expired,
    /// It can be taken up where it was left.
    Broken,
}

impl End {
    pub(super) fn of(error: &kube::Error) -> Self {
        match error {
            error if is_missing(error) => Self::Missing,
            error if is_expired(error) => Self::Expired,
            _ => Self::Broken,
        }
    }
}

impl Collector {
    /// Watches a kind until it is gone.
    pub(super) async fn watch(&self, resource: &Resource) {
        let mut backoff = Backoff::default();
        loop {
            let mut version = match self.look_at_all(resource).await {
                Ok(version) => {
                    self.begin(resource);
                    version
                }
                Err(error) if is_missing(&error) => return,
                Err(error) => {
                    tracing::debug!(%error, resource = resource.api.plural, "cannot list now");
                    backoff.wait().await;
                    continue;
                }
            };
            let objects = resource.objects(&self.client, None);
            loop {
                let end = match objects.watch_metadata(&WatchParams::default(), &version).await {
                    Ok(events) => {
                        self.follow(events.boxed(), &mut version, &mut backoff, Some(resource)).await
                    }
                    Err(error) => End::of(&error),
                };
                match end {
                    End::Missing => return,
                    End::Expired => break,
                    End::Broken => backoff.wait().await,
                }
            }
        }
    }

    /// Takes note of events until there are no more. `version` is how far that is, empty until everything that
    /// was there at the beginning has been seen; objects say what they
    /// are unless all are of one `resource`.
    pub(super) async fn follow(
        &self,
        mut events: impl Stream<Item = kube::Result<WatchEvent<Metadata>>> + Unpin,
        version: &mut String,
        backoff: &mut Backoff,
        resource: Option<&Resource>,
    ) -> End {
        while let Some(event) = events.next().await {
            let reached = match event {
                Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                    self.seen(type_of(resource, &object), &object);
                    object.metadata.resource_version.filter(|_| !version.is_empty())
                }
                Ok(WatchEvent::Deleted(object)) => {
                    self.gone(type_of(resource, &object), &object);
                    object.metadata.resource_version.filter(|_| !version.is_empty())
                }
                Ok(WatchEvent::Bookmark(bookmark)) => Some(bookmark.metadata.resource_version),
                Ok(WatchEvent::Error(status)) if status.code == 410 => return End::Expired,
                Ok(WatchEvent::Error(_)) | Err(_) => return End::Broken,
            };
            if let Some(reached) = reached {
                *version = reached;
            }
            backoff.reset();
        }
        End::Broken
    }

    /// Looks at everything there is, page by page; the version to watch from.
    async fn look_at_all(&self, resource: &Resource) -> kube::Result<String> {
        let objects = resource.objects(&self.client, None);
        let mut page = ListParams::default().limit(PAGE);
        loop {
            let list = objects.list_metadata(&page).await?;
            list.items.iter().for_each(|object| self.seen(resource.type_of(), object));
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return Ok(list.metadata.resource_version.unwrap_or_default()),
            }
        }
    }
}

/// The apiVersion and kind of an object.
fn type_of<'a>(resource: Option<&'a Resource>, object: &'a Metadata) -> (&'a str, &'a str) {
    match (resource, &object.types) {
        (Some(resource), _) => resource.type_of(),
        (None, Some(types)) => (&types.api_version, &types.kind),
        (None, None) => ("", ""),
    }
}
