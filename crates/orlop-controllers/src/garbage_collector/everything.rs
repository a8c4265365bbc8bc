//! Watching the objects of all kinds in one stream, where the server offers it: an Orlop server does. A watch a
//! kind costs memory at both ends even where nothing ever happens.

use std::collections::HashSet;

use futures_util::StreamExt;
use http::Request;
use serde::{Deserialize, de::DeserializeOwned};

use super::{Collector, kinds::GroupKind, watching::End};
use crate::{
    discovered::Metadata,
    retry::{Backoff, is_forbidden, is_missing},
};

/// Whose objects are seen in one stream, and found by their owners in one index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Coverage {
    /// The server offers neither.
    Nothing,
    /// Those of all kinds but these, which other servers keep.
    AllBut(HashSet<GroupKind>),
}

impl Coverage {
    pub(super) fn has(&self, kind: &GroupKind) -> bool {
        matches!(self, Self::AllBut(others) if !others.contains(kind))
    }

    /// Whether there is nothing that has to be watched kind by kind.
    pub(super) fn is_complete(&self) -> bool {
        matches!(self, Self::AllBut(others) if others.is_empty())
    }
}

/// The server's answer, where it has one.
#[derive(Debug, Deserialize)]
struct Elsewhere {
    items: Vec<Kept>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Kept {
    api_version: String,
    kind: String,
}

impl Collector {
    /// Asks the server what it covers.
    pub(super) async fn ask_coverage(&self) -> kube::Result<Coverage> {
        match self.own_page::<Elsewhere>("/orlop/v1/elsewhere").await {
            Ok(elsewhere) => Ok(Coverage::AllBut(
                elsewhere.items.iter().map(|kept| GroupKind::of(&kept.api_version, &kept.kind)).collect(),
            )),
            // Whoever may not ask does as he would anywhere else.
            Err(error) if is_missing(&error) || is_forbidden(&error) => Ok(Coverage::Nothing),
            Err(error) => Err(error),
        }
    }

    /// A page that only an Orlop server has.
    pub(super) async fn own_page<T: DeserializeOwned>(&self, path: &str) -> kube::Result<T> {
        let request = Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
        self.client.request(request).await
    }

    /// Watches everything, for ever.
    pub(super) async fn watch_everything(&self) {
        let mut backoff = Backoff::default();
        let mut version = String::new();
        loop {
            let path = format!("/orlop/v1/changes?resourceVersion={version}");
            let events = match Request::get(path).body(Vec::new()) {
                Ok(request) => self.client.request_events::<Metadata>(request).await,
                Err(error) => Err(kube::Error::HttpError(error)),
            };
            let end = match events {
                Ok(events) => self.follow(events.boxed(), &mut version, &mut backoff, None).await,
                Err(error) => End::of(&error),
            };
            if end == End::Expired {
                version.clear();
            }
            backoff.wait().await;
        }
    }
}
