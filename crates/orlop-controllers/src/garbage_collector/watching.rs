//! Watching the metadata of one kind, from what is there now.

use futures_util::StreamExt;
use kube::{
    api::{ListParams, WatchEvent, WatchParams},
    core::metadata::PartialObjectMeta,
};

use super::Collector;
use crate::{
    discovered::Resource,
    retry::{Backoff, is_expired, is_missing},
};

/// Objects looked at in one go.
const PAGE: u32 = 500;

impl Collector {
    /// Watches a kind until it is gone.
    pub(super) async fn watch(&self, resource: &Resource) {
        let mut backoff = Backoff::default();
        'list: loop {
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
            loop {
                let objects = resource.objects(&self.client, None);
                let mut events = match objects.watch_metadata(&WatchParams::default(), &version).await {
                    Ok(events) => events.boxed(),
                    Err(error) if is_missing(&error) => return,
                    Err(error) if is_expired(&error) => continue 'list,
                    Err(_) => {
                        backoff.wait().await;
                        continue;
                    }
                };
                while let Some(event) = events.next().await {
                    match event {
                        Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                            version = version_of(&object).unwrap_or(version);
                            self.seen(resource, &object);
                        }
                        Ok(WatchEvent::Deleted(object)) => {
                            version = version_of(&object).unwrap_or(version);
                            self.gone(resource, &object);
                        }
                        Ok(WatchEvent::Bookmark(bookmark)) => version = bookmark.metadata.resource_version,
                        Ok(WatchEvent::Error(status)) if status.code == 410 => continue 'list,
                        Ok(WatchEvent::Error(_)) | Err(_) => {
                            backoff.wait().await;
                            break;
                        }
                    }
                    backoff.reset();
                }
            }
        }
    }

    /// Looks at everything there is, page by page; the version to watch from.
    async fn look_at_all(&self, resource: &Resource) -> kube::Result<String> {
        let objects = resource.objects(&self.client, None);
        let mut page = ListParams::default().limit(PAGE);
        loop {
            let list = objects.list_metadata(&page).await?;
            list.items.iter().for_each(|object| self.seen(resource, object));
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return Ok(list.metadata.resource_version.unwrap_or_default()),
            }
        }
    }
}

fn version_of<K>(object: &PartialObjectMeta<K>) -> Option<String> {
    object.metadata.resource_version.clone()
}
