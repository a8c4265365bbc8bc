//! One watch over the objects of all kinds, where the server offers it, as an Orlop server does. A watch per
//! kind costs memory at both ends even where nothing ever happens.

use std::collections::HashSet;

use futures_util::StreamExt;
use http::Request;
use serde::{Deserialize, de::DeserializeOwned};

use super::{Collector, group_kind::GroupKind, watch::End};
use crate::{
    backoff::Backoff,
    discovery::Metadata,
    status::{is_forbidden, is_not_found},
};

/// Kinds that the server's one stream and its index of owners cover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Coverage {
    /// The server has neither.
    None,
    /// All kinds except these, which other servers store.
    AllExcept(HashSet<GroupKind>),
}

impl Coverage {
    pub(super) fn includes(&self, kind: &GroupKind) -> bool {
        matches!(self, Self::AllExcept(others) if !others.contains(kind))
    }

    /// Returns whether no kind needs a watch of its own.
    pub(super) fn is_complete(&self) -> bool {
        matches!(self, Self::AllExcept(others) if others.is_empty())
    }
}

/// Response of an Orlop server: the kinds that other servers store.
#[derive(Debug, Deserialize)]
struct RemoteKinds {
    items: Vec<RemoteKind>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RemoteKind {
    api_version: String,
    kind: String,
}

impl Collector {
    /// Asks the server which kinds its stream covers.
    pub(super) async fn fetch_coverage(&self) -> orlop_client::Result<Coverage> {
        match self.get_orlop::<RemoteKinds>("/orlop/v1/elsewhere").await {
            Ok(remote) => Ok(Coverage::AllExcept(
                remote.items.iter().map(|kind| GroupKind::of(&kind.api_version, &kind.kind)).collect(),
            )),
            // Not an Orlop server, or one that does not permit it.
            Err(error) if is_not_found(&error) || is_forbidden(&error) => Ok(Coverage::None),
            Err(error) => Err(error),
        }
    }

    /// Gets a path that only an Orlop server has.
    pub(super) async fn get_orlop<T: DeserializeOwned>(&self, path: &str) -> orlop_client::Result<T> {
        let request = Request::get(path).body(Vec::new()).map_err(orlop_client::Error::HttpError)?;
        self.client.request(request).await
    }

    /// Watches the stream, for ever.
    pub(super) async fn watch_stream(&self) {
        let mut backoff = Backoff::default();
        let mut resource_version = String::new();
        loop {
            if resource_version.is_empty() {
                self.owners.clear();
            }
            let path = format!("/orlop/v1/changes?resourceVersion={resource_version}");
            let events = match Request::get(path).body(Vec::new()) {
                Ok(request) => self.client.request_events::<Metadata>(request).await,
                Err(error) => Err(orlop_client::Error::HttpError(error)),
            };
            let end = match events {
                Ok(events) => self.follow(events.boxed(), &mut resource_version, &mut backoff, None).await,
                Err(error) => End::of(&error),
            };
            if end == End::Expired {
                resource_version.clear();
            }
            backoff.wait().await;
        }
    }
}
